"""One reader for all spellings of a configuration."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from gemma_doctor import presets
from gemma_doctor.evidence import FULL, SLIDING
from gemma_doctor.published import read, text_part


def facts(**keys: Any) -> Any:
    return read({"model_type": "mistral", "num_hidden_layers": 4, **keys}, "published config.json")


def test_a_nested_text_part_lends_its_prefix_to_the_keys() -> None:
    whole = {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "sliding_window": 1024}}
    assert text_part(whole)[1] == "text_config."
    claim = read(whole, "file").window
    assert claim is not None and (claim.key, claim.value) == ("text_config.sliding_window", 1024)


@pytest.mark.parametrize("key", ["sliding_window", "attention_window_size", "sliding_window_size"])
def test_the_window_under_any_key(key: str) -> None:
    assert (facts(**{key: 4096}).window.key, facts(**{key: 4096}).window_in_force) == (key, 4096)


def test_a_window_that_is_not_written_and_one_written_as_null_are_told_apart() -> None:
    assert facts().window is None
    assert facts(sliding_window=None).window.value is None


def test_a_switch_turns_the_window_off() -> None:
    off, on = (facts(sliding_window=131072, use_sliding_window=switch) for switch in (False, True))
    assert (off.window_in_force, off.switched_off) == (None, "use_sliding_window=false")
    assert (on.window_in_force, on.switched_off) == (131072, "")


@pytest.mark.parametrize(
    ("keys", "kinds", "by"),
    [
        ({"layer_types": [SLIDING, FULL]}, (SLIDING, FULL), "layer_types"),
        ({"sliding_window_pattern": 2}, (SLIDING, FULL, SLIDING, FULL), "sliding_window_pattern"),
        ({"layer_types": [FULL] * 4, "sliding_window_pattern": 2}, (FULL,) * 4, "layer_types"),
        ({"block_types": ["recurrent", "attention"]}, ("recurrent", "attention") * 2, "block_types"),
        ({"use_sliding_window": True, "max_window_layers": 3}, (FULL, FULL, FULL, SLIDING), "max_window_layers"),
    ],
)
def test_layer_kinds_as_written(keys: dict[str, Any], kinds: tuple[str, ...], by: str) -> None:
    assert facts(**keys).layer_kinds == kinds
    assert facts(**keys).pattern.key == by


@pytest.mark.parametrize(
    "keys", [{}, {"_sliding_window_pattern": 3}, {"sliding_window_pattern": 0}, {"max_window_layers": 2}]
)
def test_keys_that_no_release_reads_say_nothing_about_layer_kinds(keys: dict[str, Any]) -> None:
    assert facts(**keys).layer_kinds is None


def rope(**keys: Any) -> dict[str, tuple[float | None, str, dict[str, Any]]]:
    return {kind: (one.theta, one.rope_type, dict(one.parameters)) for kind, one in facts(**keys).rope.items()}


def test_old_flat_rope_keys_serve_every_layer() -> None:
    assert rope(rope_theta=500000.0) == {"": (500000.0, "", {})}
    assert rope(rope_theta=5e5, rope_scaling=None) == {"": (5e5, "default", {})}
    assert rope(rope_theta=5e5, rope_scaling={"type": "linear", "factor": 2.0}) == {
        "": (5e5, "linear", {"factor": 2.0})
    }


def test_new_flat_and_nested_rope_keys() -> None:
    assert rope(rope_parameters={"rope_theta": 1e4, "rope_type": "default"}) == {"": (1e4, "default", {})}
    nested = {FULL: {"rope_theta": 1e6, "rope_type": "proportional", "partial_rotary_factor": 0.25}, SLIDING: None}
    assert rope(rope_parameters=nested) == {FULL: (1e6, "proportional", {"partial_rotary_factor": 0.25})}


def test_scaling_of_a_family_with_two_thetas_is_that_of_its_full_layers() -> None:
    read_back = rope(rope_theta=1e6, rope_local_base_freq=1e4, rope_scaling={"rope_type": "linear", "factor": 8.0})
    assert read_back == {FULL: (1e6, "linear", {"factor": 8.0}), SLIDING: (1e4, "default", {})}
    sparse = rope(model_type="gemma3_text", rope_scaling={"rope_type": "linear", "factor": 8.0})
    assert sparse == {FULL: (None, "linear", {"factor": 8.0})}


def test_olmo3_scales_its_full_layers_only() -> None:
    read_back = rope(model_type="olmo3", rope_theta=5e5, rope_scaling={"rope_type": "yarn", "factor": 8.0})
    assert read_back == {FULL: (5e5, "yarn", {"factor": 8.0}), SLIDING: (5e5, "default", {})}


@pytest.mark.parametrize("key", ["rms_norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon"])
def test_epsilon_under_any_key(key: str) -> None:
    assert (facts(**{key: 1e-5}).eps.key, facts(**{key: 1e-5}).eps.value) == (key, 1e-5)


@pytest.mark.parametrize(
    ("value", "causal"), [(None, True), (False, True), ("vision", True), (True, False), ("all", False)]
)
def test_only_whole_models_are_bidirectional(value: object, causal: bool) -> None:
    assert facts(use_bidirectional_attention=value).causal is causal


def test_a_sparse_file_says_nothing_about_what_its_class_defaults_fill_in() -> None:
    sparse = read(presets.load("gemma-3-4b-it"), "file")
    assert (sparse.eps, sparse.heads, sparse.head_dim, sparse.max_positions, sparse.layer_kinds) == (None,) * 5
    assert sparse.window is not None and sparse.window.value == 1024 and sparse.layers == 34


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_read(name: str) -> None:
    one = read(presets.load(name), name)
    assert one.family
    if one.layer_kinds is not None and not name.startswith("recurrentgemma"):
        assert len(one.layer_kinds) == one.layers
        assert set(one.layer_kinds) <= {SLIDING, FULL}
    assert all(claim.theta or claim.rope_type for claim in one.rope.values())


@pytest.mark.parametrize("junk", [{}, {"num_hidden_layers": True, "sliding_window": "512"}, {"rope_scaling": 3}])
def test_nonsense_is_passed_on_for_the_checks_to_judge(junk: dict[str, Any]) -> None:
    one = read(junk, "file")
    assert (one.family, one.layers) == ("", None)


def test_reading_imports_neither_torch_nor_transformers() -> None:
    code = "import sys, gemma_doctor.published; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
