"""A long greedy generation crosses the window edge and comes out whole.

What it proves
    Generation from below the window edge to a margin beyond it, on the chosen device, with end tokens suppressed,
    raises nothing and does not fall into a loop that the reference route (one forward over the same tokens, float32,
    eager, without cache) would not fall into. Exceptions in any other pass are reported here too.

Why it matters
    Cache and window faults begin at the edge: short prompts look fine, and the first long answer crashes or repeats.

How to fix
    A crash: see its layer and the length it coincides with; compare with another transformers release and with
    use_cache=False. A loop that the reference route does not share: something between cache and mask is wrong; read the
    other findings first.

Known limits
    A generation that did not cross the edge proves nothing and is reported as not evaluated. Small models loop by
    themselves now and then; such a loop is a note. On random weights (skeleton) text means nothing, and only exceptions
    and loops that the reference route contradicts count.

References
    transformers issues 31781 and 35711 (crash past the window), 37574 (silent, from the edge on).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import Crash, Generation, Generations, Ints, Pass, Trace
from gemma_doctor.finding import Examined, Finding, Location, Severity, counted

REPEATS = 4  # a loop is a run of tokens that stands at least this often in a row at the end ...
LOOP_TOKENS = 16  # ... and fills at least this many tokens


@check()
def long_generate(trace: Trace, generations: Generations | None) -> Iterator[Finding | Examined]:
    """A long generation crosses the window without an exception or a loop of its own."""
    yield from _crashes(trace)
    if not trace.causal:
        raise NotApplicable("bidirectional: it does not generate")
    if generations is None:
        raise CouldNotLook("the long generation was not run")
    generation = generations.all[0]
    if generation.not_finite is not None:
        yield _not_finite(generation, generation.not_finite)
    said = _crossing(generation)
    loop = None if generation.crash or generation.not_finite is not None else repeated_tail(generation.tokens)
    if loop:
        yield _loop(generation, *loop)
    yield Examined(len(generation.tokens) or 1, said)


def _crossing(generation: Generation) -> str:
    """How far the generation went, in words.

    Raises:
        CouldNotLook: it proves nothing.
    """
    prompt, generated = generation.prompt_length, len(generation.tokens)
    if generation.crash and generation.crash.refused:
        raise CouldNotLook(f"generate() refuses: {generation.crash.message}")
    if generation.crash:
        return f"stopped by an exception after {generated} tokens"
    crossed = "no window to cross"
    if generation.window is not None:
        beyond = prompt + generated - generation.window
        if beyond < 1:
            raise CouldNotLook(f"{prompt} + {generated} tokens do not cross the window of {generation.window:,}")
        wanted = f" of {generation.margin} wanted" if beyond < generation.margin else ""
        crossed = f"window crossed at step {max(generated - beyond, 0)}, {beyond}{wanted} tokens past the edge"
    if generation.no_reference:
        raise CouldNotLook(generation.no_reference)
    return f"prompt {prompt}, generated {generated}, {crossed}"


def _not_finite(generation: Generation, step: int) -> Finding:
    at = f"step {step}, token {generation.prompt_length + step}"
    return Finding(
        title="the logits are NaN or infinite",
        severity=Severity.ERROR,
        where=Location(passes=(generation.pass_name,), boundary=f"from {at} on"),
        observed=f"NaN or infinity in the next-token logits of {at}"
        + (
            f"; the weight {generation.bad_weight} is not finite"
            if generation.bad_weight
            else "; all weights are finite"
        ),
        expected="finite logits",
        do="restore the weights from where they came"
        if generation.bad_weight
        else "find the first module whose output is not finite: an overflow in half precision, an empty mask row",
    )


def repeated_tail(tokens: Ints) -> tuple[int, int] | None:
    """(start, period) of the loop in which the tokens end, or None."""
    for period in range(1, len(tokens) // REPEATS + 1):
        same = tokens[period:] == tokens[:-period]
        run = len(same) if same.all() else int(np.argmin(same[::-1]))
        if run + period >= max(REPEATS * period, LOOP_TOKENS):
            return len(tokens) - run - period, period
    return None


def _loop(generation: Generation, start: int, period: int) -> Finding:
    """Ours, or the model's own: the reference route read the same tokens and says what it would have put."""
    differs = np.flatnonzero((generation.tokens != generation.reference) & generation.clear)
    own = differs.size == 0
    step = "no step" if own else f"step {differs[0]} (token {generation.prompt_length + differs[0]})"
    return Finding(
        title="the text loops, and so it does on the reference route" if own else "the text loops",
        severity=Severity.NOTE if own else Severity.ERROR,
        where=Location(
            passes=(generation.pass_name,),
            boundary=f"from token {generation.prompt_length + start} on, period {period}",
        ),
        observed=f"{counted(period, 'token')} again and again from step {start}; the reference route differs at {step}",
        expected="no loop that the reference route does not make",
        do="no fault of its own: greedy decoding of small models loops; other findings here may be the reason"
        if own
        else "read the findings above: something between cache and mask is wrong",
    )


def _crashes(trace: Trace) -> Iterator[Finding]:
    """One finding for each kind of exception, however many passes it ended."""
    crashed: dict[tuple[str, bool], list[tuple[Pass, Crash]]] = {}
    for one in trace.passes:
        if one.crash:
            crashed.setdefault((one.crash.kind, one.crash.refused), []).append((one, one.crash))
    for ended in crashed.values():
        first, crash = ended[0]
        yield _crash(crash, first, tuple(one.name for one, _ in ended))


def _crash(crash: Crash, first: Pass, passes: tuple[str, ...]) -> Finding:
    layer = "outside of any layer" if crash.layer is None else f"layer {crash.layer}"
    refused = crash.refused
    return Finding(
        title="the library refuses this way of generating" if refused else f"the model raises {crash.kind}",
        severity=Severity.NOTE if refused else Severity.ERROR,
        where=Location(passes=passes, boundary=f"{first.place(crash.step, crash.total)}, {layer}"),
        observed=f"{crash.kind}: {crash.message}",
        expected="it runs, or says why not: it says" if refused else "no exception",
        do="another transformers release may offer it"
        if refused
        else "compare with another transformers release, another --attn-implementation, and use_cache=False",
    )
