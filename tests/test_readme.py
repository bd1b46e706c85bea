"""What the README shows is what a reader gets."""

from __future__ import annotations

import re
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gemma_doctor import presets, registry, routes
from gemma_doctor.diagnosis import chosen_checks
from gemma_doctor.evidence import frozen
from gemma_doctor.finding import Outcome
from gemma_doctor.settings import Settings
from gemma_doctor.testing import one_pass, run_check, trace

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_check_of_the_tutorial_works(monkeypatch: pytest.MonkeyPatch) -> None:
    (source,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "@check()" in block)
    module = types.ModuleType("gemma_doctor.checks.positions.first_token")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(source, module.__dict__)  # the README's own text
    one = registry.validate(module, "positions")
    assert one.id == "first-token"
    assert run_check(one.function, trace=trace()).outcome is Outcome.PASS
    healthy = one_pass()
    first = replace(healthy.forwards[0], positions=frozen(np.arange(5)[None] + 3))
    shifted = replace(healthy, forwards=(first, *healthy.forwards[1:]))
    assert run_check(one.function, trace=trace(shifted)).outcome is Outcome.FAIL


def test_every_check_is_in_the_table() -> None:
    named = set(re.findall(r"^\| \w+ \| `([\w-]+)` \|", README, re.M))
    parity = {one.id for one in registry.built_in() if one.routes and one.id.endswith("-parity")}
    assert named == {one.id for one in registry.built_in()} - parity


def test_every_route_is_in_the_table() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| ([\w ]+) \| ([^|]+) \|$", README, re.M)
    assert {name: (depth, title) for name, depth, title in rows} == {
        one.id: (one.depth, one.title) for one in routes.all_routes().values()
    }


def test_the_policy_block_says_what_comes_out() -> None:
    (source,) = (
        block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "GemmaSlidingWindowPolicy" in block
    )
    names: dict[str, object] = {}
    exec(source, names)  # the README's own text
    blocked = names["blocked"]
    assert tuple(blocked.shape) == (1, 1, 1, 512)  # type: ignore[attr-defined]
    assert not blocked.any()  # type: ignore[attr-defined]


def test_the_healthy_session_has_every_check() -> None:
    (passed,) = re.findall(r"^HEALTHY .*\b(\d+) passed", README, re.M)
    assert int(passed) == len(chosen_checks(Settings()))


def test_it_counts_the_presets() -> None:
    assert f"{len(presets.names())} published configurations" in README


def test_no_placeholder_is_left() -> None:
    assert "@@" not in README
