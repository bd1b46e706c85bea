"""The readout against the library's own attention weights, and the identification of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from gemma_doctor import compat
from gemma_doctor.capture import runs
from gemma_doctor.capture.keys import KeyBook
from gemma_doctor.capture.model_facts import attention_modules
from gemma_doctor.capture.recorder import Recorder
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import EMPTY_SLOT, FOREIGN, UNRECOGNISED, Floats32, Forward, KernelCall
from gemma_doctor.loading import Patient

PatientOf = Callable[..., Patient]
FAMILIES = (
    "c4ai-command-r7b-12-2024",
    "gemma-2-2b",
    "gemma-2b",
    "gemma-3-1b-it",
    "gemma-3n-E2B-it",
    "gemma-4-E2B-it",
    "gemma-4-26B-A4B-it",
    "gpt-oss-20b",
    "llama-3.1-8b-instruct",
    "mistral-7b-v0.1",
    "mixtral-8x7b-v0.1",
    "olmo-3.1-32b-instruct",
    "phi-3-mini-4k-instruct",
    "qwen2.5-7b-instruct",
    "starcoder2-7b",
    "vaultgemma-1b",
)
PROMPT, STEPS = 96, 3
# Between two kernels, or two lengths, sums are rounded otherwise. Measured over all families: 4e-6 in 5.24; up to
# 1.4e-5 where caches have empty slots (4.53).
SAME_WEIGHTS = 1e-4


def everything(start: int, total: int) -> range:
    return range(start, total)


def recorded(patient: Patient, tokens: int = PROMPT, steps: int = STEPS) -> runs.Run:
    """A generation at the reduced window in which everything is read."""
    ids = torch.arange(10, 10 + tokens)[None]
    recorder = Recorder(np.ones(ids.shape, bool), everything)
    return runs.generate(patient.reduced, ids, steps, recorder=recorder)


def own_weights(patient: Patient, tokens: torch.Tensor) -> list[Floats32]:
    """What the library says of one eager forward, by layer, shape (b, heads, q, k)."""
    shares_kv = any(getattr(module, "is_kv_shared_layer", False) for module in patient.reduced.modules())
    with torch.inference_mode(), compat.attention_backend_set(patient.reduced, "eager"):
        output = patient.reduced(tokens, output_attentions=True, use_cache=shares_kv)
    return [layer.float().numpy() for layer in output.attentions]


def read_calls(run: runs.Run) -> Iterator[tuple[Forward, KernelCall, Floats32]]:
    for forward in run.forwards:
        for call in forward.calls:
            assert call.reading is not None
            yield forward, call, call.reading.weights


@pytest.mark.parametrize("backend", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_readout_is_what_the_library_says_it_computes(patient_of: PatientOf, family: str, backend: str) -> None:
    try:
        patient = patient_of(family, backend)
    except DoctorError as error:
        pytest.skip(error.message)
    if backend == "sdpa" and getattr(compat.text_config(patient.reduced), "attn_logit_softcapping", None):
        pytest.skip("sdpa drops the soft-cap: a fault of the library, and what is read is what it computes")
    run = recorded(patient)
    expected = own_weights(patient, run.tokens)
    looked = 0
    for forward, call, weights in read_calls(run):
        first_query, first_key = forward.first_query(call), forward.first_key(call)
        rows, keys = weights.shape[2:]
        theirs = expected[call.layer][:, :, first_query : first_query + rows, first_key : first_key + keys]
        assert np.abs(weights - theirs).max() < SAME_WEIGHTS
        looked += rows
    assert looked >= STEPS * len(expected)


def test_rows_sum_to_1_or_less_with_sinks(patient_of: PatientOf) -> None:
    for family, least, most in (("gemma-3-1b-it", 0.99999, 1.00001), ("gpt-oss-20b", 0.001, 0.999)):
        run = recorded(patient_of(family, "eager"))
        sums = np.concatenate([weights.sum(axis=-1).ravel() for _, _, weights in read_calls(run)])
        assert least < sums.min()
        assert sums.mean() < most


def test_every_key_is_recognised_before_and_after_the_cache_rolls(patient_of: PatientOf) -> None:
    run = recorded(patient_of("gemma-3-1b-it", "sdpa"), tokens=60, steps=12)
    for forward, call, _ in read_calls(run):
        first = forward.first_key(call)
        assert call.key_positions is not None
        slots = range(first, first + call.key_shape[2])  # fixed-size caches have more than there are tokens
        assert call.key_positions[0].tolist() == [token if token < forward.total else EMPTY_SLOT for token in slots]
    assert forward.total > 64


@contextmanager
def keys_rolled(patient: Patient, by: int) -> Iterator[None]:
    """The sliding layers hand their keys over in another order from the first decode step on."""

    def wrap(update: Callable[..., Any]) -> Callable[..., Any]:
        def rolled(self: Any, keys: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            held = update(self, keys, *args, **kwargs)
            return tuple(one.roll(by, dims=2) for one in held) if keys.shape[2] == 1 else held

        return rolled

    from transformers import cache_utils

    kinds = [cache_utils.DynamicSlidingWindowLayer, cache_utils.StaticSlidingWindowLayer]
    updates = [kind.update for kind in kinds]
    for kind, update in zip(kinds, updates, strict=True):
        kind.update = wrap(update)
    try:
        yield
    finally:
        for kind, update in zip(kinds, updates, strict=True):
            kind.update = update


@pytest.mark.skipif(bool(compat.why_no_cache_layers()), reason="no layer objects")
def test_a_rolled_cache_is_named_with_the_tokens_that_it_holds(patient_of: PatientOf) -> None:
    patient = patient_of("gemma-3-1b-it", "sdpa")
    with keys_rolled(patient, by=5):
        run = recorded(patient, tokens=70, steps=3)
    rolled = [
        (forward.first_key(call), call.key_positions[0].tolist())
        for forward, call, _ in read_calls(run)
        if forward.is_decode_step and call.key_positions is not None and call.key_shape[2] == 64
    ]
    assert rolled
    for first, held in rolled:
        due = list(range(first, first + 64))
        assert held == due[-5:] + due[:-5]


@contextmanager
def attention_forced(patient: Patient, token: int) -> Iterator[None]:
    """At decode steps every layer reads one token and nothing else. It is found by its key, not by counting."""
    own: dict[int, torch.Tensor] = {}

    def wrap(kernel: Callable[..., Any]) -> Callable[..., Any]:
        def forced(module: Any, query: Any, key: Any, value: Any, mask: Any, *args: Any, **kwargs: Any) -> Any:
            if query.shape[2] > 1:
                own[module.layer_idx] = key[:, :, token].clone()
            else:
                there = (key == own[module.layer_idx][:, :, None]).all(dim=-1).all(dim=1)
                assert there.sum() == 1
                mask = torch.where(there, 0.0, torch.finfo(query.dtype).min)[:, None, None]
            return kernel(module, query, key, value, mask, *args, **kwargs)

        return forced

    name = type(next(iter(attention_modules(patient.reduced).values()))).__module__
    with compat.attention_function_wrapped(name, patient.backend, wrap):
        yield


def test_attention_forced_onto_a_known_key_is_read_there(patient_of: PatientOf) -> None:
    patient = patient_of("gemma-3-1b-it", "eager")
    token = 66
    with attention_forced(patient, token):
        run = recorded(patient, tokens=100, steps=4)
    rolled = 0
    for forward, call, weights in read_calls(run):
        if forward.is_decode_step:
            assert call.key_positions is not None
            assert call.key_positions[0, weights.argmax(axis=-1)].tolist() == [[[token]] * 4]
            assert (weights.argmax(axis=-1) + forward.first_key(call) == token).all()
            rolled += forward.first_key(call) > 0
    assert rolled


def test_a_key_book_names_what_it_knows_and_nothing_else() -> None:
    generator = torch.Generator().manual_seed(1)
    keys = torch.randn(1, 2, 20, 16, generator=generator)
    book = KeyBook()
    assert book.recognise(0, keys, 0) is None
    book.store(0, keys, 0)
    held = keys[:, :, [12, 13, 5, 15]].clone()
    held = torch.cat([held, torch.zeros(1, 2, 1, 16), torch.randn(1, 2, 1, 16, generator=generator)], dim=2)
    recognised = book.recognise(0, held, 12)
    assert recognised is not None
    assert recognised.tolist() == [[12, 13, 5, 15, EMPTY_SLOT, FOREIGN]]


def test_keys_that_are_not_finite_are_not_told_and_the_others_are() -> None:
    keys = torch.randn(1, 1, 8, 16, generator=torch.Generator().manual_seed(1))
    keys[..., :5, :] = float("nan")
    book = KeyBook()
    book.store(0, keys, 0)
    recognised = book.recognise(0, keys[:, :, 4:], 4)
    assert recognised is not None
    assert recognised.tolist() == [[UNRECOGNISED, 5, 6, 7]]


def test_a_key_book_forgets_what_is_fed_anew() -> None:
    generator = torch.Generator().manual_seed(1)
    old, new = (torch.randn(1, 1, 8, 16, generator=generator) for _ in range(2))
    book = KeyBook()
    book.store(0, old, 0)
    book.store(0, new[:, :, 4:], 4)
    recognised = book.recognise(0, old, 0)
    assert recognised is not None
    assert recognised.tolist() == [[0, 1, 2, 3] + [FOREIGN] * 4]


def test_a_key_book_that_missed_tokens_says_nothing() -> None:
    keys = torch.randn(1, 1, 4, 16, generator=torch.Generator().manual_seed(1))
    book = KeyBook()
    book.store(0, keys, 0)
    book.store(0, keys, 6)
    assert book.recognise(0, keys, 0) is None


def test_keys_that_are_all_the_same_are_taken_for_what_they_should_be() -> None:
    """Layers without rotation have one key for all occurrences of a token in the first layer."""
    keys = torch.ones(1, 1, 6, 16)
    book = KeyBook()
    book.store(0, keys, 0)
    recognised = book.recognise(0, keys[:, :, :5], 2)
    assert recognised is not None
    assert recognised.tolist() == [[2, 3, 4, 5, UNRECOGNISED]]  # six were stored
