"""The recorder and the passes, on small random models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

from gemma_doctor import compat
from gemma_doctor.capture import recorder as recorder_module
from gemma_doctor.capture import runs
from gemma_doctor.capture.collector import Collector
from gemma_doctor.capture.keys import _positions
from gemma_doctor.capture.masks import mask_facts
from gemma_doctor.capture.model_facts import attention_modules
from gemma_doctor.capture.recorder import Recorder, recording
from gemma_doctor.check import NotApplicable
from gemma_doctor.evidence import EMPTY_SLOT, SLIDING, MaskFacts
from gemma_doctor.faults import all_faults
from gemma_doctor.loading import Patient
from gemma_doctor.settings import Settings

PatientOf = Callable[..., Patient]


def ids(length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(10, 200, (1, length), generator=torch.Generator().manual_seed(seed))


def recorder_for(tokens: torch.Tensor, **more: Any) -> Recorder:
    return Recorder(np.ones(tuple(tokens.shape), dtype=bool), **more)


def kernel_of(model: Any) -> Any:
    """The attention function that the model's modeling file would call now."""
    module = sys.modules[type(next(iter(attention_modules(model).values()))).__module__]
    name = compat.attention_backend(model)
    return module.eager_attention_forward if name == "eager" else module.ALL_ATTENTION_FUNCTIONS[name]


def hooks_of(model: Any) -> int:
    return sum(len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules())


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_recording_changes_no_logit_and_leaves_nothing_behind(patient_of: PatientOf, backend: str) -> None:
    model = patient_of("gemma-3-270m", backend).reduced
    kernel, hooks = kernel_of(model), hooks_of(model)
    tokens = ids(70)
    with torch.inference_mode():
        bare = compat.generate(model, tokens, torch.ones_like(tokens), 4)
    run = runs.generate(model, tokens, 4, recorder=recorder_for(tokens))
    assert all(torch.equal(one, other) for one, other in zip(bare.logits, run.logits, strict=True))
    assert kernel_of(model) is kernel
    assert hooks_of(model) == hooks


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
def test_everything_is_removed_when_the_model_raises(patient_of: PatientOf, backend: str) -> None:
    model = patient_of("gemma-3-270m", backend).reduced
    kernel, hooks = kernel_of(model), hooks_of(model)
    with pytest.raises(IndexError), recording(model, recorder_for(ids(4))):
        model(torch.tensor([[10**6]]))
    assert kernel_of(model) is kernel
    assert hooks_of(model) == hooks


def test_another_model_is_passed_through(patient_of: PatientOf) -> None:
    ours, other = patient_of("gemma-3-270m", "sdpa").reduced, patient_of("gemma-3-1b-it", "sdpa").reduced
    tokens = ids(5)
    recorder = recorder_for(tokens)
    with torch.inference_mode(), recording(ours, recorder):
        other(tokens)
    assert recorder.forwards == []


def test_a_crash_knows_its_step_and_layer(patient_of: PatientOf) -> None:
    model = patient_of("gemma-3-270m", "sdpa").reduced

    def fail(_module: Any, args: tuple[torch.Tensor, ...]) -> None:
        if args[0].shape[1] == 1:
            raise RuntimeError("boom\nsecond line")

    tokens = ids(6)
    hook = attention_modules(model)[2].q_proj.register_forward_pre_hook(fail)
    try:
        run = runs.generate(model, tokens, 4, recorder=recorder_for(tokens))
    finally:
        hook.remove()
    assert run.crash is not None
    assert (run.crash.kind, run.crash.message, run.crash.step, run.crash.total) == (
        "RuntimeError",
        "boom second line",
        1,
        7,
    )
    assert run.crash.layer == 2


def test_a_fault_of_ours_is_not_blamed_on_the_subject(patient_of: PatientOf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemma_doctor.capture.recorder.dtype_name", None)
    tokens = ids(6)
    with pytest.raises(TypeError):
        runs.generate(patient_of("gemma-3-270m").reduced, tokens, 2, recorder=recorder_for(tokens))


def test_arguments_of_the_kernel_may_come_by_name(patient_of: PatientOf) -> None:
    """AFMoE and others call the attention function with keywords."""
    model = patient_of("gemma-3-270m", "sdpa").reduced
    module = next(iter(attention_modules(model).values()))
    recorder = recorder_for(ids(3))
    recorder._running = recorder_module._Running(3)
    seen: list[dict[str, Any]] = []
    watched = recorder.watch_kernel("sdpa", {id(module)})(lambda *args, **kwargs: seen.append({"args": args, **kwargs}))
    states = torch.zeros(1, 2, 3, 4)
    watched(module, query=states, key=states, value=states, attention_mask=None, sliding_window=2)
    watched(module, states, states, states, None, scaling=1.0)
    first, second = recorder._running.calls
    assert (first.key_shape, first.window_argument, second.window_argument) == ((1, 2, 3, 4), 2, None)
    assert seen[0]["args"] == (module,) and seen[1]["scaling"] == 1.0


@pytest.mark.parametrize("name", ["gemma-2-2b", "gemma-3-1b-it", "gemma-4-E2B-it", "mistral-7b-v0.1", "gpt-oss-20b"])
def test_what_a_healthy_generation_looks_like(patient_of: PatientOf, name: str) -> None:
    patient = patient_of(name)
    window = patient.reduced_window
    assert window == 64
    tokens = ids(window - 2)
    run = runs.generate(patient.reduced, tokens, 5, recorder=recorder_for(tokens))
    assert run.crash is None
    assert [forward.fed for forward in run.forwards] == [window - 2, 1, 1, 1, 1]
    layers = sorted(attention_modules(patient.reduced))
    for forward in run.forwards:
        assert sorted(call.layer for call in forward.calls) == layers
        assert forward.positions is not None and forward.positions_agree
        assert forward.positions[0].tolist() == list(range(forward.start, forward.total))
        assert all(cache.seen == forward.total for cache in forward.cache)


def test_keys_are_recognised_across_the_edge(patient_of: PatientOf) -> None:
    """After the window has rolled, each key that the kernel gets is the one of its token."""
    settings = Settings(weights="skeleton")
    collector = Collector(patient_of("gemma-3-270m"), settings, lambda line: None)
    (crossing,) = (one for one in collector.trace.passes if one.name == "long generate")
    seen = 0
    for forward in crossing.forwards:
        for call in forward.calls:
            if call.key_positions is None:
                continue
            seen += 1
            first = max(0, forward.total - 64) if collector.trace.layer_kinds[call.layer] == SLIDING else 0
            assert call.key_positions[0].tolist() == list(range(first, forward.total))
    assert seen == 42  # six layers; four steps around the edge, at 80, 96 and 112 tokens


@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_forced_text_runs_to_its_end_whatever_is_in_it(patient_of: PatientOf, place: int) -> None:
    model = patient_of("gemma-3-270m", "sdpa").reduced
    forced = torch.tensor([7, 8, 9, 10])
    forced[place] = compat.end_tokens(model)[0]
    run = runs.generate(model, ids(5), 4, recorder=recorder_for(ids(5)), forced=forced)
    assert run.tokens[0, 5:].tolist() == forced.tolist()


def test_without_a_cache_every_forward_is_a_text_anew(patient_of: PatientOf) -> None:
    """Generation with use_cache=False feeds the whole text at every step."""
    model = patient_of("gemma-3-270m", "sdpa").reduced
    recorder = recorder_for(ids(10), wanted=lambda start, total: range(start, total))
    with torch.inference_mode(), recording(model, recorder):
        for length in (10, 11, 12):
            model(ids(12)[:, :length], use_cache=False)
    assert [(forward.start, forward.fed) for forward in recorder.forwards] == [(0, 10), (0, 11), (0, 12)]
    reading = recorder.forwards[-1].calls[0].reading
    assert reading is not None
    assert reading.queries.tolist() == list(range(12))


def test_the_collector_makes_each_thing_once(patient_of: PatientOf, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = compat.generate

    def counted(model: Any, tokens: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        calls.append(tokens.shape[1])
        return original(model, tokens, *args, **kwargs)

    monkeypatch.setattr(compat, "generate", counted)
    collector = Collector(patient_of("mistral-7b-v0.1"), Settings(weights="skeleton"), lambda line: None)
    for _ in range(2):
        for kind in list(collector._makers):
            with suppress(NotApplicable):  # what a skeleton has not: a tokenizer, trained weights, a GGUF file
                collector.get(kind)
    # long generate, W-1, W, W+1, 2W, two turns, batch, true window; the profile of the kernels
    assert calls == [56, 63, 64, 65, 128, 54, 70, 68, 4088, 72]


def test_the_trace_holds_every_pass_of_the_checklist(patient_of: PatientOf) -> None:
    trace = Collector(patient_of("gemma-3-1b-it"), Settings(weights="skeleton"), lambda line: None).trace
    assert [one.name for one in trace.passes] == [
        "long generate",
        "prompt W-1",
        "prompt W",
        "prompt W+1",
        "prompt 2W",
        "scored 2W",
        "second turn",
        "padded batch",
        "true window",
    ]
    assert all(one.crash is None for one in trace.passes)
    assert [one.window for one in trace.passes] == [64] * 8 + [512]


def test_arrays_of_the_evidence_cannot_be_written(patient_of: PatientOf) -> None:
    trace = Collector(patient_of("gemma-3-1b-it"), Settings(weights="skeleton"), lambda line: None).trace
    forward = trace.passes[0].forwards[0]
    for array in (forward.real, forward.positions, trace.rotations[0].frequencies, forward.turns[0].angles):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0


# --- rotation --------------------------------------------------------------------------------------------------------

# halves (f0, f1 .. f0, f1 ..), neighbours (f0, f0, f1, f1 ..), each pair once (f0, f1 ..); queries apart from keys
LAYOUTS = ["gemma-3-1b-it", "c4ai-command-r7b-12-2024", "gpt-oss-20b", "gemma-4-E2B-it"]


@pytest.mark.parametrize("preset", LAYOUTS)
def test_the_turns_of_a_run_are_those_of_its_positions(patient_of: PatientOf, preset: str) -> None:
    model = patient_of(preset, "eager").reduced
    run = runs.generate(model, ids(9), 3, recorder=recorder_for(ids(9)))
    rotations = run.recorder.rotations
    assert all(one.distortion is not None and one.distortion < 1e-6 for one in rotations.values())
    for forward in run.forwards:
        assert sorted(layer for one in forward.turns for layer in one.layers) == sorted(attention_modules(model))
        for one in forward.turns:
            assert one.position == forward.total - 1
            for layer in rotations.keys() & one.layers:  # layers with shared keys may not have computed position 1
                due = np.exp(1j * one.position * rotations[layer].frequencies)
                assert np.allclose(np.exp(1j * one.angles), due, atol=1e-4)


@pytest.mark.parametrize("preset", ["gemma-3-1b-it", "c4ai-command-r7b-12-2024"])
def test_cos_and_sin_for_other_pairs_are_seen_to_distort(patient_of: PatientOf, preset: str) -> None:
    patient = patient_of(preset, "eager")
    with all_faults()["rotation-interleaved"].inject(patient):
        run = runs.generate(patient.reduced, ids(9), 1, recorder=recorder_for(ids(9)))
    assert all((one.distortion or 0.0) > 0.05 for one in run.recorder.rotations.values())


def test_rounded_positions_are_seen_where_rounding_shows(patient_of: PatientOf) -> None:
    model, tokens = patient_of("gemma-3-1b-it").model, ids(260)
    with all_faults()["positions-in-half-precision"].inject(patient_of("gemma-3-1b-it")):
        run = runs.generate(model, tokens, 1, recorder=recorder_for(tokens))
    (forward,) = run.forwards
    assert forward.positions is not None and forward.positions[0, -1] == 259
    fast = forward.turns[0].angles[0]
    assert np.isclose(fast % (2 * np.pi), 260 % (2 * np.pi), atol=1e-4)


# --- masks -----------------------------------------------------------------------------------------------------------


def facts(mask: Any) -> MaskFacts:
    made = mask_facts(mask)
    assert made is not None
    return made


CELLS = torch.tensor([[[[True, False, False], [True, True, False], [False, False, False]]]])


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.bfloat16, torch.float16])
def test_dense_masks_read_the_same_in_every_dtype(dtype: torch.dtype) -> None:
    mask = CELLS if dtype is torch.bool else torch.where(CELLS, 0.0, torch.finfo(dtype).min).to(dtype)
    made = facts(mask)
    assert made.dtype == str(dtype).removeprefix("torch.")
    assert made.readable().tolist() == CELLS.tolist()
    assert made.count is not None and made.count.tolist() == [[[1, 2, 0]]]
    assert made.first is not None and made.first.tolist() == [[[0, 0, -1]]]
    assert (made.between, made.nans) == (0, 0)


def test_odd_values_are_counted() -> None:
    made = facts(torch.tensor([[[[0.0, -1.0, 1.0, float("nan"), float("-inf")]]]]))
    assert (made.between, made.nans) == (2, 1)
    assert made.readable().tolist() == [[[[True, True, True, False, False]]]]


def test_other_forms() -> None:
    assert mask_facts(None) is None
    assert facts(torch.ones(2, 5)).form == "padding"
    assert facts(torch.ones(2, 5, 5)).form == "other"
    assert facts(object()).form == "other"


def test_an_empty_key_axis() -> None:
    made = facts(torch.zeros(1, 1, 2, 0, dtype=torch.bool))
    assert made.count is not None and made.count.tolist() == [[[0, 0]]]


def said_no() -> None:
    raise ValueError(
        "this cache cannot be rolled back",
    )


def slipped() -> None:
    max([])


@pytest.mark.parametrize(("work", "refused"), [(said_no, True), (slipped, False)])
def test_a_refusal_is_raised_on_purpose(work: Callable[[], None], refused: bool) -> None:
    with pytest.raises(ValueError) as caught:
        work()
    assert recorder_for(ids(4)).crash(caught.value).refused is refused


def test_what_comes_after_a_forward_of_the_same_request_is_no_refusal(patient_of: PatientOf) -> None:
    model, tokens = patient_of("gemma-3-270m").reduced, ids(6)
    recorder = recorder_for(tokens)

    def forward_then_no() -> None:
        model(tokens)
        said_no()

    run = runs.Run(recorder, tokens)
    runs.watched(model, run, forward_then_no)
    assert run.crash is not None and not run.crash.refused
    run = runs.Run(recorder, tokens)
    runs.watched(model, run, said_no)  # another request
    assert run.crash is not None and run.crash.refused


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("num_beams", 4),
        ("num_return_sequences", 2),
        ("guidance_scale", 1.5),
        ("prompt_lookup_num_tokens", 3),
        ("prefill_chunk_size", 3),
        ("stop_strings", ["x"]),
        ("max_time", 1e-6),
        ("repetition_penalty", 9.0),
        ("cache_implementation", "offloaded"),
    ],
)
def test_settings_of_another_way_of_generating_are_left_out(
    patient_of: PatientOf, monkeypatch: pytest.MonkeyPatch, setting: str, value: object
) -> None:
    model, tokens = patient_of("gemma-3-270m").reduced, ids(12)
    plain = runs.generate(model, tokens, 4, recorder=recorder_for(tokens))
    own = model.generation_config
    monkeypatch.setattr(own, setting, value, raising=False)
    run = runs.generate(model, tokens, 4, recorder=recorder_for(tokens))
    assert run.crash is None
    assert torch.equal(run.tokens, plain.tokens)
    assert all(torch.equal(one, other) for one, other in zip(run.logits, plain.logits, strict=True))
    assert model.generation_config is own
    assert (setting in compat.other_ways(model)) is (setting in compat.OTHER_WAYS)


def test_a_key_that_is_zero_when_it_is_stored_is_no_empty_slot() -> None:
    """A pad whose row of the embedding is zero has one; a slot where another token's key should be is empty."""
    known = torch.randn(4, 8)
    known[0] = 0.0
    held = known.clone()
    assert _positions(held, known, 0).tolist() == [0, 1, 2, 3]
    held[2] = 0.0
    assert _positions(held, known, 0).tolist() == [0, 1, EMPTY_SLOT, 3]
