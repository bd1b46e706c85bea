"""Reports whose texts try to be more than text, and ones that have what the others lack. For tests of the renderers."""

from __future__ import annotations

from dataclasses import replace

from fake_reports import EARLY_DROP, HEALTHY, RIGHT_PADDING, SICK, result, with_results

from gemma_doctor.finding import Outcome, Report, Severity, Suppressed

EVIL = (
    "a\r\n::error file=x,line=1::b%0Ac%25 ##[error]d | e `f` ```g <script>alert(1)</script> &lt; </details></pre> "
    "\x1b[31mred\x1b[0m \u202eback \ud800 \x00 \ufffe ]]> {0} {{1}} [click](https://evil.example) ![i](x) "
    "https://evil.example www.evil.example @somebody #12 GH-3 *bold* _under_ ~~gone~~ $x$ \\ 'q' \"r\" end"
)
HOSTILE_FINDING = replace(
    EARLY_DROP, title=EVIL, observed=EVIL, expected=EVIL, do=EVIL, known=EVIL, effect=EVIL, meanwhile=EVIL
)
HOSTILE = with_results(
    replace(
        SICK,
        subject={**SICK.subject, "name": EVIL, "family": EVIL, "config_file": "m <&>,:%é/config.json"},
        environment={**SICK.environment, "device": EVIL},
        remarks=("# no heading", "- no list", "===", EVIL),
    ),
    result("past-key-length", "cache", Outcome.FAIL, HOSTILE_FINDING, said=EVIL),
    result("mask-dtype", "mask", Outcome.NOT_APPLICABLE, said=EVIL),
    result("rms-norm-eps", "numerics", Outcome.SKIPPED, said=EVIL),
    result("rope-theta", "positions", Outcome.ERROR, said=EVIL),
    exit_code=2,
    suppressed=(Suppressed(replace(RIGHT_PADDING, title=EVIL), EVIL, "baseline"),),
)
SUPPRESSED = with_results(
    HEALTHY,
    replace(result("padding-side", "tokens", Outcome.FAIL, said="3 rows"), findings=()),
    suppressed=(Suppressed(RIGHT_PADDING, "we pad by hand", "run file"),),
)
WARNED = with_results(
    replace(HEALTHY, fail_on=Severity.WARNING),
    result("padding-side", "tokens", Outcome.FAIL, RIGHT_PADDING, replace(RIGHT_PADDING, title="another"), said="rows"),
    exit_code=1,
)
IN_A_FILE = with_results(
    replace(SICK, subject={**SICK.subject, "config_file": "my model/config.json"}),
    result(
        "sliding-window",
        "config",
        Outcome.FAIL,
        replace(EARLY_DROP, check="sliding-window", title="the window is not the one expected", line=48, keys=("w",)),
        said="511",
    ),
    documentation={
        "sliding-window": "The window is the published one.\n\nWhat it proves\n    That {W} is W.\n\n    And more.\n\n"
        "References\n    A paper, arXiv:2408.00118; https://example.org/a.\n"
    },
)
ALL: dict[str, Report] = {"hostile": HOSTILE, "suppressed": SUPPRESSED, "warned": WARNED, "in a file": IN_A_FILE}
