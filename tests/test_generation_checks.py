"""degeneration and recompilation, on evidence made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemma_doctor.checks.generation.degeneration import degeneration
from gemma_doctor.checks.generation.recompilation import recompilation
from gemma_doctor.evidence import Crash, Generation, Generations, frozen
from gemma_doctor.finding import CheckResult, Outcome, Severity
from gemma_doctor.oracle import repeated_tail, repetition
from gemma_doctor.testing import generation, route_case, route_run, run_check

LOOPING = [9, 8, 7, *([1, 2, 3] * 7)]
VARIED = list(range(24))


def looked(*arguments: Any, **changes: Any) -> CheckResult:
    return run_check(degeneration, generations=Generations((generation(*arguments, **changes),)))


def served(tokens: Sequence[int], reference: Sequence[int] | None = None, **settings: object) -> Generation:
    clear = frozen(np.full(len(tokens), not settings.get("do_sample")))
    way = "as served: whatever is said here"  # for people to read
    return generation(tokens, reference, way=way, settings=settings, pass_name="as served", clear=clear)


def test_a_varied_text_passes() -> None:
    result = looked(VARIED, entropy=frozen(np.full(24, 2.0)), reference_entropy=frozen(np.full(24, 2.0)))
    assert (result.outcome, result.findings) == (Outcome.PASS, ())
    assert result.examined is not None
    assert result.examined.sentence == "24 tokens in 1 generation; entropy 2.00 nats, 2.00 on the reference route"


def test_a_loop_that_the_reference_shares_is_a_note() -> None:
    result = looked(LOOPING)
    (finding,) = result.findings
    assert (result.outcome, finding.severity) == (Outcome.PASS, Severity.NOTE)
    assert finding.where.boundary == "from token 8 on, 0 tokens after the edge, period 3"


def test_a_loop_that_the_reference_contradicts_is_an_error() -> None:
    other = [*LOOPING[:10], 77, *LOOPING[11:]]
    (finding,) = looked(LOOPING, other).findings
    assert finding.severity is Severity.ERROR
    assert "token 15" in finding.observed


def test_without_the_reference_route_a_loop_cannot_be_judged() -> None:
    result = looked(LOOPING, no_reference="no memory")
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "no memory")
    assert looked(VARIED, no_reference="no memory").outcome is Outcome.PASS


def test_what_did_not_come_to_its_end_is_not_looked_at() -> None:
    assert looked([1], crash=Crash("IndexError", "out of bounds", 4, 9, 1)).outcome is Outcome.SKIPPED
    assert looked([0] * 40, not_finite=3).outcome is Outcome.SKIPPED
    assert looked([]).outcome is Outcome.SKIPPED


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        (LOOPING, (3, 3)),
        ([5] * 16, (0, 1)),
        ([5] * 15, None),
        (list(range(30)), None),
        ([1, 2] * 20, (0, 2)),
        ([], None),
    ],
)
def test_repeated_tail(tokens: list[int], found: tuple[int, int] | None) -> None:
    assert repeated_tail(np.array(tokens, dtype=np.int64)) == found


def test_sentences_that_come_again_in_another_order_repeat() -> None:
    first, second = list(range(10, 30)), list(range(30, 50))
    text = [*first, *second, 1, *second, 2, *first]
    assert repetition(np.array(text)) == len(text) - 32
    (finding,) = looked(text).findings
    assert (finding.severity, finding.title[:23]) == (Severity.NOTE, "the text repeats itself")
    assert repetition(np.array([*first, *second, *range(50, 70)])) is None


def test_more_certain_than_the_reference_is_an_error() -> None:
    ours, theirs = np.full(24, 2.0), np.full(24, 2.0)
    ours[6:] = 0.01
    result = looked(VARIED, entropy=frozen(ours), reference_entropy=frozen(theirs))
    (finding,) = result.findings
    assert finding.severity is Severity.ERROR
    assert "from token 11 on" in finding.where.boundary
    assert "entropy 0.01 nats, 2.00 on the reference route" in finding.observed
    assert looked(VARIED, entropy=frozen(ours), reference_entropy=frozen(ours)).findings == ()


def test_a_setting_that_rewards_repetition_is_named() -> None:
    other = [*LOOPING[:3], 77, *LOOPING[4:]]
    both = Generations((generation(VARIED), served(LOOPING, other, repetition_penalty=0.5)))
    (finding,) = run_check(degeneration, generations=both).findings
    assert (finding.severity, finding.standing) == (Severity.ERROR, True)
    assert finding.title == "repetition_penalty=0.5 rewards what was said before"
    assert "1 of 24 tokens are not the model's own choice; the text loops from step 3 on" in finding.observed
    assert "greedily no loop" in finding.observed
    unchanged = Generations((generation(VARIED), served(VARIED, repetition_penalty=0.5)))
    assert run_check(degeneration, generations=unchanged).findings == ()


def test_a_near_tie_is_no_choice_of_a_setting() -> None:
    near = served(VARIED, VARIED[::-1], repetition_penalty=0.5)
    tied = replace(near, clear=frozen(np.zeros(24, dtype=bool)))
    both = [Generations((generation(VARIED), one)) for one in (near, tied)]
    assert [len(run_check(degeneration, generations=one).findings) for one in both] == [1, 0]


@pytest.mark.parametrize(("sick", "severity"), [("first", Severity.NOTE), ("second", Severity.ERROR)])
def test_a_generation_as_served_is_held_against_the_greedy_one_of_its_own_prompt(sick: str, severity: Severity) -> None:
    """Of two prompts of one length one loops greedily as well; a draw that loops is the setting's, or nobody's."""
    texts = {"first": generation(VARIED), "second": generation(LOOPING, pass_name="conversation b")}
    drawn = served(LOOPING, LOOPING, do_sample=True, repetition_penalty=0.5)
    of = replace(drawn, pass_name=f"as served: conversation {'b' if sick == 'first' else 'a'}")
    found = run_check(degeneration, generations=Generations((*texts.values(), of))).findings
    assert [one.severity for one in found if one.standing] == [severity]


def test_the_end_token_that_ended_what_is_served_is_said() -> None:
    ended = replace(served(VARIED), ended_by=106)
    examined = run_check(degeneration, generations=Generations((generation(VARIED), ended))).examined
    assert examined is not None
    assert examined.sentence == "48 tokens in 2 generations; as served ended by token 106"


@pytest.mark.parametrize("settings", [{"do_sample": True, "top_k": 64}, {"repetition_penalty": 1.2}, {}])
def test_what_is_drawn_or_discouraged_is_not_accused(settings: dict[str, object]) -> None:
    other = [*LOOPING[:3], 77, *LOOPING[4:]]
    both = Generations((generation(VARIED), served(LOOPING, other, **settings)))
    (finding,) = run_check(degeneration, generations=both).findings
    assert finding.severity is Severity.NOTE
    quiet = Generations((generation(VARIED), served(VARIED, VARIED[::-1], **settings)))
    assert run_check(degeneration, generations=quiet).findings == ()


# --- recompilation ---------------------------------------------------------------------------------------------------


def compiled(*at: int, steps: int = 7) -> CheckResult:
    """The prompt ends below token 7, so that the step of token 7 is the first."""
    case = route_case(*([0.0] * (steps + 1)), compiled_at=at)
    return run_check(recompilation, route=route_run(case, route="compiled", condition="if you compile"))


def test_a_few_graphs_at_the_first_steps_pass() -> None:
    result = compiled(7, 8, 10)
    assert (result.outcome, result.findings) == (Outcome.PASS, ())
    assert result.examined is not None
    assert result.examined.sentence == "7 compiled steps, 3 with a new graph, none of the last 3"


def test_a_graph_at_every_step_is_a_warning() -> None:
    (finding,) = compiled(*range(7, 14)).findings
    assert finding.severity is Severity.WARNING
    assert finding.title == "a compiled decode step is compiled again and again (if you compile)"
    assert finding.observed == "graphs were compiled at 7 of 7 steps, at 3 of the last 3"
    assert "still at token 13" in finding.where.boundary


def test_too_few_steps_prove_nothing() -> None:
    assert compiled(7, 8, steps=2).outcome is Outcome.SKIPPED
    crashed = route_case(crash=Crash("RuntimeError", "no", 0, 8, None))
    assert run_check(recompilation, route=route_run(crashed)).outcome is Outcome.SKIPPED
