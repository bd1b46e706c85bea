"""The text report: order, width, colour, what it never says, and that no text of the subject can act on a terminal."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import Any

import pytest
from fake_reports import (
    ALL,
    CRASHED,
    EARLY_DROP,
    HEALTHY,
    INTERRUPTED,
    KINDS,
    LATE,
    SICK,
    SKELETON,
    UNABLE,
    result,
    with_results,
)
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from gemma_doctor.finding import Finding, Location, Outcome, Report, Severity
from gemma_doctor.report import verdict
from gemma_doctor.report.escape import escape
from gemma_doctor.report.text import render
from gemma_doctor.report.where import ranges, where

ANSI = re.compile(r"\x1b\[[0-9;]*m")
EVIL = "\x1b[31m[bold red]x[/bold red]\r\n\x07\u202eevil\x9b2J"

SICK_AS_TEXT = """\
gemma-doctor 0.1.0  ./my-gemma: gemma3_text, 18 layers (15 sliding W=512, 3
  full), real weights, float32, sdpa, cpu
transformers 4.51.3, torch 2.13.0, seed 0; prompt 504 from random ids, generated
  96, window crossed at step 8

SICK: 1 cause, 1 consequence, 1 warning, 1 note; 4 passed, 1 not evaluated, 1
  n/a

CAUSE  past-key-length   error   sliding cache drops a key one step early
  where     all 15 sliding layers, from total length 512 (= W, step 8) on
  observed  511 keys, the oldest is token 1
  expected  512 keys, the oldest is token 0
  token 511, layer 0, 16 tokens a mark (! should be read and is not)
    expected  ################################
    observed  !###############################
  effect    logits off by 2.06 (noise 0.0006); 9 of 96 top tokens change, the
            first at 513
  wrong     this route: the reference passes position-ids and mask-pattern
  known     transformers 37574, releases 4.43-4.51, Gemma 2/3 and Cohere2;
            reproduced by this run
  do        pip install 'transformers>=4.52.1'; meanwhile use_cache=False is
            right (measured)
  more      gemma-doctor explain past-key-length | gemma-doctor heatmap
            ./my-gemma --layers 0

follows from it
  long-generate  error    text loops from token 530; the reference route does
                          not

warning  padding-side   tokenizer pads right; such rows differ by 4.8 from the
    same rows alone
  observed  right
  expected  left
  do        tokenizer.padding_side = "left" before generate()

note  position-ids   positions of row 1 are shifted by 2: right

reading path   (in full: -v)
  config      ok     sliding-window: 512 published = loaded = 15 modules
  tokens      warn   padding-side: 3 rows, 2 padded
  positions   ok     position-ids: 97 steps; rope-theta: 10,000 and 1,000,00 ...
  mask        ok     all-masked-rows: 0 blocked real rows, 7 pad rows (harml ...
  cache       FAIL   past-key-length: 97 steps x 18 layers
  numerics    skip   rms-norm-eps
  generation  FAIL   long-generate: 96 tokens
not evaluated: rms-norm-eps (no norm was found)

exit 1 (2 errors, --fail-on error)   41 s: import 6.1, load 1.2, generate 19;
  7.1 tokens/s
"""


def test_a_sick_report_reads_like_this() -> None:
    assert render(SICK, width=80) == SICK_AS_TEXT


@pytest.mark.parametrize("width", [80, 140, None])
@pytest.mark.parametrize("report", [HEALTHY, SKELETON], ids=["real", "skeleton"])
def test_a_healthy_report_fits_on_a_screen(report: Report, width: int | None) -> None:
    assert len(render(report, width).splitlines()) <= 15


@pytest.mark.parametrize("verbosity", [-1, 0, 1])
@pytest.mark.parametrize("width", [60, 80, 140, 400])
@pytest.mark.parametrize("name", ALL)
def test_no_line_is_wider_than_the_terminal(name: str, width: int, verbosity: int) -> None:
    lines = render(ALL[name], width, verbosity=verbosity).splitlines()
    assert max(cell_len(line) for line in lines) <= min(width, 140)
    assert not [line for line in lines if line != line.rstrip()]


@pytest.mark.parametrize("width", [80, 140, None])
@pytest.mark.parametrize("name", ALL)
def test_colour_adds_nothing_but_colour(name: str, width: int | None) -> None:
    colored = render(ALL[name], width, color=True)
    assert ANSI.search(colored)
    assert ANSI.sub("", colored) == render(ALL[name], width)


@pytest.mark.parametrize("variable", ["NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"])
def test_the_environment_does_not_overrule_the_caller(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    assert ANSI.search(render(SICK, color=True))
    assert not ANSI.search(render(SICK, color=False))


def test_a_pipe_gets_whole_lines() -> None:
    long = replace(EARLY_DROP, observed="key " * 200 + "end")
    report = with_results(SICK, result("past-key-length", "cache", Outcome.FAIL, long))
    assert any(line.endswith("key end") and len(line) > 800 for line in render(report).splitlines())


# --- the headline ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("healthy", "HEALTHY in all that was looked at: 9 passed, 0 not evaluated"),
        ("skeleton", "HEALTHY in all that was looked at, on a SKELETON: 9 passed, 0 not evaluated"),
        ("sick", "SICK: 1 cause, 1 consequence, 1 warning, 1 note; 4 passed, 1 not evaluated, 1 n/a"),
        ("late", "NO FAULT FOUND in what was looked at: 8 passed, 1 not evaluated"),
        ("crashed", "INCOMPLETE: 8 passed, 0 not evaluated, 1 crashed"),
        ("interrupted", "INTERRUPTED: 0 passed, 9 not evaluated"),
        ("unable", "NOT EXAMINED: 0 passed, 9 not evaluated"),
    ],
)
def test_headline(name: str, start: str) -> None:
    assert start in render(ALL[name]).splitlines()


def test_an_interrupted_run_with_a_cause_says_both() -> None:
    assert verdict.headline(replace(SICK, interrupted=True)).startswith("SICK (INTERRUPTED): 1 cause")


def test_a_warning_alone_is_no_health() -> None:
    warned = [one for one in SICK.results if one.check == "padding-side"]
    assert verdict.verdict(with_results(HEALTHY, *warned)) == "WARNING"


def test_a_static_run_says_how_little_it_saw() -> None:
    static = replace(HEALTHY, subject={**HEALTHY.subject, "weights": "none"})
    assert "in the published file alone" in verdict.headline(static)


def test_the_default_subject_is_named_as_such_in_the_first_line() -> None:
    assert "no SUBJECT given: the default" in render(SKELETON).splitlines()[0]
    assert "no SUBJECT given: the default" in render(SKELETON, verbosity=-1).splitlines()[0]
    assert "default" not in render(HEALTHY).splitlines()[0]


@pytest.mark.parametrize(
    ("report", "last"),
    [
        (HEALTHY, "exit 0 (no error)"),
        (SICK, "exit 1 (2 errors, --fail-on error)"),
        (replace(SICK, fail_on=Severity.WARNING), "exit 1 (3 warnings or worse, --fail-on warning)"),
        (replace(SICK, fail_on=None, exit_code=0), "exit 0 (--fail-on never)"),
        (CRASHED, "exit 2 (a check crashed: mask-dtype)"),
        (LATE, "exit 2 (timed out after 10 s)"),
        (UNABLE, "exit 2 (no check could look at anything)"),
        (INTERRUPTED, "exit 130 (interrupted)"),
        (replace(SICK, exit_code=2), "exit 2 (demanded, and not evaluated: rms-norm-eps)"),
    ],
)
def test_the_last_line_gives_the_reason_of_the_exit_code(report: Report, last: str) -> None:
    assert render(report).splitlines()[-1].startswith(f"{last}   41 s: import 6.1, load 1.2, generate 19")


def test_the_first_lines_say_how_a_skeleton_was_cut() -> None:
    cut = replace(SKELETON, subject={**SKELETON.subject, "layer_kinds": KINDS[:6], "cut": "18 to 6 layers"})
    assert "18 layers (skeleton of 6: 5 sliding W=512, 1 full), SKELETON" in render(cut).splitlines()[0]
    assert "most passes at W'=64" in render(cut).splitlines()[1]
    never = {**cut.passes, "true_window_crossed": False}
    assert render(replace(cut, passes=never)).splitlines()[1].endswith("all passes at W'=64")
    told = replace(cut, passes={**never, "true_window_left_out": "W is too long"})
    assert "all passes at W'=64: W is too long" in render(told).splitlines()[1]
    assert "W'" not in render(HEALTHY)
    assert "cut: 18 to 6 layers" in render(cut, verbosity=1).splitlines()


# --- verbosity -------------------------------------------------------------------------------------------------------


def test_quiet_is_headline_causes_and_exit_code() -> None:
    text = render(SICK, verbosity=-1)
    assert text.startswith("SICK: ")
    assert "CAUSE  past-key-length" in text
    assert text.splitlines()[-1].startswith("exit 1")
    assert not any(word in text for word in ("follows from", "warning  ", "reading path", "not evaluated:", "note  "))


def test_verbose_shows_every_check_and_all_reasons() -> None:
    text = render(SICK, verbosity=1)
    for one in SICK.results:
        assert re.search(rf"^ +(\w+ +)?(ok|warn|FAIL|skip|n/a) +{one.check} ", text, re.MULTILINE)
    assert "the mask is None in every pass" in text
    assert "all 15 sliding layers (0-4, 6-10, 12-16)" in text
    assert "a loop of 4 tokens" in text


def test_two_causes_name_which_one_a_consequence_follows_from() -> None:
    other = replace(EARLY_DROP, check="rope-theta", title="theta is wrong")
    report = with_results(SICK, result("rope-theta", "positions", Outcome.FAIL, other, said="2 kinds"))
    text = render(report)
    assert "follows from past-key-length\n  long-generate" in text
    assert text.index("CAUSE  rope-theta") < text.index("CAUSE  past-key-length") < text.index("follows from")


@pytest.mark.parametrize(
    ("marks", "word"),
    [
        ((Outcome.PASS, Outcome.SKIPPED), "part"),
        ((Outcome.SKIPPED, Outcome.SKIPPED), "skip"),
        ((Outcome.PASS, Outcome.NOT_APPLICABLE), "ok"),
        ((Outcome.NOT_APPLICABLE, Outcome.NOT_APPLICABLE), "n/a"),
        ((Outcome.ERROR, Outcome.PASS), "CRASH"),
    ],
)
def test_one_word_for_a_layer_of_the_path(marks: tuple[Outcome, Outcome], word: str) -> None:
    results = tuple(result(f"check-{n}", "mask", mark, said="why") for n, mark in enumerate(marks))
    assert re.search(rf"^  mask  {word} ", render(replace(HEALTHY, results=results)), re.MULTILINE)


# --- places ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "said"),
    [
        (Location(tuple(range(18))), "all 18 layers"),
        (Location((5, 11, 17)), "all 3 full layers"),
        (Location((0, 1, 2)), "3 of 15 sliding layers (0-2)"),
        (Location((4, 5)), "layers 4-5"),
        (Location((), ("crossing",)), "in crossing"),
        (Location((), ("crossing",), "from step 8 on"), "from step 8 on"),
        (Location((40,)), "layer 40"),
        (Location(tuple(range(0, 17, 2))), "9 of 15 sliding layers (0, 2, 4, 6, 8 and 4 more)"),
        (Location(), ""),
    ],
)
def test_where(location: Location, said: str) -> None:
    assert where(location, HEALTHY.subject, verbosity=0) == said


def test_the_layers_of_a_skeleton_are_counted_among_themselves() -> None:
    subject = {**SKELETON.subject, "layer_kinds": KINDS[:6]}
    assert where(Location(tuple(range(5))), subject, verbosity=0) == "all 5 sliding layers"
    assert where(Location((5,)), subject, verbosity=0) == "the only full layer (5)"


@given(st.sets(st.integers(0, 70)))
def test_ranges_lose_no_layer(layers: set[int]) -> None:
    back: set[int] = set()
    for run in ranges(sorted(layers)):
        first, _, last = run.partition("-")
        back.update(range(int(first), int(last or first) + 1))
    assert back == layers


# --- untrusted text --------------------------------------------------------------------------------------------------


def everywhere(report: Report) -> Report:
    """The report with hostile text in every place that a subject can reach."""

    def finding(one: Finding) -> Finding:
        texts: dict[str, Any] = {f.name: EVIL for f in fields(one) if isinstance(getattr(one, f.name), str)}
        texts.pop("check"), texts.pop("follows_from")
        return replace(one, **texts, where=Location((0,), (EVIL,), EVIL))

    results = tuple(
        replace(
            one,
            findings=tuple(finding(item) for item in one.findings),
            examined=one.examined and replace(one.examined, sentence=EVIL),
            reason=one.reason and EVIL,
        )
        for one in report.results
    )
    subject = {**report.subject, "name": EVIL, "family": EVIL, "layer_kinds": (EVIL,) * 18, "cut": EVIL}
    ran = [{"name": EVIL, "forwards": 1, "tokens": 2}]
    other = {"name": EVIL, "from": EVIL, "prompt_length": 3, "way": EVIL, "ended_by": 1}
    passes = {"prompt_from": EVIL, "filled_from": EVIL + EVIL, "prompts": [other], "ran": ran}
    return replace(report, results=results, subject=subject, remarks=(EVIL,), passes=passes)


@pytest.mark.parametrize("width", [80, None])
@pytest.mark.parametrize("verbosity", [-1, 0, 1])
@pytest.mark.parametrize("name", ALL)
def test_no_text_of_the_subject_acts_on_the_terminal(name: str, verbosity: int, width: int | None) -> None:
    text = render(everywhere(ALL[name]), width, color=True, verbosity=verbosity)
    assert all(character.isprintable() or character == "\n" for character in ANSI.sub("", text))
    if name == "sick" and width is None:
        assert "[bold red]x[/bold red]" in text  # markup is shown, not obeyed
        assert "\\x1b[31m" in text


@given(st.text(st.characters(exclude_categories=())))
def test_escaped_text_is_one_printable_line_that_can_be_written(text: str) -> None:
    shown = escape(text)
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]", shown)


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs", "M"])))
def test_ordinary_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert escape(text) == text


@given(st.integers(40, 160), st.text(max_size=300))
def test_wrapping_loses_no_character(width: int, text: str) -> None:
    report = replace(HEALTHY, remarks=(text,))
    shown = re.sub(r"\s", "", render(report, width))
    assert re.sub(r"\s", "", escape(text)) in shown


def test_many_checks_on_one_line_say_how_they_begin_and_loud_ones_all() -> None:
    said = "1,335 masks: every one fits, and more"
    healthy = [result(name, "mask", Outcome.PASS, said=said) for name in ("mask-dtype", "mask-shape", "visible-keys")]
    line = next(one for one in render(with_results(HEALTHY, *healthy)).splitlines() if one.startswith("  mask "))
    assert line.count("1,335 masks") == 3
    assert "every one fits" not in line
    assert render(with_results(HEALTHY, *healthy), verbosity=1).count("every one fits") == 3
    sick = with_results(HEALTHY, *healthy[:2], result("visible-keys", "mask", Outcome.FAIL, EARLY_DROP, said=said))
    line = next(one for one in render(sick).splitlines() if one.startswith("  mask "))
    assert line.count("every one fits") == 1


def test_what_a_mask_costs_is_told_to_those_who_ask() -> None:
    call = {
        "layers": [0, 1],
        "decode": False,
        "queries": 520,
        "keys": 520,
        "ran": "math",
        "unrestricted": "flash",
        "seconds": 0.00512,
        "seconds_unrestricted": 0.0025,
        "seconds_without_mask": 0.0012,
        "without_mask": "flash",
    }
    timed = replace(HEALTHY, timing={**HEALTHY.timing, "attention_backend": [call]})
    assert " ms" not in render(timed)
    (line,) = (one for one in render(timed, verbosity=1).splitlines() if " ms" in one)
    said = "prefill of 520, 520 keys: math 5.1 ms; flash 2.5 ms if all were allowed; "
    assert line.endswith(said + "1.2 ms with is_causal instead of its mask")


def test_the_headline_names_every_prompt_and_where_the_rest_comes_from() -> None:
    talk: dict[str, object] = {"name": "conversation talk.yaml", "from": "the conversation talk.yaml"}
    talk |= {"prompt_length": 34, "generated": 64, "crossed_at": 478}
    served = {**talk, "name": "as served: conversation talk.yaml", "generated": 12, "crossed_at": None}
    served |= {"way": "as served: do_sample=True, end tokens in force", "ended_by": 106}
    rough = {"name": "given prompt 2", "from": "random ids, one a word of the given prompt 2 (seed 0)", "generated": 3}
    passes = {
        **HEALTHY.passes,
        "prompt_from": "the given prompt 1",
        "filled_from": "docstrings (3.11.7, sha256 0f1e2d3c4b5a)",
        "long_text": {"length": 1536, "from": "docstrings"},
        "prompts": [talk, served, {**rough, "prompt_length": 5}],
    }
    lines = render(replace(HEALTHY, passes=passes)).splitlines()
    assert lines[1].endswith(
        "; prompt 504 from the given prompt 1, generated 96, window crossed at step 8, long text 1,536, "
        "other texts from docstrings (3.11.7, sha256 0f1e2d3c4b5a)"
    )
    assert lines[2:5] == [
        "conversation talk.yaml: prompt 34, generated 64, window crossed at step 478",
        "as served: conversation talk.yaml: prompt 34, generated 12, ended by token 106; "
        "do_sample=True, end tokens in force",
        "given prompt 2: prompt 5 from random ids, one a word (seed 0), generated 3",
    ]


def test_every_pass_is_listed_for_those_who_ask() -> None:
    ran = [
        {"name": "long generate", "forwards": 72, "tokens": 575},
        {"name": "route chunked-prefill on a skeleton", "forwards": 60, "tokens": 1709},
    ]
    timing = {**HEALTHY.timing, "passes": {"long generate": 9.876}}
    listed = replace(HEALTHY, passes={**HEALTHY.passes, "ran": ran}, timing=timing)
    assert "passes that ran" not in render(listed)
    lines = render(listed, verbosity=1).splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith("passes that ran"))
    assert [line.split() for line in lines[first : first + 3]] == [
        ["passes", "that", "ran", "forwards", "tokens", "seconds"],
        ["long", "generate", "72", "575", "9.88"],
        ["route", "chunked-prefill", "on", "a", "skeleton", "60", "1,709"],
    ]
    assert len(lines[first]) == len(lines[first + 1])  # the columns stand below each other
    assert lines[first].index("forwards") + 8 == lines[first + 1].index("72") + 2
