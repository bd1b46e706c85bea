"""Long texts lose their other end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor.faults import fault
from gemma_doctor.faults._tokens import no_tokenizer, tokenizer_changed
from gemma_doctor.loading import Patient


@fault("truncation", why_not=no_tokenizer)
def truncated_at_the_wrong_side(patient: Patient) -> Iterator[None]:
    """Let the tokenizer cut long texts at the other side than its own settings say."""

    def change(tokenizer: Any) -> None:
        tokenizer.truncation_side = "right" if tokenizer.truncation_side == "left" else "left"

    with tokenizer_changed(patient, change):
        yield
