"""What is asked for fits the positions that the model has, and those are the published ones.

What it proves
    max_position_embeddings is one number in the published file and in the loaded configuration; yarn and longrope
    scaling, where they name what they stretch, stretch it as far as that; and prompt plus new tokens, `--length` and
    the generation settings' own limits stay within what the model may be used for.

Why it matters
    Past the last position nothing raises. The rotation goes on into angles that the weights never saw, and the text
    comes apart some hundred tokens later.

How to fix
    Shorten the text, or stretch the rotation by the scheme that the weights were trained with. `rope-coverage` says
    what a stretch needs.

Known limits
    Positions are not always a promise: some files publish more than was trained, others fewer. Where scaling was laid
    over a published configuration, the positions count that it makes of the trained ones. That tokens really stood past
    the end is for `position-range` to say.

References
    YaRN, arXiv:2309.00071; Llama 3.1 publishes 131,072 positions with factor 8 over 8,192 trained ones, and means it.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.check import NotApplicable, check
from gemma_doctor.evidence import Config, ConfigFacts, Lengths, ModelFacts
from gemma_doctor.finding import Examined, Finding, Severity
from gemma_doctor.oracle import made_for, reach

POSITIONS = "max_position_embeddings"


@check()
def context_length(config: Config, facts: ModelFacts | None, lengths: Lengths | None) -> Iterator[Finding | Examined]:
    """Positions published = loaded, and all that is asked for fits them."""
    published = config.published
    source = published if published.max_positions is not None or facts is None else facts.loaded
    limit = reach(source, config.base)
    if limit is None:
        raise NotApplicable("the model names no number of positions" if facts else "the file names no positions")
    if facts is not None and published.max_positions is not None:
        yield from _lost(published.max_positions, facts, published)
    yield from _not_as_far(source)
    longest = lengths.longest if lengths else None
    if lengths is not None:
        yield from _too_long(lengths, limit, source)
    words = "published" + (" = loaded" if facts else "") if source is published else "loaded (class default)"
    asked = f"; {longest.tokens:,} asked for" if longest else ""
    yield Examined(1, f"{source.max_positions:,} positions {words}{asked}")


def _lost(due: int, facts: ModelFacts, published: ConfigFacts) -> Iterator[Finding]:
    if facts.loaded.max_positions != due:
        yield Finding(
            title="the model does not have the published number of positions",
            severity=Severity.ERROR,
            observed=f"max_position_embeddings {_number(facts.loaded.max_positions)} loaded",
            expected=f"{due:,} ({published.origin})",
            do="set max_position_embeddings in the configuration before the model is built from it",
            keys=published.written(POSITIONS),
            standing=True,
        )


def _not_as_far(source: ConfigFacts) -> Iterator[Finding]:
    stretched = made_for(source)
    if stretched is not None and source.max_positions is not None and stretched < source.max_positions:
        yield Finding(
            title="the rotation is stretched less far than the positions go",
            severity=Severity.WARNING,
            observed=f"factor times original length is {stretched:,}: wrong beyond",
            expected=f"{source.max_positions:,} (max_position_embeddings in {source.origin})",
            do="publish the factor and the original length that the weights were trained with",
            keys=source.written("rope_parameters", "rope_scaling", POSITIONS),
            standing=True,
        )


def _too_long(lengths: Lengths, limit: int, source: ConfigFacts) -> Iterator[Finding]:
    for one in lengths.wanted:
        if one.tokens > limit:
            yield Finding(
                title=f"{one.by} {'asks for' if one.of_this_run else 'allows'} more tokens than there are positions",
                severity=Severity.WARNING,
                observed=f"{one.tokens:,} tokens: wrong from position {limit:,} on",
                expected=f"at most {limit:,} ({source.origin})",
                do=f"ask for {limit:,} tokens at most, prompt included, or stretch the rotation as the weights learned",
                keys=source.written(POSITIONS),
                standing=True,
            )


def _number(value: int | None) -> str:
    return "not named" if value is None else f"{value:,}"
