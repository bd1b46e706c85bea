"""Resolves a SUBJECT to its published configuration and says which weights will be examined. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemma_doctor.evidence import Config


@dataclass(frozen=True)
class Subject:
    """What is examined, before anything heavy is loaded.

    Attributes:
        name: for headlines, as the user gave it ("gemma-3-270m", "./my-gemma").
        kind: "preset", "folder", "config file", "hub id".
        published: the whole published mapping, overrides applied.
        config: evidence read from it, with the expectations.
        folder: where tokenizer and weights lie, None if there is no such folder.
        weights: "real" or "skeleton": what a full run will examine.
        remarks: headline lines, e.g. why this is a skeleton and what would get the weights.
        demo: the real weights come from the packaged Gemma 3 270M (see demo.py), not from `folder`.
    """

    name: str
    kind: str
    published: Mapping[str, Any]
    config: Config
    folder: Path | None
    weights: str
    remarks: tuple[str, ...]
    demo: bool = False
