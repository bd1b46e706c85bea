"""Scripts that hold one way of generating against one forward over the same tokens."""

from __future__ import annotations

import json
import re
from typing import Any

from gemma_doctor import compat
from gemma_doctor.finding import Finding
from gemma_doctor.redaction import Redactor
from gemma_doctor.reproduction.model import Model, NoScript

LOOPS = ("forward-loop", "own-cache", "chunked-prefill", "crop", "second-turn", "full-cache")
ROUTES = (
    "cached",
    "uncached",
    "uncached-generate",
    "static-cache",
    "chunked-prefill-option",
    "chunked-prefill-padded",
    "assisted",
    "prompt-lookup",
    "left-padded",
    "right-padded",
    "equal-rows",
    *LOOPS,
)
CHOICES = ("assisted", "prompt-lookup")  # the logits that come back are not one for each token
CRASH = re.compile(r"(?P<kind>[A-Za-z]+(?:Error|Exception)): (?P<message>.*)", re.DOTALL)


def content(finding: Finding, model: Model, redact: Redactor) -> tuple[str, dict[str, Any]]:
    """Template and values for a finding of a route, or of what shows in plain generation.

    Raises:
        NoScript: the route has no few lines of its own.
    """
    route = route_of(finding)
    if route not in ROUTES:
        raise NoScript(f"the route {route} takes more than a few lines of the library's own calls")
    values = model.values()
    crash = CRASH.match(finding.observed)
    start = _start(crash["message"]) if crash else ""
    return "route.jinja", {
        **values,
        "route": route,
        "lengths": lengths(finding, values["window"] or 64),
        "loops": route in LOOPS,
        "choices": route in CHOICES,
        "among": "[..., :16]" if route == "prompt-lookup" else "",
        "measured": "a chosen token lies below the best one" if route in CHOICES else "logits off",
        "shares_kv": bool(compat.base_value(model.loaded, "num_kv_shared_layers")),
        "takes_config": compat.dynamic_cache_takes_config() and "DynamicCache()" not in finding.where.boundary,
        "error": crash["kind"] if crash else "",
        "message": json.dumps(start if redact(start) == start else ""),
    }


def route_of(finding: Finding) -> str:
    """The route that the script takes; parts of one that are ways of their own have names of their own."""
    route = finding.where.route or finding.check.removesuffix("-parity")
    if finding.check in ("past-key-length", "visible-keys", "decode-parity", "cache-parity", "long-generate"):
        return "second-turn" if finding.where.passes == ("second turn",) else "cached"
    if route == "repeated-generate":
        return "cached"
    if route == "chunked-prefill":
        said = f"{finding.where.boundary} {finding.observed}"
        return route + next((to for word, to in (("padded", "-padded"), ("prefill", "-option")) if word in said), "")
    return route


def lengths(finding: Finding, window: int) -> list[int]:
    """Of the prompts: around the window's edge, as the routes are run; the first crosses it from below."""
    if finding.where.route == "repeated-generate":
        return [window + 1, window - 4, window + 1]
    around = [window - 4, window - 1, window, window + 1, window + window // 2 - 5]
    return [one for one in around if one > 16] or [window + 16]


def _start(message: str) -> str:
    """The beginning of what an exception says, up to the first number, quote or path: another run says it as well."""
    start = re.split(r"[\d(\[{/~'\"\\]", " ".join(message.split()))[0].strip()
    return re.sub(r"[^ -~]|[\\\"]", "", start)[:40].strip()
