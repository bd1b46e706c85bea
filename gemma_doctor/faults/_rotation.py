"""Changes the cos and sin that rotary modules hand to the layers, and the tables that they are made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch

from gemma_doctor import compat
from gemma_doctor.capture.hooks import Fed, hooked
from gemma_doctor.capture.model_facts import attention_modules, loaded_config, rotary_tensors, text_decoder
from gemma_doctor.capture.rotation import Rotation, rotary_modules
from gemma_doctor.evidence import RopeClaim
from gemma_doctor.loading import Patient
from gemma_doctor.oracle import inverse_frequencies


@contextmanager
def rotation_edited(patient: Patient, edit: Callable[[Any, Rotation, bool], Rotation]) -> Iterator[None]:
    """Let rotary modules hand out another cos and sin.

    Args:
        patient: whose models are changed.
        edit: from what tells one rotary module and layer kind from another, its cos and sin, and whether this is a
            decode step, to what is handed out instead. Asked at every forward.
    """
    decoding = [False]

    def begin(decoder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        decoding[0] = Fed.of(decoder, args, kwargs).is_decode_step

    def change(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], rotation: Rotation) -> Rotation:
        kind = next((one for one in (*args, *kwargs.values()) if isinstance(one, str)), "")
        return edit((id(module), kind), rotation, decoding[0])

    with ExitStack() as stack:
        decoders = [text_decoder(model) for model in patient.models]
        stack.enter_context(hooked(decoders, begin))
        for module in (one for decoder in decoders for one in rotary_modules(decoder)):
            stack.callback(module.register_forward_hook(change, with_kwargs=True).remove)
        yield


def handed_rotation(patient: Patient) -> Rotation | None:
    """Cos and sin of a text of two tokens, as some rotary module of a patient hands them out."""
    seen: list[Rotation] = []

    def keep(_key: Any, rotation: Rotation, _decoding: bool) -> Rotation:
        seen.append(rotation)
        return rotation

    model = patient.reduced
    with rotation_edited(patient, keep), torch.inference_mode():
        model(input_ids=torch.arange(10, 12, device=model.device)[None])
    return seen[0] if seen else None


def claims(model: Any) -> dict[str, RopeClaim]:
    """Rotary parameters of each kind of layers that has a table of its own; under "" those of a table for all."""
    loaded = loaded_config(model).rope
    kinds = {kind for _, kind, _ in rotary_tensors(model)}
    one = next(iter(loaded.values()), None)
    found = {
        kind: loaded.get(kind) or loaded.get("") or (one if kind == "" and len(loaded) == 1 else None) for kind in kinds
    }
    return {kind: replace(claim, rope_type=claim.rope_type or "default") for kind, claim in found.items() if claim}


def is_scaled(claim: RopeClaim) -> bool:
    return claim.rope_type != "default"


@contextmanager
def built_with(patient: Patient, wrong: Callable[[Any], Mapping[str, RopeClaim]]) -> Iterator[None]:
    """Let rotary tables be as if they had been built from other parameters.

    Args:
        patient: whose models are changed.
        wrong: from a model to parameters, by the layer kind of the tables that are built from them.
    """
    with ExitStack() as stack:
        for model in patient.models:
            decoder, other = text_decoder(model), wrong(model)
            for name, kind, tensor in rotary_tensors(model):
                if kind in other:
                    values, factor = inverse_frequencies(
                        other[kind], _head_dim(model, kind), loaded_config(model).max_positions
                    )
                    frequencies = torch.tensor(values, dtype=tensor.dtype)
                    stack.enter_context(compat.rotary_table_replaced(decoder, name, frequencies, factor))
        yield


def _head_dim(model: Any, kind: str) -> int:
    """Of the layers of a kind, or of all."""
    config = compat.text_config(model)
    kinds = compat.layer_kinds(config)
    modules = (one for layer, one in attention_modules(model).items() if kind in ("", kinds[layer]))
    return int(getattr(next(modules), "head_dim", None) or compat.head_dim(config))
