"""The pattern of the layers is written, and the class decides the kinds by its own default (as up to 4.52)."""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor import compat, skeleton
from gemma_doctor.evidence import FULL, SLIDING
from gemma_doctor.faults import fault
from gemma_doctor.faults._masks import one_kind
from gemma_doctor.faults._published import published_as, written
from gemma_doctor.loading import Patient

OTHER = {FULL: SLIDING, SLIDING: FULL}


@fault("layer-pattern", why_not=one_kind)
def pattern_not_read(patient: Patient) -> Iterator[None]:
    """Let the published file name the other kind for every layer; the loaded model stays as it is."""
    kinds = compat.layer_kinds(skeleton.text_config(patient.subject.published))
    with published_as(patient, {**written(patient), "layer_types": [OTHER.get(kind, kind) for kind in kinds]}):
        yield
