"""What a check is: a pure function from evidence to findings, marked with @check.

The function's parameters name the evidence it needs by type. A parameter typed `X | None` is evidence that the check
can do without; it then runs with None (that is how one check serves both `check --static` and a full run).
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from gemma_doctor import evidence
from gemma_doctor.finding import CheckResult, Examined, Finding, Outcome, Severity

CheckFunction = Callable[..., Iterator["Finding | Examined"]]

# The reading path. A finding can follow only from one at an earlier gate (triage.py).
GROUPS = ("config", "tokens", "positions", "mask", "cache", "numerics", "generation")

# The source of the checks of this distribution.
BUILT_IN = "gemma-doctor"

# What a check may ask for, and what that needs, in words.
EVIDENCE_TYPES: dict[type, str] = {
    evidence.Config: "config",
    evidence.ConfigDrift: "model",
    evidence.GgufFacts: "model",
    evidence.Lengths: "model",
    evidence.ModelFacts: "model",
    evidence.RopeEffect: "real weights",
    evidence.RotaryRange: "model",
    evidence.TokenizerFacts: "tokenizer",
    evidence.BosUse: "tokenizer",
    evidence.Truncation: "tokenizer",
    evidence.TokenizerIntegrity: "tokenizer",
    evidence.PaddedTexts: "tokenizer",
    evidence.StopTokens: "tokenizer, real weights",
    evidence.Trace: "running model",
    evidence.PaddedBatch: "running model",
    evidence.Generations: "running model",
    evidence.LongText: "real weights",
    evidence.KernelProfile: "running model",
    evidence.FlashWindow: "model",
    evidence.DeviceMemory: "model",
    evidence.RouteRun: "running model",
    evidence.Advisories: "config",
    evidence.GoodRun: "real weights, a baseline",
}


class NotApplicable(Exception):
    """Raised by a check: the subject has no such thing. The message is the reason."""


class CouldNotLook(Exception):
    """Raised by a check or a pass: there is such a thing, and it could not be looked at. The message is the reason."""


def nothing_there(trace: evidence.Trace, reason: str) -> NotApplicable | CouldNotLook:
    """What to raise when no pass showed what a check looks at: the subject has none, or it crashed before it could."""
    if any(one.crash for one in trace.passes):
        return CouldNotLook(f"{reason}, but some passes ended in an exception")
    return NotApplicable(reason)


@dataclass(frozen=True)
class Need:
    """One parameter of a check.

    Attributes:
        parameter: its name.
        type: of the evidence.
        optional: the check can run without.
        of: which one, where there are several of a type: the route of a RouteRun. Written as
            `Annotated[RouteRun, "crop"]`.
    """

    parameter: str
    type: type
    optional: bool
    of: str = ""


@dataclass(frozen=True)
class Check:
    """A validated check.

    Attributes:
        id: slug; the file name with dashes.
        group: folder.
        function: the check itself.
        needs: its parameters.
        decides_before: group in front of whose gate this one stands, if not its own group's (see `check`).
        thresholds: what a finding must exceed, by name, with its usual value: the keyword-only parameters of the
            function. Users set them in a run file.
        source: where it came from ("gemma-doctor", a distribution, a folder).
    """

    id: str
    group: str
    function: CheckFunction
    needs: tuple[Need, ...]
    decides_before: str = ""
    source: str = BUILT_IN
    thresholds: Mapping[str, float] = field(default_factory=dict)

    @property
    def gate(self) -> tuple[int, int]:
        """Place on the reading path: smaller is earlier."""
        if self.decides_before:
            return GROUPS.index(self.decides_before), 0
        return GROUPS.index(self.group), 1

    @property
    def title(self) -> str:
        return (inspect.getdoc(self.function) or "").strip().splitlines()[0]

    @property
    def documentation(self) -> str:
        """The docstring of its module: what `explain` prints."""
        return inspect.cleandoc(self.function.__globals__["__doc__"] or "")

    @property
    def routes(self) -> tuple[str, ...]:
        """Routes that it needs to be run."""
        return tuple(need.of for need in self.needs if need.type is evidence.RouteRun)

    @property
    def is_static(self) -> bool:
        """It can run on the published file alone."""
        return all(need.optional or need.type in (evidence.Config, evidence.Advisories) for need in self.needs)


def check(*, decides_before: str = "") -> Callable[[CheckFunction], CheckFunction]:
    """Mark a function as the check of its file.

    Args:
        decides_before: a group whose evidence this check's subject decides, when its gate stands earlier on the
            reading path than its folder: the length that a cache reports decides positions and masks.
    """

    def mark(function: CheckFunction) -> CheckFunction:
        function.__gemma_doctor_check__ = decides_before  # type: ignore[attr-defined]
        return function

    return mark


def judge(check_id: str, group: str, look: Callable[[], Iterable[Finding | Examined]]) -> CheckResult:
    """Let a check look, and say what came of it.

    Findings that were yielded before the check gave up stand. Exceptions but for the two that checks speak with come
    through.
    """
    said: list[Finding | Examined] = []
    gave_up: NotApplicable | CouldNotLook | None = None

    try:
        said.extend(look())
    except (NotApplicable, CouldNotLook) as error:
        gave_up = error
    findings = tuple(replace(item, check=check_id) for item in said if isinstance(item, Finding))
    examined = next((item for item in said if isinstance(item, Examined)), None)
    outcome, reason = Outcome.PASS, ""
    if any(finding.severity > Severity.NOTE for finding in findings):
        outcome = Outcome.FAIL
    elif gave_up is not None:
        outcome = Outcome.NOT_APPLICABLE if isinstance(gave_up, NotApplicable) else Outcome.SKIPPED
        reason = str(gave_up)
    elif examined is None or not examined.count:
        outcome, reason = Outcome.SKIPPED, examined.sentence if examined else "it looked at nothing"
    return CheckResult(
        check=check_id, group=group, outcome=outcome, findings=findings, examined=examined, reason=reason
    )


def thresholds_of(function: CheckFunction) -> dict[str, float]:
    """A check's keyword-only parameters, with their defaults.

    Raises:
        TypeError: one of them has no number as its default.
    """
    named = [one for one in inspect.signature(function).parameters.values() if one.kind is one.KEYWORD_ONLY]
    for one in named:
        if not isinstance(one.default, (int, float)) or isinstance(one.default, bool):
            raise TypeError(f"parameter {one.name!r} of {function.__name__}: a threshold has a number as its default")
    return {one.name: one.default for one in named}


def needs_of(function: CheckFunction) -> tuple[Need, ...]:
    """Read a check's parameters.

    Raises:
        TypeError: a parameter is no evidence type.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    hints.pop("return", None)
    for name in thresholds_of(function):
        hints.pop(name)
    needs = []
    for name, hint in hints.items():
        of = ""
        if typing.get_origin(hint) is typing.Annotated:
            hint, of = typing.get_args(hint)
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        kinds = [option for option in options if option is not type(None)]
        if len(kinds) != 1 or kinds[0] not in EVIDENCE_TYPES:
            known = ", ".join(kind.__name__ for kind in EVIDENCE_TYPES)
            raise TypeError(f"parameter {name!r} of {function.__name__} is no evidence type (known: {known})")
        if (kinds[0] is evidence.RouteRun) != bool(of):
            raise TypeError(f"parameter {name!r} of {function.__name__}: a RouteRun, and nothing else, names its route")
        needs.append(Need(name, kinds[0], type(None) in options, of))
    return tuple(needs)
