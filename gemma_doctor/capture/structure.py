"""The modules that the installed transformers builds from a configuration: whole, and without weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from gemma_doctor import compat, skeleton
from gemma_doctor.capture.model_facts import attention_modules, layer_facts, loaded_config
from gemma_doctor.errors import DoctorError

if TYPE_CHECKING:
    from gemma_doctor.evidence import ConfigFacts, LayerFacts
    from gemma_doctor.subject import Subject


@dataclass(frozen=True)
class Structure:
    """A decoder as it is built.

    Attributes:
        config: that it carries, class defaults filled in.
        layers: by index, ascending.
        scales: what queries times keys are multiplied by, by layer; those of modules that keep it in no attribute are
            not known.
    """

    config: ConfigFacts
    layers: tuple[LayerFacts, ...]
    scales: Mapping[int, float]


def structure(subject: Subject) -> Structure:
    """Build a subject's text decoder on torch's meta device, where a parameter has a shape and no numbers.

    Raises:
        DoctorError: the installed transformers does not know the family, refuses the configuration, or has no language
            model for the text part alone.
    """
    from transformers import AutoModelForCausalLM

    with skeleton.building(subject):
        config = skeleton.text_config(subject.published)
        if not skeleton.can_build(config):
            raise DoctorError(
                f"{subject.name}: transformers has no language model for the text part alone",
                "gemma-doctor presets lists models that it has one for",
            )
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
    scales = {index: compat.score_scale(module) for index, module in attention_modules(model).items()}
    known = {index: scale for index, scale in scales.items() if scale is not None}
    return Structure(loaded_config(model), layer_facts(model), known)
