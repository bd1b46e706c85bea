"""What flash attention would be told, on machines that cannot run it as well."""

from __future__ import annotations

from gemma_doctor import compat
from gemma_doctor.check import CouldNotLook, NotApplicable
from gemma_doctor.evidence import FlashWindow
from gemma_doctor.loading import Patient


def flash_window(patient: Patient, causal: bool, declared: bool) -> FlashWindow:
    """The window that flash attention would be handed for the model's own.

    Args:
        patient: who is examined.
        causal: it generates.
        declared: flash attention is a route in use.

    Raises:
        NotApplicable: the model has no window, or the library no flash attention for it.
        CouldNotLook: this release is built otherwise.
    """
    if patient.window is None or not causal:
        raise NotApplicable("the model has no sliding window" if causal else "bidirectional: its window has two sides")
    if not compat.has_backend(patient.model, "flash_attention_2"):
        raise NotApplicable("the library has no flash attention for this family")
    try:
        shown = compat.flash_window(patient.window)
    except LookupError as error:
        raise CouldNotLook(str(error)) from error
    return FlashWindow(patient.window, shown, declared or patient.backend.startswith("flash_attention"))
