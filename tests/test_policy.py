"""The sliding-window policy: against three plain loops, the cases of its description, and a healthy library's masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemma_doctor.capture.hooks import hooked
from gemma_doctor.capture.model_facts import attention_modules
from gemma_doctor.evidence import SLIDING
from gemma_doctor.loading import Patient
from gemma_doctor.policy import GemmaSlidingWindowPolicy

PatientOf = Callable[..., Patient]
NO_INTS: tuple[Any, ...] = (True, 4.0, math.nan, math.inf, "4", None, [4])
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure


def by_loops(policy: GemmaSlidingWindowPolicy, positions: list[list[int]], keys: int, past: int) -> list[Any]:
    """What may be read, (b, 1, q, k), cell by cell."""
    first = past + len(positions[0]) - keys
    held = range(first, first + keys)
    batch = []
    for row in positions:
        rows = []
        for query in row:
            read = {key for key in held if 0 <= query - key < policy.sliding_window}
            if not read and policy.fallback_to_global:
                read = {key for key in held if key <= query}
            if not read:
                nearest = sorted(held, key=lambda key: (key > query, abs(query - key)))
                read = set(nearest[: policy.keep_nearest])
            rows.append([key in read for key in held])
        batch.append([rows])
    return batch


@st.composite
def calls(draw: st.DrawFn) -> tuple[GemmaSlidingWindowPolicy, list[list[int]], int, int]:
    """A policy, position ids of any kind, a number of keys and a past."""
    policy = GemmaSlidingWindowPolicy(
        draw(st.integers(1, 8)), fallback_to_global=draw(st.booleans()), keep_nearest=draw(st.integers(0, 4))
    )
    past, fed, rows = draw(st.integers(0, 12)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    usual = [list(range(past, past + fed))] * rows
    odd = st.lists(st.lists(st.integers(0, 40), min_size=fed, max_size=fed), min_size=rows, max_size=rows)
    return policy, draw(st.one_of(st.just(usual), odd)), draw(st.integers(1, past + fed)), past


@unhurried
@given(calls())
def test_every_cell_is_as_three_loops_say(call: tuple[GemmaSlidingWindowPolicy, list[list[int]], int, int]) -> None:
    policy, positions, keys, past = call
    allowed = policy.allowed(torch.tensor(positions), keys, past)
    assert allowed.tolist() == by_loops(policy, positions, keys, past)
    blocked = policy.mask(torch.tensor(positions), keys, past)
    assert blocked.dtype == torch.bool
    assert torch.equal(blocked, ~allowed)


@unhurried
@given(calls(), st.integers(1, 4))
def test_all_three_shapes_say_the_same(
    call: tuple[GemmaSlidingWindowPolicy, list[list[int]], int, int], heads: int
) -> None:
    policy, positions, keys, past = call
    flat = torch.tensor(positions)
    expected = policy.mask(flat, keys, past)
    assert expected.shape == (len(positions), 1, len(positions[0]), keys)
    assert torch.equal(policy.mask(flat[:, None], keys, past), expected)
    assert torch.equal(policy.mask(flat[:, None, :, None].expand(-1, heads, -1, -1), keys, past), expected)


@unhurried
@given(calls())
def test_the_fallbacks_touch_empty_rows_only(call: tuple[GemmaSlidingWindowPolicy, list[list[int]], int, int]) -> None:
    policy, positions, keys, past = call
    ids = torch.tensor(positions)
    bare = GemmaSlidingWindowPolicy(policy.sliding_window, keep_nearest=0).allowed(ids, keys, past)
    full = bare.any(dim=-1)
    assert torch.equal(policy.allowed(ids, keys, past)[full], bare[full])


def test_prefill_has_no_empty_row() -> None:
    allowed = GemmaSlidingWindowPolicy(4, keep_nearest=0).allowed(torch.arange(10)[None], 10)
    assert allowed.sum(dim=-1).tolist() == [[[1, 2, 3, 4, 4, 4, 4, 4, 4, 4]]]


@pytest.mark.parametrize("keys", [12, 4])
def test_decode_at_11_sees_exactly_8_to_11(keys: int) -> None:
    """Whether the cache holds all keys or those of the window only."""
    allowed = GemmaSlidingWindowPolicy(4).allowed(torch.tensor([[11]]), keys, past_key_length=11)
    columns = allowed[0, 0, 0].nonzero().flatten()
    assert (columns + 12 - keys).tolist() == [8, 9, 10, 11]


@pytest.mark.parametrize("steps", [range(20, 201), range(1, 601)])
@pytest.mark.parametrize("window", [1, 4, 512])
def test_no_step_of_a_decode_loop_is_fully_masked(steps: range, window: int) -> None:
    policy = GemmaSlidingWindowPolicy(window, keep_nearest=0)
    for past in steps:
        policy.on_decode_step(past)
        keys = min(past + 1, window)
        allowed = policy.allowed(torch.tensor([[past]]), keys, past_key_length=past)
        assert allowed.sum() == keys


# Query 20 with W=4 would read 17..20, and the cache holds 5..9 (or, asked too early, nothing but the future).
@pytest.mark.parametrize(
    ("keep", "globally", "query", "read"),
    [
        (0, False, 20, []),
        (1, False, 20, [9]),
        (3, False, 20, [7, 8, 9]),
        (9, False, 20, [5, 6, 7, 8, 9]),
        (0, True, 20, [5, 6, 7, 8, 9]),
        (1, True, 20, [5, 6, 7, 8, 9]),
        (0, True, 2, []),
        (2, True, 2, [5, 6]),
        (2, False, 2, [5, 6]),
        (1, True, 9, [6, 7, 8, 9]),
        (1, True, 12, [9]),
    ],
)
def test_a_row_without_a_key(keep: int, globally: bool, query: int, read: list[int]) -> None:
    policy = GemmaSlidingWindowPolicy(4, fallback_to_global=globally, keep_nearest=keep)
    allowed = policy.allowed(torch.tensor([[query]]), 5, past_key_length=9)
    assert (allowed[0, 0, 0].nonzero().flatten() + 5).tolist() == read


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        *(({"sliding_window": bad}, "sliding_window is") for bad in (0, -1, *NO_INTS, 2**62 + 1)),
        *(({"sliding_window": 4, "keep_nearest": bad}, "keep_nearest is") for bad in (-1, *NO_INTS, 2**62 + 1)),
    ],
)
def test_impossible_policies_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GemmaSlidingWindowPolicy(**settings)


@pytest.mark.parametrize(
    ("ids", "keys", "past", "said"),
    [
        (torch.zeros(3, dtype=torch.long), 3, 0, r"shape \(3,\)"),
        (torch.zeros(1, 2, 3, dtype=torch.long), 3, 0, r"shape \(1, 2, 3\)"),
        (torch.zeros(1, 2, 3, 4, dtype=torch.long), 3, 0, r"shape \(1, 2, 3, 4\)"),
        (torch.arange(6).reshape(1, 2, 3, 1), 3, 0, "all heads alike"),
        (torch.zeros(1, 0, dtype=torch.long), 1, 1, "no query"),
        (torch.zeros(1, 3), 3, 0, "float32"),
        (torch.zeros(1, 3, dtype=torch.bool), 3, 0, "bool"),
        (torch.zeros(1, 3, dtype=torch.long), 0, 0, "key_length is 0"),
        (torch.zeros(1, 3, dtype=torch.long), 9, 5, "key_length is 9; past and queries together are 8"),
        (torch.zeros(1, 3, dtype=torch.long), 2, -1, "past_key_length is -1"),
        (torch.zeros(1, 3, dtype=torch.complex64), 3, 0, "complex64"),
        ([[0, 1, 2]], 3, 0, r"position_ids are a list; torch.as_tensor\(\)"),
        (np.arange(3)[None], 3, 0, r"position_ids are a ndarray; torch.as_tensor\(\)"),
        (None, 3, 0, "position_ids are a NoneType"),
        *((torch.arange(3)[None], bad, 0, "key_length is") for bad in NO_INTS),
        *((torch.arange(3)[None], 3, bad, "past_key_length is") for bad in (*NO_INTS, 2**62 + 1)),
    ],
)
def test_bad_calls_are_refused(ids: Any, keys: Any, past: Any, said: str) -> None:
    policy = GemmaSlidingWindowPolicy(4)
    with pytest.raises(ValueError, match=said):
        policy.mask(ids, keys, past)
    policy.on_decode_step(7)  # the refusal left nothing behind


@pytest.mark.parametrize("past", NO_INTS)
def test_a_length_that_is_no_int_is_refused(past: Any) -> None:
    with pytest.raises(ValueError, match="past is"):
        GemmaSlidingWindowPolicy(4).on_decode_step(past)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32])
@pytest.mark.parametrize("window", [4, 300, 2**40])
def test_small_dtypes_do_not_overflow(dtype: torch.dtype, window: int) -> None:
    """Neither by W, nor by columns beyond the dtype."""
    policy = GemmaSlidingWindowPolicy(window, keep_nearest=2)
    ids = torch.tensor([[0, 100, 127]])
    assert torch.equal(policy.allowed(ids.to(dtype), 400, 500), policy.allowed(ids, 400, 500))


def test_the_largest_numbers_do_not_overflow() -> None:
    ids = torch.tensor([[-(2**63), 2**62 - 1, 2**63 - 1]])
    allowed = GemmaSlidingWindowPolicy(1, keep_nearest=0).allowed(ids, 3, 2**62 - 3)
    assert allowed[0, 0].tolist() == [[False] * 3, [False, False, True], [False] * 3]


def step(policy: GemmaSlidingWindowPolicy, past: int, fed: int = 1, layers: int = 2) -> None:
    for _ in range(layers):
        policy.mask(torch.arange(past, past + fed)[None], past + fed, past)


def test_a_plain_decode_loop_passes() -> None:
    policy = GemmaSlidingWindowPolicy(4)
    for past in range(20, 30):
        policy.on_decode_step(past)
        step(policy, past)
    for past in range(30, 33):  # without a mask in between, a step is one token
        policy.on_decode_step(past)


def test_prefill_chunks_and_drafts_are_counted() -> None:
    policy = GemmaSlidingWindowPolicy(4)
    step(policy, 0, fed=6)
    step(policy, 6, fed=4)
    policy.on_decode_step(10)
    step(policy, 10, fed=3)
    with pytest.raises(ValueError, match="past is 11; 13 tokens were fed"):
        policy.on_decode_step(11)
    policy.on_decode_step(13)


@pytest.mark.parametrize("past", [19, 20, 22])
def test_a_length_that_does_not_grow_by_what_was_fed_is_refused(past: int) -> None:
    policy = GemmaSlidingWindowPolicy(4)
    policy.on_decode_step(20)
    with pytest.raises(ValueError, match=f"past is {past}; 21 tokens were fed"):
        policy.on_decode_step(past)
    policy.on_decode_step(21)  # the refusal changed nothing


@pytest.mark.parametrize("past", [0, 8, 9, 11, 12])
def test_a_mask_of_tokens_that_were_never_fed_is_refused(past: int) -> None:
    policy = GemmaSlidingWindowPolicy(4)
    policy.on_decode_step(10)
    with pytest.raises(ValueError, match=f"past_key_length is {past}, not 10"):
        policy.mask(torch.tensor([[past]]), 1, past)
    step(policy, 10, fed=3)  # the refusal changed nothing
    with pytest.raises(ValueError, match="past_key_length is 14, not 10 to 13"):
        policy.mask(torch.tensor([[14]]), 1, 14)
    step(policy, 13)  # one more chunk without a word about it
    policy.on_decode_step(14)


def test_sequences_that_nobody_counts_may_alternate() -> None:
    policy = GemmaSlidingWindowPolicy(4)
    for past in (7, 30, 8, 31):
        step(policy, past)


def test_a_new_sequence_needs_a_reset() -> None:
    policy = GemmaSlidingWindowPolicy(4)
    policy.on_decode_step(20)
    with pytest.raises(ValueError, match=r"past_key_length is 0, not 20 \(reset\(\) begins a new sequence\)"):
        step(policy, 0, fed=5)
    with pytest.raises(ValueError, match=r"past is 5; 21 tokens were fed \(reset\(\) begins a new sequence\)"):
        policy.on_decode_step(5)
    policy.reset()
    step(policy, 0, fed=7)
    policy.on_decode_step(7)
    assert policy == GemmaSlidingWindowPolicy(4)
    with pytest.raises(ValueError, match="past is -1"):
        GemmaSlidingWindowPolicy(4).on_decode_step(-1)


def masks_of(patient: Patient, layer: int, prompt: int, new: int) -> list[torch.Tensor]:
    """The 4-D masks that one layer received: at prefill, and at each decode step."""
    seen: list[torch.Tensor] = []

    def keep(_module: Any, _args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(kwargs["attention_mask"])

    with hooked([attention_modules(patient.reduced)[layer]], keep):
        patient.reduced.generate(
            torch.arange(10, 10 + prompt)[None],
            attention_mask=torch.ones(1, prompt, dtype=torch.long),
            max_new_tokens=new,
            min_new_tokens=new,
            do_sample=False,
        )
    return seen


@pytest.mark.parametrize("prompt", [40, 62, 80])
def test_it_agrees_with_the_masks_of_a_healthy_library(patient_of: PatientOf, prompt: int) -> None:
    """Before, across and beyond the window of 64."""
    patient = patient_of("gemma-3-1b-it", "eager")
    window = patient.reduced_window
    layer = 0
    assert patient.reduced.config.layer_types[layer] == SLIDING
    assert window == 64
    policy = GemmaSlidingWindowPolicy(window)
    past = 0
    masks = masks_of(patient, layer, prompt, new=6)
    assert len(masks) == 6
    for mask in masks:
        fed, keys = mask.shape[-2:]
        allowed = policy.allowed(torch.arange(past, past + fed)[None], keys, past)
        assert torch.equal(allowed, mask == 0)
        past += fed
