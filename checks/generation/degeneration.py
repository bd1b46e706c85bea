"""No generation falls into repetition or false certainty that the reference route would not fall into.

What it proves
    In every generation of this run (the long one, one for each further prompt, one as the subject's own settings say)
    the end of the text is no loop, does not consist of what stood there before, and is not far more certain than the
    reference route (one float32 forward, eager, without cache) is about the same text. What is, is held against the
    reference at every step, and a generation as served against the greedy one of the same prompt.

Why it matters
    Repetition is what users see of a cache or mask fault past the window edge. The same loop may be the model's own: a
    small model that decodes greedily loops, and nothing is wrong with it.

How to fix
    Not shared with the reference: something between cache and mask is wrong; read the other findings first. As served:
    a repetition_penalty below 1 rewards what was said before; above 1 it does what its name says.

Known limits
    What the reference route shares is a note, whatever the text is like. What is drawn at random may loop by chance, so
    that as served only a setting that rewards repetition is an error: where it changed tokens, or where the text
    repeats itself and greedily does not. On random weights (skeleton) text means nothing, and only what the reference
    contradicts counts. A loop must stand four times in a row and fill 16 tokens (`loop_tokens`); repetition means that
    three in four (`repeated_share`) of the last 32 tokens end a run of four that stood there before; certainty, that
    the median entropy of the last 16 is below 0.1 nats (`certain_entropy`) and above 0.5 on the reference route
    (`reference_entropy`). These numbers are chosen. They only choose what is looked at: of the real Gemma 3 270M 11 of
    12 greedy texts of 128 tokens repeat themselves, of 1,631 written stretches of 64 tokens two end in a loop, and
    alone neither is an error. Between float32 and bfloat16 medians of its entropy differ by at most 0.14 nats, a third
    of what makes certainty a finding.

References
    transformers issue 37574 (loops from the edge on, silently).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gemma_doctor.check import CouldNotLook, check
from gemma_doctor.evidence import GREEDY, OF_SERVED, Generation, Generations
from gemma_doctor.finding import Examined, Finding, Location, Severity, counted
from gemma_doctor.oracle import CERTAIN, LAST, LOOP_TOKENS, SHARE, UNSURE, repeated_tail, repetition, turns_certain


@dataclass(frozen=True)
class _Decay:
    """What became of a text: in words, and from which step on."""

    kind: str
    said: str
    start: int
    period: int = 0


@dataclass(frozen=True)
class _Bounds:
    """What makes a text one that is looked at closely, see Known limits."""

    loop: float
    share: float
    certain: float
    unsure: float


@check()
def degeneration(
    generations: Generations,
    *,
    loop_tokens: float = LOOP_TOKENS,
    repeated_share: float = SHARE,
    certain_entropy: float = CERTAIN,
    reference_entropy: float = UNSURE,
) -> Iterator[Finding | Examined]:
    """No generation repeats itself or turns certain where the reference route would not."""
    usable = [one for one in generations.all if len(one.tokens) and not one.crash and one.not_finite is None]
    if not usable:
        raise CouldNotLook("no generation came to an end")
    undecided, bounds = "", _Bounds(loop_tokens, repeated_share, certain_entropy, reference_entropy)
    for one in usable:
        decay = _decay(one, bounds)
        if one.no_reference:
            undecided = one.no_reference if decay or _rewarding(one.settings) else undecided
        elif one.way != GREEDY:
            greedy = _greedily(one, generations.all, usable)
            yield from _as_served(one, decay, greedy, None if greedy is None else _decay(greedy, bounds))
        elif decay is not None:
            yield _greedy(one, decay)
    yield Examined(sum(len(one.tokens) for one in usable), _sentence(usable))
    if undecided:
        raise CouldNotLook(undecided)


# --- what became of a text -------------------------------------------------------------------------------------------


def _decay(one: Generation, bounds: _Bounds) -> _Decay | None:
    loop = repeated_tail(one.tokens, bounds.loop)
    if loop:
        return _Decay("loops", f"{counted(loop[1], 'token')} again and again", *loop)
    start = repetition(one.tokens, bounds.share)
    if start is not None:
        said = f"{bounds.share:.0%} of the last {LAST} tokens end a run that stood there before"
        return _Decay("repeats itself", said, start)
    start = turns_certain(one.entropy, one.reference_entropy, bounds.certain, bounds.unsure)
    if start is None:
        return None
    ours, theirs = (np.median(nats[start:]) for nats in (one.entropy, one.reference_entropy))
    return _Decay("turns certain", f"entropy {ours:.2f} nats, {theirs:.2f} on the reference route", start)


# --- whose fault it is -----------------------------------------------------------------------------------------------


def _greedy(one: Generation, decay: _Decay) -> Finding:
    """Ours, or the model's own: the reference route read the same tokens and says what it would have put."""
    differs = np.flatnonzero((one.tokens != one.reference) & one.clear)
    own = differs.size == 0 and decay.kind != "turns certain"
    step = "no step" if not differs.size else f"step {differs[0]} (token {one.prompt_length + differs[0]})"
    return Finding(
        title=f"the text {decay.kind}" + (", and so it does on the reference route" if own else ""),
        severity=Severity.NOTE if own else Severity.ERROR,
        where=Location(passes=(one.pass_name,), boundary=_boundary(one, decay.start, decay.period)),
        observed=f"{decay.said} from step {decay.start}; the reference route differs at {step}",
        expected="no repetition and no certainty that the reference route does not share",
        do="no fault of its own: greedy decoding of small models loops; other findings here may be the reason"
        if own
        else "read the findings above: something between cache and mask is wrong",
    )


def _greedily(one: Generation, among: Sequence[Generation], usable: Sequence[Generation]) -> Generation | None:
    """The greedy generation of the same prompt: the long one is that of the first, and has another name."""
    name = one.pass_name.removeprefix(OF_SERVED)
    greedy = next((other for other in among if other.way == GREEDY and other.pass_name == name), among[0])
    return greedy if any(greedy is other for other in usable) else None


def _as_served(
    one: Generation, decay: _Decay | None, greedy: Generation | None, without: _Decay | None
) -> Iterator[Finding]:
    """Its own settings', or nobody's: the greedy generation of the same prompt says what comes without them."""
    setting, changed = _rewarding(one.settings), np.flatnonzero((one.tokens != one.reference) & one.clear)
    guilty = bool(setting) and (changed.size > 0 or (decay is not None and without is None))
    if not guilty and decay is None:
        return
    seen = "no loop" if decay is None else f"the text {decay.kind} from step {decay.start} on: {decay.said}"
    alone = "" if greedy is None else f"; greedily {'no loop' if without is None else f'it {without.kind} too'}"
    first = decay.start if decay else int(changed[0])
    yield Finding(
        title=f"{setting} rewards what was said before" if guilty else f"as served the text {decay and decay.kind}",
        severity=Severity.ERROR if guilty else Severity.NOTE,
        where=Location(passes=(one.pass_name,), boundary=_boundary(one, first)),
        observed=f"{_chosen(one, len(changed))}; {seen}{alone}; {one.way}",
        expected="settings that make no repetition of their own",
        do="set repetition_penalty to 1.0 (off) or above in generation_config.json"
        if guilty
        else "no fault of its own: small models loop, and what is drawn may",
        standing=True,
    )


def _chosen(one: Generation, changed: int) -> str:
    if one.drawn:
        return "drawn at random"
    return f"{changed} of {len(one.tokens)} tokens are not the model's own choice"


def _rewarding(settings: Mapping[str, object]) -> str:
    """The setting that rewards repetition, "" if none does."""
    penalty = settings.get("repetition_penalty")
    return f"repetition_penalty={penalty!r}" if isinstance(penalty, (int, float)) and penalty < 1 else ""


def _boundary(one: Generation, start: int, period: int = 0) -> str:
    token = one.prompt_length + start
    said = f"from token {token} on"
    if one.window is not None:
        far = token - one.window
        said += f", {counted(abs(far), 'token')} {'after' if far >= 0 else 'before'} the edge"
    return said + (f", period {period}" if period else "")


def _sentence(usable: Sequence[Generation]) -> str:
    """ "72 tokens; entropy 2.31 nats, 2.31 on the reference route"."""
    said = f"{sum(len(one.tokens) for one in usable)} tokens in {counted(len(usable), 'generation')}"
    first = usable[0]
    if len(first.entropy) and len(first.reference_entropy):
        exact = first.reference_entropy.mean()
        said += f"; entropy {first.entropy.mean():.2f} nats, {exact:.2f} on the reference route"
    ended = dict.fromkeys(one.ended_by for one in usable if one.ended_by is not None)
    return said + (f"; as served ended by token {', '.join(map(str, ended))}" if ended else "")
