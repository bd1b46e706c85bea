"""What the README shows is what a reader gets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoModelForCausalLM

from gemma_doctor import presets, registry, routes
from gemma_doctor.diagnosis import chosen_checks
from gemma_doctor.policy import GemmaSlidingWindowPolicy
from gemma_doctor.settings import Settings
from tests.tiny_model import tiny_folder, tiny_tokenizer

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_check_is_in_the_table() -> None:
    named = set(re.findall(r"^\| \w+ \| `([\w-]+)` \|", README, re.M))
    parity = {one.id for one in registry.built_in() if one.routes and one.id.endswith("-parity")}
    assert named == {one.id for one in registry.built_in()} - parity


def test_every_route_is_in_the_table() -> None:
    page = (ROOT / "docs" / "routes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| ([\w ]+) \| ([^|]+) \|$", page, re.M)
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


def test_the_api_block_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "diagnose(model" in block)
    tiny_folder(tmp_path)
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    exec(source, {"model": model, "tokenizer": tiny_tokenizer()})  # the README's own text
    assert "HEALTHY" in capsys.readouterr().out


def test_the_block_on_masks_runs() -> None:
    (source,) = (block for block in re.findall(r"```python\n(.*?)```", README, re.S) if "test_my_mask" in block)

    def my_mask(query_length: int, key_length: int, past_length: int) -> Any:
        positions = torch.arange(past_length, past_length + query_length)[None]
        return GemmaSlidingWindowPolicy(sliding_window=512).allowed(positions, key_length, past_length)

    names: dict[str, Any] = {"my_mask": my_mask}
    exec(source, names)  # the README's own text
    names["test_my_mask"]()


def test_the_healthy_session_has_every_check() -> None:
    (passed,) = re.findall(r"^HEALTHY .*\b(\d+) passed", README, re.M)
    assert int(passed) == len(chosen_checks(Settings()))


def test_it_counts_the_presets() -> None:
    assert f"{len(presets.names())} published configurations" in README


def test_no_placeholder_is_left() -> None:
    assert "@@" not in README
