"""Whether a subject's key-value cache fits: its configuration, a ladder of contexts, weights and memory."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemma_doctor import published, weight_files
from gemma_doctor.budget import Budget, budget
from gemma_doctor.check import CouldNotLook
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import ConfigFacts
from gemma_doctor.oracle import ITEM_BYTES, kv_layers
from gemma_doctor.settings import Settings
from gemma_doctor.subject import Subject, partly_recurrent, resolve

LONGEST = 1_000_000
LADDER = (8_192, 32_768, 131_072)
USUAL_DTYPE = "bfloat16"
KV_HEADS = "num_key_value_heads"
NOT_COUNTED = "weights not counted: only safetensors files of the subject's own folder are"
DAMAGED = "weights not counted: some of their files are missing or damaged"


@dataclass(frozen=True)
class Plan:
    """What the cache of one subject takes.

    Attributes:
        subject: its name, as given.
        facts: what was computed from.
        ladder: budgets of growing context; the last is the one that was asked for.
        weights: bytes of the weights as they are stored, None if they are not counted.
        memory: bytes of the device; None if nobody says.
        memory_from: who says so: "--memory", "RAM of this machine", "first GPU of this machine"; "" if nobody does.
        notes: what a reader must know.
    """

    subject: str
    facts: ConfigFacts
    ladder: tuple[Budget, ...]
    weights: int | None
    memory: int | None
    memory_from: str
    notes: tuple[str, ...]

    @property
    def asked(self) -> Budget:
        return self.ladder[-1]

    def fits(self, one: Budget) -> bool | None:
        """The cache fits into memory, with the weights if they are counted. None if its size is not known."""
        return None if self.memory is None else one.bytes + (self.weights or 0) <= self.memory


def plan(settings: Settings, context: int | None, batch: int, memory: int | None) -> Plan:
    """Find the subject and compute its budgets.

    Args:
        settings: subject and dtype, as for an examination.
        context: tokens per row, 1 to LONGEST; None for as many as the model has positions.
        batch: rows.
        memory: bytes of the device; None for this machine's.

    Raises:
        DoctorError: no such subject, or what its cache takes cannot be computed.
    """
    subject = resolve(replace(settings, static=True))  # no weights are loaded, so none are missed
    facts = complete_facts(subject)
    if not facts.causal:
        raise DoctorError(
            f"{subject.name} is bidirectional: it does not generate and keeps no cache", "nothing to plan"
        )
    asked = context or min(facts.max_positions or LONGEST, LONGEST)
    contexts = sorted({rung for rung in (*LADDER, facts.max_positions or asked) if rung < asked} | {asked})
    weights, uncounted = _weights(subject.folder)
    default = "" if settings.subject else "no SUBJECT given: this is the default"
    notes = [default, *subject.remarks, uncounted]
    if facts.max_positions is None and context is None:
        notes.append(f"the model names no positions, and no --context is given: planned for {asked:,} tokens")
    if facts.max_positions is not None and asked > facts.max_positions:
        notes.append(f"{asked:,} tokens are beyond the {facts.max_positions:,} positions of the model")
    dtype = published_dtype(subject.published) if settings.dtype == "auto" else settings.dtype
    try:
        ladder = tuple(budget(facts, rung, batch, dtype) for rung in contexts)
    except ValueError as error:
        raise DoctorError(f"{subject.name}: {error}", "gemma-doctor presets lists models that can be planned") from None
    size, said_by = (memory, "--memory") if memory is not None else _this_machine()
    return Plan(subject.name, facts, ladder, weights, size, said_by, tuple(filter(None, notes)))


def _this_machine() -> tuple[int | None, str]:
    """Memory of the device that a run would choose by itself, in bytes, and what that is."""
    from gemma_doctor.capture.device import this_machine

    try:
        found = this_machine()
    except CouldNotLook:
        return None, ""
    return found.total, "RAM of this machine" if found.device == "cpu" else "first GPU of this machine"


def complete_facts(subject: Subject) -> ConfigFacts:
    """The published configuration; where it leaves something to the class, that of the class (imports transformers).

    Positions below 1 are taken as not named.

    Raises:
        DoctorError: the installed transformers does not know the family, or refuses the configuration.
    """
    facts = subject.config.published
    try:
        kv_layers(facts)
        complete = facts.max_positions is not None
    except ValueError:
        complete = False
    facts = facts if complete else _class_facts(subject)
    return facts if (facts.max_positions or 0) >= 1 else replace(facts, max_positions=None)


def _class_facts(subject: Subject) -> ConfigFacts:
    from gemma_doctor import skeleton

    with skeleton.building(subject):
        config = skeleton.text_config(subject.published)
        # Bamba and its like derive the kinds of their layers, so that the file does not give them away.
        if partly_recurrent({key: getattr(config, key, None) for key in ("layer_types", "layers_block_type")}):
            raise DoctorError(f"{subject.name} is partly recurrent", "gemma-doctor presets lists models that are not")
        return class_facts(config)


def class_facts(config: Any) -> ConfigFacts:
    """What a text part's config object says, with what its modules derive from it.

    Classes with num_key_value_heads have as many as query heads where it is None. Others derive their number from
    something else, Falcon from multi_query: theirs is not known.
    """
    from gemma_doctor import compat

    facts = published.read(config.to_dict(), "loaded config")
    head_dim, kv_heads = (compat.base_value(config, key) for key in ("head_dim", KV_HEADS))
    if KV_HEADS not in inspect.signature(type(config).__init__).parameters:
        kv_heads = None
    elif kv_heads is None:
        kv_heads = facts.heads
    return replace(
        facts,
        layer_kinds=compat.layer_kinds(config),
        head_dim=compat.head_dim(config) if head_dim is None else head_dim,
        kv_heads=kv_heads,
    )


def published_dtype(mapping: Mapping[str, Any]) -> str:
    """The dtype that a published configuration names, bfloat16 if it names none that a cache can have."""
    text, _ = published.text_part(mapping)
    named = (part.get(key) for part in (text, mapping) for key in ("dtype", "torch_dtype"))
    return next((name for name in named if isinstance(name, str) and name in ITEM_BYTES), USUAL_DTYPE)


def _weights(folder: Path | None) -> tuple[int | None, str]:
    """Bytes of the safetensors files that a folder's model is in, or why they are not counted."""
    if folder is None:
        return None, NOT_COUNTED
    whole, index = folder / weight_files.WHOLE, folder / weight_files.INDEX
    try:
        if whole.is_file():
            files = {whole}
        elif index.is_file():
            named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
            files = {folder / name for name in named}
        else:
            return None, NOT_COUNTED
        if files and all(_holds_weights(file, folder) for file in files):
            return sum(file.stat().st_size for file in files), ""
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        pass  # an index may hold anything
    return None, DAMAGED


def _holds_weights(file: Path, folder: Path) -> bool:
    """A file that lies in the folder, or is linked there as in the hub's cache, and has the header that it announces.

    An empty file has none, and what Git LFS leaves in a file's place announces one of many petabytes.
    """
    if ".." in file.parts[len(folder.parts) :] or not file.is_relative_to(folder) or not file.is_file():
        return False
    with file.open("rb") as opened:
        announced = int.from_bytes(opened.read(8), "little")
    return 0 < announced <= file.stat().st_size - 8
