"""What an examination says: severities, findings, outcomes, the report. Imports nothing of ours."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

STRIP_MARKS = 32
STRIP_MARGIN = 8  # keys on both sides of the wrong ones


def counted(number: int, word: str) -> str:
    """ "1 cause", "2 causes"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def ranges(numbers: Sequence[int]) -> list[str]:
    """Ascending numbers as ranges: (0, 1, 2, 4) gives "0-2", "4"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]


class Severity(enum.IntEnum):
    """How bad a finding is. Ordered, so that ``--fail-on`` is a comparison."""

    NOTE = 1  # worth knowing
    WARNING = 2  # wrong under conditions that the finding names
    ERROR = 3  # output is or will be wrong

    @property
    def word(self) -> str:
        return self.name.lower()


class Outcome(str, enum.Enum):
    """What became of one check. Only SKIPPED counts as "not evaluated"; only the patient can FAIL."""

    PASS = "pass"  # examined at least one thing; no finding above `note`
    FAIL = "fail"  # a finding at `warning` or `error`
    NOT_APPLICABLE = "n/a"  # the subject has no such thing
    SKIPPED = "skipped"  # there is such a thing, and it could not be looked at
    ERROR = "error"  # the check itself crashed


@dataclass(frozen=True)
class Location:
    """Where a fault shows.

    An empty tuple means "not bound to one": a finding without layers concerns the whole model, one without passes
    every pass.

    Attributes:
        layers: layer indices, ascending.
        passes: names of the passes (see `gemma_doctor.evidence.Pass.name`).
        boundary: where in words, e.g. "from total length 512 (= W, step 8) on".
        route: the way of computing that was held against the reference route, "" if none was. One without passes ran
            for itself: what is wrong with it says nothing about the recorded passes.
    """

    layers: tuple[int, ...] = ()
    passes: tuple[str, ...] = ()
    boundary: str = ""
    route: str = ""

    def can_explain(self, other: Location) -> bool:
        """True if a fault here can be the reason for a fault there.

        Its layers must cover the other's: a fault in one layer does not reach another layer's mask, positions or
        cache. Of the passes one in common is enough. A fault that is bound to nothing explains all, and what is bound
        to nothing (logits, text, a route of its own) is explained by any. A route of its own explains nothing else.
        """
        if self.route and not self.passes:
            return False
        layers = not self.layers or not other.layers or set(other.layers) <= set(self.layers)
        passes = not self.passes or not other.passes or bool(set(self.passes) & set(other.passes))
        return layers and passes


@dataclass(frozen=True)
class Strip:
    """A row of keys as two lines of marks: what should be read and what was.

    Attributes:
        caption: e.g. "token 511, layer 0, 16 tokens a mark (# read, ! should be read and is not, + read, should not)".
        expected: marks, same length as `observed`.
        observed: marks.
    """

    caption: str
    expected: str
    observed: str

    @classmethod
    def of(cls, place: str, expected: Sequence[bool], read: Sequence[bool]) -> Strip:
        """Of keys in order, as few to a mark as STRIP_MARKS allow. A mark shows a fault if one of its keys has it.

        Args:
            place: what the keys are of, e.g. "token 511, layer 0".
            expected: whether each key should be read.
            read: whether it is; same length.
        """
        width = max(1, -(-len(expected) // STRIP_MARKS))
        groups = [slice(start, start + width) for start in range(0, len(expected), width)]
        wanted = ["#" if any(expected[group]) else "." for group in groups]
        seen = [_mark(expected[group], read[group]) for group in groups]
        marks = "# read, ! should be read and is not, + read and should not be, . not read"
        return cls(f"{place}, {counted(width, 'token')} a mark ({marks})", "".join(wanted), "".join(seen))

    @classmethod
    def around(cls, place: str, columns: Sequence[int], expected: Sequence[bool], read: Sequence[bool]) -> Strip:
        """Of the wrong keys and a few on both sides of them.

        Args:
            place: what the keys are of.
            columns: what they stand for, ascending.
            expected, read: as for `of`, with one difference at least.
        """
        wrong = [index for index, pair in enumerate(zip(expected, read, strict=True)) if pair[0] != pair[1]]
        shown = slice(max(wrong[0] - STRIP_MARGIN, 0), wrong[-1] + STRIP_MARGIN + 1)
        place = f"{place}, columns {columns[shown][0]} to {columns[shown][-1]}"
        return cls.of(place, expected[shown], read[shown])


def _mark(expected: Sequence[bool], read: Sequence[bool]) -> str:
    if any(got and not due for due, got in zip(expected, read, strict=True)):
        return "+"
    if any(due and not got for due, got in zip(expected, read, strict=True)):
        return "!"
    return "#" if any(read) else "."


@dataclass(frozen=True)
class Cells:
    """A piece of a mask or of a reading, queries x keys: what should be and what is. Figures are drawn from it.

    Attributes:
        caption: e.g. "layer 0, pass 'prompt 2W', prefill".
        first_query, first_key: columns of the sequence that row 0 and column 0 stand for.
        expected, observed: one text per query, one mark per key: "#" read (or readable), "." not.
    """

    caption: str
    first_query: int
    first_key: int
    expected: tuple[str, ...]
    observed: tuple[str, ...]


@dataclass(frozen=True)
class Curve:
    """Numbers over a length, one line for each way of getting them. Figures are drawn from it.

    Attributes:
        caption: one line.
        across, up: what the axes say, with units.
        at: ascending, above 0; the axis is logarithmic.
        lines: by name, each as long as `at`.
        marks: by name: lengths that a vertical line stands at.
        chance: what guessing would give; None if nothing does.
    """

    caption: str
    across: str
    up: str
    at: tuple[int, ...]
    lines: Mapping[str, tuple[float, ...]]
    marks: Mapping[str, int] = field(default_factory=dict)
    chance: float | None = None


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One fault of the subject. There is none without `observed` and `expected`.

    Attributes:
        title: one line, lower case, no full stop.
        where: layers, passes, boundary.
        observed: what was measured.
        expected: what it should be, and who says so.
        effect: how far it reaches the output, against the noise floor; empty if not measured.
        do: what to do, one line.
        known: a public report of this fault, if one is known.
        meanwhile: what is right in this very run and can be used until the fault is mended; empty if nothing was found.
        against_reference: two routes differ, and the other one is the reference route.
        wrong_side: which of the two is wrong, in words (filled in by vote.py).
        strip: expected and observed keys, when keys are what differs.
        cells: the same as a picture, queries x keys.
        figure: path of the file into which `cells` were drawn, empty if they were not (filled in by the command line).
        standing: the fault stands in a setting, not in what ran (right padding, say): it never follows from another.
            A finding that is bound to no pass is standing in any case.
        gate: the group of the reading path after whose own checks it stands, when that is not the check's own place.
        keys: what it is about in the published configuration, as written there ("text_config.sliding_window").
        line: of the first of them in the subject's configuration file, from 1; None if there is no such file, or the
            key does not stand in it (filled in by diagnosis.py).
        check: id of the check that made it (filled in by check.py).
        follows_from: id of the check whose finding explains this one, else empty (filled in by triage.py).
    """

    title: str
    severity: Severity
    observed: str
    expected: str
    do: str
    where: Location = Location()
    effect: str = ""
    known: str = ""
    meanwhile: str = ""
    against_reference: bool = False
    wrong_side: str = ""
    strip: Strip | None = None
    cells: Cells | None = None
    figure: str = ""
    standing: bool = False
    gate: str = ""
    keys: tuple[str, ...] = ()
    line: int | None = None
    check: str = ""
    follows_from: str = ""


@dataclass
class Sighting:
    """One fault seen at many places: the first in words, all of them as a Location.

    Attributes:
        observed, expected: at the first place.
        boundary: the first place, in words.
    """

    observed: str
    expected: str
    boundary: str
    layers: set[int] = field(default_factory=set)
    passes: dict[str, None] = field(default_factory=dict)

    def at(self, pass_name: str, layer: int | None = None) -> None:
        """Count one more place."""
        self.passes[pass_name] = None
        if layer is not None:
            self.layers.add(layer)

    @property
    def where(self) -> Location:
        return Location(tuple(sorted(self.layers)), tuple(self.passes), self.boundary)

    def finding(self, title: str, severity: Severity, do: str, **more: Any) -> Finding:
        """As one finding; `more` are further fields of it, or what to say instead of what the first place showed."""
        seen: dict[str, Any] = {"observed": self.observed, "expected": self.expected, "where": self.where}
        return Finding(title=title, severity=severity, do=do, **(seen | more))


@dataclass(frozen=True)
class Examined:
    """What a check looked at. A count of 0 turns the check into `skipped`.

    Attributes:
        count: number of things compared.
        sentence: one line for the healthy report, e.g. "97 steps x 15 layers, +1 each".
        route: that was held against the reference route, "" for checks of anything else.
        curve: what was measured, where one line cannot say it; --figures draws it.
        figures: what was measured, by name, in words that do not change ("loss_at_edge"): what a baseline holds.
    """

    count: int
    sentence: str
    route: str = ""
    curve: Curve | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """Outcome of one check. `reason` is filled for n/a, skipped and error."""

    check: str
    group: str
    outcome: Outcome
    findings: tuple[Finding, ...] = ()
    examined: Examined | None = None
    reason: str = ""

    @property
    def worst(self) -> Severity | None:
        return max((f.severity for f in self.findings), default=None)


@dataclass(frozen=True)
class Suppressed:
    """A finding that is known and does not count: neither for the verdict nor for the exit code.

    Attributes:
        finding: as it was found; it stands in no `CheckResult` any more.
        reason: why it does not count, in the words of whoever said so.
        source: "run file" or "baseline".
    """

    finding: Finding
    reason: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """Everything that one run says. Renderers read this and nothing else.

    Attributes:
        version: of gemma-doctor.
        subject: ordered facts about what was examined: name, source, family, layers, kinds, weights, window ...
        environment: versions of transformers, torch, python; device, dtype, attention backend, seed.
        passes: what was run: window W, reduced window W', prompt and generated lengths, source of the text.
        remarks: lines for the headline that are no findings ("SKELETON: random weights; pip install ... gets them").
        results: one per selected check, in reading-path order.
        fail_on: the severity at which the exit code becomes 1, None for "never".
        exit_code: as in the command line contract.
        timing: durations, tokens/s, memory: the only part that may differ between two runs.
        interrupted: the user pressed Ctrl-C; results hold what was known by then.
        suppressed: findings that are known and do not count; they stand in no result. A check whose findings are all
            suppressed still has the outcome FAIL: the subject is as it is.
        documentation: of every selected check, by its id: what `explain` prints.
    """

    version: str
    subject: Mapping[str, object]
    environment: Mapping[str, object]
    passes: Mapping[str, object]
    remarks: tuple[str, ...]
    results: tuple[CheckResult, ...]
    fail_on: Severity | None
    exit_code: int
    timing: Mapping[str, Any] = field(default_factory=dict)
    interrupted: bool = False
    suppressed: tuple[Suppressed, ...] = ()
    documentation: Mapping[str, str] = field(default_factory=dict)

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(f for r in self.results for f in r.findings)

    @property
    def causes(self) -> tuple[Finding, ...]:
        """Findings at `error` that follow from no other, in reading-path order."""
        return tuple(f for f in self.findings if f.severity is Severity.ERROR and not f.follows_from)

    @property
    def deciding(self) -> tuple[Finding, ...]:
        """Findings that follow from no other and make the exit code 1."""
        if self.fail_on is None:
            return ()
        return tuple(f for f in self.findings if f.severity >= self.fail_on and not f.follows_from)

    @property
    def consequences(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.follows_from)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Findings at `warning` that follow from no other."""
        return tuple(f for f in self.findings if f.severity is Severity.WARNING and not f.follows_from)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """Findings at `note` that follow from no other."""
        return tuple(f for f in self.findings if f.severity is Severity.NOTE and not f.follows_from)

    @property
    def only_notes(self) -> bool:
        """There is nothing above a note, known or not."""
        known = (one.finding for one in self.suppressed)
        return all(f.severity is Severity.NOTE for f in (*self.findings, *known))

    @property
    def looked(self) -> int:
        """How many checks examined something."""
        return self.count(Outcome.PASS) + self.count(Outcome.FAIL)

    def count(self, outcome: Outcome) -> int:
        return sum(r.outcome is outcome for r in self.results)
