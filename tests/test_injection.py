"""What faults change, and when; and that a change which fails half way is undone as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from gemma_doctor import compat
from gemma_doctor.capture.hooks import Fed, hooked
from gemma_doctor.capture.model_facts import attention_modules, rotary_tensors, text_decoder
from gemma_doctor.faults import all_faults, one_attention_of
from gemma_doctor.loading import Patient
from gemma_doctor.undone import attributes_set, method_replaced, tensors_set

PatientOf = Callable[..., Patient]
BEYOND_THE_WINDOW = 128  # tokens; a skeleton's reduced window is smaller


@torch.inference_mode()
def outputs(model: Any, tokens: int) -> list[bytes]:
    """Logits after a prompt, as generate() asks for them, and of the step after it."""
    ids = torch.arange(10, 10 + tokens, device=model.device)[None]
    cache = compat.cache_argument(compat.dynamic_cache(model))
    prompt, step = model(ids, use_cache=True, logits_to_keep=1, **cache), model(ids[:, :1], use_cache=True, **cache)
    return [one.logits.numpy().tobytes() for one in (prompt, step)]


@pytest.mark.parametrize("preset", ["gemma-3-1b-it", "gemma-4-E2B-it"])
def test_a_window_ignored_at_decode_leaves_prompts_alone(patient_of: PatientOf, preset: str) -> None:
    """Shared layers of Gemma 4 compute one query of a prompt where one token's logits are asked for: no decode step."""
    patient, fault = patient_of(preset, "sdpa"), all_faults()["window-ignored-at-decode"]
    if fault.why_not(patient):
        pytest.skip(fault.why_not(patient))
    healthy = outputs(patient.reduced, BEYOND_THE_WINDOW)
    with fault.inject(patient):
        sick = outputs(patient.reduced, BEYOND_THE_WINDOW)
    assert sick[0] == healthy[0]
    assert sick[1] != healthy[1]


@pytest.mark.parametrize("tokens", [1, 3, 4, 9])
def test_keys_of_another_request_are_mixed_in_however_few_there_are(patient_of: PatientOf, tokens: int) -> None:
    patient, fault = patient_of("gemma-3-1b-it", "sdpa"), all_faults()["keys-of-another-request"]
    if fault.why_not(patient):
        pytest.skip(fault.why_not(patient))
    layer = int(one_attention_of(patient.reduced).layer_idx)
    healthy = held(patient, tokens, layer)
    with fault.inject(patient):
        sick = held(patient, tokens, layer)
    for own, mixed in zip(healthy, sick, strict=True):
        assert mixed.shape == own.shape
        assert int((mixed != own).any(dim=-1).any(dim=1).sum()) == min(tokens, 4)
    assert not torch.equal(sick[0], sick[1])


@torch.inference_mode()
def held(patient: Patient, tokens: int, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
    model = patient.reduced
    ids = torch.arange(50, 50 + tokens, device=model.device)[None]
    return compat.held_states(compat.returned_cache(model(ids, use_cache=True)), layer)


def test_what_a_forward_is_fed(patient_of: PatientOf) -> None:
    model = patient_of("gemma-3-1b-it", "sdpa").reduced
    ids, padding = torch.arange(10, 16).reshape(2, 3), torch.tensor([[0, 1, 1], [1, 1, 1]])
    fed: list[Fed] = []
    with hooked([text_decoder(model)], lambda *seen: fed.append(Fed.of(*seen))), torch.inference_mode():
        cache = compat.cache_argument(compat.dynamic_cache(model))
        model(ids, attention_mask=padding, use_cache=True, **cache)
        model(ids[:, :1], use_cache=True, **cache)
        model(ids[:, :1], use_cache=False)
    assert [(one.start, one.columns, one.is_decode_step, one.uncached) for one in fed] == [
        (0, 3, False, False),
        (3, 1, True, False),
        (0, 1, False, True),
    ]
    assert fed[0].padding is not None
    assert fed[0].padding.tolist() == padding.bool().tolist()
    assert fed[1].padding is None
    assert [one.decoder for one in fed] == [text_decoder(model)] * 3


# --- undone whatever happens -----------------------------------------------------------------------------------------


class Picky:
    """Refuses one value."""

    def __init__(self) -> None:
        self._size = 1

    @property
    def size(self) -> int:
        return self._size

    @size.setter
    def size(self, value: int) -> None:
        if value < 0:
            raise ValueError(value)
        self._size = value

    def speak(self) -> str:
        return "its class's"


def test_attributes_are_as_before_when_the_second_cannot_be_set() -> None:
    first, second = Picky(), Picky()
    with pytest.raises(ValueError, match="-1"), attributes_set([(first, "size", 2), (second, "size", -1)]):
        pass
    assert (first.size, second.size) == (1, 1)


def test_tensors_are_as_before_when_the_second_has_another_shape() -> None:
    first, second = torch.zeros(3), torch.zeros(2)
    with pytest.raises(RuntimeError), tensors_set([(first, torch.ones(3)), (second, torch.ones(3))]):
        pass
    assert first.tolist() == [0, 0, 0]


def test_a_rotary_table_of_another_size_leaves_nothing_behind(patient_of: PatientOf) -> None:
    decoder = text_decoder(patient_of("gemma-3-1b-it", "sdpa").reduced)
    before = {name: tensor.clone() for name, tensor in decoder.named_buffers()}
    factors = [vars(module).copy() for module in decoder.modules() if hasattr(module, "rope_type")]
    name, _, tensor = rotary_tensors(decoder)[0]
    with pytest.raises(RuntimeError), compat.rotary_table_replaced(decoder, name, torch.ones(len(tensor) + 1), 2.0):
        pass
    assert all(torch.equal(before[name], tensor) for name, tensor in decoder.named_buffers())
    assert [vars(module) for module in decoder.modules() if hasattr(module, "rope_type")] == factors


def test_a_method_is_its_classs_again_or_its_own() -> None:
    one = Picky()
    with method_replaced(one, "speak", lambda: "another"):
        assert one.speak() == "another"
    assert "speak" not in vars(one)
    own = one.speak = lambda: "its own"  # type: ignore[method-assign]
    with method_replaced(one, "speak", lambda: "another"):
        pass
    assert one.speak is own


def test_layers_that_share_keys_have_none_of_their_own(patient_of: PatientOf) -> None:
    modules = attention_modules(patient_of("gemma-4-E2B-it", "sdpa").reduced).values()
    own = [compat.has_own_keys(module) for module in modules]
    assert any(own)
    assert not all(own)
