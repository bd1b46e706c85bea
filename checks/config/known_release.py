"""No public fault of the installed transformers release meets this model on the way it is used.

What it proves
    The list of public faults that is shipped with gemma-doctor (`gemma-doctor advisories`) has no entry for the
    installed release, this family, the backend and dtype in use, and a route in use (`--routes`). An entry that is met
    is a warning, one that would be met on another route or with another setting is a note. Where this run shows the
    fault itself, it is an error (a warning on a route that is not in use), and follows from the finding that shows it;
    where this run looked at that very way and it came out right, it is only a note: measurement beats a list.

Why it matters
    Nearly all of these faults are silent: the model answers, and answers wrongly past the window. Most of them are
    gone with another release, if one knows which.

How to fix
    Install a release outside the range that the finding names, or do without the way that it names.

Known limits
    A list is never complete, and it is as old as this installation of gemma-doctor. A release before its time (a
    candidate, a development version) counts as the release to come. Ranges reach as far as somebody measured or
    reported; each entry says which. With --static, backend, dtype and device are not known and count as not met.

References
    gemma_doctor/advisories.yaml: every entry with its report, and how it was verified.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.check import CouldNotLook, check
from gemma_doctor.evidence import Advisories, Concern
from gemma_doctor.finding import Examined, Finding, Severity, counted


@check()
def known_release(advisories: Advisories) -> Iterator[Finding | Examined]:
    """No public fault of the installed release meets the model as it is used."""
    if not advisories.release:
        raise CouldNotLook("transformers is not installed")
    for concern in advisories.concerns:
        yield _finding(concern, advisories.release)
    yield Examined(advisories.known, _sentence(advisories))


def _sentence(advisories: Advisories) -> str:
    said = f"transformers {advisories.release}: "
    listed = counted(advisories.known, "known fault")
    met = sum(one.in_use for one in advisories.concerns)
    if not advisories.concerns:
        return f"{said}none of {listed} concerns this model"
    return f"{said}of {listed}, {met} on a route in use, {len(advisories.concerns) - met} elsewhere"


def _finding(concern: Concern, release: str) -> Finding:
    one = concern.advisory
    return Finding(
        title=one.title,
        severity=Severity.WARNING if concern.in_use else Severity.NOTE,
        observed=f"transformers {release}{_condition(concern)}: {one.symptom}",
        expected=f"a release outside {one.releases}" + (f", {one.fixed} or later" if one.fixed else ""),
        known=one.reference,
        do=f"{one.fix} ({one.url})" if one.url else one.fix,
        meanwhile=one.meanwhile,
    )


def _condition(concern: Concern) -> str:
    """When it would be met; empty if it is."""
    said = [] if concern.route_in_use else [f"on the routes {', '.join(concern.advisory.routes)}"]
    said += concern.elsewhere
    return f", {', '.join(said)} only" if said else ""
