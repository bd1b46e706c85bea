"""The small model of a script: the subject's own configuration, cut as a skeleton's is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gemma_doctor import compat, skeleton
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import SLIDING
from gemma_doctor.redaction import technical
from gemma_doctor.reproduction.templates import as_json
from gemma_doctor.subject import Subject

WITHOUT_USE = ("architectures", "transformers_version", "tie_word_embeddings", "use_cache")


class NoScript(Exception):
    """No script is written; the message says why."""


@dataclass(frozen=True)
class Model:
    """What scripts say of a model.

    Attributes:
        subject: whose it is.
        attention: implementation that was examined.
    """

    subject: Subject
    attention: str

    @cached_property
    def config(self) -> dict[str, Any]:
        """The cut configuration: `model_type` and what the class is made from, with a window of 64 tokens at most.

        Raises:
            NoScript: the installed release cannot make it.
        """
        try:
            text, full = skeleton.published_text(self.subject.published)
            cut = skeleton.cut_mapping(text, full)
        except (DoctorError, ValueError, TypeError, KeyError) as error:
            raise NoScript("this release makes no small model of the configuration") from error
        kept = {key: value for key, value in technical(cut).items() if key not in WITHOUT_USE}
        window = compat.window(full)
        if window is not None and window > skeleton.REDUCED_WINDOW:
            kept["sliding_window"] = skeleton.REDUCED_WINDOW
        return {"model_type": full.model_type, **kept, "tie_word_embeddings": False}

    @cached_property
    def loaded(self) -> Any:
        """The config object of the cut configuration."""
        return compat.new_text_config(self.config["model_type"], self.config)

    def values(self) -> dict[str, Any]:
        """What `model.jinja` takes."""
        kinds = compat.layer_kinds(self.loaded)
        return {
            "config": as_json(self.config),
            "window": compat.window(self.loaded),
            "attention": self.attention if self.attention in ("eager", "sdpa") else "eager",
            "highest": int(compat.base_value(self.loaded, "vocab_size")),
            "unscaled": self.config["model_type"].startswith(("gemma3n", "gemma4")),
            "sliding": [index for index, kind in enumerate(kinds) if kind == SLIDING],
        }
