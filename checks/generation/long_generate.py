"""A long greedy generation crosses the window edge and comes out whole.

What it proves
    Generation from below the window edge to a margin beyond it, on the chosen device, with end tokens suppressed,
    raises nothing, and all its logits are finite. Exceptions in any other pass are reported here too,
    and settings of the subject's own that generate() refuses.

Why it matters
    Cache and window faults begin at the edge: short prompts look fine, and the first long answer crashes or repeats.

How to fix
    A crash: see its layer and the length it coincides with; compare with another transformers release and with
    use_cache=False.

Known limits
    A generation that did not cross the edge proves nothing and is reported as not evaluated. What the text is like is
    degeneration's business.

References
    transformers issues 31781 and 35711 (crash past the window), 37574 (silent, from the edge on).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import GREEDY, Crash, Generation, Generations, Pass, Trace
from gemma_doctor.finding import Examined, Finding, Location, Severity


@check(decides_before="generation")
def long_generate(trace: Trace, generations: Generations | None) -> Iterator[Finding | Examined]:
    """A long generation crosses the window without an exception, and its logits are finite."""
    yield from _crashes(trace, _settings_of(generations))
    if not trace.causal:
        raise NotApplicable("bidirectional: it does not generate")
    if generations is None:
        raise CouldNotLook("the long generation was not run")
    generation = generations.all[0]
    for one in generations.all:
        if one.not_finite is not None:
            yield _not_finite(one, one.not_finite)
            break  # the others show the same
    yield Examined(len(generation.tokens) or 1, _crossing(generation))


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


def _settings_of(generations: Generations | None) -> dict[str, Generation]:
    """Generations as served that the library refuses, by pass, where it does not refuse the greedy one as well."""
    if generations is None or generations.all[0].crash:
        return {}
    return {one.pass_name: one for one in generations.all if one.way != GREEDY and one.crash and one.crash.refused}


def _unservable(one: Generation, crash: Crash) -> Finding:
    named = re.findall(r"`(\w+)`", crash.message)  # of `penalty` the setting is repetition_penalty
    guilty = [name for name in one.settings if any(name.endswith(word) for word in named)] or list(one.settings)
    said = ", ".join(f"{name}={one.settings[name]!r}"[:60] for name in guilty)
    return Finding(
        title=f"generate() refuses the subject's own settings: {said}",
        severity=Severity.ERROR,
        where=Location(passes=(one.pass_name,)),
        observed=f"{crash.kind}: {crash.message}",
        expected="settings that generate() takes: as deployed every call raises",
        do=f"correct {', '.join(guilty)} in generation_config.json",
        standing=True,
    )


def _crashes(trace: Trace, refused: Mapping[str, Generation]) -> Iterator[Finding]:
    """One finding for each kind of exception, however many passes it ended."""
    crashed: dict[tuple[str, bool], list[tuple[Pass, Crash]]] = {}
    first_refused = next(iter(refused.values()), None)  # the settings of the others are the same
    if first_refused is not None and first_refused.crash is not None:
        yield _unservable(first_refused, first_refused.crash)
    for one in trace.passes:
        if one.crash and one.name not in refused:
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
