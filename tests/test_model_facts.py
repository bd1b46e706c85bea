"""What is read off real modules: small models of every family, and norms with something wrong."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gemma_doctor import compat, presets, published, skeleton
from gemma_doctor.capture import model_facts
from gemma_doctor.checks.config.sliding_window import sliding_window
from gemma_doctor.checks.numerics.rms_norm_eps import rms_norm_eps
from gemma_doctor.checks.positions.rope_theta import rope_theta
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import FULL, SLIDING, Config, ModelFacts
from gemma_doctor.finding import CheckResult, Outcome
from gemma_doctor.settings import Settings
from gemma_doctor.testing import run_check

FAMILIES = (
    "c4ai-command-r7b-12-2024",
    "gemma-2b",
    "gemma-2-2b",
    "gemma-3-270m",
    "gemma-3-4b-it",
    "gemma-3n-E2B-it",
    "gemma-4-E2B-it",
    "gemma-4-26B-A4B-it",
    "gpt-oss-20b",
    "llama-3.1-8b-instruct",
    "mistral-7b-v0.1",
    "mixtral-8x7b-v0.1",
    "phi-3-mini-4k-instruct",
    "qwen2.5-7b-instruct",
    "starcoder2-7b",
    "vaultgemma-1b",
)


def build(name: str) -> Any:
    subject = SimpleNamespace(name=name, published=presets.load(name))
    try:
        return skeleton.build(subject, Settings())[0]  # type: ignore[arg-type]
    except DoctorError as unknown:
        pytest.skip(unknown.message)


def facts_of(model: Any) -> ModelFacts:
    patient = SimpleNamespace(model=model, backend="eager", dtype="float32")
    return model_facts.model_facts(patient)  # type: ignore[arg-type]


def examine(name: str, model: Any) -> dict[str, CheckResult]:
    config, facts = Config(published.read(presets.load(name), "published config.json")), facts_of(model)
    results = [run_check(check, config=config, facts=facts) for check in (sliding_window, rope_theta, rms_norm_eps)]
    return {result.check: result for result in results}


@pytest.mark.parametrize("name", FAMILIES)
def test_a_healthy_model_of_every_family_passes_and_everything_is_looked_at(name: str) -> None:
    model = build(name)
    results, facts = examine(name, model), facts_of(model)
    assert not [finding for result in results.values() for finding in result.findings]
    assert results["rope-theta"].outcome is results["rms-norm-eps"].outcome is Outcome.PASS
    slides = any(layer.kind == SLIDING for layer in facts.layers)
    assert results["sliding-window"].outcome is (Outcome.PASS if slides else Outcome.NOT_APPLICABLE)
    assert len(facts.layers) == model.config.get_text_config().num_hidden_layers
    assert all(norm.measured == pytest.approx(norm.attribute, rel=norm.tolerance) for norm in facts.norms)
    served = {buffer.kind for buffer in facts.rotary}
    assert "" in served or served == {layer.kind for layer in facts.layers}


def test_sliding_modules_say_their_window_and_full_ones_say_none() -> None:
    said = {layer.kind: dict(layer.window_attributes) for layer in facts_of(build("gemma-3-270m")).layers}
    assert said == {SLIDING: {"sliding_window": 512}, FULL: {"sliding_window": None}}


def test_layers_that_reuse_keys_name_the_last_own_layer_of_their_kind() -> None:
    layers = facts_of(build("gemma-3n-E2B-it")).layers
    sharing = {layer.index: layer.shares_kv_with for layer in layers if layer.shares_kv_with is not None}
    assert sharing
    for index, source in sharing.items():
        own = [one.index for one in layers if one.shares_kv_with is None and one.kind == layers[index].kind]
        assert source == max(own)


def test_head_sizes_differ_by_kind_where_the_family_says_so() -> None:
    layers = facts_of(build("gemma-4-E2B-it")).layers
    assert {(layer.kind, layer.head_dim) for layer in layers} == {(SLIDING, 256), (FULL, 512)}


def test_the_text_decoder_of_an_image_text_model_is_not_its_vision_tower() -> None:
    from transformers import AutoConfig, Gemma3ForConditionalGeneration

    small = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 2}
    text = {**small, "head_dim": 16, "num_key_value_heads": 1, "vocab_size": 300, "sliding_window": 8}
    vision = {**small, "model_type": "siglip_vision_model", "num_hidden_layers": 3, "image_size": 28, "patch_size": 14}
    config = AutoConfig.for_model("gemma3", text_config=text, vision_config=vision, mm_tokens_per_image=4)
    model = Gemma3ForConditionalGeneration(config).eval()
    assert list(model_facts.attention_modules(model)) == [0, 1]
    assert not any("vision" in norm.name for norm in model_facts.norms(model))


def test_a_window_set_after_the_model_was_built_is_found() -> None:
    model = build("gemma-2-2b")
    model.config.sliding_window //= 2
    (finding,) = examine("gemma-2-2b", model)["sliding-window"].findings
    assert finding.observed == "loaded 2048" and "4096" in finding.expected


def test_frequencies_built_with_another_theta_are_found_where_the_config_shows_the_right_one() -> None:
    model = build("mistral-7b-v0.1")
    decoder = model_facts.text_decoder(model)
    decoder.rotary_emb.inv_freq.pow_(1.5)  # as theta^1.5 would give
    (finding,) = examine("mistral-7b-v0.1", model)["rope-theta"].findings
    assert "as theta 1,000,000" in finding.observed


def test_an_epsilon_that_only_acts_is_found() -> None:
    model = build("gemma-3-270m")
    norm = model_facts.text_decoder(model).layers[3].input_layernorm
    norm._norm = lambda hidden: hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + 1e-3)
    (finding,) = examine("gemma-3-270m", model)["rms-norm-eps"].findings
    assert finding.where.layers == (3,) and finding.observed.startswith("0.001 acting in 1 norm,")


# --- the measurement itself ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("eps", [1e-8, 1e-6, 1e-5, 1e-3])
@pytest.mark.parametrize("guess", [1e-6, 1e-5])
def test_epsilon_is_measured_wherever_it_is(eps: float, guess: float) -> None:
    torch.manual_seed(0)
    for norm in (torch.nn.RMSNorm(48, eps=eps), torch.nn.LayerNorm(48, eps=eps)):
        torch.nn.init.normal_(norm.weight)
        if isinstance(norm, torch.nn.LayerNorm):
            torch.nn.init.normal_(norm.bias)
        measured = model_facts.measured_eps(norm, guess, norm.weight)
        assert measured == pytest.approx(eps, rel=model_facts._tolerance(measured, guess, "float32"))


@pytest.mark.parametrize("eps", [0.1, 1.0, 100.0, 1e30])
def test_a_large_epsilon_is_measured_where_it_is_expected(eps: float) -> None:
    norm = torch.nn.RMSNorm(48, eps=eps)
    measured = model_facts.measured_eps(norm, eps, norm.weight)
    tolerance = model_facts._tolerance(measured, eps, "float32")
    assert measured == pytest.approx(eps, rel=tolerance) and tolerance < 1e-5


class Gated(torch.nn.RMSNorm):
    def forward(self, hidden: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(hidden) * gate


class Scaling(torch.nn.Module):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return 3 * hidden


class Broken(torch.nn.Module):
    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden * torch.nan


def test_modules_that_cannot_be_probed_are_not_measured() -> None:
    like = torch.ones(1)
    for module in (Gated(8, eps=1e-6), Scaling(), Broken(), torch.nn.Identity()):
        assert model_facts.measured_eps(module, 1e-6, like) is None


def test_a_norm_without_a_weight_is_fed_in_its_own_width() -> None:
    for norm in (torch.nn.RMSNorm(128, eps=1e-6, elementwise_affine=False), torch.nn.LayerNorm(96, 1e-6, False)):
        assert model_facts.measured_eps(norm, 1e-6, torch.ones(1)) == pytest.approx(1e-6, rel=1e-4)


@pytest.mark.parametrize("eps", [-1e-6, float("nan"), float("inf"), None, "1e-6"])
def test_an_epsilon_that_is_none_is_no_crash(eps: Any) -> None:
    model = build("gemma-3-270m")
    model.config.__dict__["rms_norm_eps"] = eps
    norm = model_facts.text_decoder(model).layers[0].input_layernorm
    norm.eps = eps
    assert len(list(model_facts.norms(model))) == len(model_facts.norm_modules(model))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_measured_within_its_tolerance(dtype: torch.dtype) -> None:
    norm = torch.nn.RMSNorm(256, eps=1e-5).to(dtype)
    measured = model_facts.measured_eps(norm, 1e-5, norm.weight)
    tolerance = model_facts._tolerance(measured, 1e-5, str(dtype).removeprefix("torch."))
    assert measured == pytest.approx(1e-5, rel=tolerance) and tolerance < 0.15


def test_a_norm_of_odd_width_with_dead_channels() -> None:
    norm = torch.nn.RMSNorm(7, eps=1e-6)
    with torch.no_grad():
        norm.weight[:3] = 0
    assert model_facts.measured_eps(norm, 1e-6, norm.weight) == pytest.approx(1e-6, rel=1e-5)


def test_a_norm_whose_weights_are_all_zero_cannot_be_measured() -> None:
    norm = torch.nn.RMSNorm(8, eps=1e-6)
    torch.nn.init.zeros_(norm.weight)
    assert model_facts.measured_eps(norm, 1e-6, norm.weight) is None


def test_nothing_is_left_on_the_model() -> None:
    model = build("gemma-3-270m")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    backend, modules = compat.attention_backend(model), [*model.modules()]
    facts_of(model)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert compat.attention_backend(model) == backend
    assert all(one is other for one, other in zip(model.modules(), modules, strict=True))
    assert not any("forward" in vars(module) for module in modules)
