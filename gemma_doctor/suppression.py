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
from typing import Any, NamedTuple

from gemma_doctor.errors import suggest
from gemma_doctor.finding import CheckResult, Finding, Outcome

KEYS = ("check", "reason", "title", "until")
SOURCE = "run file"


class Reason(NamedTuple):
    """Why a finding does not count.

    Attributes:
        text: in the words of whoever said so.
        source: where that stands: "run file" or "baseline".
    """

    text: str
    source: str


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

    @property
    def in_words(self) -> str:
        """ "padding-side (tokenizer pads ...)": what remarks call it."""
        return f"{self.check} ({self.title} ...)" if self.title else self.check

    def means(self, finding: Finding) -> bool:
        """It is about this finding, expired or not."""
        return finding.check == self.check and finding.title.startswith(self.title)

    def has_expired(self, today: datetime.date) -> bool:
        return self.until is not None and today >= self.until


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


def reason_for(finding: Finding, entries: Sequence[Suppression], today: datetime.date) -> Reason | None:
    """Why a finding does not count, by the first entry that means it; None if none does."""
    meant = (one for one in entries if not one.has_expired(today) and one.means(finding))
    return next((Reason(one.reason, SOURCE) for one in meant), None)


def remarks(results: Sequence[CheckResult], entries: Sequence[Suppression], today: datetime.date) -> tuple[str, ...]:
    """What the headline must say of the entries: those that expired, and those that met nothing.

    Of a check that did not look nobody knows whether its entry is still needed.
    """
    looked = {one.check: one for one in results if one.outcome in (Outcome.PASS, Outcome.FAIL)}
    said = []
    for one in entries:
        if one.has_expired(today):
            said.append(f"the suppression of {one.in_words} expired on {one.until}: its findings count again")
        elif one.check in looked and not any(map(one.means, looked[one.check].findings)):
            said.append(f"the suppression of {one.in_words} met nothing: remove it")
    return tuple(said)


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
