"""What becomes of a configuration's values between the published file, the loaded object, and the file saved again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemma_doctor.evidence.configuration import Claim


@dataclass(frozen=True)
class Arrival:
    """One value before and after: as published and as loaded, or as loaded and as loaded again.

    Attributes:
        key: with its place in the file, e.g. "text_config.head_dim".
    """

    key: str
    before: Any
    after: Any


@dataclass(frozen=True)
class TiedHead:
    """Whether the output head is the embedding.

    Attributes:
        asked: what `tie_word_embeddings` asks for.
        origin: who says so ("published config.json", "loaded config").
        shared: both modules hold one tensor.
        deviation: largest difference between their weights where they should share one and do not, else None.
    """

    asked: bool
    origin: str
    shared: bool
    deviation: float | None


@dataclass(frozen=True)
class ConfigDrift:
    """A text decoder's configuration on its way from the file to the running model and back into a file.

    Attributes:
        arrived: keys of the file that the config class reads and that no other check compares: published and loaded.
        unread: keys of the file that nothing reads. The class keeps them as they are, which helps nobody.
        absent: keys that the class reads and the file does not write, with the value in force.
        misplaced: values beside the text part's mapping that only its class reads: as written there, and as loaded.
        saved: every value of the running model's configuration: before it was saved, and loaded again.
        unsaved: why it could not be saved and loaded again, "" if it could.
        kinds: kind of every published layer, as the config class decides it.
        kept: indices of the layers that the running model has, ascending: a skeleton has a few.
        head: None where it says nothing: a skeleton's head is never tied, and some models have none.
    """

    arrived: tuple[Arrival, ...]
    unread: tuple[Claim, ...]
    absent: Mapping[str, Any]
    misplaced: tuple[Arrival, ...]
    saved: tuple[Arrival, ...]
    unsaved: str
    kinds: tuple[str, ...]
    kept: tuple[int, ...]
    head: TiedHead | None
