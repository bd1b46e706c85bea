"""Says where a finding is, in layers, passes and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemma_doctor.finding import Location, ranges

FEW = 5


def few(words: Sequence[str], verbosity: int) -> str:
    """Some of the words, all of them when asked to be verbose."""
    if verbosity or len(words) <= FEW:
        return ", ".join(words)
    return f"{', '.join(words[:FEW])} and {len(words) - FEW} more"


def kinds_of(subject: Mapping[str, object]) -> list[str]:
    """Kind of every examined layer; empty where nothing names them."""
    kinds = subject["layer_kinds"]
    return [str(kind) for kind in kinds] if isinstance(kinds, tuple) else []


def layers_in_words(layers: tuple[int, ...], kinds: Sequence[str], verbosity: int) -> str:
    """ "all 15 sliding layers", "3 of 15 sliding layers (0-2)", "layers 0, 5".

    Args:
        layers: ascending.
        kinds: of all examined layers; those of a skeleton are counted among themselves.
        verbosity: above 0 the indices are always listed.
    """
    listed = few(ranges(layers), verbosity)
    known = {kinds[layer] for layer in layers if layer < len(kinds)}
    if len(known) == 1 and layers[-1] < len(kinds):
        kind = known.pop()
        word = kind.removesuffix("_attention")
        total = sum(one == kind for one in kinds)
        if total == len(layers):
            every = f"all {total} {word} layers" if total > 1 else f"the only {word} layer"
            return f"{every} ({listed})" if verbosity or total == 1 else every
        return f"{len(layers)} of {total} {word} layers ({listed})"
    if len(layers) == len(kinds):
        return f"all {len(layers)} layers"
    return f"layer{'s' if len(layers) > 1 else ''} {listed}"


def where(location: Location, subject: Mapping[str, object], verbosity: int) -> str:
    """One line. The passes are named only where nothing else says where, or when asked to be verbose."""
    parts = []
    if location.layers:
        parts.append(layers_in_words(location.layers, kinds_of(subject), verbosity))
    if location.boundary:
        parts.append(location.boundary)
    if location.passes and (verbosity or not parts):
        parts.append(f"in {few(location.passes, verbosity)}")
    return ", ".join(parts)
