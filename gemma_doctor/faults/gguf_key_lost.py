"""A key of the GGUF file that the library's reader does not know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from gemma_doctor.faults import fault
from gemma_doctor.loading import Patient
from gemma_doctor.undone import attributes_set

KEY = "final_logit_softcapping"
CAP = 7.0  # no family's own


def no_gguf(patient: Patient) -> str:
    """Reason why a patient cannot have a fault of its GGUF file."""
    return "" if patient.gguf is not None else "the weights are from no GGUF file"


@fault("gguf-metadata", why_not=no_gguf)
def gguf_key_lost(patient: Patient) -> Iterator[None]:
    """The soft-cap of the logits that the GGUF file names is not in the loaded configuration.

    The other side is changed: the file names one that nobody loaded.
    """
    loaded = patient.gguf
    assert loaded is not None  # see why_not
    keys = {**loaded.file.keys, f"{loaded.file.architecture}.{KEY}": CAP}
    with attributes_set([(patient, "gguf", replace(loaded, file=replace(loaded.file, keys=keys)))]):
        yield
