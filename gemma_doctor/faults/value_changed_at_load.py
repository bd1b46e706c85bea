"""The configuration arrives with another activation than was published."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import skeleton
from gemma_doctor.compat import known_keys
from gemma_doctor.faults import fault
from gemma_doctor.faults._published import loaded_as, written
from gemma_doctor.loading import Patient

KEYS = ("hidden_activation", "hidden_act")
OTHER = "gelu"


def _key(patient: Patient) -> str:
    """The key of the activation that the class reads and the file writes, "" if there is none."""
    known, text = known_keys(skeleton.text_config(patient.subject.published)), written(patient)
    return next((key for key in KEYS if key in known and text.get(key) not in (None, OTHER)), "")


def _why_not(patient: Patient) -> str:
    return "" if _key(patient) else "its file writes no activation that the class reads, or this one"


@fault("config-drift", why_not=_why_not)
def value_changed_at_load(patient: Patient) -> Iterator[None]:
    """Let the loaded configuration name the exact GELU, whatever was published; modules stay as they are."""
    with loaded_as(patient, {_key(patient): OTHER}):
        yield
