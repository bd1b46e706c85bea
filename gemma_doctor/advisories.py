"""The list of public faults: reads it, and says which of them concern a subject.

The list is `advisories.yaml` beside this file: one for users, for reports and for tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, parse

from gemma_doctor import routes
from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.evidence import SLIDING, Advisories, Advisory, Concern, Config, ConfigFacts, ModelFacts
from gemma_doctor.routes import DEPTHS, included

FILE = "advisories.yaml"

TEXTS = ("id", "title", "releases", "fixed", "symptom", "fix", "meanwhile", "url", "verified")
LISTS = ("families", "needs", "routes", "backends", "dtypes", "devices", "related")
TRIGGER = ("subject", "sick", "well", "routes", "attn_implementation", "cause")
REQUIRED = ("id", "title", "releases", "symptom", "fix", "verified")


def _kinds(published: ConfigFacts, facts: ModelFacts | None) -> tuple[str, ...]:
    if facts is not None:
        return tuple(layer.kind for layer in facts.layers)
    if published.layer_kinds is not None:
        return published.layer_kinds
    return () if published.window_in_force is None else (SLIDING,)


def _shares_kv(published: ConfigFacts, facts: ModelFacts | None) -> bool:
    return facts.shares_kv if facts is not None else bool(published.raw.get("num_kv_shared_layers"))


# What an entry can ask of a model, beyond its family.
NEEDS: Mapping[str, Callable[[ConfigFacts, ModelFacts | None], bool]] = {
    "sliding": lambda published, facts: SLIDING in _kinds(published, facts),
    "bidirectional": lambda published, facts: not published.causal,
    "shared-kv": _shares_kv,
    "own-kv": lambda published, facts: not _shares_kv(published, facts),
    "yarn": lambda published, facts: any(one.rope_type == "yarn" for one in published.rope.values()),
}


@dataclass(frozen=True)
class Trigger:
    """A run that shows a fault.

    Attributes:
        subject: a preset.
        sick, well: releases of transformers with and without the fault.
        routes: that are declared; empty for those that everyone takes.
        attn_implementation: None for the library's own choice.
        cause: id of the check whose finding names the fault at `error`, "" if it is none (a warning, say).
    """

    subject: str
    sick: str
    well: str
    routes: tuple[str, ...] = ()
    attn_implementation: str | None = None
    cause: str = ""


@dataclass(frozen=True)
class Entry:
    """One entry of the file: what users read, and how it is tried; `untried` says why it is not."""

    advisory: Advisory
    trigger: Trigger | None
    untried: str


# --- reading ---------------------------------------------------------------------------------------------------------


@cache
def entries() -> tuple[Entry, ...]:
    """All entries, in the order of the file.

    Raises:
        DoctorError: the file is wrong; one line says where.
    """
    return read(files("gemma_doctor").joinpath(FILE).read_text(encoding="utf-8"))


def read(text: str) -> tuple[Entry, ...]:
    """Entries of a YAML text.

    Raises:
        DoctorError: it is no list of entries, a key is unknown, or a value is no range, route, need or pattern.
    """
    try:
        listed = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise _wrong("no YAML: " + " ".join(str(error).split())) from None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise _wrong("it is no list of entries")
    found = tuple(_entry(one) for one in listed)
    ids = [one.advisory.id for one in found]
    for twice in {name for name in ids if ids.count(name) > 1}:
        raise _wrong(f"{twice}: stands there twice")
    return found


def _wrong(what: str) -> DoctorError:
    return DoctorError(f"{FILE}: {what}", "the head of the file says how an entry is written")


def _entry(mapping: Mapping[str, Any]) -> Entry:
    name = mapping.get("id", "an entry without id")
    known = (*TEXTS, *LISTS, "shown-by", "trigger", "untried")
    for key in mapping:
        if key not in known:
            raise _wrong(f"{name}: unknown key {key!r}{suggest(str(key), known)}")
    for key in REQUIRED:
        if not mapping.get(key):
            raise _wrong(f"{name}: lacks {key}")
    if ("trigger" in mapping) == ("untried" in mapping):
        raise _wrong(f"{name}: needs either a trigger or the reason why there is none (untried)")
    fields: dict[str, Any] = {key: _text(name, key, mapping.get(key, "")) for key in TEXTS}
    fields |= {key: _list(name, key, mapping.get(key, [])) for key in LISTS}
    advisory = Advisory(**fields, shown_by=_patterns(name, mapping.get("shown-by", {})))
    _validate(advisory)
    trigger = _trigger(name, mapping["trigger"]) if "trigger" in mapping else None
    return Entry(advisory, trigger, _text(name, "untried", mapping.get("untried", "")))


def _text(name: str, key: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong(f"{name}: {key} is no text: {value!r}")  # an unquoted 5.10 would be the number 5.1
    return value


def _list(name: str, key: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise _wrong(f"{name}: {key} is no list of texts: {value!r}")
    return tuple(value)


def _patterns(name: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(part, str) for pair in value.items() for part in pair):
        raise _wrong(f"{name}: shown-by maps no checks to patterns: {value!r}")
    for pattern in value.values():
        try:
            re.compile(pattern)
        except re.error as error:
            raise _wrong(f"{name}: shown-by has a bad pattern {pattern!r} ({error})") from None
    return value


def _trigger(name: str, value: object) -> Trigger:
    if not isinstance(value, dict):
        raise _wrong(f"{name}: trigger is no mapping: {value!r}")
    for key in value:
        if key not in TRIGGER:
            raise _wrong(f"{name}: trigger has an unknown key {key!r}{suggest(str(key), TRIGGER)}")
    for key in ("subject", "sick", "well"):
        if key not in value:
            raise _wrong(f"{name}: trigger lacks {key}")
    named = {key: _text(name, f"trigger: {key}", one) for key, one in value.items() if key != "routes"}
    trigger = Trigger(**named, routes=_list(name, "trigger: routes", value.get("routes", [])))
    _require_routes(name, trigger.routes)
    return trigger


def _validate(advisory: Advisory) -> None:
    try:
        SpecifierSet(advisory.releases)
    except InvalidSpecifier:
        raise _wrong(f"{advisory.id}: releases is no PEP 440 range: {advisory.releases!r}") from None
    _require_routes(advisory.id, advisory.routes)
    for need in advisory.needs:
        if need not in NEEDS:
            raise _wrong(f"{advisory.id}: unknown need {need!r}{suggest(need, NEEDS)}")


def _require_routes(name: str, wanted: Iterable[str]) -> None:
    for one in wanted:
        if one not in routes.all_routes():
            raise _wrong(f"{name}: there is no route {one!r}{suggest(one, routes.all_routes())}")


def require_checks(known: Iterable[str]) -> None:
    """Every check that an entry names is there.

    Raises:
        DoctorError: one is not.
    """
    ids = tuple(known)
    for one in entries():
        named = (*one.advisory.shown_by, *([one.trigger.cause] if one.trigger and one.trigger.cause else []))
        for check in named:
            if check not in ids:
                raise _wrong(f"{one.advisory.id}: there is no check {check!r}{suggest(check, ids)}")


# --- matching --------------------------------------------------------------------------------------------------------


def affects(advisory: Advisory, release: str) -> bool:
    """A release has the fault. One before its time (5.14.0rc1, a development version) counts as the one to come.

    Raises:
        DoctorError: it is no version.
    """
    try:
        version = parse(release)
    except InvalidVersion:
        raise DoctorError(f"{release!r} is no version", "write it like 4.57.6 or 5.0.0rc1") from None
    return SpecifierSet(advisory.releases).contains(version.base_version if version.is_prerelease else version.public)


def concerning(
    release: str | None,
    config: Config,
    facts: ModelFacts | None = None,
    in_use: frozenset[str] = frozenset(),
    **setting: str,
) -> Advisories:
    """The entries that concern a subject.

    Args:
        release: of the installed transformers, None if it is not installed.
        config: of the subject.
        facts: of the loaded model, None if nothing is loaded.
        in_use: ids of the routes in use.
        setting: "backend", "dtype" and "device" of the run; what is not given is not known.
    """
    listed = [one.advisory for one in entries()]
    published = config.published
    family = facts.loaded.family if facts else published.family
    # the run's own backend and dtype may be routes of others
    own = {name for name in routes.all_routes() for word in setting.values() if word.startswith(name.replace("-", "_"))}
    taken = in_use | own
    concerns = []
    for one in listed if release else ():
        right_model = not one.families or family in one.families or published.family in one.families
        # what must be named concerns nobody who did not
        named = not one.routes or bool((included(DEPTHS[-1]) | taken) & {*one.routes})
        has_it = named and right_model and affects(one, release or "")
        if has_it and all(NEEDS[need](published, facts) for need in one.needs):
            concerns.append(Concern(one, not one.routes or bool(taken & {*one.routes}), tuple(_unmet(one, setting))))
    return Advisories(release or "", len(listed), tuple(concerns), in_use)


def _unmet(advisory: Advisory, setting: Mapping[str, str]) -> Iterator[str]:
    for wanted, given, word in (
        (advisory.backends, setting.get("backend", ""), "with"),
        (advisory.dtypes, setting.get("dtype", ""), "in"),
        (advisory.devices, setting.get("device", "").partition(":")[0], "on"),
    ):
        if wanted and given not in wanted:
            yield f"{word} {' or '.join(wanted)}"
