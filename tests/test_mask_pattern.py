"""mask-pattern names the first wrong cell: in masks made by hand, and in those of skeletons with a fault in them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from gemma_doctor.capture import runs
from gemma_doctor.capture.recorder import Recorder
from gemma_doctor.checks.mask.mask_pattern import SIDE, mask_pattern
from gemma_doctor.evidence import FULL, SLIDING, Bools, KernelCall, MaskFacts, Pass, Trace
from gemma_doctor.faults import all_faults, one_attention_of
from gemma_doctor.finding import CheckResult, Finding, Outcome, Severity
from gemma_doctor.loading import Patient
from gemma_doctor.testing import config_facts, dense_mask, kernel_call, one_pass, run_check, trace, with_forward

PADDED = np.array([[True] * 6, [False] * 2 + [True] * 4])
LONG = one_pass(12, 2, name="beyond")  # W = 8


def with_call(one: Pass, step: int, call: KernelCall) -> Pass:
    """With another call of its layer."""
    calls = list(one.forwards[step].calls)
    calls[call.layer] = call
    return with_forward(one, step, calls=tuple(calls))


def with_mask(one: Pass, step: int, layer: int, mask: MaskFacts) -> Pass:
    return with_call(one, step, replace(one.forwards[step].calls[layer], mask=mask))


def cells_of(one: Pass, step: int, layer: int) -> Bools:
    """Shape (b, 1, q, k), to be changed."""
    mask = one.forwards[step].calls[layer].mask
    assert mask is not None
    return mask.readable().copy()


def turned(one: Pass, step: int, layer: int, *places: tuple[int, int, int]) -> Pass:
    """With the cells at (sequence, query, key) of one mask the other way round."""
    cells = cells_of(one, step, layer)
    for sequence, query, key in places:
        cells[sequence, 0, query, key] ^= True
    return with_mask(one, step, layer, dense_mask(cells, "float32"))


def examined(*passes: Pass, **changes: Any) -> CheckResult:
    return run_check(mask_pattern, trace=trace(*passes, **changes))


def only_finding(result: CheckResult) -> Finding:
    (finding,) = result.findings
    assert finding.severity is Severity.ERROR
    assert finding.cells is not None and finding.strip is not None
    assert finding.cells.expected != finding.cells.observed
    return finding


def test_healthy_masks_pass() -> None:
    result = examined(one_pass(), one_pass(PADDED, name="padded batch"), LONG)
    assert result.outcome is Outcome.PASS
    assert result.findings == ()
    assert result.examined is not None
    assert result.examined.count == 2 * (7 + 7 + 3)


@pytest.mark.parametrize(
    ("one", "step", "layer", "place", "title", "observed", "expected"),
    [
        (LONG, 0, 0, (0, 8, 0), "beyond", "row 8 may read column 0: 8 back, outside the window", "columns 1 to 8"),
        (LONG, 0, 0, (0, 7, 0), "not read all", "row 7 may not read column 0: 7 back, inside the", "columns 0 to 7"),
        (LONG, 0, 1, (0, 9, 1), "not read all", "row 9 may not read column 1: 8 back, in the past", "columns 0 to 9"),
        (LONG, 0, 1, (0, 3, 4), "future", "row 3 may read column 4: 1 ahead, in the future", "columns 0 to 3"),
        # at a decode step 8 keys are handed over: columns 6 to 13
        (LONG, 2, 0, (0, 0, 0), "not read all", "row 13 may not read column 6: 7 back", "columns 6 to 13"),
    ],
)
def test_one_wrong_cell_is_named(
    one: Pass, step: int, layer: int, place: tuple[int, int, int], title: str, observed: str, expected: str
) -> None:
    finding = only_finding(examined(one_pass(), turned(one, step, layer, place)))
    assert title in finding.title
    assert observed in finding.observed
    assert "1 cell of one call" in finding.observed
    assert finding.expected.startswith(expected)
    assert f"step {step}" in finding.where.boundary and f"layer {layer}, row" in finding.where.boundary
    assert (finding.where.layers, finding.where.passes) == ((layer,), ("beyond",))


def test_pads_at_prefill_and_at_a_step() -> None:
    padded = one_pass(PADDED, name="padded batch")
    at_prefill = only_finding(examined(turned(padded, 0, 1, (1, 4, 1))))
    assert at_prefill.observed.startswith("row 4 may read column 1: 3 back, a pad")
    assert at_prefill.where.boundary.endswith("row 4, column 1 of sequence 1")
    assert at_prefill.expected == "columns 0 to 4, without pads"
    at_a_step = only_finding(examined(turned(padded, 1, 0, (1, 0, 0))))
    assert at_a_step.observed.startswith("row 6 may read column 0: 6 back, a pad")


def test_rows_of_pads_are_free() -> None:
    padded = one_pass(PADDED, name="padded batch")
    assert examined(turned(padded, 0, 0, (1, 0, 0), (1, 1, 5))).findings == ()


def test_empty_rows_count_only_beside_lost_cells_of_their_layer() -> None:
    empty = replace(turned(LONG, 0, 0, (0, 1, 0), (0, 1, 1)), name="empty")
    assert examined(empty).findings == ()
    assert only_finding(examined(turned(LONG, 0, 0, (0, 2, 0)), empty)).where.passes == ("beyond", "empty")
    assert only_finding(examined(turned(LONG, 0, 1, (0, 2, 0)), empty)).where.passes == ("beyond",)


def test_each_kind_of_fault_is_one_finding_with_all_its_places() -> None:
    one = turned(turned(LONG, 0, 0, (0, 8, 0), (0, 9, 1), (0, 2, 0)), 0, 1, (0, 2, 0))
    result = examined(one, replace(one, name="again"))
    far, lost = result.findings
    assert far.where.layers == (0,) and lost.where.layers == (0, 1)
    assert far.where.passes == lost.where.passes == ("beyond", "again")
    assert "most in pass 'beyond': 2 cells of one call, up to 8 away" in far.observed


def test_one_head_of_a_mask_with_several() -> None:
    cells = np.repeat(cells_of(LONG, 0, 0), 2, axis=1)
    cells[0, 1, 8, 0] = True
    finding = only_finding(examined(with_mask(LONG, 0, 0, dense_mask(cells, "float32"))))
    assert finding.strip is not None
    assert (finding.strip.expected, finding.strip.observed) == (".########", "+########")
    assert "row 8, columns 0 to 8, 1 token a mark" in finding.strip.caption


def test_the_picture_lies_around_the_first_wrong_cell() -> None:
    far = one_pass(150, 0, name="far", window=60)
    finding = only_finding(examined(turned(far, 0, 0, (0, 100, 40)), facts=config_facts(window=60)))
    cells = finding.cells
    assert cells is not None
    assert (cells.first_query, cells.first_key) == (100 - SIDE // 2, 40 - SIDE // 2)
    assert len(cells.expected) == len(cells.observed) == len(cells.observed[0]) == SIDE
    row, column = 100 - cells.first_query, 40 - cells.first_key
    assert (cells.expected[row][column], cells.observed[row][column]) == (".", "#")
    assert cells.caption == "layer 0, pass 'far', step 0"


# --- without a mask, and masks longer than the sequence --------------------------------------------------------------


def without_mask(layer: int, fed: int, keys: int) -> KernelCall:
    return kernel_call(layer, None, 1, fed, keys, causal_when_none=fed > 1)


@pytest.mark.parametrize("layer", [0, 1])
def test_a_causal_kernel_and_a_single_query_need_no_mask(layer: int) -> None:
    short = one_pass(6, 1)
    one = with_call(short, 0, without_mask(layer, 6, 6))
    one = with_call(one, 1, without_mask(layer, 1, 7))
    assert examined(one).outcome is Outcome.PASS


def test_a_causal_kernel_knows_no_window() -> None:
    finding = only_finding(examined(with_call(LONG, 0, without_mask(0, 12, 12))))
    assert "row 8 may read column 0" in finding.observed


def test_a_causal_kernel_counts_a_later_chunk_from_its_first_key() -> None:
    both = one_pass(12, 0).forwards[0]
    chunk = replace(both, start=8, fed=4, real=both.real[:, 8:], calls=(without_mask(1, 4, 12),))
    one = replace(one_pass(8, 0, name="chunks"), forwards=(*one_pass(8, 0).forwards, chunk))
    finding = only_finding(examined(one))
    assert finding.observed.startswith("row 8 may not read column 1")


def test_empty_slots_of_a_static_cache_may_not_be_read() -> None:
    slots = np.pad(cells_of(LONG, 0, 1), ((0, 0), (0, 0), (0, 0), (0, 4)))
    call = kernel_call(1, dense_mask(slots, "float32"), 1, 12, 16)
    assert examined(with_call(LONG, 0, call)).findings == ()
    slots[..., 11, 13] = True
    opened = replace(call, mask=dense_mask(slots, "float32"))
    finding = only_finding(examined(with_call(LONG, 0, opened)))
    assert "row 11 may read column 13: 2 ahead" in finding.observed


def test_a_longer_mask_is_cut_at_the_keys() -> None:
    longer = np.pad(cells_of(LONG, 0, 0), ((0, 0), (0, 0), (0, 0), (0, 3)), constant_values=True)
    assert examined(with_mask(LONG, 0, 0, dense_mask(longer, "float32"))).findings == ()


# --- what belongs to other checks, or to none ------------------------------------------------------------------------


def test_what_other_checks_are_for_is_left_to_them() -> None:
    cells = cells_of(LONG, 0, 0)
    empty = cells.copy()
    empty[..., 5, :] = False
    mask = dense_mask(~cells, "float32")
    left = [
        dense_mask(empty, "float32"),
        dense_mask(~cells[..., 1:], "float32"),
        dense_mask(~cells[:, :, 1:], "float32"),
        replace(mask, between=3),
        replace(mask, nans=1),
        replace(mask, dtype="int64"),
    ]
    for one in left:
        assert examined(with_mask(LONG, 0, 0, one)).findings == ()
    result = examined(with_call(LONG, 0, replace(without_mask(0, 12, 12), causal_when_none=False)))
    assert result.findings == ()
    assert result.examined is not None and "not compared: 1 left to mask-shape" in result.examined.sentence


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"causal": False}, "bidirectional"),
        ({"layer_kinds": {0: "chunked_attention", 1: "chunked_attention"}}, "of chunked_attention"),
    ],
)
def test_other_rules_are_not_compared(changes: dict[str, Any], reason: str) -> None:
    result = run_check(mask_pattern, trace=trace(LONG, **changes))
    assert result.outcome is Outcome.NOT_APPLICABLE
    assert reason in result.reason


def test_masks_without_cells_are_not_compared() -> None:
    one = one_pass(12, 0, kinds=(FULL,))
    flash = replace(kernel_call(0, None, 1, 12, 12), kernel="flash_attention_2")
    result = examined(with_call(one, 0, flash), facts=config_facts(kinds=(FULL,)))
    assert result.outcome is Outcome.NOT_APPLICABLE
    assert "1 of flash_attention_2, without a mask" in result.reason


# --- faults in skeletons ---------------------------------------------------------------------------------------------

PREFILL, STEP = "step 0", "step 1"


def recorded(patient: Patient, length: int, pads: int) -> Trace:
    """A prompt and two decode steps, at W'; with a second row that begins with pads where `pads` is not 0."""
    ids = torch.arange(10, 10 + length)[None].repeat(2 if pads else 1, 1)
    mask = torch.ones_like(ids)
    mask[-1, :pads] = 0
    real = mask.bool().numpy()
    run = runs.generate(patient.reduced, ids, 2, recorder=Recorder(real), attention_mask=mask)
    kinds = config_facts(kinds=(SLIDING,) * 5 + (FULL,))
    one = Pass("prompt", patient.reduced_window, length, bool(pads), run.forwards)
    return trace(one, facts=kinds)


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize(
    ("fault", "length", "pads", "place"),
    [
        ("window-too-wide", 70, 0, f"{PREFILL}, total length 70 (W+6), layer 4, row 64, column 0"),
        ("window-ignored", 70, 0, f"{PREFILL}, total length 70 (W+6), layer 4, row 64, column 0"),
        ("window-too-narrow", 70, 0, f"{PREFILL}, total length 70 (W+6), layer 4, row 63, column 0"),
        ("window-too-narrow", 63, 0, f"{STEP}, total length 64 (= W), layer 4, row 63, column 0"),
        ("future-cell", 40, 0, f"{PREFILL}, total length 40 (W-24), layer 4, row 20, column 21"),
        ("pads-visible", 40, 3, f"{PREFILL}, total length 40 (W-24), layer 4, row 3, column 0 of sequence 1"),
        ("pads-visible", 64, 3, f"{PREFILL}, total length 64 (= W), layer 4, row 3, column 0 of sequence 1"),
    ],
)
def test_a_fault_of_one_layer_is_named(
    patient_of: Callable[..., Patient], backend: str, fault: str, length: int, pads: int, place: str
) -> None:
    patient = patient_of("gemma-3-1b-it", backend)
    assert int(one_attention_of(patient.reduced).layer_idx) == 4
    assert run_check(mask_pattern, trace=recorded(patient, length, pads)).outcome is Outcome.PASS
    with all_faults()[fault].inject(patient):
        finding = only_finding(run_check(mask_pattern, trace=recorded(patient, length, pads)))
    assert finding.where.layers == (4,)
    assert finding.where.boundary == f"first in pass 'prompt', {place}"
