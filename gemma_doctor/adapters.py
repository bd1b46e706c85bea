"""Adapters as PEFT saves them: small weights that are laid over those of a base model.

They are merged into the base: what is then examined has the modules of a plain model, which the instruments know, and
its logits are those of the adapter beside the base but for rounding. Adapters that are more than a change of weights
(prompts of their own, activation by a token) cannot be merged and are refused.
"""

from __future__ import annotations

import importlib.util
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemma_doctor.errors import DoctorError, one_line
from gemma_doctor.json_file import read_mapping

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
PICKLED = "adapter_model.bin"
INSTALL = "pip install peft"
# Methods that change weights and nothing else.
MERGEABLE = ("LORA", "ADALORA", "IA3", "LOHA", "LOKR", "OFT", "BOFT", "HRA", "LN_TUNING")
# Settings of LoRA under which it is more than that, or brings a code base of its own.
NOT_MERGEABLE = ("alora_invocation_tokens", "layer_replication", "megatron_config", "arrow_config")
LONGEST = 300
NAME_A_BASE = "write the model that it was trained on there"


@dataclass(frozen=True)
class Adapter:
    """An adapter's folder.

    Attributes:
        folder: where it lies.
        base: the model that it was trained on, as it names it.
        base_revision: of that model on the hub, None for its main branch.
        kind: PEFT's name of the method, e.g. "LORA".
        missing: what is not there of its weights, in words; "" if they are.
        get: what would get them; "" if they are there.
    """

    folder: Path
    base: str
    base_revision: str | None
    kind: str
    missing: str = ""
    get: str = ""


def installed() -> bool:
    """PEFT is there. Cheap: nothing is imported."""
    return importlib.util.find_spec("peft") is not None


def read(folder: Path) -> Adapter:
    """What an adapter says about itself.

    Raises:
        DoctorError: its configuration cannot be read or is none, names no base, or is of a kind that is refused.
    """
    path = folder / CONFIG
    mapping = read_mapping(path, "name an adapter's folder as PEFT saves it")
    base, revision = mapping.get("base_model_name_or_path"), mapping.get("revision")
    if not isinstance(base, str) or not base.strip() or not base.isprintable() or len(base) > LONGEST:
        raise DoctorError(f"{path}: base_model_name_or_path: {base!r}"[:LONGEST] + " names no model", NAME_A_BASE)
    if not isinstance(revision, str | None):
        raise DoctorError(f"{path}: revision: {revision!r}"[:LONGEST] + " is none", "write a branch, or null")
    kind = str(mapping.get("peft_type")).upper()
    odd = next((key for key in NOT_MERGEABLE if mapping.get(key)), "")
    if kind not in MERGEABLE or odd:
        what = f"{odd} is set" if kind in MERGEABLE else f"an adapter of type {kind[:40]!r}"
        raise DoctorError(
            f"{path}: {what}: it cannot be merged into its base",
            f"what can be: {', '.join(MERGEABLE)}; --weights skeleton of {base} examines the base's configuration",
        )
    return Adapter(folder, base, revision or None, kind, *_missing(folder))


def _missing(folder: Path) -> tuple[str, str]:
    """What is not there of an adapter's weights, and what would get it."""
    if (folder / WEIGHTS).is_file():
        return "", ""
    if (folder / PICKLED).is_file():
        return (
            "the adapter has pickled weights only, which are never read",
            "load it where you trust it and save_pretrained() with safetensors",
        )
    return f"the adapter has no {WEIGHTS}", f"get the whole adapter: {CONFIG} and {WEIGHTS}"


def merged(model: Any, adapter: Adapter, name: str) -> Any:
    """The model with an adapter merged into its weights, in the model's own dtype.

    PEFT only warns of tensors for which there is no module, and of modules for which there is no tensor: an adapter
    that was trained on other names of modules then does nothing at all.

    Raises:
        DoctorError: PEFT refuses, the tensors are not those of this model, or merging would make another model of it.
    """
    from peft import PeftModel, get_peft_model_state_dict
    from peft.tuners.tuners_utils import BaseTunerLayer
    from safetensors import safe_open

    hint = f"check base_model_name_or_path of {CONFIG}, and with which release of peft it was saved"
    with one_line(f"{name}: the adapter cannot be merged", hint), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what PEFT still calls in new releases of transformers
        is_tied = len({id(one.weight) for one in _ends(model)}) == 1
        beside = PeftModel.from_pretrained(model, str(adapter.folder), local_files_only=True, torch_device="cpu")
        wanted = set(get_peft_model_state_dict(beside, save_embedding_layers=False))
        # Whole embeddings are saved as well where they were adapted or resized, or if asked for.
        may = wanted | set(get_peft_model_state_dict(beside, save_embedding_layers=True))
        with safe_open(adapter.folder / WEIGHTS, "pt") as file:
            there = set(file.keys())
        foreign, lacking = sorted(there - may), sorted(wanted - there)
        if foreign:
            raise DoctorError(
                f"{name}: {len(foreign)} of {len(there)} tensors fit no module of the base, {foreign[0][:LONGEST]}",
                hint,
            )
        if lacking:
            raise DoctorError(
                f"{name}: the adapter lacks {len(lacking)} of {len(wanted)} tensors, {lacking[0][:LONGEST]}", hint
            )
        if is_tied and any(isinstance(one, BaseTunerLayer) for one in _ends(beside)):
            # Measured on a tiny model: its logits move by 12 to 356, and by 2e-6 at most where they are not tied.
            raise DoctorError(
                f"{name}: the adapter changes an embedding that is tied to the head: merged, it would change both",
                "--weights skeleton examines the base's configuration",
            )
        return beside.merge_and_unload()


def _ends(model: Any) -> tuple[Any, ...]:
    """The modules that a model's tokens go in and come out by."""
    found = model.get_input_embeddings(), model.get_output_embeddings()
    return tuple(one for one in found if one is not None)
