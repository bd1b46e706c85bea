"""The forms that a report of `check` takes: one module each in this package, with `render(report) -> str`."""

from __future__ import annotations

import importlib

from gemma_doctor.finding import Report

# By the name that --format and --report take. Each module is imported only when it is asked for.
FORMATS = ("text", "json", "sarif", "junit", "github", "markdown", "html")


def render(report: Report, form: str) -> str:
    """The report in one form, as it stands in a file: no colours, no wrapping.

    Args:
        form: one of FORMATS.
    """
    rendered: str = importlib.import_module(f"gemma_doctor.report.{form}").render(report)
    return rendered
