"""The installed release is one in which a public fault meets a route in use."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from unittest import mock

from gemma_doctor import facts
from gemma_doctor.faults import fault, no_window
from gemma_doctor.finding import Severity
from gemma_doctor.loading import Patient

RELEASE = "5.12.0"  # static sliding layers are compiled anew at every step: slow, and nothing that a run shows


@fault("known-release", why_not=no_window, severity=Severity.WARNING, routes=("static-cache",))
def release_with_known_faults(patient: Patient) -> Iterator[None]:
    """Let transformers call itself another release; its code stays."""

    def version(package: str) -> str:
        return RELEASE if package == "transformers" else importlib.metadata.version(package)

    with mock.patch.object(facts, "version", version):
        yield
