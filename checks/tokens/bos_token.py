"""Texts reach the model behind exactly one BOS.

What it proves
    The embedding has a row for BOS, which stands once, and first, in what tokenizer(text) gives and in what
    apply_chat_template(tokenize=True) gives. What tokenizer() makes of the text that the chat template writes is looked
    at as well. One BOS is expected where the tokenizer puts one or its saved settings ask for it, and in every Gemma.
    For other models that are given none, the loss of a real text behind no, one and two BOS decides, where there are
    real weights.

Why it matters
    Gemma reads every text from BOS on. Without it Gemma 3 270M lost half a nat per token (3.14 against 2.68 over 1,536
    tokens) and fell into loops; a second one is cheap there and is not on every checkpoint.

How to fix
    Missing: a tokenizer read from a GGUF file may have lost its post-processor; load it from the original repository,
    or put tokenizer.bos_token in front. Twice: apply_chat_template(tokenize=True), or tokenizer(text,
    add_special_tokens=False) for a text that the template wrote.

Known limits
    Losses are measured in one short text (256 tokens of docstrings) and only if some way does not put exactly one. A
    model that nothing says to need BOS is a warning from 0.1 nats per token (`least_cost`) and 4 standard errors
    (`standard_errors`) on. The 0.1 is chosen, not measured on healthy models that read without BOS: a fifth of what a
    missing BOS costs Gemma 3 270M (0.46), thirty times what a doubled one does (0.003); what is below may go unsaid.
    Templates of Gemma 4 -it put BOS and their tokenizers do not: a note.

References
    transformers issue 37686 (BOS twice after a chat template); vLLM 52304 (Gemma 4 without BOS repeats itself); the
    packaged Gemma 3 270M in transformers 5.12 and 5.16.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gemma_doctor.check import NotApplicable, check
from gemma_doctor.evidence import BosUse, BosWay, Floats
from gemma_doctor.finding import Examined, Finding, Severity

# what a missing BOS must cost to be a warning: nats per token, and standard errors
LEAST_COST, STANDARD_ERRORS = 0.1, 4.0
ONCE = "apply_chat_template(tokenize=True), or add_special_tokens=False for a text that the template wrote"


@check()
def bos_token(
    bos: BosUse, *, least_cost: float = LEAST_COST, standard_errors: float = STANDARD_ERRORS
) -> Iterator[Finding | Examined]:
    """BOS stands exactly once in front of a text, plain or through the chat template."""
    ways = [way for way in (bos.plain, bos.template) if way is not None]
    if bos.broken_template:
        yield _broken(bos)
    if bos.rows is not None and not 0 <= bos.token.id < bos.rows:
        yield _no_row(bos, [way for way in ways if way.count])
        yield Examined(len(ways), f"BOS (id {bos.token.id}) has no row in the embedding")
        return
    costs = _costs(bos, least_cost, standard_errors)
    needed = bos.family.startswith("gemma") or bool(bos.said_by)
    if not needed and bos.losses is None and not any(way.count for way in ways):
        raise NotApplicable(f"nothing puts its BOS ({bos.token.text!r}) anywhere, and nothing says that it needs one")
    for way in ways:
        finding = _doubled(bos, way) if way.count > 1 else _missing(bos, way, costs) if not way.count else None
        if finding is not None:
            yield finding
    if bos.both is not None and bos.both.count > 1 and all(way.count < 2 for way in ways):
        yield _twice_by_both(bos, bos.both)
    said = ", ".join(f"{way.name} {way.count}" for way in ways)
    why_not = f"; {bos.no_template}" if bos.no_template else ""
    yield Examined(len(ways), f"BOS in front: {said}{why_not}")


def _broken(bos: BosUse) -> Finding:
    return Finding(
        title="the chat template raises on a plain turn of the user",
        severity=Severity.WARNING,
        observed=bos.broken_template,
        expected="a text; a template may refuse roles and orders of them, with raise_exception",
        do="take the chat template that was published with this vocabulary; without one no conversation can be served",
        standing=True,
    )


def _no_row(bos: BosUse, putting: list[BosWay]) -> Finding:
    put = f"; put in front by {', '.join(way.name for way in putting)}" if putting else "; nothing puts it in front"
    return Finding(
        title="BOS has no row in the embedding",
        severity=Severity.ERROR if putting else Severity.NOTE,
        observed=f"{bos.token.text[:40]!r} (id {bos.token.id}) of {bos.rows or 0:,} rows{put}",
        expected="an id that the embedding has: on others the model raises",
        do="take the tokenizer that was published with these weights",
        standing=True,
    )


def _doubled(bos: BosUse, way: BosWay) -> Finding:
    return Finding(
        title=f"{way.name} puts BOS {way.count} times",
        severity=Severity.ERROR,
        observed=f"ids {_ids(way)}",
        expected=f"one BOS ({bos.token.text!r}, id {bos.token.id})",
        effect=_effect(bos, twice=True),
        do="let one of template and post-processor put it: " + ONCE,
        standing=True,
    )


def _missing(bos: BosUse, way: BosWay, costs: bool) -> Finding | None:
    """A way that puts no BOS, if the model needs one as far as anybody can say; `costs`: as losses say."""
    plain = way is bos.plain
    by_template = plain and bos.template is not None and bos.template.count == 1
    gemma = bos.family.startswith("gemma")
    severity, expected = Severity.ERROR, f"one BOS, as {bos.said_by or 'every Gemma'} asks"
    if gemma and not (bos.family.startswith("gemma4") and by_template):
        expected = f"one BOS ({bos.token.text!r}, id {bos.token.id}), as every Gemma reads"
    elif gemma or (not plain and not bos.losses and bos.said_by):
        severity, expected = Severity.NOTE, f"one BOS, as {'the chat template' if plain else bos.said_by} puts"
    elif not plain or not bos.said_by:
        if not costs:
            return None
        severity, expected = Severity.WARNING, "one BOS, since the same text is predicted better behind one"
    return Finding(
        title=f"{way.name} puts no BOS",
        severity=severity,
        observed=f"ids {_ids(way)}",
        expected=expected,
        effect=_effect(bos),
        do="load the tokenizer from the original repository, or put tokenizer.bos_token in front of every text",
        standing=True,
    )


def _twice_by_both(bos: BosUse, way: BosWay) -> Finding:
    return Finding(
        title="BOS comes twice if the text of the chat template is tokenized again",
        severity=Severity.NOTE,
        observed=f"{way.name}: ids {_ids(way)}",
        expected=f"one BOS ({bos.token.text!r}, id {bos.token.id})",
        do=ONCE,
        standing=True,
    )


def _ids(way: BosWay) -> str:
    return f"{', '.join(map(str, way.begins))} ..."


def _difference(worse: Floats, better: Floats) -> tuple[float, float]:
    """Mean difference of paired losses and its standard error, in nats per token."""
    each = worse - better
    return float(each.mean()), float(each.std(ddof=1) / np.sqrt(len(each)))


def _costs(bos: BosUse, least: float, errors: float) -> bool:
    """To leave BOS out costs more than chance and more than little."""
    if bos.losses is None:
        return False
    mean, error = _difference(bos.losses.without, bos.losses.once)
    return mean > max(least, errors * error)


def _effect(bos: BosUse, twice: bool = False) -> str:
    if bos.losses is None:
        return bos.no_losses
    worse, name = (bos.losses.twice, "two") if twice else (bos.losses.without, "none")
    mean, error = _difference(worse, bos.losses.once)
    return (
        f"{mean:+.2f} nats per token (standard error {error:.2g}): {worse.mean():.2f} behind {name}, "
        f"{bos.losses.once.mean():.2f} behind one, {bos.losses.text}"
    )
