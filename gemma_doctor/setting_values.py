"""What each setting takes: from a text (flag, environment) or a plain value (run file) to the value in Settings.

Every parser raises ValueError with the end of a sentence: "is 'x'; it takes a whole number".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gemma_doctor import suppression
from gemma_doctor.errors import suggest
from gemma_doctor.finding import Severity
from gemma_doctor.report.formats import FORMATS
from gemma_doctor.suppression import Suppression

Parser = Callable[[object], Any]


@dataclass(frozen=True)
class OneOf:
    """Takes one of some words."""

    words: tuple[str, ...]

    def __call__(self, value: object) -> str:
        if value not in self.words:
            close = suggest(str(value), self.words)
            raise ValueError(f"is {value!r}; it takes {', '.join(self.words[:-1])} or {self.words[-1]}{close}")
        return str(value)


@dataclass(frozen=True)
class Whole:
    """Takes a whole number from `least` to `most` (None: without end)."""

    least: int
    most: int | None = None

    def __call__(self, value: object) -> int:
        try:
            number = int(value) if isinstance(value, str) else value
        except ValueError:
            number = None
        if not isinstance(number, int) or isinstance(number, bool):
            raise ValueError(f"is {value!r}; it takes a whole number")
        if number < self.least or (self.most is not None and number > self.most):
            limits = f"from {self.least} to {self.most}" if self.most is not None else f"of at least {self.least}"
            raise ValueError(f"is {number}; it takes a number {limits}")
        return number


def one_of(*words: str) -> OneOf:
    return OneOf(words)


def whole(least: int, most: int | None = None) -> Whole:
    return Whole(least, most)


def number(value: object) -> float:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(f"is {value!r}; it takes a number of at least 0")
    return float(value)


def seconds(value: object) -> float:
    try:
        number = float(value) if isinstance(value, (str, int, float)) and not isinstance(value, bool) else math.nan
    except ValueError:
        number = math.nan
    if not (0 < number < math.inf):
        raise ValueError(f"is {value!r}; it takes a number of seconds above 0")
    return number


def switch(value: object) -> bool:
    known = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
    meant = known.get(value.lower()) if isinstance(value, str) else value
    if not isinstance(meant, bool):
        raise ValueError(f"is {value!r}; it takes true or false")
    return meant


def text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"is {value!r}; it takes a text")
    if not value.strip():
        raise ValueError("is empty")
    return value


def destination(value: object) -> str | None:
    """A path; "-" is stdout, as without one."""
    path = text(value)
    return None if path == "-" else path


DEVICE = r"auto|cpu|mps|cuda(:\d+)?"


def device(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(DEVICE, value):
        raise ValueError(f"is {value!r}; it takes auto, cpu, cuda, cuda:0 (1, 2 ...) or mps")
    return value


def names(value: object) -> tuple[str, ...]:
    """Names, as a list or separated by commas."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"is {value!r}; it takes a list of names")
    found = tuple(name.strip() for part in parts for name in part.split(",") if name.strip())
    if not found:
        raise ValueError("is empty; it takes names")
    return found


def texts(value: object) -> tuple[str, ...]:
    """Texts, each whole: one, or a list of them."""
    parts = [value] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not parts or not all(isinstance(part, str) for part in parts):
        raise ValueError(f"is {value!r}; it takes a text, or a list of texts")
    return tuple(text(part) for part in parts)


SEVERITIES = tuple(one.word for one in Severity)
NEVER = "never"


def severity(value: object) -> Severity | None:
    word = one_of(*SEVERITIES, NEVER)(value)
    return None if word == NEVER else Severity[word.upper()]


def keys(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"is {value!r}; it takes a mapping of configuration keys to values")
    return value


def expectation(value: object) -> str | Mapping[str, Any]:
    return text(value) if isinstance(value, str) else keys(value)


def reports(value: object) -> tuple[tuple[str, str], ...]:
    """FORMAT=FILE, once or several times; a mapping of formats to files in a run file."""
    if isinstance(value, Mapping):
        pairs = [*value.items()]
    else:
        parts = [value] if isinstance(value, str) else value
        if not isinstance(parts, (list, tuple)) or not all(isinstance(part, str) for part in parts):
            raise ValueError(f"is {value!r}; it takes FORMAT=FILE, several times if need be")
        pairs = [part.partition("=")[::2] for part in parts]
    for form, path in pairs:
        if not form or not isinstance(path, str) or not path.strip() or path == "-":
            raise ValueError(f"is {value!r}; it takes FORMAT=FILE, such as sarif=report.sarif")
        one_of(*FORMATS)(form)
    return tuple((str(form), path) for form, path in pairs)


def suppressions(value: object) -> tuple[Suppression, ...]:
    """A list of mappings (see suppression.py)."""
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"is {value!r}; it takes a list of mappings with check and reason")
    return tuple(map(suppression.parse, value))


def severities(value: object) -> Mapping[str, Severity]:
    """Check ids to words. Whether there are such checks is known only when plug-ins are (see diagnosis.py)."""
    word = one_of(*SEVERITIES)
    return {name: Severity[_named(name, word, given).upper()] for name, given in keys(value).items()}


def thresholds(value: object) -> Mapping[str, Mapping[str, float]]:
    """Check ids to mappings of names to numbers."""
    return {
        check: {
            name.replace("-", "_"): _named(f"{check}: {name}", number, given)
            for name, given in _named(check, keys, named).items()
        }
        for check, named in keys(value).items()
    }


def _named(place: str, parse: Parser, value: object) -> Any:
    """A value within a mapping, whose refusal says where it stands."""
    try:
        return parse(value)
    except ValueError as error:
        raise ValueError(f"of {place} {error}") from None


PARSERS: Mapping[str, Parser] = {
    "subject": text,
    "weights": one_of("auto", "real", "skeleton"),
    "offline": switch,
    "revision": text,
    "prompt": texts,
    "prompt_file": texts,
    "chat": texts,
    "length": whole(1),
    "max_length": whole(1),
    "max_new_tokens": whole(1),
    "margin": whole(1),
    "device": device,
    "dtype": one_of("auto", "float32", "bfloat16", "float16"),
    "attn_implementation": text,
    "seed": whole(0, 2**32 - 1),
    "routes": names,
    "depth": one_of("quick", "default", "deep"),
    "select": names,
    "ignore": names,
    "fail_on": severity,
    "strict_skips": switch,
    "require": names,
    "static": switch,
    "timeout": seconds,
    "format": one_of(*FORMATS),
    "output": destination,
    "report": reports,
    "figures": text,
    "baseline": text,
    "update_baseline": switch,
    "suppress": suppressions,
    "severity": severities,
    "thresholds": thresholds,
    "checks_dir": texts,
    "no_plugins": switch,
    "color": one_of("auto", "always", "never"),
    "verbose": whole(0),
    "quiet": switch,
    "debug": switch,
    "overrides": keys,
    "expect": expectation,
}
