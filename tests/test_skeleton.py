"""The skeleton keeps who reads whom, and its attention matters."""

from __future__ import annotations

import copy
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from packaging.version import Version

from gemma_doctor import compat, presets, skeleton
from gemma_doctor.capture.reference import FLOOR_EPS
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import FULL, SLIDING
from gemma_doctor.oracle import FINDING_FLOORS
from gemma_doctor.published import text_part
from gemma_doctor.settings import Settings
from gemma_doctor.subject import Subject, not_a_decoder, resolve

DECODERS = tuple(name for name in presets.names() if not not_a_decoder(presets.load(name)))
FAMILIES = (
    "c4ai-command-r7b-12-2024",
    "embeddinggemma-300m",
    "gemma-2-27b",
    "gemma-2b",
    "gemma-3-27b-it",
    "gemma-3-4b-it",
    "gemma-3n-E2B-it",
    "gemma-4-12B-it",
    "gemma-4-26B-A4B-it",
    "gemma-4-31B-it",
    "gemma-4-E2B-it",
    "gpt-oss-20b",
    "llama-3.1-8b-instruct",
    "mistral-7b-v0.1",
    "mixtral-8x7b-v0.1",
    "olmo-3.1-32b-instruct",
    "paligemma2-3b-pt-224",
    "phi-3-mini-4k-instruct",
    "qwen2.5-7b-instruct",
    "starcoder2-7b",
    "vaultgemma-1b",
)
OTHERS = tuple(name for name in DECODERS if name not in FAMILIES)
EPS = torch.finfo(torch.float32).eps
NOISE = FINDING_FLOORS * FLOOR_EPS * EPS  # as a fraction of the largest logit: what a finding needs


def subject_of(name: str, **overrides: Any) -> Subject:
    subject = resolve(Settings(subject=name, weights="skeleton", overrides=overrides))
    try:
        for model_type in {subject.published["model_type"], text_part(subject.published)[0].get("model_type")} - {None}:
            compat.require_family(model_type)
    except DoctorError as error:
        pytest.skip(error.message)
    return subject


def built(name: str, seed: int = 0, **overrides: Any) -> tuple[Any, Any, str]:
    return skeleton.build(subject_of(name, **overrides), Settings(seed=seed))


def full_config(name: str) -> Any:
    return compat.whole_config(subject_of(name).published).get_text_config()


def random_ids(columns: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(3, 500, (1, columns), generator=torch.Generator().manual_seed(seed))


def logits(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """Of the reference route, shape (columns, vocabulary): cached where layers share keys."""
    shares = bool(getattr(model.config, "num_kv_shared_layers", 0))
    result: torch.Tensor = model(ids, use_cache=shares).logits[0]
    return result


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).abs().max() / other.abs().max())


def examine_forward(name: str) -> None:
    model, reduced, cut = built(name)
    ids = random_ids(80)
    for use_cache in (False, True):
        assert torch.isfinite(reduced(ids, use_cache=use_cache).logits).all()
    generated = compat.generate(reduced, ids, torch.ones_like(ids), 4)
    assert generated.sequences.shape == (1, 84)
    assert next(model.parameters()).dtype == torch.float32
    assert not model.training and not reduced.training
    assert model.get_output_embeddings().weight is not model.get_input_embeddings().weight
    assert cut.endswith("random weights")


@pytest.mark.parametrize("name", FAMILIES)
def test_builds_and_generates(name: str) -> None:
    examine_forward(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_every_other_preset_builds_and_generates(name: str) -> None:
    examine_forward(name)


@pytest.mark.parametrize("name", FAMILIES)
def test_keeps_what_decides_who_reads_whom(name: str) -> None:
    model, reduced, _ = built(name)
    full = full_config(name)
    kinds, kept = compat.layer_kinds(full), compat.layer_kinds(model.config)
    assert set(kept) == set(kinds)
    assert kept == tuple(kinds[index] for index in skeleton.kept_layers(kinds, skeleton._shared(full)))
    assert compat.window(model.config) == compat.window(full)
    assert compat.head_dim(model.config) == compat.head_dim(full)
    assert model.config.max_position_embeddings == full.max_position_embeddings
    for key in ("query_pre_attn_scalar", "rms_norm_eps", "attn_logit_softcapping", "final_logit_softcapping"):
        assert getattr(model.config, key, None) == getattr(full, key, None)
    query, keys = full.num_attention_heads, compat.base_value(full, "num_key_value_heads")
    assert model.config.num_attention_heads * keys == compat.base_value(model.config, "num_key_value_heads") * query
    assert compat.layer_kinds(reduced.config) == kept


@pytest.mark.parametrize("name", FAMILIES)
def test_rotary_frequencies_are_those_of_the_full_size(name: str) -> None:
    model, reduced, _ = built(name)
    config = full_config(name)
    ours = [(key, one) for key, one in model.named_modules() if any("inv_freq" in name for name, _ in own_buffers(one))]
    assert ours
    for key, module in ours:
        if key.endswith("_local"):  # up to 4.57 Gemma 3 makes it from a changed copy of its config
            config = copy.deepcopy(config)
            config.rope_theta, config.rope_scaling = config.rope_local_base_freq, {"rope_type": "default"}
        # Olmo 3 had a module for each kind of layers.
        takes_type = "rope_type" in inspect.signature(type(module).__init__).parameters
        expected = type(module)(config=config, **({"rope_type": module.rope_type} if takes_type else {}))
        for name, values in own_buffers(module):
            assert torch.equal(values, getattr(expected, name)), f"{key}.{name}"
            assert torch.equal(values, getattr(reduced.get_submodule(key), name))


def own_buffers(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return list(module.named_buffers(recurse=False))


def test_head_ratios_are_kept_on_both_kinds_of_gemma_4_layers() -> None:
    model, _, cut = built("gemma-4-31B-it")  # 32 query heads to 16 (sliding, 256 wide) or 4 (full, 512 wide)
    layers = model.model.layers
    assert [layer.self_attn.k_proj.out_features // layer.self_attn.head_dim for layer in layers] == [4, 4, 4, 4, 4, 1]
    assert [layer.self_attn.q_proj.out_features // layer.self_attn.head_dim for layer in layers] == [8] * 6
    assert [layer.self_attn.head_dim for layer in layers] == [256] * 5 + [512]
    assert cut == "6 of 60 layers, 8 of 32 heads, vocabulary 512 of 262,144, random weights"


def test_a_file_that_lists_what_single_layers_override_is_cut_like_the_published_one() -> None:
    subject = subject_of("gemma-4-31B-it")
    saved = compat.whole_config(subject.published).to_dict()
    if "per_layer_config" not in saved["text_config"]:
        pytest.skip("this release does not save per_layer_config")
    again, _, _ = skeleton.build(Subject(**{**vars(subject), "published": saved}), Settings())
    first, _, _ = skeleton.build(subject, Settings())
    assert [one.shape for one in again.parameters()] == [one.shape for one in first.parameters()]


def test_layers_that_share_keys_are_cut_with_their_lists() -> None:
    model, _, _ = built("gemma-3n-E2B-it")
    config = model.config
    assert (config.num_hidden_layers, config.num_kv_shared_layers) == (10, 5)
    assert config.activation_sparsity_pattern == [0.95] * 5 + [0.0] * 5  # layers 0-4 and 20-24


def test_reduced_model_has_the_same_weights_and_a_smaller_window() -> None:
    model, reduced, _ = built("gemma-2-2b")
    assert (compat.window(model.config), compat.window(reduced.config)) == (4096, 64)
    assert all(a.data_ptr() == b.data_ptr() for a, b in zip(model.parameters(), reduced.parameters(), strict=True))
    short, long = random_ids(64), random_ids(66)
    assert torch.equal(logits(model, short), logits(reduced, short))
    assert distance(logits(reduced, long)[64:], logits(model, long)[64:]) > 1000 * NOISE


@pytest.mark.parametrize("overrides", [{"sliding_window": 64}, {"sliding_window": 5}])
def test_a_small_window_is_not_reduced(overrides: dict[str, int]) -> None:
    model, reduced, _ = built("gemma-3-1b-it", **overrides)
    assert reduced is model
    assert compat.window(model.config) == overrides["sliding_window"]


def test_a_model_without_a_window_is_not_reduced() -> None:
    model, reduced, _ = built("qwen2.5-7b-instruct")  # publishes a window, and switches it off
    assert reduced is model
    assert compat.window(model.config) is None


@pytest.mark.parametrize("name", ["gemma-2-2b", "gemma-3-1b-it", "gemma-4-E2B-it", "gpt-oss-20b", "mistral-7b-v0.1"])
def test_one_key_too_many_stands_far_above_the_noise(name: str) -> None:
    _, reduced, _ = built(name)
    _, wider, _ = skeleton.build(subject_of(name), Settings(), 65)
    ids = random_ids(120)
    assert distance(logits(wider, ids), logits(reduced, ids)) > 1000 * NOISE


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "embeddinggemma-300m"])
@pytest.mark.parametrize("prompt", [60, 80])
def test_cached_and_uncached_agree_within_the_noise(name: str, prompt: int) -> None:
    if Version(compat.release()) < Version("4.52") and name.startswith(("gemma-2", "gemma-3", "c4ai", "paligemma")):
        pytest.skip("these releases drop a key one step early")
    _, reduced, _ = built(name)
    ids = random_ids(prompt)
    generated = compat.generate(reduced, ids, torch.ones_like(ids), 12)
    stepwise = torch.cat(generated.logits)
    assert distance(stepwise, logits(reduced, generated.sequences)[prompt - 1 : -1]) < NOISE


def test_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    one, _, _ = built("gemma-3-1b-it", seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    same, _, _ = built("gemma-3-1b-it", seed=3)
    other, _, _ = built("gemma-3-1b-it", seed=4)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("name", FAMILIES)
def test_special_ids_lie_in_the_vocabulary_and_stay_distinct(name: str) -> None:
    model, _, _ = built(name)
    full = full_config(name)

    def ids(config: Any) -> list[int]:
        values = [getattr(config, key, None) for key in ("bos_token_id", "eos_token_id", "pad_token_id")]
        return [one for value in values for one in (value if isinstance(value, list) else [value]) if one is not None]

    assert len(ids(model.config)) == len(ids(full)) > 0
    assert len(set(ids(model.config))) == len(set(ids(full)))
    assert all(0 <= one < model.config.vocab_size for one in ids(model.config))


def test_the_published_mapping_is_left_alone() -> None:
    subject = subject_of("gemma-4-E2B-it")
    before = copy.deepcopy(subject.published)
    skeleton.build(subject, Settings())
    assert subject.published == before


@pytest.mark.parametrize(
    ("kinds", "shared", "kept"),
    [
        ([SLIDING, FULL] * 13, 0, (0, 1)),
        (([SLIDING] * 5 + [FULL]) * 10 + [SLIDING] * 2, 0, (0, 1, 2, 3, 4, 5)),
        (([SLIDING] * 4 + [FULL]) * 7, 20, (0, 1, 2, 3, 4, 15, 16, 17, 18, 19)),
        ([SLIDING] * 32, 0, (0, 1)),
        ([FULL], 0, (0,)),
        ([FULL] * 20 + [SLIDING] * 8, 0, (0, 20)),
    ],
)
def test_kept_layers(kinds: list[str], shared: int, kept: tuple[int, ...]) -> None:
    assert skeleton.kept_layers(kinds, shared) == kept


def test_layers_without_a_period_are_cut_to_one_of_each_kind() -> None:
    model, _, _ = built("qwen2.5-7b-instruct", use_sliding_window=True, sliding_window=4096, max_window_layers=20)
    if Version(compat.release()) < Version("4.53"):
        pytest.skip("this release has one kind only")
    assert compat.layer_kinds(model.config) == (FULL, SLIDING)


@pytest.mark.parametrize(
    ("overrides", "attention", "says"),
    [
        ({"hidden_activation": "no_such_function"}, None, "no_such_function"),
        ({"model_type": "gemma99"}, None, "gemma99"),
        ({}, "no_such_kernel", "no_such_kernel"),
    ],
)
def test_a_refusal_is_said_in_one_line(overrides: dict[str, Any], attention: str | None, says: str) -> None:
    subject = resolve(Settings(subject="gemma-3-270m", weights="skeleton", overrides=overrides))
    with pytest.raises(DoctorError) as caught:
        skeleton.build(subject, Settings(attn_implementation=attention))
    assert says in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


LONGROPE = {
    "model_type": "phi3",
    "hidden_size": 768,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 1000,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48, "long_factor": [2.0] * 48},
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def of_file(mapping: dict[str, Any], tmp_path: Path) -> Any:
    (tmp_path / "config.json").write_text(json.dumps(mapping), encoding="utf-8")
    return skeleton.build(subject_of(str(tmp_path / "config.json")), Settings())[0]


def test_rotary_factors_of_the_published_size_fit_the_heads_that_are_left(tmp_path: Path) -> None:
    model = of_file(LONGROPE, tmp_path)
    assert compat.head_dim(model.config) == 96 and model.config.num_attention_heads < 8


@pytest.mark.parametrize("heads", [3, 6, 7])
def test_widths_are_whole_steps(heads: int, tmp_path: Path) -> None:
    sizes = {"hidden_size": heads * 64, "num_attention_heads": heads, "num_key_value_heads": 1, "head_dim": 64}
    model = of_file({"model_type": "qwen3", "num_hidden_layers": 2, "vocab_size": 900, **sizes}, tmp_path)
    assert model.config.hidden_size % skeleton.STEP == 0 == model.config.hidden_size % model.config.num_attention_heads


def test_without_key_heads_of_their_own_all_heads_have_keys(tmp_path: Path) -> None:
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 3, "vocab_size": 900}
    model = of_file({"model_type": "gpt_neox", **sizes}, tmp_path)
    assert model.config.num_hidden_layers == 2


def test_an_image_text_file_without_a_text_part_is_its_class_s_text_part(tmp_path: Path) -> None:
    model = of_file({"model_type": "gemma3"}, tmp_path)
    assert model.config.model_type == "gemma3_text"


@pytest.mark.skipif(Version(compat.release()) < Version("5.0"), reason="4.x accepts these configurations")
@pytest.mark.parametrize(("key", "value"), [("hidden_size", "640"), ("head_dim", None), ("hidden_size", 641)])
def test_the_hint_names_the_key_that_the_library_complains_about(key: str, value: object) -> None:
    subject = resolve(Settings(subject="gemma-3-270m", weights="skeleton", overrides={key: value}))
    with pytest.raises(DoctorError) as caught:
        skeleton.build(subject, Settings())
    assert caught.value.hint == f"correct {key} in the configuration"
