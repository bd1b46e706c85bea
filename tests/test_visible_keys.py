"""visible-keys names what a kernel reads and should not: in readings made by hand, and in those of a skeleton."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gemma_doctor.capture import runs
from gemma_doctor.capture.recorder import Recorder
from gemma_doctor.checks.mask.mask_pattern import mask_pattern
from gemma_doctor.checks.mask.visible_keys import visible_keys
from gemma_doctor.evidence import EMPTY_SLOT, FULL, SLIDING, UNRECOGNISED, Pass, Trace, frozen
from gemma_doctor.faults import all_faults
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity
from gemma_doctor.loading import Patient
from gemma_doctor.testing import config_facts, one_pass, run_check, trace, with_call, with_weight

PADDED = np.array([[True] * 6, [False] * 2 + [True] * 4])
LONG = one_pass(12, 2, name="beyond")  # W = 8


def examined(*passes: Pass, **changes: Any) -> CheckResult:
    return run_check(visible_keys, trace=trace(*passes, **changes))


def only_finding(result: CheckResult) -> Finding:
    (finding,) = result.findings
    assert finding.severity is Severity.ERROR
    assert finding.gate == "mask"
    return finding


def test_healthy_readings_pass() -> None:
    result = examined(one_pass(PADDED, name="padded batch"), LONG)
    assert result.outcome is Outcome.PASS
    assert result.findings == ()
    assert result.examined is not None
    assert result.examined.sentence == "52 rows of 2 layers read, every head: nothing outside the window"


# --- what should not be read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "layer", "place", "title", "observed"),
    [
        (LONG, 0, (0, 1, 9, 1), "beyond their window", "weight 0.01 on column 1, 8 back; 1 of 2 heads do so"),
        (LONG, 1, (0, 0, 3, 5), "read the future", "weight 0.01 on column 5, 2 ahead; 1 of 2 heads do so"),
        (one_pass(PADDED), 1, (1, slice(None), 4, 1), "read pads", "weight 0.01 on column 1, 3 back; 2 of 2 heads"),
    ],
)
def test_a_weight_that_should_be_0(one: Pass, layer: int, place: Any, title: str, observed: str) -> None:
    finding = only_finding(examined(one_pass(name="healthy"), with_weight(one, 0, layer, place, 0.01)))
    assert title in finding.title
    assert finding.observed.startswith(observed)
    assert (finding.where.layers, finding.where.passes) == ((layer,), (one.name,))
    assert f"layer {layer}, head {0 if isinstance(place[1], slice) else place[1]}, row" in finding.where.boundary
    assert finding.strip is not None and "+" in finding.strip.observed and "+" not in finding.strip.expected


def test_rows_of_pads_and_rows_with_nan_are_not_judged() -> None:
    padded = with_weight(one_pass(PADDED), 0, 0, (1, 0, 0, 5), 0.5)
    nan = with_weight(LONG, 0, 0, (0, 0, 9), float("nan"))
    assert examined(padded, nan).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("token", "title", "column"),
    [(0, "beyond their window", "column 0"), (EMPTY_SLOT, "empty slots", "column 6, an empty slot")],
)
def test_keys_count_as_what_they_are(token: int, title: str, column: str) -> None:
    """Token 13 is handed the keys of 6 to 13, all of which it reads: one of them is another's, or nobody's."""
    held = np.arange(6, 14)
    assert examined(with_call(LONG, 2, 0, key_positions=frozen(held[None]))).outcome is Outcome.PASS
    held[0] = token
    finding = only_finding(examined(with_call(LONG, 2, 0, key_positions=frozen(held[None]))))
    assert title in finding.title
    assert column in finding.observed


def test_a_key_that_was_not_recognised_counts_as_the_one_that_is_due() -> None:
    held = np.full((1, 8), UNRECOGNISED)
    assert examined(with_call(LONG, 2, 0, key_positions=frozen(held))).outcome is Outcome.PASS


# --- what is never read ----------------------------------------------------------------------------------------------


def without_distance(one: Pass, back: int, heads: Any = slice(None)) -> Pass:
    """No weight on keys so far back, in layer 0."""
    for step, forward in enumerate(one.forwards):
        call = forward.calls[0]
        first = forward.first_key(call)
        for row, query in enumerate(range(forward.start, forward.total)):
            if query - back >= first:
                one = with_weight(one, step, 0, (0, heads, row, query - back - first), 0.0)
    return one


def test_a_distance_that_no_head_reads() -> None:
    finding = only_finding(examined(without_distance(one_pass(16, 4), 7)))
    assert finding.observed.startswith("no weight on keys 7 to 7 back, in any head")
    assert finding.where.layers == (0,)


def test_weights_of_0_are_no_proof() -> None:
    long = one_pass(16, 4)
    assert examined(without_distance(long, 7, heads=0)).findings == ()  # the other head reads it
    assert examined(without_distance(one_pass(9, 2), 7)).findings == ()  # too few rows
    underflow = without_distance(without_distance(long, 7), 3, heads=0)
    assert examined(underflow).findings == ()  # zeros are no exception here


# --- when nothing can be said ----------------------------------------------------------------------------------------


def unread(one: Pass) -> Pass:
    for step, forward in enumerate(one.forwards):
        for call in forward.calls:
            one = with_call(one, step, call.layer, reading=None)
    return one


def test_without_readings() -> None:
    assert examined(unread(LONG)).outcome is Outcome.SKIPPED
    result = examined(unread(LONG), unreadable="flex_attention: no compiler")
    assert (result.outcome, result.reason) == (Outcome.SKIPPED, "flex_attention: no compiler")
    result = examined(LONG, unreadable="flex_attention: no compiler")
    assert result.examined is not None and "not all could be read: flex_attention" in result.examined.sentence
    assert examined(LONG, causal=False).outcome is Outcome.NOT_APPLICABLE


def test_a_readout_that_is_none() -> None:
    odd = with_weight(LONG, 0, 0, (0, 0, 9, 0), 0.5)
    result = examined(odd)
    assert result.outcome is Outcome.PASS  # by all others
    assert result.examined is not None
    assert result.examined.sentence.endswith("1 call left out, whose weights sum to more than 1")
    alone = replace(odd, forwards=(replace(odd.forwards[0], calls=odd.forwards[0].calls[:1]),))
    assert examined(alone).outcome is Outcome.SKIPPED


def test_a_distance_that_is_read_in_prompts_and_never_at_decode_steps() -> None:
    """W - 1 back is read in the prompt; a kernel with one key less at each step is found all the same."""
    one = one_pass(12, 20, name="beyond")
    for step in range(1, 21):
        for head in (0, 1):
            one = with_weight(one, step, 0, (0, head, 0, 0), 0.0)
    finding = only_finding(examined(one))
    assert finding.where.boundary == "first in layer 0, at decode steps"
    assert finding.observed.startswith("no weight on keys 7 to 7 back")


def test_keys_of_another_row_are_told_by_row() -> None:
    """Recognised row by row: a stale key in one sequence accuses no other."""
    padded = one_pass(PADDED, name="padded batch")
    call = padded.forwards[1].calls[1]
    held = np.tile(np.arange(call.key_shape[2]), (2, 1))
    held[0, 5] = 1  # sequence 0 holds token 1 twice; in sequence 1 that token is a pad
    assert examined(with_call(padded, 1, 1, key_positions=frozen(held))).findings == ()


# --- a fault in a skeleton -------------------------------------------------------------------------------------------


def recorded(patient: Patient) -> Trace:
    """One forward over 80 tokens at W', all of whose rows are read."""
    ids = torch.arange(10, 90)[None]
    recorder = Recorder(torch.ones_like(ids).bool().numpy(), lambda start, total: range(start, total))
    run = runs.forward(patient.reduced, ids, torch.ones_like(ids), recorder)
    one = Pass("scored", patient.reduced_window, 80, False, run.forwards)
    return trace(one, facts=config_facts(kinds=(SLIDING,) * 5 + (FULL,)))


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_a_head_that_ignores_its_mask(patient_of: Callable[..., Patient], backend: str) -> None:
    patient = patient_of("gemma-3-1b-it", backend)
    healthy = run_check(visible_keys, trace=recorded(patient))
    assert healthy.outcome is Outcome.PASS
    with all_faults()["head-ignores-mask"].inject(patient):
        sick = recorded(patient)
    assert run_check(mask_pattern, trace=sick).outcome is Outcome.PASS
    future, far = run_check(visible_keys, trace=sick).findings
    assert (future.where.layers, far.where.layers) == ((4,), (4,))
    assert "layer 4, head 0, row 0, column 1" in future.where.boundary
    assert "layer 4, head 0, row 64, column 0" in far.where.boundary
    assert future.observed.endswith("1 of 4 heads do so")
