"""Assertions on bare masks: right masks pass whoever made them, wrong ones are named by their first wrong cell."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from fake_reports import HEALTHY, SICK
from hypothesis import given, settings
from hypothesis import strategies as st

from gemma_doctor.assertions import assert_grows_by_one, assert_healthy, assert_no_masked_row, assert_reads_window
from gemma_doctor.capture.hooks import hooked
from gemma_doctor.capture.model_facts import attention_modules
from gemma_doctor.evidence import Bools
from gemma_doctor.loading import Patient
from gemma_doctor.policy import GemmaSlidingWindowPolicy

unhurried = settings(deadline=None)  # a busy machine is no failure
windows = st.integers(1, 9)
MaskFunction = Callable[[int, int, int], Any]


def by_policy(window: int, meaning: str = "allowed") -> MaskFunction:
    """The policy's masks: True = may be read with "allowed", True = blocked with "mask"."""
    policy = GemmaSlidingWindowPolicy(window, keep_nearest=0)
    return lambda fed, keys, past: getattr(policy, meaning)(torch.arange(past, past + fed)[None], keys, past)


def cells(window: int, fed: int, past: int = 0) -> Bools:
    """A right mask over all keys, shape (q, k)."""
    made: Bools = by_policy(window)(fed, past + fed, past)[0, 0].numpy()
    return made


# --- what is right passes --------------------------------------------------------------------------------------------


@unhurried
@given(windows)
def test_the_policy_reads_its_window(window: int) -> None:
    assert_reads_window(by_policy(window), window, drops_keys=True)
    assert_reads_window(by_policy(window, "mask"), window, drops_keys=True, true_means="blocked")
    assert_grows_by_one(by_policy(window), window)


def test_a_layer_without_a_window_reads_everything_before_it() -> None:
    def causal(fed: int, keys: int, past: int) -> Any:
        return torch.arange(keys)[None] <= torch.arange(past, past + fed)[:, None]

    assert_reads_window(causal, None)
    assert_grows_by_one(causal)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_an_additive_mask_blocks_with_the_lowest_number_of_its_dtype(dtype: torch.dtype) -> None:
    readable = torch.tensor(cells(3, 7))
    mask = torch.zeros(7, 7, dtype=dtype).masked_fill(~readable, torch.finfo(dtype).min)
    assert_reads_window(mask, 3)


@pytest.mark.parametrize("lowest", [-np.inf, -1e9, -1e4])
def test_so_it_does_with_any_number_that_leaves_no_weight(lowest: float) -> None:
    assert_reads_window(np.where(cells(3, 7), 0.0, lowest), 3)


@pytest.mark.parametrize("shape", [(7, 7), (1, 7, 7), (2, 7, 7), (2, 4, 7, 7)])
def test_batches_and_heads_are_looked_at(shape: tuple[int, ...]) -> None:
    mask = np.broadcast_to(cells(3, 7), shape).copy()
    assert_reads_window(mask, 3)
    mask[(*(size - 1 for size in shape[:-2]), 6, 0)] = True
    with pytest.raises(AssertionError, match="row 6 may read column 0: 6 back, outside the window"):
        assert_reads_window(mask, 3)


def test_pads_are_not_read_and_their_rows_are_free() -> None:
    real = np.array([[True] * 7, [False] * 3 + [True] * 4])
    mask = cells(3, 7) & real[:, None, :]
    assert not mask[1, 0].any()
    assert_no_masked_row(mask, real=real)
    assert_reads_window(mask, 3, real=real)


def test_empty_slots_of_a_static_cache_are_not_read() -> None:
    mask = np.pad(cells(3, 2, past=5), ((0, 0), (0, 4)))
    assert_reads_window(mask, 3, past_length=5)
    mask[0, 7] = True
    with pytest.raises(AssertionError, match="row 5 may read column 7: 2 ahead, in the future"):
        assert_reads_window(mask, 3, past_length=5)


def test_a_cache_that_keeps_one_key_less_than_the_window_holds_all_that_is_needed() -> None:
    assert_reads_window(np.ones((1, 8), bool), 8, past_length=100)


@pytest.mark.parametrize("kind", ["sliding_attention", "full_attention"])
def test_masks_of_a_healthy_library_pass(patient_of: Callable[..., Patient], kind: str) -> None:
    """Before and beyond the window of 64, as the attention of one layer receives them."""
    patient = patient_of("gemma-3-1b-it", "eager")
    layer = patient.reduced.config.layer_types.index(kind)
    window = patient.reduced_window if kind == "sliding_attention" else None
    seen: list[torch.Tensor] = []

    def keep(_module: Any, _args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(kwargs["attention_mask"])

    tokens = torch.arange(10, 70)[None]
    with hooked([attention_modules(patient.reduced)[layer]], keep):
        patient.reduced.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=8, do_sample=False)
    past = 0
    for mask in seen:
        assert_reads_window(mask, window, past_length=past)
        past += mask.shape[2]
    assert past > 64
    assert_grows_by_one(seen[1:], window)


# --- what is wrong is caught -----------------------------------------------------------------------------------------


@unhurried
@given(windows, st.sampled_from([-1, 1]))
def test_a_window_that_is_off_by_one_is_caught(window: int, off: int) -> None:
    with pytest.raises(AssertionError):
        assert_reads_window(by_policy(window + off) if window + off else lambda q, k, p: np.zeros((q, k)) < 0, window)


@unhurried
@given(windows)
def test_masks_the_other_way_round_are_caught(window: int) -> None:
    with pytest.raises(AssertionError):
        assert_reads_window(by_policy(window, "mask"), window)


@unhurried
@given(windows, st.integers(2, 20))
def test_a_transposed_mask_is_caught(window: int, length: int) -> None:
    mask = cells(window, length).T
    if window > 1:  # else it is symmetric
        with pytest.raises(AssertionError, match="row 0 may read column 1: 1 ahead, in the future"):
            assert_reads_window(mask, window)


@unhurried
@given(windows, st.data())
def test_every_single_wrong_cell_is_caught(window: int, data: st.DataObject) -> None:
    fed, past = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 12))
    mask = cells(window, fed, past).copy()
    row, column = data.draw(st.integers(0, fed - 1)), data.draw(st.integers(0, fed + past - 1))
    mask[row, column] ^= True
    with pytest.raises(AssertionError, match=f"row {row + past}"):
        assert_reads_window(mask, window)


@unhurried
@given(st.data())
def test_every_empty_row_is_caught(data: st.DataObject) -> None:
    fed = data.draw(st.integers(1, 12))
    mask, row = cells(3, fed).copy(), data.draw(st.integers(0, fed - 1))
    mask[row] = False
    with pytest.raises(AssertionError, match=rf"has no key to read\n  where     the mask, row {row}\n"):
        assert_no_masked_row(mask)


def test_a_row_that_is_empty_in_one_head_only_is_caught() -> None:
    mask = np.stack([cells(3, 4)] * 2)[None].copy()
    mask[0, 1, 2] = False
    with pytest.raises(AssertionError, match="the mask, row 2\n"):
        assert_no_masked_row(mask)


def test_a_row_that_may_read_empty_slots_of_a_static_cache_only_is_empty() -> None:
    with pytest.raises(AssertionError, match="the mask, row 3\n"):
        assert_no_masked_row(np.arange(8)[None] > 3, past_length=3)


def test_columns_counted_from_the_start_of_a_cache_that_dropped_keys_are_caught() -> None:
    def forgets_the_offset(fed: int, keys: int, past: int) -> Any:
        query, key = np.arange(past, past + fed)[:, None], np.arange(keys)[None]
        return (key <= query) & (query - key < 4)

    assert_reads_window(forgets_the_offset, 4)  # right as long as all keys are held
    with pytest.raises(AssertionError, match=r"mask_function\(1, 4, 4\)"):
        assert_reads_window(forgets_the_offset, 4, drops_keys=True)


def test_a_key_that_was_dropped_too_early_is_caught() -> None:
    with pytest.raises(AssertionError, match="7 columns, the first is token 94\n  expected  the first is token 93"):
        assert_reads_window(np.ones((1, 7), bool), 8, past_length=100)


def test_a_past_that_stands_still_is_caught() -> None:
    with pytest.raises(AssertionError, match="decode step 1\n  observed  6 keys may be read, after 6 at the step bef"):
        assert_grows_by_one([np.ones((1, 6), bool), np.ones((1, 6), bool)], 8)


def test_a_past_that_grows_beyond_the_window_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"step 1\n  observed  5 keys .*\n  expected  4, the window"):
        assert_grows_by_one([np.ones((1, 4), bool), np.ones((1, 5), bool)], 4)


@pytest.mark.parametrize("value", [np.nan, -100.0, 1.0])
def test_a_float_mask_with_a_value_that_neither_allows_nor_blocks_is_refused(value: float) -> None:
    mask = np.zeros((1, 4))
    mask[0, 2] = value
    with pytest.raises(AssertionError, match=f"no additive mask\n  observed  1 value such as {value:g}"):
        assert_no_masked_row(mask)


def test_integers_are_no_mask() -> None:
    with pytest.raises(AssertionError, match="observed  int64\n  expected  bool or float"):
        assert_no_masked_row(np.ones((1, 4), np.int64))


def test_a_function_that_returns_another_size_is_caught() -> None:
    with pytest.raises(AssertionError, match=r"mask_function\(1, 1, 0\) returns a mask of 1 x 2\n  expected  1 x 1"):
        assert_reads_window(lambda fed, keys, past: np.ones((fed, keys + 1), bool), 4)


def test_the_message_shows_where_what_and_what_to_do() -> None:
    mask = cells(3, 6).copy()
    mask[5, 1] = True
    with pytest.raises(AssertionError) as caught:
        assert_reads_window(mask, 3)
    marks = "# read, ! should be read and is not, + read and should not be, . not read"
    assert str(caught.value).splitlines() == [
        "queries may read beyond their window",
        "  where     the mask",
        "  observed  row 5 may read column 1: 4 back, outside the window; 1 cell in all, up to 4 away",
        "  expected  columns 3 to 5, the window of 3",
        f"  row 5, columns 0 to 5, 1 token a mark ({marks})",
        "    expected  ...###",
        "    observed  .+.###",
        "  do        look at the window of this mask: a query reads itself and the W - 1 keys before it",
    ]


# --- calls that make no sense ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: assert_reads_window(np.ones(4, bool), 2), r"shape \(4,\)"),
        (lambda: assert_reads_window(np.ones((1, 4), bool), 0), "window is 0"),
        (lambda: assert_reads_window(np.ones((4, 1), bool), 2), "say past_length"),
        (lambda: assert_reads_window(cells(2, 4), 2, real=[True] * 3), r"real has shape \(1, 3\); it must be \(1, 4\)"),
        (lambda: assert_reads_window(by_policy(2), 2, past_length=3), "belong to one mask"),
        (lambda: assert_no_masked_row(cells(2, 4), true_means="allowed"), "true_means is 'allowed'"),  # type: ignore[arg-type]
        (lambda: assert_grows_by_one([np.ones((1, 1), bool)]), "1 step; two are needed"),
        (lambda: assert_grows_by_one([cells(2, 4)]), "decode step 0 has 4 queries"),
    ],
)
def test_arguments_that_do_not_fit_are_a_value_error(call: Callable[[], None], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call()


# --- reports ---------------------------------------------------------------------------------------------------------


def test_a_healthy_report_passes_and_a_sick_one_fails_with_its_text() -> None:
    assert_healthy(HEALTHY)
    with pytest.raises(AssertionError, match="CAUSE  past-key-length   error   sliding cache drops a key one step ear"):
        assert_healthy(replace(SICK, exit_code=1))


def test_an_examination_that_was_not_made_is_not_healthy() -> None:
    with pytest.raises(AssertionError):
        assert_healthy(replace(HEALTHY, results=(), exit_code=2))


def test_torch_is_not_imported() -> None:
    code = (
        "import sys, numpy; from gemma_doctor.assertions import assert_reads_window;"
        "assert_reads_window(numpy.tri(4) > 0, 4); print({'torch', 'transformers'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_each_head_grows_by_one() -> None:
    """Head 0 jumps from 2 to 6 keys; head 1 grows as it should."""
    first, second = np.zeros((1, 2, 1, 6), bool), np.zeros((1, 2, 1, 7), bool)
    first[0, 0, 0, :2] = first[0, 1, 0, :5] = True
    second[0, :, 0, :6] = True
    with pytest.raises(AssertionError, match="6 keys may be read, after 2"):
        assert_grows_by_one([first, second])


@pytest.mark.parametrize("window", [np.int64(3), 3])
def test_a_window_may_be_an_int_of_numpy(window: int) -> None:
    query, key = np.arange(9)[:, None], np.arange(9)
    assert_reads_window((key <= query) & (query - key < 3), window=window)


def test_no_mask_is_said_to_be_none() -> None:
    with pytest.raises(ValueError, match="is None"):
        assert_reads_window(None, window=3)
