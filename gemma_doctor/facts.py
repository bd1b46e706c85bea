"""What a report says about the run itself: who was examined, with which versions, over which lengths."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from gemma_doctor.config_lines import shown_path
from gemma_doctor.settings import Settings
from gemma_doctor.subject import Subject

if TYPE_CHECKING:
    from gemma_doctor.capture.collector import Collector


def report_facts(subject: Subject, settings: Settings, collector: Collector | None) -> dict[str, Mapping[str, Any]]:
    """The `subject`, `environment`, `passes` and `timing` of a Report; `collector` is None for `--static`."""
    published = subject.config.published
    about: dict[str, Any] = {
        "name": subject.name,
        "kind": subject.kind,
        "subject_source": settings.subject_source,
        "config_file": shown_path(subject, settings),
        "family": published.family,
        "layers": published.layers,
        "layer_kinds": published.layer_kinds,
        "window": published.window_in_force,
        "weights": "none",
    }
    environment: dict[str, Any] = {
        "transformers": version_of("transformers"),
        "torch": version_of("torch"),
        "python": platform.python_version(),
    }
    if collector is None:
        return {"subject": about, "environment": environment, "passes": {}, "timing": {}}
    patient = collector.patient
    about |= {
        "layers": published.layers or collector.facts.loaded.layers,
        "layer_kinds": tuple(layer.kind for layer in collector.facts.layers),
        "window": patient.window,
        "weights": patient.subject.weights,
        "cut": patient.cut,
    }
    environment |= {
        "device": patient.device,
        "dtype": patient.dtype,
        "backend": patient.backend,
        "seed": settings.seed,
    }
    return {
        "subject": about,
        "environment": environment,
        "passes": collector.lengths(),
        "timing": collector.timing(),
    }


def version_of(package: str) -> str | None:
    """Version of an installed package, without importing it."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
