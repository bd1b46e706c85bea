"""What a subject is expected to be: `expect:` of the run file, and the preset that it comes from.

Only what the checks compare can be expected: the window, the kinds of the layers, the rotary parameters, and the
epsilon of the norms, each in any spelling that `published` reads. Single keys that say anything else are refused. A
preset may be named whole: the checks compare the same things of it, and no others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemma_doctor import presets
from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.evidence import Claim, ConfigFacts, Expectation
from gemma_doctor.oracle import usable_epsilon, usable_theta
from gemma_doctor.published import EPS_KEYS, PATTERN_KEYS, ROPE_KEYS, WINDOW_KEYS, WINDOW_SWITCH, read, text_part

# Under which keys a configuration says what it was made from.
NAME_KEYS = ("_name_or_path", "base_model_name_or_path", "base_model")
CACHED = "models--"  # how a repository's folder begins in the hub's local cache
EXPECTABLE = (*WINDOW_KEYS, WINDOW_SWITCH, *PATTERN_KEYS, *ROPE_KEYS, *EPS_KEYS)


def lay_over(mapping: Mapping[str, Any], keys: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with `keys` laid over its text part."""
    text, prefix = text_part(mapping)
    if not prefix:
        return {**mapping, **keys}
    return {**mapping, prefix.rstrip("."): {**text, **keys}}


def expectations(
    published: ConfigFacts, base: ConfigFacts | None, unchanged: bool, expect: str | Mapping[str, Any] | None
) -> tuple[Expectation, ...]:
    """Everything to hold a subject against, the binding one first.

    Whoever demands a preset has said what the subject should be; the preset that it comes from would only repeat it.

    Args:
        published: the subject's own spelling.
        base: the preset to hold it against, None if there is none (see `Origin`).
        unchanged: the subject is that preset to the letter; it is not held against itself.
        expect: as in the run file.

    Raises:
        DoctorError: `expect` names no preset, or keys that no check compares.
    """
    found = [Expectation(_demanded(published, expect), binding=True)] if expect else []
    names_a_preset = isinstance(expect, str) or (expect is not None and "preset" in expect)
    if base is not None and not unchanged and not names_a_preset:
        found.append(Expectation(base, binding=False))
    return tuple(found)


def _demanded(published: ConfigFacts, expect: str | Mapping[str, Any]) -> ConfigFacts:
    if isinstance(expect, str):
        return read(presets.load(expect), f"expect: preset {expect}")
    text, prefix = text_part(expect)
    keys = {key: value for key, value in ({**expect, **text} if prefix else expect).items() if key != "preset"}
    keys.pop(prefix.rstrip("."), None)
    # Without a preset the keys stand alone; a pattern needs the number of layers to say anything.
    base = {"model_type": published.family, "num_hidden_layers": published.layers}
    alone = _comparable(base, keys)
    if "preset" not in expect:
        return alone
    name = expect["preset"]
    if not isinstance(name, str):
        raise DoctorError(f"expect: preset must be a preset's name, not {name!r}", "gemma-doctor presets lists them")
    return read(lay_over(presets.load(name), keys), f"expect: preset {name} and keys")


def _comparable(base: Mapping[str, Any], keys: Mapping[str, Any]) -> ConfigFacts:
    """Single keys as an expectation.

    Raises:
        DoctorError: one of them is nothing that a check compares, or says nothing that can be compared.
    """
    for key in keys:
        if key not in EXPECTABLE:
            raise DoctorError(
                f"expect: no check compares {key}{suggest(key, EXPECTABLE)}",
                f"what can be expected: preset, {', '.join(EXPECTABLE)}",
            )
    facts = read({**base, **keys}, "expect: of the run file")
    for key, value in keys.items():
        without = read({**base, **{other: keys[other] for other in keys if other != key}}, facts.origin)
        switch = key == WINDOW_SWITCH and isinstance(value, bool) and facts.window is not None
        if not switch and _compared(facts) == _compared(without):
            raise DoctorError(
                f"expect: {key}: {value!r} says nothing that a check compares", "correct it or leave it out"
            )
    unusable = _unusable(facts)
    if unusable is not None:
        raise DoctorError(f"expect: {unusable.key}: {unusable.value!r} cannot be right for any model", "correct it")
    return facts


def _compared(facts: ConfigFacts) -> object:
    """What the checks look at."""
    return (facts.window, facts.switched_off, facts.layer_kinds, dict(facts.rope), facts.eps)


def _unusable(facts: ConfigFacts) -> Claim | None:
    """A value that no healthy model can have, so that to expect it would only hide that nothing is compared."""
    window, eps = facts.window, facts.eps
    if window is not None and window.value is not None and not (type(window.value) is int and window.value > 0):
        return window
    if eps is not None and not usable_epsilon(eps.value):
        return eps
    wrong = [one for one in facts.rope.values() if not usable_theta(one)]
    return Claim(wrong[0].key, wrong[0].parameters.get("rope_theta", wrong[0].theta)) if wrong else None


@dataclass(frozen=True)
class Origin:
    """The preset that a subject is, or comes from.

    Attributes:
        base: the nearest preset of its family and shape, whatever its positions; None if there is none.
        comparable: `base` where the subject should agree with it: it names that preset, or its positions agree too.
            Positions tell generations of one shape apart: Llama 3 and 3.1 share all sizes, not the rope.
    """

    base: ConfigFacts | None
    comparable: ConfigFacts | None


def origin(published: ConfigFacts, preset: str, mapping: Mapping[str, Any]) -> Origin:
    """Which preset a subject comes from: its own, else the one that it names, else the one it differs least from.

    Of those that are equally near the one with the shortest name, which is the model that the others were tuned from.

    Args:
        published: the subject's own spelling.
        preset: the preset that the subject is, or that has its name; else "".
        mapping: the whole published configuration. A name in it is believed only where the shapes agree.
    """
    alike = [facts for facts in map(_facts, presets.names()) if _fits(published, facts)]
    for name in (preset, _named(mapping)):
        own = next((facts for facts in alike if facts.origin == f"preset {name}"), None)
        if own is not None:
            return Origin(own, own)
    near = sorted(alike, key=lambda facts: (_differences(published, facts), len(facts.origin)))
    agreeing = next((facts for facts in near if _agree(published.max_positions, facts.max_positions)), None)
    return Origin(agreeing or next(iter(near), None), agreeing)


def _facts(name: str) -> ConfigFacts:
    return read(presets.load(name), f"preset {name}")


def _named(mapping: Mapping[str, Any]) -> str:
    """The preset that a configuration says it was made from: by hub id, by its name, or by a folder of that name."""
    text, _ = text_part(mapping)
    for written in (part.get(key) for part in (mapping, text) for key in NAME_KEYS):
        if isinstance(written, str):
            parts = written.replace("\\", "/").strip("/").split("/")
            cached = [part.removeprefix(CACHED).replace("--", "/") for part in parts if part.startswith(CACHED)]
            repository = next(iter(cached), written)
            by_name = {name.casefold(): name for name in presets.names()}
            by_name |= {presets.hub_id(name).split("/")[-1].casefold(): name for name in presets.names()}
            known = presets.for_hub_id(repository) or by_name.get(parts[-1].casefold())
            if known:
                return known
    return ""


def _fits(one: ConfigFacts, other: ConfigFacts) -> bool:
    """Same family and size. Sparse files leave out what their class defaults say, so heads may be absent."""
    if (one.family, one.hidden_size, one.layers) != (other.family, other.hidden_size, other.layers):
        return False
    if one.hidden_size is None or one.layers is None:
        return False
    return _agree(one.heads, other.heads) and _agree(one.kv_heads, other.kv_heads)


def _agree(one: int | None, other: int | None) -> bool:
    return one == other or one is None or other is None


def _differences(one: ConfigFacts, other: ConfigFacts) -> int:
    """How many facts two spellings state differently."""
    values = [(_value(one.window), _value(other.window)), (_value(one.eps), _value(other.eps))]
    values += [(one.layer_kinds, other.layer_kinds), (one.raw.get("vocab_size"), other.raw.get("vocab_size"))]
    values += [(one.rope[kind].theta, other.rope[kind].theta) for kind in set(one.rope) & set(other.rope)]
    return sum(a != b for a, b in values)


def _value(claim: Claim | None) -> object:
    return None if claim is None else claim.value
