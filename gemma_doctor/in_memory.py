"""From a model object in memory to a Patient. The model is in eval mode already (see restored.py)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gemma_doctor import compat, published
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import Config
from gemma_doctor.expectations import expectations, origin
from gemma_doctor.loading import Patient, other_ways, require_attention, require_decoder
from gemma_doctor.settings import Settings
from gemma_doctor.subject import IN_MEMORY, Subject, not_a_decoder

NAMED_AS = "_name_or_path"
CARRIED = "the model's own configuration"
AS_IT_IS = f"published = {CARRIED}, as it is in memory"
LOAD = "load it with AutoModelForCausalLM"


def unwrapped(model: Any) -> tuple[Any, tuple[str, ...]]:
    """The library's model inside of what was given, and remarks about its state.

    Raises:
        DoctorError: there is none, or none that can be examined.
    """
    try:
        inner, taken = compat.inner_model(model)
    except ValueError as error:
        raise DoctorError(f"diagnose(): {error}", "give the transformers model inside of it") from None
    if not compat.writes_tokens(inner):
        raise DoctorError(f"diagnose(): {type(inner).__name__} has no head that writes tokens", LOAD)
    if compat.fed_on(inner).type == "meta":
        raise DoctorError(f"diagnose(): the weights of this {type(inner).__name__} are not loaded (meta device)", LOAD)
    adapters = compat.adapters_in_force(inner)
    remarks = [*taken]
    remarks += [f"with its adapter {', '.join(adapters)} as active"] if adapters else []
    remarks += ["in train mode: examined in eval mode, put back afterwards"] if inner.training else []
    return inner, tuple(remarks)


def tokenizer_of(given: Any) -> Any:
    """The tokenizer that was given, or the one in a processor; None for None.

    Raises:
        DoctorError: it is neither.
    """
    try:
        return None if given is None else compat.inner_tokenizer(given)
    except ValueError as error:
        raise DoctorError(f"diagnose(): {error}", "AutoTokenizer.from_pretrained() makes one") from None


def patient_of(model: Any, tokenizer: Any | None, settings: Settings, remarks: tuple[str, ...] = ()) -> Patient:
    """A patient for a model of the library, as it is.

    Raises:
        DoctorError: it is no decoder that this tool examines, or `settings.expect` cannot be read.
    """
    from gemma_doctor.capture.masks import dtype_name

    subject = _subject(model, settings, remarks)
    require_decoder(subject)
    require_attention(model)
    window = compat.window(compat.text_config(model))
    return Patient(
        subject=subject,
        model=model,
        reduced=model,
        tokenizer=tokenizer,
        window=window,
        reduced_window=window,
        padding_side="left" if tokenizer is None else tokenizer.padding_side,
        cut="",
        dtype=dtype_name(next(model.parameters()).dtype),
        device=str(compat.fed_on(model)),
        backend=compat.attention_backend(model),
    )


def _subject(model: Any, settings: Settings, remarks: tuple[str, ...]) -> Subject:
    mapping, named = _carried(model), str(model.name_or_path or "")
    name = named or type(model).__name__
    reason = not_a_decoder(mapping)
    if reason:
        raise DoctorError(f"not a decoder that this tool examines: {name} is {reason}", LOAD)
    facts = published.read(mapping, CARRIED)
    comes_from = origin(facts, "", mapping)
    held = f"; held against {comes_from.comparable.origin}" if comes_from.comparable and not settings.expect else ""
    return Subject(
        name=name,
        kind=IN_MEMORY,
        published=mapping,
        config=Config(facts, expectations(facts, comes_from.comparable, False, settings.expect), base=comes_from.base),
        folder=None,
        weights="real",
        remarks=tuple(filter(None, (AS_IT_IS + held, *remarks, other_ways(model)))),
    )


def _carried(model: Any) -> Mapping[str, Any]:
    """A model's configuration as a file would have it, with the name that the model was loaded by."""
    return {**compat.carried(model.config), NAMED_AS: str(model.name_or_path or "")}
