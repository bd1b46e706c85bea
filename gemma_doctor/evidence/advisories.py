"""Public faults of the installed release, as far as they concern the subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Advisory:
    """One entry of advisories.yaml: a public fault, and what it takes to meet it.

    Attributes:
        id: slug.
        title: one line.
        releases: of transformers, a PEP 440 range, e.g. ">=4.43,<4.52.1".
        fixed: the first release without it, "" if there is none yet.
        families: model types of the text decoder; empty for all.
        needs: traits of the model that it takes ("sliding", "shared-kv" ...); empty for none.
        routes: ids of the routes that meet it; empty for all.
        backends: attention implementations that meet it; empty for all.
        dtypes: in which it shows; empty for all.
        devices: device types on which it shows; empty for all.
        symptom: what a user sees.
        fix: what to do.
        meanwhile: what can be done until then, "" if nothing is known.
        url: where it was reported, "" if nowhere.
        related: other reports of it.
        verified: how it is known: measured in which releases, or reported only.
        shown_by: check id -> a regular expression on the finding's title, observation or boundary; a finding of this
            run that fits reproduces the fault.
    """

    id: str
    title: str
    releases: str
    fixed: str
    families: tuple[str, ...]
    needs: tuple[str, ...]
    routes: tuple[str, ...]
    backends: tuple[str, ...]
    dtypes: tuple[str, ...]
    devices: tuple[str, ...]
    symptom: str
    fix: str
    meanwhile: str
    url: str
    related: tuple[str, ...]
    verified: str
    shown_by: Mapping[str, str]

    @property
    def reference(self) -> str:
        """How findings name it: "hybrid-cache-boundary-37574, transformers >=4.43,<4.52.1"."""
        return f"{self.id}, transformers {self.releases}"


@dataclass(frozen=True)
class Concern:
    """An entry whose release and family are the subject's.

    Attributes:
        advisory: the entry.
        route_in_use: one of its routes is in use.
        elsewhere: conditions that the subject does not meet, or that are not known, in words ("with sdpa"); empty
            if all are met.
    """

    advisory: Advisory
    route_in_use: bool
    elsewhere: tuple[str, ...] = ()

    @property
    def in_use(self) -> bool:
        """Everything that it takes is there."""
        return self.route_in_use and not self.elsewhere


@dataclass(frozen=True)
class Advisories:
    """The entries that concern the subject with the installed release.

    Attributes:
        release: of the installed transformers.
        known: how many entries the list has.
        concerns: in the order of the list.
        declared: ids of the routes in use.
    """

    release: str
    known: int
    concerns: tuple[Concern, ...]
    declared: frozenset[str] = frozenset()
