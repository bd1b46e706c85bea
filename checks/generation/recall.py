"""Facts in a long text are recalled with the cache as they are without, inside the window and beyond it.

What it proves
    Facts stand at several depths of one real text ("the secret word for red is copper") and are asked for at its end,
    teacher-forced, one after the other. The probability of the right answer among all answers is the same in a chunked
    run with the library's own cache as on the reference route (one float32 forward, eager, without cache).

Why it matters
    Beyond the window only full layers see a fact itself. A cache that loses far keys leaves fluent text that has
    forgotten what it was about, and no loss shows it: few tokens of ordinary text need a word from far back.

How to fix
    Read what the cache checks say; compare with use_cache=False and with another transformers release.

Known limits
    It says what this model can do, and whether the cache takes some of that away; not whether it could do better. The
    wording was chosen on the Gemma 3 270M, a base model, which recalls all eight facts of 1,536 tokens (0.53 to 0.99,
    chance 0.13). Where the reference route itself recalls nothing, nothing can be lost: n/a. What is longer than the
    reference route can read is measured and not judged. A fact is recalled from a probability of 0.5 on (`recalled`); a
    difference counts beyond 4 noise floors (`noise_floors`).

References
    Needs trained weights, and a tokenizer that has single tokens for the answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import Fact, LongText
from gemma_doctor.finding import Curve, Examined, Finding, Location, Severity, counted
from gemma_doctor.oracle import FINDING_FLOORS

NO_NUMBERS = "the reference route gives no numbers"
RECALLED = 0.5  # probability among all answers


@check()
def recall(
    text: LongText, *, noise_floors: float = FINDING_FLOORS, recalled: float = RECALLED
) -> Iterator[Finding | Examined]:
    """Facts in a long text are recalled with the cache as they are without."""
    if text.crash:
        raise CouldNotLook(f"the long text ended in {text.crash.kind}")
    if text.no_facts:
        raise NotApplicable(text.no_facts)
    most = noise_floors * text.noise
    plain_is_right = text.facts_again is not None and not text.facts_again.is_off(most)
    if any(math.isnan(fact.cached) for fact in text.facts) and not plain_is_right:
        raise CouldNotLook("probabilities are no numbers: see long-generate")
    curve = _curve(text)
    yield Examined(len(text.facts), _sentence(text, recalled), curve=curve)
    exact = [fact for fact in text.facts if fact.reference is not None]
    if len(exact) < len(text.facts):
        raise CouldNotLook(
            f"{text.no_reference or NO_NUMBERS}; with the cache {_in_words(text, curve.lines['with the cache'])}"
        )
    best = max(_probability(fact.reference) for fact in exact)
    if best <= recalled:
        raise NotApplicable(f"the reference route recalls none of {counted(len(exact), 'fact')} (at best {best:.2f})")
    apart = [fact for fact in exact if not _distance(fact) <= most]
    if apart:
        yield _differs(text, apart, most, recalled)


def _distance(fact: Fact) -> float:
    return abs(fact.cached - (fact.reference or 0.0))


def _probability(logarithm: float | None) -> float:
    return math.nan if logarithm is None else math.exp(logarithm)


def _differs(text: LongText, apart: Sequence[Fact], most: float, recalled: float) -> Finding:
    lost = [one for one in apart if _probability(one.reference) > recalled and not _probability(one.cached) > recalled]
    worst = max(lost or apart, key=lambda fact: math.inf if math.isnan(fact.cached) else _distance(fact))
    again = text.facts_again
    plain_too = again is None or again.is_off(most)
    plain = ""
    if again is not None and again.cached == worst.cached:
        plain = f"; {_probability(again.plain):.2f} after {again.steps} steps of plain generation"
    where = sorted(one.distance for one in apart)
    condition = "" if plain_too else " (if you feed a prompt in chunks)"
    title = "facts are forgotten with the cache" if lost else "facts are recalled otherwise with the cache"
    return Finding(
        title=title + condition,
        severity=Severity.ERROR if plain_too else Severity.WARNING,
        where=Location(passes=(text.pass_name,), boundary=f"facts {where[0]:,} to {where[-1]:,} tokens back"),
        observed=f"the answer {worst.distance:,} tokens back has probability {_probability(worst.cached):.2f} with the "
        f"cache{plain}",
        expected=f"{_probability(worst.reference):.2f}, as on the reference route",
        effect=f"{len(lost)} of {counted(len(text.facts), 'fact')} forgotten, {len(apart)} changed",
        do="read what the cache checks say; another transformers release may be right",
        meanwhile="" if plain_too else "a prompt in one forward is right (measured)",
        against_reference=True,
        gate="generation",
    )


def _curve(text: LongText) -> Curve:
    facts = sorted(text.facts, key=lambda fact: fact.distance)
    lines = {"with the cache": tuple(_probability(fact.cached) for fact in facts)}
    if all(fact.reference is not None for fact in facts):
        lines["reference route"] = tuple(_probability(fact.reference) for fact in facts)
    return Curve(
        caption=f"recall of {counted(len(facts), 'fact')} in {text.length:,} tokens",
        across="tokens back",
        up="probability of the right answer among all answers",
        at=tuple(fact.distance for fact in facts),
        lines=lines,
        marks={"W": text.window} if text.window else {},
        chance=1 / len(facts),
    )


def _sentence(text: LongText, recalled: float) -> str:
    curve = _curve(text)
    got = curve.lines["with the cache"]
    exact = curve.lines.get("reference route")
    count = sum(one > recalled for one in got)
    other = "" if exact is None else f", {sum(one > recalled for one in exact)} on the reference route"
    return f"{count} of {counted(len(got), 'fact')} recalled{other}: {_in_words(text, got)}"


def _in_words(text: LongText, line: Sequence[float]) -> str:
    """ "0.53 at 128, 0.87 at 256; beyond W 0.96 at 640 tokens"."""
    at = sorted(fact.distance for fact in text.facts)
    inside = [f"{one:.2f} at {back:,}" for back, one in zip(at, line, strict=True) if back < (text.window or math.inf)]
    beyond = [f"{one:.2f} at {back:,}" for back, one in zip(at, line, strict=True) if back >= (text.window or math.inf)]
    return "; beyond W ".join(", ".join(part) for part in (inside, beyond) if part) + " tokens back"
