"""`gemma-doctor list`: all checks."""

from __future__ import annotations

from gemma_doctor import evidence, registry
from gemma_doctor.check import Check
from gemma_doctor.cli.output import terminal_width, write
from gemma_doctor.cli.table import table

WORDS: dict[type, str] = {
    evidence.Config: "config",
    evidence.TokenizerFacts: "tokenizer",
    evidence.ModelFacts: "model",
    evidence.Trace: "running model",
    evidence.PaddedBatch: "running model",
    evidence.Generation: "running model",
}


def needs(check: Check) -> str:
    """What a check needs, in words; what it can do without, in brackets."""
    needed = dict.fromkeys(WORDS[need.type] for need in check.needs if not need.optional)
    useful = dict.fromkeys(WORDS[need.type] for need in check.needs if need.optional)
    more = ", ".join(word for word in useful if word not in needed)
    return " ".join(part for part in (", ".join(needed), f"[{more}]" if more else "") if part)


def list_checks() -> None:
    """List all checks and what each needs."""
    checks = registry.built_in()
    rows = [(one.id, one.group, "static" if one.is_static else "-", needs(one), one.title) for one in checks]
    text = table(("check", "group", "static", "needs", "what it looks at"), rows, terminal_width())
    write(text + "\nIn brackets: used where there is one. static: also runs in check --static.\n")
