"""Scripts that ask a tokenizer what the finding is about; they take its folder as argument."""

from __future__ import annotations

from typing import Any

from gemma_doctor.finding import Finding

TEMPLATE = "tokenizer.jinja"
CHECKS = ("bos-token", "padding-side", "pad-token", "tokenizer-integrity")


def content(finding: Finding) -> tuple[str, dict[str, Any]]:
    """Template and values."""
    return TEMPLATE, {
        "check": finding.check,
        "chat": "chat template" in finding.title or "conversation" in finding.title,
        "twice": "again" in finding.title or "times" in finding.title,
    }
