"""gemma-doctor: what does the token at position p really read?

A diagnostic and triage tool for decoder attention in Hugging Face models. Nothing heavy is imported here: the
command line must answer ``--help`` without torch.

    from gemma_doctor import diagnose, render

    report = diagnose(model, tokenizer)
    print(render(report, "text"))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gemma_doctor.api import diagnose
    from gemma_doctor.errors import DoctorError
    from gemma_doctor.finding import Finding, Outcome, Report, Severity
    from gemma_doctor.report.formats import render

__version__ = "0.1.0"
__all__ = ["DoctorError", "Finding", "Outcome", "Report", "Severity", "__version__", "diagnose", "render"]

# Where each public name stands; its module is imported when it is first asked for.
_HOMES = {
    "DoctorError": "errors",
    "Finding": "finding",
    "Outcome": "finding",
    "Report": "finding",
    "Severity": "finding",
    "diagnose": "api",
    "render": "report.formats",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
