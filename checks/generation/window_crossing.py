"""Real text costs no more beyond the window edge than it should, with the cache and without.

What it proves
    The teacher-forced loss per token of one real text, before the edge, after it and beyond two windows; the edge is
    the window, or the one that the weights were trained with where that is smaller or the model has none. With all the
    text before them tokens cost no more than in a control that holds the text's first token (BOS, where the tokenizer
    has one) and only what fits below the window; and a chunked run with the library's own cache gives the losses of the
    reference route (one float32 forward, eager, without cache), token by token.

Why it matters
    A window that the weights were trained with and that is not there makes every token past it cost two to four nats
    more: text that looks well for 500 tokens and is noise after 1,000. Configuration, modules and masks may agree on
    the wrong window; the loss does not.

How to fix
    Beyond the control: restore the window and the positions that the weights were trained with (sliding_window,
    layer_types, rope parameters). Cached against uncached: read what the cache checks say; another release of
    transformers may be right.

Known limits
    A window that is off by one, or even half as long, costs less than the noise of this text (0.00 and 0.05 nats on the
    Gemma 3 270M): masks and readings show it, the loss does not. With the full context 40 stretches of docstrings cost
    that healthy model at most 0.13 nats more than with the control, and at most 1.9 standard errors of the paired
    differences; with the window lost at least 1.6 nats and 5.7 standard errors. A finding needs more than 0.25 nats
    (`margin`) and 4 standard errors (`standard_errors`). Cached and uncached must agree within 4 noise floors
    (`noise_floors`) of every single token (2e-5 of 1e-3 nats were seen). Below 32 scored tokens, as with a window under
    64, there is no control.

References
    Needs trained weights and a tokenizer. The text is the docstrings of Python's standard library.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemma_doctor.check import CouldNotLook, NotApplicable, check
from gemma_doctor.evidence import LongText, Region
from gemma_doctor.finding import Examined, Finding, Location, Severity
from gemma_doctor.oracle import FINDING_FLOORS

MARGIN = 0.25  # nats; see Known limits
ERRORS = 4  # standard errors
FEWEST = 32  # tokens, for a standard error that means something


@check()
def window_crossing(
    text: LongText,
    *,
    margin: float = MARGIN,
    standard_errors: float = ERRORS,
    noise_floors: float = FINDING_FLOORS,
) -> Iterator[Finding | Examined]:
    """Real text costs no more beyond the window edge than it should, with the cache and without."""
    edge = text.window or text.edge
    if edge is None:
        raise NotApplicable("no window to cross")
    if text.crash:
        yield _crashed(text)
        raise CouldNotLook(f"the long text ended in {text.crash.kind}")
    most = noise_floors * text.noise
    if _no_numbers(text, most):
        raise CouldNotLook("losses are no numbers: see long-generate")
    lost = [region for region in text.regions if _is_lost(region, margin, standard_errors)]
    if lost:
        yield _lost(text, lost[0])
    apart = [region for region in text.regions if _apart(region, most)]
    if apart and not lost:  # else the reference route is sick as well
        yield _differs(text, apart[0], noise_floors)
    if not any(region.first >= edge for region in text.regions):
        raise CouldNotLook(f"a text of {text.length:,} tokens does not cross the window of {edge:,}")
    scored = sum(len(region.cached) for region in text.regions)
    yield Examined(scored, _sentence(text, alike=not apart), figures=text.figures)


def _no_numbers(text: LongText, most: float) -> bool:
    """Losses are not finite, which is no matter of the cache unless plain generation of the same token is right."""
    exact = [region.reference for region in text.regions if region.reference is not None]
    again = text.text_again
    if all(np.isfinite(one).all() for one in exact) and again is not None and not again.is_off(most):
        return False
    return not all(np.isfinite(one).all() for one in (*exact, *(region.cached for region in text.regions)))


def _excess(region: Region) -> tuple[float, float] | None:
    """By how much tokens cost more than in the control, and the standard error of that, in nats; None without one."""
    if region.control is None or len(region.control) < FEWEST:
        return None
    more = region.cached - region.control
    return float(more.mean()), float(more.std(ddof=1) / len(more) ** 0.5)


def _is_lost(region: Region, margin: float, errors: float) -> bool:
    """Tokens cost more than chance and more than little. Losses that are not finite are long-generate's business."""
    excess = _excess(region)
    return excess is not None and excess[0] > max(margin, errors * excess[1])


def _apart(region: Region, most: float) -> bool:
    return region.reference is not None and not bool((np.abs(region.cached - region.reference) <= most).all())


def _lost(text: LongText, region: Region) -> Finding:
    more, error = _excess(region) or (0.0, 0.0)
    assert region.control is not None
    exact = "" if region.reference is None else f"; {region.reference.mean():.2f} on the reference route"
    return Finding(
        title="text beyond the window costs more with all of its context than with little of it",
        severity=Severity.ERROR,
        where=Location(passes=(text.pass_name,), boundary=_place(region)),
        observed=f"{region.cached.mean():.2f} nats a token{exact}",
        expected=f"{region.control.mean():.2f}, as with the first token and only what fits below the window: the "
        "context that lies further back must not cost anything",
        effect=f"{more:+.2f} nats a token, {more / error:.0f} standard errors" if error else f"{more:+.2f} nats",
        do="compare window, layer types and rope parameters with those that the weights were trained with",
    )


def _differs(text: LongText, region: Region, floors: float) -> Finding:
    """The chunked run is not what everyone takes: plain generation was asked where the two differ most."""
    assert region.reference is not None
    apart = np.abs(region.cached - region.reference)
    column = region.first + int(np.argmax(np.where(np.isnan(apart), np.inf, apart)))
    again, most = text.text_again, floors * text.noise
    plain_too = again is None or again.is_off(most)
    said = "" if again is None else f"; plain generation: {again.plain:.3f} against {again.reference:.3f}"
    return Finding(
        title="with the cache the text costs something else than without"
        + ("" if plain_too else " (if you feed a prompt in chunks)"),
        severity=Severity.ERROR if plain_too else Severity.WARNING,
        where=Location(passes=(text.pass_name,), boundary=_place(region)),
        observed=f"losses off by up to {apart[column - region.first]:.3g} nats, most at token {column}: "
        f"{region.cached[column - region.first]:.3f}, {region.reference[column - region.first]:.3f} on the reference "
        f"route{said if again and again.column == column else ''}",
        expected=f"at most {most:.2g} nats, {floors:g} noise floors",
        effect=f"{region.cached.mean() - region.reference.mean():+.3f} nats a token {region.name}",
        do="read what the cache checks say; another transformers release may be right",
        meanwhile="" if plain_too else "a prompt in one forward is right (measured)",
        against_reference=True,
    )


def _crashed(text: LongText) -> Finding:
    crash = text.crash
    assert crash is not None
    return Finding(
        title=f"the model raises {crash.kind} on a long text in chunks",
        severity=Severity.WARNING,  # what everyone takes is long-generate's business
        where=Location(passes=(text.pass_name,), boundary=f"from total length {crash.total:,} on"),
        observed=f"{crash.kind}: {crash.message}",
        expected=f"no exception in {text.length:,} tokens, {text.chunk} at a time",
        do="feed a prompt in one forward; another transformers release may be right",
    )


def _place(region: Region) -> str:
    return f"{region.name}, tokens {region.first:,} to {region.last:,}"


def _sentence(text: LongText, alike: bool) -> str:
    """ "loss 4.31 before the edge, 3.63 after the edge (control 3.63); uncached alike"."""
    parts = []
    for region in text.regions:
        control = "" if region.control is None else f" (control {region.control.mean():.2f})"
        parts.append(f"{region.cached.mean():.2f} {region.name}{control}")
    known = all(one.reference is not None for one in text.regions)
    uncached = ("uncached alike" if alike else "uncached otherwise") if known else f"uncached: {text.no_reference}"
    gone = "" if text.window else f"no window; around the {text.edge:,} of the weights: "
    return f"{gone}loss {', '.join(parts)}; {uncached}"
