"""Reads what the docstring of a check's module says: a title, then sections under headings that stand at the margin."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field

URL = re.compile(r"https?://[^\s<>\"'`]*[^\s<>\"'`.,;:)]")
ARXIV = re.compile(r"\barXiv[: ](\d{4}\.\d{4,5})")
ISSUE = re.compile(r"\b(\w+) (?:(?:issue|pull request)s? )?(\d{3,6})\b")
# Where projects keep their issues. A pull request has an issue's number as well, and its address leads on.
TRACKERS = {
    "lighteval": "https://github.com/huggingface/lighteval/issues/",
    "torch": "https://github.com/pytorch/pytorch/issues/",
    "TransformerLens": "https://github.com/TransformerLensOrg/TransformerLens/issues/",
    "transformers": "https://github.com/huggingface/transformers/issues/",
    "vLLM": "https://github.com/vllm-project/vllm/issues/",
}

HEADINGS = ("What it proves", "Why it matters", "How to fix", "Known limits", "References")


@dataclass(frozen=True)
class Documentation:
    """One check's documentation.

    Attributes:
        title: the first line.
        sections: texts by heading, in order, as written but for their indent.
    """

    title: str
    sections: Mapping[str, str] = field(default_factory=dict)

    @property
    def proves(self) -> str:
        """The first section as one paragraph, the title if there is none."""
        return " ".join(next(iter(self.sections.values()), self.title).split())

    @property
    def link(self) -> str | None:
        """Where more can be read: the first address among the references, if there is one."""
        found = addresses(" ".join(self.sections.get("References", "").split()))
        return next((address for _, address in found), None)


def addresses(text: str) -> list[tuple[str, str]]:
    """(what stands there, its address) of URLs, papers on arXiv, and issues of projects in TRACKERS, in order."""
    found = [(one.start(), one[0], one[0]) for one in URL.finditer(text)]
    found += [(one.start(), one[0], f"https://arxiv.org/abs/{one[1]}") for one in ARXIV.finditer(text)]
    found += [
        (one.start(), one[0], f"{TRACKERS[one[1]]}{one[2]}") for one in ISSUE.finditer(text) if one[1] in TRACKERS
    ]
    return [(written, address) for _, written, address in sorted(found)]


def read(text: str) -> Documentation:
    """Of a docstring without its indent; see `Check.documentation`."""
    title, _, rest = text.partition("\n")
    bodies: dict[str, list[str]] = {}
    heading = ""
    for line in rest.splitlines():
        if line.rstrip() in HEADINGS:
            heading = line.rstrip()
            bodies[heading] = []
        elif heading:
            bodies[heading].append(line)
    return Documentation(title, {name: textwrap.dedent("\n".join(body)).strip() for name, body in bodies.items()})
