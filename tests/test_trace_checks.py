"""Checks that look at recorded passes: each catches its faulty specimen and passes the healthy one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemma_doctor.checks.cache.past_key_length import past_key_length
from gemma_doctor.checks.generation.long_generate import long_generate
from gemma_doctor.checks.mask.all_masked_rows import all_masked_rows
from gemma_doctor.checks.mask.mask_dtype import mask_dtype
from gemma_doctor.checks.mask.mask_shape import mask_shape
from gemma_doctor.checks.positions.position_ids import position_ids
from gemma_doctor.checks.tokens.padding_side import padding_side
from gemma_doctor.evidence import (
    EMPTY_SLOT,
    FOREIGN,
    UNRECOGNISED,
    Crash,
    Generations,
    KernelCall,
    PaddedBatch,
    Pass,
    TokenizerFacts,
    Trace,
    frozen,
)
from gemma_doctor.finding import Outcome, Severity
from gemma_doctor.oracle import FINDING_FLOORS
from gemma_doctor.testing import dense_mask, generation, one_pass, run_check, trace, with_call, with_forward

PADDED = np.array([[True] * 6, [False] * 2 + [True] * 4])


def with_cache(one: Pass, step: int, layer: int, **changes: Any) -> Pass:
    cache = list(one.forwards[step].cache)
    cache[layer] = replace(cache[layer], **changes)
    return with_forward(one, step, cache=tuple(cache))


def sick(one: Pass) -> Trace:
    """A healthy pass and a sick one."""
    return trace(one_pass(), replace(one, name="sick"))


HEALTHY = trace(one_pass(), one_pass(PADDED, name="padded batch"), one_pass(12, name="beyond"))


@pytest.mark.parametrize("check", [position_ids, mask_dtype, mask_shape, all_masked_rows, past_key_length])
def test_healthy_traces_pass(check: Any) -> None:
    result = run_check(check, trace=HEALTHY)
    assert result.outcome is Outcome.PASS
    assert result.findings == ()
    assert result.examined is not None and result.examined.count > 0


# --- positions -------------------------------------------------------------------------------------------------------


def test_positions_reset_at_a_decode_step() -> None:
    result = run_check(position_ids, trace=sick(with_forward(one_pass(), 3, positions=frozen(np.array([[0]])))))
    (finding,) = result.findings
    assert finding.severity is Severity.ERROR
    assert finding.where.passes == ("sick",)
    assert "position 0" in finding.observed


def test_positions_that_count_pads_are_a_note_only() -> None:
    one = one_pass(PADDED, 0)
    shifted = with_forward(one, 0, positions=frozen(np.tile(np.arange(6), (2, 1))))
    result = run_check(position_ids, trace=sick(shifted))
    assert result.outcome is Outcome.PASS
    assert [finding.severity for finding in result.findings] == [Severity.NOTE]


def test_pads_may_have_any_position() -> None:
    one = one_pass(PADDED)
    ids = np.array(one.forwards[0].positions)
    ids[1, :2] = 7
    assert run_check(position_ids, trace=sick(with_forward(one, 0, positions=frozen(ids)))).findings == ()


def test_without_positions_nothing_was_looked_at() -> None:
    one = one_pass(5, 0)
    result = run_check(position_ids, trace=trace(with_forward(one, 0, positions=None)))
    assert result.outcome is Outcome.SKIPPED


# --- masks -----------------------------------------------------------------------------------------------------------


def mask_of(call: KernelCall, **changes: Any) -> Any:
    assert call.mask is not None
    return replace(call.mask, **changes)


@pytest.mark.parametrize(
    ("kernel", "changes", "words"),
    [
        ("eager", {"dtype": "bool"}, "bool mask is added"),
        ("eager", {"dtype": "int64"}, "another dtype"),
        ("eager", {"dtype": "float16"}, "another dtype"),
        ("eager", {"between": 3, "highest": 1.0}, "neither allow nor block"),
        ("eager", {"nans": 1}, "NaN"),
        ("sdpa", {"dtype": "int64"}, "misreads"),
        ("flash_attention_2", {}, "of this form"),
        ("flex_attention", {}, "of this form"),
    ],
)
def test_mask_dtype_catches(kernel: str, changes: dict[str, Any], words: str) -> None:
    one = one_pass()
    call = one.forwards[2].calls[1]
    result = run_check(mask_dtype, trace=sick(with_call(one, 2, 1, kernel=kernel, mask=mask_of(call, **changes))))
    (finding,) = result.findings
    assert words in finding.title
    assert finding.where.layers == (1,)


@pytest.mark.parametrize("dtype", ["bool", "float32"])
def test_mask_dtype_passes_what_sdpa_takes(dtype: str) -> None:
    one = one_pass()
    call = one.forwards[2].calls[1]
    changed = with_call(one, 2, 1, kernel="sdpa", mask=mask_of(call, dtype=dtype))
    assert run_check(mask_dtype, trace=sick(changed)).findings == ()


@pytest.mark.parametrize(("kernel", "form"), [("sdpa_paged", "dense"), ("eager", "other")])
def test_mask_dtype_does_not_judge_what_it_does_not_know(kernel: str, form: str) -> None:
    one = one_pass(5, 0)
    for layer, call in enumerate(one.forwards[0].calls):
        one = with_call(one, 0, layer, kernel=kernel, mask=mask_of(call, dtype="int64", form=form))
    result = run_check(mask_dtype, trace=trace(one))
    assert result.outcome is Outcome.SKIPPED
    assert f"2 int64 for {kernel}" in result.reason
    both = run_check(mask_dtype, trace=trace(one, one_pass(5, 0, name="known")))
    assert both.outcome is Outcome.PASS
    assert both.examined is not None and both.examined.count == 2
    assert both.examined.sentence == f"2 float32 for eager; not judged: 2 int64 for {kernel}"


def without_masks(one: Pass, causal: bool = True) -> Pass:
    for step, forward in enumerate(one.forwards):
        for layer in range(len(forward.calls)):
            told = causal and forward.fed > 1
            one = with_call(one, step, layer, mask=None, kernel="sdpa", causal_when_none=told)
    return one


def test_without_a_mask_a_causal_model_needs_a_causal_kernel() -> None:
    open_trace = trace(without_masks(one_pass(), causal=False))
    result = run_check(mask_shape, trace=open_trace)
    (finding,) = result.findings
    assert finding.severity is Severity.ERROR
    assert "no mask, and the kernel is not told to be causal" in finding.observed
    assert finding.where.layers == (0, 1)
    assert finding.where.boundary == "first in pass 'prompt W-3', step 0, total length 5 (W-3), layer 0"
    assert result.examined is not None and result.examined.count == 2  # decode steps have no future to block
    both_ways = run_check(mask_shape, trace=replace(open_trace, causal=False))
    assert both_ways.outcome is Outcome.NOT_APPLICABLE


@pytest.mark.parametrize("check", [mask_dtype, mask_shape, all_masked_rows])
def test_masks_that_are_none_are_not_applicable(check: Any) -> None:
    assert run_check(check, trace=trace(without_masks(one_pass()))).outcome is Outcome.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((2, 1, 1, 7), "batch size"),
        ((1, 3, 1, 7), "number of heads"),
        ((1, 1, 2, 7), "rows"),
        ((1, 1, 1, 4), "fewer columns"),
        ((1, 7), "2 axes"),
    ],
)
def test_mask_shape_catches(shape: tuple[int, ...], words: str) -> None:
    one = one_pass()
    call = one.forwards[2].calls[0]
    assert call.key_shape[2] == 7
    result = run_check(mask_shape, trace=sick(with_call(one, 2, 0, mask=mask_of(call, shape=shape, form="dense"))))
    (finding,) = result.findings
    assert words in finding.title
    assert finding.observed == str(list(shape))


def test_a_longer_mask_is_allowed_and_said() -> None:
    one = one_pass()
    call = one.forwards[2].calls[0]
    result = run_check(mask_shape, trace=sick(with_call(one, 2, 0, mask=mask_of(call, shape=(1, 1, 1, 20)))))
    assert result.findings == ()
    assert result.examined is not None and "1 longer" in result.examined.sentence


def block_row(one: Pass, layer: int, row: int, query: int) -> Pass:
    call = one.forwards[0].calls[layer]
    assert call.mask is not None
    cells = np.array(call.mask.readable())
    cells[row, :, query] = False
    return with_call(one, 0, layer, mask=dense_mask(cells, "float32"))


def test_a_real_row_without_keys_is_an_error() -> None:
    (finding,) = run_check(all_masked_rows, trace=sick(block_row(one_pass(PADDED), 1, 1, 4))).findings
    assert finding.severity is Severity.ERROR
    assert finding.where.layers == (1,)
    assert "row 1, column 4" in finding.where.boundary
    assert finding.observed == "1 fully masked row of real queries"


def test_a_pad_row_without_keys_is_counted_only() -> None:
    result = run_check(all_masked_rows, trace=sick(block_row(one_pass(PADDED), 1, 1, 0)))
    assert result.findings == ()
    assert result.examined is not None and "2 pad rows at most" in result.examined.sentence


def test_pad_rows_on_a_gpu_are_a_note() -> None:
    one = one_pass(PADDED)
    for layer in (0, 1):
        one = with_call(one, 0, layer, kernel="sdpa")
    result = run_check(all_masked_rows, trace=trace(one, device="cuda:0"))
    assert [finding.severity for finding in result.findings] == [Severity.NOTE]


# --- cache -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "changes", "words"),
    [
        (0, {"seen": 7}, "wrong length"),
        (1, {"seen": 9}, "wrong length"),
        (0, {"stored": 5}, "fewer keys than the window needs"),
        (1, {"stored": 7}, "fewer keys than the window needs"),
    ],
)
def test_past_key_length_catches(layer: int, changes: dict[str, Any], words: str) -> None:
    one = one_pass()
    assert one.forwards[3].total == 8
    (finding,) = run_check(past_key_length, trace=sick(with_cache(one, 3, layer, **changes))).findings
    assert words in finding.title
    assert finding.severity is Severity.ERROR
    assert "(= W)" in finding.where.boundary


@pytest.mark.parametrize(("stored", "healthy"), [(7, False), (8, True), (16, True)])
def test_a_static_sliding_layer_needs_a_slot_for_every_key_of_the_window(stored: int, healthy: bool) -> None:
    slots = with_cache(one_pass(), 6, 0, static=True, stored=stored)
    findings = run_check(past_key_length, trace=sick(slots)).findings
    assert [(one.observed, one.expected) for one in findings] == (
        [] if healthy else [(f"{stored} keys stored", "at least 8")]
    )


def test_more_keys_than_needed_and_those_of_a_sharing_layer_are_not_its_business() -> None:
    assert run_check(past_key_length, trace=sick(with_cache(one_pass(), 6, 0, stored=11))).findings == ()
    assert run_check(past_key_length, trace=trace(one_pass(), shares_kv_with={1: 0})).findings == ()


def test_fewer_keys_in_the_kernel_are_named() -> None:
    one = one_pass()
    call = one.forwards[4].calls[1]
    shorter = (call.key_shape[0], call.key_shape[1], call.key_shape[2] - 1, call.key_shape[3])
    (finding,) = run_check(past_key_length, trace=sick(with_call(one, 4, 1, key_shape=shorter))).findings
    assert "the kernel receives fewer keys" in finding.title


@pytest.mark.parametrize("others", [0, 3])
def test_a_sharing_layer_is_handed_the_keys_of_its_layer(others: int) -> None:
    held = np.arange(8)[None]
    theirs = np.where(np.arange(8) < others, FOREIGN, held)
    one = with_call(with_call(one_pass(), 3, 0, key_positions=frozen(held)), 3, 1, key_positions=frozen(theirs))
    findings = run_check(past_key_length, trace=trace(one, shares_kv_with={1: 0})).findings
    assert [(one.observed, one.where.layers) for one in findings] == [("3 of 8 keys are others", (1,))][: bool(others)]


def test_what_is_wrong_with_a_cache_layer_is_wrong_for_those_that_share_it() -> None:
    one = with_cache(one_pass(), 6, 0, seen=3)
    (finding,) = run_check(past_key_length, trace=trace(one, shares_kv_with={1: 0})).findings
    assert finding.where.layers == (0, 1)


def keys_at_the_edge(positions: list[int]) -> Trace:
    """Total length 8 = W: the query of token 7 should read tokens 0 to 7."""
    return sick(with_call(one_pass(), 3, 0, key_positions=frozen(np.array([positions]))))


@pytest.mark.parametrize("first", [1, EMPTY_SLOT])
def test_a_stale_key_and_an_empty_slot_are_recognised(first: int) -> None:
    (finding,) = run_check(past_key_length, trace=keys_at_the_edge([first, 1, 2, 3, 4, 5, 6, 7])).findings
    assert finding.title == "the cache hands over other keys than those of the window"
    assert finding.observed == "7 keys of the window, the oldest is token 1; lacks 0"
    assert "oldest is token 0" in finding.expected
    assert finding.strip is not None
    assert (finding.strip.expected, finding.strip.observed) == ("########", "!#######")


def test_wrong_keys_are_named_with_the_tokens_that_are_there() -> None:
    """At total length 8 of W = 8, tokens 3 and 4 were evicted and 9 and 10 were put in their places."""
    (finding,) = run_check(past_key_length, trace=keys_at_the_edge([0, 1, 2, 9, 10, 5, 6, 7])).findings
    assert finding.observed == "6 keys of the window, the oldest is token 0; lacks 3-4, holds 9-10 instead"


def test_keys_of_another_run_are_named() -> None:
    (finding,) = run_check(past_key_length, trace=keys_at_the_edge([0, 1, FOREIGN, 3, FOREIGN, 5, 6, 7])).findings
    assert finding.title == "the cache hands over keys that this run never stored"
    assert finding.observed == "2 of 8 keys, first in the place of token 2"
    assert run_check(past_key_length, trace=keys_at_the_edge([FOREIGN] * 6 + [6, 7])).findings == ()


@pytest.mark.parametrize(
    "positions", [[0, 1, 2, 3, 4, 5, 6, 7], [5, 6, 7, 0, 1, 2, 3, 4], [UNRECOGNISED, 1, 2, 3, 4, 5, 6, 7]]
)
def test_order_is_harmless_and_unrecognised_keys_accuse_nobody(positions: list[int]) -> None:
    assert run_check(past_key_length, trace=keys_at_the_edge(positions)).findings == ()


def test_no_cache_is_not_applicable() -> None:
    one = with_forward(one_pass(5, 0), 0, cache=())
    assert run_check(past_key_length, trace=trace(one)).outcome is Outcome.NOT_APPLICABLE


# --- padding side ----------------------------------------------------------------------------------------------------


FLOOR = 1e-4


def batch(real: Any, deviation: float, side: str) -> PaddedBatch:
    return PaddedBatch(
        pass_name="padded batch",
        side=side,
        side_from="tokenizer",
        real=frozen(real),
        deviation=frozen(np.where(real.all(axis=1), 0.0, deviation)),
        flips=frozen(~real.all(axis=1) & (deviation > 1)),
        floor=FLOOR,
    )


def test_right_padding_that_changes_the_output_is_a_warning_with_its_condition() -> None:
    (finding,) = run_check(padding_side, batch=batch(PADDED[:, ::-1], 4.8, "right")).findings
    assert finding.severity is Severity.WARNING
    assert "if you generate in batches" in finding.title
    assert finding.standing
    assert "4.8" in finding.effect


def test_right_padding_within_the_noise_is_a_note() -> None:
    (finding,) = run_check(padding_side, batch=batch(PADDED[:, ::-1], (FINDING_FLOORS - 1) * FLOOR, "right")).findings
    assert finding.severity is Severity.NOTE


def test_a_tokenizer_that_cannot_pad_at_all_gets_a_note() -> None:
    """As Llama 3 and Mistral are published."""
    without = TokenizerFacts("right", None, 2, 100)
    (finding,) = run_check(padding_side, batch=batch(PADDED[:, ::-1], 4.8, "right"), tokenizer=without).findings
    assert finding.severity is Severity.NOTE


def test_whether_rows_that_end_in_real_tokens_depend_on_the_batch_is_left_to_parity() -> None:
    result = run_check(padding_side, batch=batch(PADDED, 4.8, "left"))
    assert (result.outcome, result.findings) == (Outcome.PASS, ())


def test_a_batch_that_is_not_finite_proves_nothing() -> None:
    result = run_check(padding_side, batch=batch(PADDED[:, ::-1], float("nan"), "right"))
    assert result.reason == "the logits of the padded batch are not finite"


def test_left_padding_passes() -> None:
    result = run_check(padding_side, batch=batch(PADDED, FLOOR, "left"))
    assert result.outcome is Outcome.PASS
    assert result.findings == ()


def tokenizer(side: str) -> TokenizerFacts:
    return TokenizerFacts(side, 0, 2, 100)


def test_the_setting_of_the_tokenizer_is_compared_with_what_was_done() -> None:
    sick_batch = batch(PADDED[:, ::-1], 4.8, "right")
    (finding,) = run_check(padding_side, batch=sick_batch, tokenizer=tokenizer("right")).findings
    assert finding.observed.endswith("(tokenizer set to right)")
    (finding,) = run_check(padding_side, batch=sick_batch, tokenizer=tokenizer("left")).findings
    assert finding.observed.endswith("(tokenizer set to left, batch padded on the right)")


def test_a_tokenizer_set_to_the_right_is_said_even_when_the_batch_is_fine() -> None:
    result = run_check(padding_side, batch=batch(PADDED, FLOOR, "left"), tokenizer=tokenizer("right"))
    (finding,) = result.findings
    assert (result.outcome, finding.severity) == (Outcome.PASS, Severity.NOTE)
    assert "tokenizer set to right, batch padded on the left" in finding.observed
    healthy = run_check(padding_side, batch=batch(PADDED, FLOOR, "left"), tokenizer=tokenizer("left"))
    assert healthy.findings == ()
    assert healthy.examined is not None and "(tokenizer set to left)" in healthy.examined.sentence


# --- long generate ---------------------------------------------------------------------------------------------------


def generated(*arguments: Any, **changes: Any) -> Generations:
    return Generations((generation(*arguments, **changes),))


def test_a_varied_text_passes() -> None:
    result = run_check(long_generate, trace=HEALTHY, generations=generated(range(24)))
    assert result.outcome is Outcome.PASS
    assert result.findings == ()
    assert result.examined is not None
    assert result.examined.sentence == "prompt 5, generated 24, window crossed at step 3, 21 tokens past the edge"


@pytest.mark.parametrize("tokens", [[1, 2], [1, 2, 3]])
def test_a_generation_that_stops_short_proves_nothing(tokens: list[int]) -> None:
    result = run_check(long_generate, trace=HEALTHY, generations=generated(tokens))
    assert result.outcome is Outcome.SKIPPED


def test_how_far_it_went_past_the_edge_is_said() -> None:
    result = run_check(long_generate, trace=HEALTHY, generations=generated([1, 2, 3, 4]))
    assert result.outcome is Outcome.PASS
    assert result.examined is not None and result.examined.sentence.endswith("1 of 8 wanted tokens past the edge")


def test_without_the_reference_route_it_is_known_how_far_it_went() -> None:
    result = run_check(long_generate, trace=HEALTHY, generations=generated(range(24), no_reference="no memory"))
    assert result.outcome is Outcome.PASS


def test_without_a_window_there_is_nothing_to_cross() -> None:
    result = run_check(long_generate, trace=HEALTHY, generations=generated([1, 2], window=None))
    assert result.outcome is Outcome.PASS


def test_a_crash_is_a_finding_with_its_boundary() -> None:
    crash = Crash("IndexError", "index 8 is out of bounds", 4, 9, 1)
    broken = trace(replace(one_pass(), crash=crash, name="long generate"))
    (finding,) = run_check(long_generate, trace=broken, generations=generated([1], crash=crash)).findings
    assert finding.severity is Severity.ERROR
    assert "step 4, total length 9 (W+1), layer 1" in finding.where.boundary


def test_forwards_know_their_place() -> None:
    first, second = one_pass().forwards[:2]
    assert (first.is_decode_step, second.is_decode_step, second.total) == (False, True, 6)


def test_a_refusal_is_a_note_and_proves_nothing_about_the_generation() -> None:
    crash = Crash("ValueError", "this cache is not supported", 0, 0, None, refused=True)
    turn = trace(replace(one_pass(), crash=crash, name="second turn"))
    (finding,) = run_check(long_generate, trace=turn, generations=generated(range(24))).findings
    assert finding.severity is Severity.NOTE
    refused = run_check(long_generate, trace=turn, generations=generated([], crash=crash))
    assert refused.outcome is Outcome.SKIPPED
    short = run_check(long_generate, trace=turn, generations=generated([1]))
    assert short.outcome is Outcome.SKIPPED


def test_logits_that_are_not_finite_are_an_error() -> None:
    result = run_check(long_generate, trace=HEALTHY, generations=generated([0] * 40, not_finite=3))
    (finding,) = result.findings
    assert finding.title == "the logits are NaN or infinite"
    assert "step 3, token 8" in finding.where.boundary
    assert "all weights are finite" in finding.observed
    named = generation([0] * 40, not_finite=0, bad_weight="layers.7.mlp.down_proj.weight")
    (finding,) = run_check(long_generate, trace=HEALTHY, generations=Generations((named,))).findings
    assert "layers.7.mlp.down_proj.weight" in finding.observed


def test_exceptions_of_one_kind_are_one_finding() -> None:
    crashes = [replace(one_pass(), name=f"p{n}", crash=Crash("RuntimeError", f"size {n}", 0, 5, 0)) for n in (1, 2)]
    (finding,) = run_check(long_generate, trace=trace(*crashes), generations=generated(range(24))).findings
    assert finding.where.passes == ("p1", "p2")


@pytest.mark.parametrize("check", [mask_dtype, mask_shape, all_masked_rows, past_key_length])
def test_what_crashed_before_it_was_seen_is_not_absent(check: Any) -> None:
    crashed = replace(one_pass(5, 0), forwards=(), crash=Crash("RuntimeError", "boom", 0, 5, 0))
    assert run_check(check, trace=trace(crashed)).outcome is Outcome.SKIPPED


def test_the_mask_on_which_a_forward_broke_is_looked_at() -> None:
    one = one_pass()
    call = one.forwards[2].calls[0]
    broken = replace(call, mask=mask_of(call, shape=(1, 1, 1, call.key_shape[2] + 1)))
    crashed = replace(one, name="sick", crash=Crash("RuntimeError", "size mismatch", 2, 7, 0, call=broken))
    (finding,) = run_check(mask_shape, trace=trace(crashed)).findings
    assert finding.title == "the mask has more columns than there are keys"
    assert finding.where.passes == ("sick",)


def test_a_mask_that_its_kernel_refuses_is_looked_at() -> None:
    one = one_pass()
    call = one.forwards[2].calls[0]
    broken = replace(call, kernel="sdpa", mask=mask_of(call, dtype="float64"))
    crashed = replace(one, name="sick", crash=Crash("RuntimeError", "expected another dtype", 2, 7, 0, call=broken))
    (finding,) = run_check(mask_dtype, trace=trace(crashed)).findings
    assert (finding.observed, finding.where.passes, finding.where.layers) == ("float64", ("sick",), (0,))


def test_a_mask_that_hides_a_key_is_no_fault_of_the_cache() -> None:
    one = one_pass()
    call = one.forwards[3].calls[0]
    assert call.mask is not None
    cells = np.array(call.mask.readable())
    cells[..., 0] = False
    hidden = with_call(one, 3, 0, mask=dense_mask(cells, "float32"), key_positions=frozen(np.arange(8)[None]))
    assert run_check(past_key_length, trace=sick(hidden)).findings == ()
