"""Heatmaps of skeletons: what the chart says about what is known of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gemma_doctor import compat
from gemma_doctor import heatmap as heatmap_module
from gemma_doctor.charts.chart import Chart
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import SLIDING
from gemma_doctor.faults import all_faults
from gemma_doctor.heatmap import heatmap
from gemma_doctor.loading import Patient
from gemma_doctor.prompt import Prompt
from gemma_doctor.settings import Settings
from gemma_doctor.view import View

PatientOf = Callable[..., Patient]
W = 512


@pytest.fixture
def chart_of(patient_of: PatientOf, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Chart]:
    """Charts of cached skeletons."""

    def made(preset: str = "gemma-3-270m", backend: str | None = None, prompt: str | None = None, **view: Any) -> Chart:
        prompts = () if prompt is None else (Prompt("given prompt", prompt),)
        settings = Settings(subject=preset, weights="skeleton", attn_implementation=backend, prompts=prompts)
        monkeypatch.setattr(heatmap_module, "admit", lambda *_args: patient_of(preset, backend))
        return heatmap(settings, View(**view), lambda line: None)

    return made


@pytest.mark.parametrize("rows_at", ["decode", "prefill"])
@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_sliding_layers_read_the_window_and_full_layers_everything(
    chart_of: Callable[..., Chart], backend: str, rows_at: str
) -> None:
    chart = chart_of(backend=backend, pos="600", rows_at=rows_at)
    assert len(chart.panels) == 6
    for panel in chart.panels:
        read = np.flatnonzero(np.nan_to_num(panel.values[0, 0]) > 0)
        first = 600 - W + 1 if panel.kind == SLIDING else 0
        assert read.tolist() == list(range(first, 601))
        assert panel.allowed[0].tolist() == [first <= key <= 600 for key in range(601)]
        assert panel.shares is not None
        assert panel.shares.beyond == 0
        assert panel.shares.inside == pytest.approx(1, abs=1e-5)
        assert panel.misplaced == ()


def test_decode_steps_and_prefill_agree(chart_of: Callable[..., Chart]) -> None:
    decode, prefill = (chart_of(pos="598:601", rows_at=rows_at) for rows_at in ("decode", "prefill"))
    for one, other in zip(decode.panels, prefill.panels, strict=True):
        assert one.values.shape == other.values.shape == (1, 3, 601)
        assert np.abs(np.nan_to_num(one.values) - np.nan_to_num(other.values)).max() < 1e-5


def test_position_0_and_a_slice_from_it(chart_of: Callable[..., Chart]) -> None:
    (panel, *_) = chart_of(pos="0").panels
    assert panel.values.tolist() == [[[1.0]]]
    (panel, *_) = chart_of(pos=":4").panels
    assert np.isnan(panel.values[0]).tolist() == np.triu(np.ones((4, 4), bool), 1).tolist()


def test_pads_are_negative_positions_and_not_read(chart_of: Callable[..., Chart]) -> None:
    chart = chart_of(pos="30", pads=5)
    assert chart.keys.tolist() == list(range(-5, 31))
    for panel in chart.panels:
        assert panel.shares is not None
        assert panel.shares.beyond == 0
        assert not panel.allowed[:, :5].any()
        assert (np.nan_to_num(panel.values)[0, 0] > 0).tolist() == [False] * 5 + [True] * 31


def test_heads(chart_of: Callable[..., Chart]) -> None:
    every, mean, most, two = (
        chart_of(pos="40", layers="0", heads=heads).panels[0] for heads in ("all", "mean", "max", "1,3")
    )
    assert every.heads == ("0", "1", "2", "3")
    assert np.allclose(mean.values, every.values.mean(axis=0, keepdims=True))
    assert np.array_equal(most.values, every.values.max(axis=0, keepdims=True))
    assert np.array_equal(two.values, every.values[[1, 3]])
    assert every.shares == mean.shares == two.shares


@pytest.mark.parametrize("rows_at", ["decode", "prefill"])
def test_masks_are_those_of_the_kernel(chart_of: Callable[..., Chart], rows_at: str) -> None:
    """What may be read is what is read, where the library passes a mask and where it passes none."""
    masks, read = (chart_of(pos="598:601", kind=kind, rows_at=rows_at) for kind in ("mask", "attention"))
    for may, does in zip(masks.panels, read.panels, strict=True):
        assert may.shares is None
        assert (np.nan_to_num(may.values) == (np.nan_to_num(does.values) > 0)).all()


def test_influence_is_of_the_past_alone(chart_of: Callable[..., Chart]) -> None:
    """With a full layer among them, every earlier token is in reach."""
    (panel,) = chart_of(pos="50:53", kind="influence").panels
    assert panel.reach is not None
    assert panel.reach.tolist() == [0, 0, 0]
    assert panel.values.shape == (1, 3, 53)
    assert panel.values[0, 0, :51].max() == 1
    assert np.isnan(panel.values[0, 0, 51:]).all()
    assert (panel.values[0, 2] > 0).sum() > 40


def test_influence_of_sliding_layers_alone_ends_where_the_pattern_says(
    chart_of: Callable[..., Chart], patient_of: PatientOf
) -> None:
    patient = patient_of("mistral-7b-v0.1", None)
    config = compat.text_config(patient.model)
    with _window(patient, 16):
        (panel,) = chart_of("mistral-7b-v0.1", pos="100", kind="influence").panels
    reach = 100 - config.num_hidden_layers * 15
    assert panel.reach is not None
    assert panel.reach.tolist() == [reach]
    assert np.flatnonzero(panel.values[0, 0]).min() == reach
    assert panel.allowed[0].tolist() == [key >= reach for key in range(101)]


@contextlib.contextmanager
def _window(patient: Patient, window: int) -> Iterator[None]:
    config, before = compat.text_config(patient.model), patient.window
    config.sliding_window = patient.window = window
    try:
        yield
    finally:
        config.sliding_window = patient.window = before


def test_without_a_tokenizer_no_text_is_made_up(chart_of: Callable[..., Chart]) -> None:
    assert set(chart_of(pos="5").tokens) == {""}


def test_a_prompt_is_filled_and_the_chart_says_so(chart_of: Callable[..., Chart]) -> None:
    assert "filled" in chart_of(prompt="some words here", pos="50").facts["text"]
    assert "filled" not in chart_of(prompt="some words here", pos="-1").facts["text"]
    with pytest.raises(DoctorError, match="no such position"):
        chart_of(prompt="some words here", pos="-50")


def test_a_sick_model_shows_what_it_reads(chart_of: Callable[..., Chart], patient_of: PatientOf) -> None:
    """A config whose window was halved after loading: half of the window is not read."""
    with all_faults()["window-halved"].inject(patient_of("gemma-3-270m", "eager")):
        chart = chart_of(backend="eager", pos="600", layers="0", rows_at="prefill")
    (panel,) = chart.panels
    assert np.flatnonzero(np.nan_to_num(panel.values[0, 0])).min() == 600 - W // 2 + 1
    assert panel.allowed[0].sum() == W


def test_shared_layers_and_odd_families(chart_of: Callable[..., Chart]) -> None:
    for rows_at in ("decode", "prefill"):
        chart = chart_of("gemma-4-E2B-it", pos="40:43", rows_at=rows_at)
        assert len(chart.panels) == 10
        assert all(not np.isnan(panel.values[0, :, :41]).any() for panel in chart.panels)
    sinks = chart_of("gpt-oss-20b", pos="40")
    assert any("sink" in note for note in sinks.notes)


def test_too_much_is_refused_before_anything_runs(chart_of: Callable[..., Chart]) -> None:
    with pytest.raises(DoctorError, match="too many"):
        chart_of(pos="0:20000")
    with pytest.raises(DoctorError, match="no such position"):
        chart_of(pos="32768")


@pytest.mark.skipif(bool(compat.why_no_cache_layers()), reason="no layer objects")
@pytest.mark.parametrize(
    ("order", "misplaced"),
    [
        ([*range(5, W), *range(5)], ()),  # the order of keys does no harm
        ([0, 1, 2, 7, *range(4, W)], ((92, 96),)),  # token 92 was evicted, and 96 put in its place as well
    ],
)
def test_keys_that_a_cache_hands_over_are_shown_where_they_belong(
    chart_of: Callable[..., Chart], monkeypatch: pytest.MonkeyPatch, order: list[int], misplaced: tuple[Any, ...]
) -> None:
    from transformers import cache_utils

    update = cache_utils.DynamicSlidingWindowLayer.update

    def disordered(self: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        held = update(self, keys, *args, **kwargs)
        return tuple(one[:, :, order] for one in held) if keys.shape[2] == 1 else held

    monkeypatch.setattr(cache_utils.DynamicSlidingWindowLayer, "update", disordered)
    (panel,) = chart_of(pos="600", layers="0").panels
    assert panel.misplaced == misplaced
    assert panel.shares is not None
    assert panel.shares.total == pytest.approx(1, abs=1e-5)
    assert np.nansum(panel.values) == pytest.approx(1, abs=1e-5)  # two slots with one token's key count together
    read = np.flatnonzero(np.nan_to_num(panel.values[0, 0]) > 0).tolist()
    assert read == [key for key in range(600 - W + 1, 601) if not misplaced or key != 92]


@pytest.mark.skipif(bool(compat.why_no_cache_layers()), reason="no layer objects")
def test_weight_on_an_empty_slot_is_beyond_and_no_sink(
    chart_of: Callable[..., Chart], monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import cache_utils

    update = cache_utils.DynamicSlidingWindowLayer.update

    def emptied(self: Any, keys: Any, *args: Any, **kwargs: Any) -> Any:
        held = update(self, keys, *args, **kwargs)
        if keys.shape[2] == 1:
            held[0][:, :, 10] = 0
        return held

    monkeypatch.setattr(cache_utils.DynamicSlidingWindowLayer, "update", emptied)
    chart = chart_of(pos="600", layers="0")
    (panel,) = chart.panels
    assert panel.misplaced == ((600 - W + 1 + 10, None),)
    assert panel.shares is not None
    assert panel.shares.total == pytest.approx(1, abs=1e-5)
    assert panel.shares.beyond > 1e-5
    assert not panel.shares.has_sink


def test_pads_are_held_against_the_positions(chart_of: Callable[..., Chart]) -> None:
    with pytest.raises(DoctorError, match="--pads 32768") as caught:
        chart_of(pos="0", pads=32768)
    assert caught.value.hint == "at most 32,767 here"
