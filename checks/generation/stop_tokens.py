"""A generation ends where the model ends its text, and its turn.

What it proves
    The generation settings name end tokens that the embedding has rows for, and let one come; none of them is a piece
    of ordinary text; the tokenizer puts none behind every text;
    and with a chat template the special token that it writes after an assistant's message is among them (or among the
    stop strings).

Why it matters
    Without an end token a generation runs to its limit and talks to itself. Ids of turns differ by generation of a
    family: 107 ends a turn in Gemma 1 and 2 and is a line break in Gemma 3, where 106 does. The wrong list cuts answers
    at their first line break, or lets them run on into the user's next turn, which the model then invents.

How to fix
    generation_config.eos_token_id as published with these weights: 1 for Gemma's base models, [1, 106] for Gemma 3 -it,
    [1, 106, 50] for Gemma 4 -it.

Known limits
    What is in the settings is looked at, not what a caller passes to generate(). Gemma 1 and some of Gemma 2 were
    published without the end of a turn among their end tokens, and base models of other families with a chat template:
    there it is a warning. Skeletons have no generation settings of their own.

References
    lighteval issue 1278 (end tokens of another generation); generation settings as the conversion scripts write them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gemma_doctor.check import check
from gemma_doctor.evidence import StopTokens, Token
from gemma_doctor.finding import Examined, Finding, Severity, counted

OLD_GEMMA = ("gemma", "gemma2")  # published without the end of a turn among their end tokens


@check()
def stop_tokens(seen: StopTokens) -> Iterator[Finding | Examined]:
    """The end tokens are those of this model, and a turn ends a generation."""
    if seen.behind:
        yield _ends_every_text(seen)
    if seen.no_ids:
        yield _no_ids(seen)
        yield Examined(1, f"eos_token_id {seen.no_ids}")
        return
    there = [one for one in seen.stops if seen.rows is None or 0 <= one.id < seen.rows]
    stops, end = {one.id for one in there}, seen.turn_end
    if not stops:
        yield _never(seen)
    elif held := _held_back(seen, stops):
        yield _kept_from_ending(seen, held)
    ordinary = [one for one in there if not one.special]
    if stops and len(there) < len(seen.stops):
        yield _without_a_row(seen, [one for one in seen.stops if one.id not in stops])
    if ordinary:
        yield _ordinary(seen, ordinary)
    if stops and end is not None and end.id not in stops and end.text not in seen.stop_strings:
        yield _runs_on(seen, end)
    if stops and seen.own is not None and seen.own.id not in stops and seen.own != end:
        yield _own_is_missing(seen, seen.own)
    turn = f", a turn ends with {_named(end)}" if end is not None else f" ({seen.no_turn_end})"
    yield Examined(max(len(seen.stops), 1), f"{_listed(seen.stops)}{turn}")


def _fault(title: str, severity: Severity, observed: str, expected: str, do: str) -> Finding:
    return Finding(title=title, severity=severity, observed=observed, expected=expected, do=do, standing=True)


def _never(seen: StopTokens) -> Finding:
    every = seen.config or ((seen.own.id,) if seen.own is not None else ())
    named = [one for one in every if seen.rows is None or 0 <= one < seen.rows]
    return _fault(
        "no token ends a generation",
        Severity.ERROR,
        f"{_ids(seen.stops)}; the embedding has {seen.rows:,} rows"
        if seen.stops
        else "generation_config.eos_token_id is None",
        f"end tokens{f', e.g. {named}' if named else ''}: without, every generation runs to max_new_tokens",
        f"generation_config.eos_token_id = {named or 'the ids published with these weights'}",
    )


def _no_ids(seen: StopTokens) -> Finding:
    return _fault(
        "the end tokens of the settings are no ids",
        Severity.ERROR,
        f"generation_config.eos_token_id is {seen.no_ids}",
        "a whole number or a list of them: on all else generate() raises, never ends, or warns that it may not",
        f"generation_config.eos_token_id = {list(seen.config) or 'the ids published with these weights'}",
    )


def _ends_every_text(seen: StopTokens) -> Finding:
    return _fault(
        "the tokenizer ends every text with an end token",
        Severity.WARNING,
        f"tokenizer(text) puts {_listed(seen.behind)} behind the text",
        "nothing: what is generated after a prompt that ends so is the start of another text",
        "add_eos_token=False, or a post-processor without it; a chat template's prompts do not end so",
    )


def _held_back(seen: StopTokens, stops: set[int]) -> str:
    """The setting that keeps every end token from ending anything, "" if none does."""
    if seen.stop_strings:
        return ""
    if stops <= set(seen.suppressed):
        return f"suppress_tokens={sorted(stops)}"
    return f"{seen.least[1]} of {seen.most[1]}" if seen.most and seen.least[0] >= max(seen.most[0], 2) else ""


def _kept_from_ending(seen: StopTokens, held: str) -> Finding:
    return _fault(
        "a generation can never stop",
        Severity.ERROR,
        f"{held} keeps every end token ({_listed(seen.stops)}) from coming",
        "an end token that can come: without, every generation runs to its limit",
        f"take {held.split('=')[0]} out of generation_config.json",
    )


def _without_a_row(seen: StopTokens, missing: list[Token]) -> Finding:
    return _fault(
        f"{counted(len(missing), 'end token')} of the settings cannot come",
        Severity.NOTE,
        f"{_ids(missing)} of {[one.id for one in seen.stops]}; the embedding has {seen.rows:,} rows",
        "ids that the embedding has: the others are harmless, and perhaps meant for another model",
        "generation_config.eos_token_id as published with these weights",
    )


def _ordinary(seen: StopTokens, ordinary: list[Token]) -> Finding:
    return _fault(
        f"{counted(len(ordinary), 'end token')} of the settings {'is' if len(ordinary) == 1 else 'are'} ordinary text",
        Severity.ERROR,
        f"{_listed(ordinary)} of {[one.id for one in seen.stops]}",
        "special tokens only: these are the end tokens of another generation of the family, or of another model",
        "generation_config.eos_token_id as published with these weights",
    )


def _runs_on(seen: StopTokens, end: Token) -> Finding:
    """Some families were published so; a model whose own end token it is was not."""
    meant = seen.family.startswith("gemma") and seen.family not in OLD_GEMMA
    kept = [one.id for one in seen.stops if one.special and 0 <= one.id < (seen.rows or one.id + 1)]
    meant = meant or (seen.own is not None and seen.own.id == end.id)
    return _fault(
        "the end of a turn does not end a generation",
        Severity.ERROR if meant else Severity.WARNING,
        f"the chat template ends an assistant's message with {_named(end)}; generation ends at {_listed(seen.stops)}",
        f"{end.id} among the end tokens: answers run on into a turn of the user that the model invents",
        f"generation_config.eos_token_id = {[*kept, end.id]}",
    )


def _own_is_missing(seen: StopTokens, own: Token) -> Finding:
    return _fault(
        "the tokenizer's end token ends no generation",
        Severity.NOTE,
        f"tokenizer.eos_token is {_named(own)}; generation ends at {_listed(seen.stops)}",
        "one that ends a text wherever it was trained to; harmless where only the end of a turn was",
        f"add {own.id} to generation_config.eos_token_id if texts do not end",
    )


def _ids(tokens: Sequence[Token]) -> str:
    return ", ".join(f"id {one.id}" for one in tokens)


def _named(token: Token) -> str:
    return f"{token.text[:40]!r} (id {token.id})"


def _listed(tokens: Sequence[Token]) -> str:
    return ", ".join(map(_named, tokens)) or "nothing"
