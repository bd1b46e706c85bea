"""No prompt of this run is cut, or it is said what is lost.

What it proves
    Every prompt and conversation of the run is measured against what cuts it: --max-length, the length at which the
    subject's own pipeline cuts, or the tokenizer's model_max_length, which tokenizer(..., truncation=True) takes. The
    text that would be lost is shown, and on which side.

Why it matters
    Cutting is silent. Cut on the right, a prompt loses its question and a conversation the head of the answer, so
    that generate() goes on within the user's words; cut on the left, it loses the system's instructions and BOS. A
    limit left over from training (2,048) hides a context of 128K.

How to fix
    Raise max_length to what prompt and answer need; cut earlier turns or documents yourself, in front of the template;
    tokenizer.truncation_side = "left" for prompts; tokenizer.model_max_length = the model's positions.

Known limits
    Nobody knows whether you tokenize with truncation=True unless you say so with --max-length: model_max_length below
    the positions is a note, and a warning from the point on where it cuts a prompt of this run or cannot fill the
    window. Without a prompt only that setting is looked at: the docstrings that fill prompts here are nobody's texts.

References
    transformers documentation on padding and truncation; published tokenizers re-saved by trainers carry 8192 or less.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.check import NotApplicable, check
from gemma_doctor.evidence import CutText, Truncation
from gemma_doctor.finding import Examined, Finding, Severity, counted

SHOWN = 120  # characters of a lost text
GIVEN = "--max-length"


@check()
def truncation(cutting: Truncation) -> Iterator[Finding | Examined]:
    """No prompt loses text to truncation."""
    limit = cutting.limit
    if not cutting.prompts and (cutting.limit_by == GIVEN or cutting.positions is None):
        raise NotApplicable(f"no prompt is given{' and nothing cuts' if limit is None else ''}")
    if limit is not None and cutting.limit_by == GIVEN:
        for one in cutting.cut:
            yield _lost(cutting, one, limit)
    elif limit is not None:
        finding = _short_limit(cutting, limit)
        if finding is not None:
            yield finding
    yield Examined(max(cutting.prompts, 1), _looked_at(cutting))


def _looked_at(cutting: Truncation) -> str:
    said = f"{cutting.limit_by} {cutting.limit:,}" if cutting.limit is not None else "the tokenizer names no limit"
    if not cutting.prompts:
        return f"{said}, the model {cutting.positions:,} positions; no prompt given"
    texts = f"{counted(cutting.prompts, 'prompt')}, the longest {cutting.longest:,} tokens"
    return f"{texts} ({said}{f', cut on the {cutting.side}' if cutting.limit is not None else ''})"


def _lost(cutting: Truncation, one: CutText, limit: int) -> Finding:
    """What --max-length cuts off a prompt."""
    right = cutting.side == "right"
    severity = Severity.WARNING if right or one.conversation else Severity.NOTE
    if one.loses_turn:
        severity = Severity.ERROR
    losses = ["the head of the answer"] if one.loses_turn else ["its end"] if right else ["its beginning"]
    losses += ["BOS"] if one.loses_bos else []
    goes_on = "; generate() goes on from a text that is cut" if right else ""
    return Finding(
        title=f"the {one.name} loses {' and '.join(losses)} to truncation",
        severity=severity,
        observed=f"{one.tokens - limit:,} of {one.tokens:,} tokens, on the {cutting.side}: {_shown(one.lost, right)}",
        expected=f"all {one.tokens:,} tokens",
        effect=f"the text that is lost is never read{goes_on}",
        do="raise --max-length (and the pipeline's), or shorten the text before it is tokenized",
        standing=True,
    )


def _shown(lost: str, right: bool) -> str:
    """A lost text, as Python would write it; cut at the end that was lost first."""
    if len(lost) <= SHOWN:
        return repr(lost)
    return f"{lost[:SHOWN]!r} ..." if right else f"... {lost[-SHOWN:]!r}"


def _short_limit(cutting: Truncation, limit: int) -> Finding | None:
    """A model_max_length that is shorter than what the model can read, or than a prompt of this run."""
    positions = cutting.positions
    short = positions is not None and limit < positions
    if not short and not cutting.cut:
        return None
    observed = f"model_max_length {limit:,}"
    severity = Severity.NOTE
    expected = f"{positions:,}, as many as the model has positions" if short else f"all {cutting.longest:,} tokens"
    if cutting.cut:
        longest = max(cutting.cut, key=lambda one: one.tokens)
        severity = Severity.WARNING
        observed += f"; the {longest.name} has {longest.tokens:,} tokens and would lose on the {cutting.side}: "
        observed += _shown(longest.lost, cutting.side == "right")
    elif cutting.window is not None and limit < cutting.window:
        severity = Severity.WARNING
        expected += f", and no less than the window of {cutting.window:,}"
    return Finding(
        title="tokenizer(..., truncation=True) cuts texts that the model can read",
        severity=severity,
        observed=observed,
        expected=expected,
        do=f"{f'tokenizer.model_max_length = {positions}, or ' if short else ''}give max_length",
        standing=True,
    )
