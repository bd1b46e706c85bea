"""The tokenizer returns no attention mask: its model_input_names were saved without it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gemma_doctor.faults import fault
from gemma_doctor.faults._tokens import no_pads, tokenizer_changed
from gemma_doctor.loading import Patient


@fault("padding-mask", why_not=no_pads)
def attention_mask_not_returned(patient: Patient) -> Iterator[None]:
    """Take the attention mask out of what the tokenizer returns."""

    def change(tokenizer: Any) -> None:
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "attention_mask"]

    with tokenizer_changed(patient, change):
        yield
