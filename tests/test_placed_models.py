"""Quantised models and models that are spread over devices: examined where they are, without a float32 copy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version

from gemma_doctor import compat, loading
from gemma_doctor.capture.collector import Collector
from gemma_doctor.capture.reference import References
from gemma_doctor.check import CouldNotLook
from gemma_doctor.diagnosis import chosen_checks
from gemma_doctor.examine import examine
from gemma_doctor.finding import Outcome, Severity
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve
from tests.test_loading import TEXT, admitted, refused, saved

CHECKS = ("padding-side", "position-ids", "mask-pattern", "visible-keys", "past-key-length", "cache-parity")
NO_COPY = "the weights are quantised: no float32 copy to compare with"
sliding_is_healthy = pytest.mark.skipif(
    Version(transformers.__version__) < Version("4.53"), reason="its caches of sliding layers are sick (37574)"
)


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("placed") / "text", TEXT)


class Rounded(torch.nn.Linear):
    """A linear module whose weights are kept in 8 bits, as quantisers leave them behind."""

    def __init__(self, plain: torch.nn.Linear) -> None:
        super().__init__(plain.in_features, plain.out_features, bias=False)
        scale = plain.weight.detach().abs().max() / 127
        del self.weight
        self.register_buffer("weight", (plain.weight.detach() / scale).round().to(torch.int8))
        self.register_buffer("scale", scale)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(inputs, self.weight.to(inputs.dtype) * self.scale)


def quantised(patient: loading.Patient) -> loading.Patient:
    model = patient.model
    for layer in model.model.layers:
        for parent, name in ((layer.mlp, "up_proj"), (layer.mlp, "down_proj"), (layer.self_attn, "q_proj")):
            setattr(parent, name, Rounded(getattr(parent, name)))
    model.is_quantized = True
    return patient


def outcomes(patient: loading.Patient) -> tuple[dict[str, tuple[Outcome, str]], list[str]]:
    settings = Settings(select=CHECKS, depth="quick")
    collector = Collector(patient, settings, lambda _: None)
    results, stopped = examine(chosen_checks(settings), collector)
    assert stopped is None
    found = [f"{one.check}: {one.title}" for each in results for one in each.findings if one.severity > Severity.NOTE]
    return {one.check: (one.outcome, one.reason) for one in results}, found


@sliding_is_healthy
def test_a_quantised_model_is_examined_but_for_what_needs_float32(text_model: Path) -> None:
    results, found = outcomes(quantised(admitted(subject=str(text_model))))
    assert found == []
    skipped = dict.fromkeys(("padding-side", "cache-parity"), (Outcome.SKIPPED, NO_COPY))
    assert results == {name: skipped.get(name, (Outcome.PASS, "")) for name in CHECKS}


@sliding_is_healthy
@pytest.mark.parametrize("pieces", [1, 2])
def test_a_spread_model_is_examined_where_it_is(text_model: Path, pieces: int) -> None:
    pytest.importorskip("accelerate")
    names = {"model.embed_tokens": "cpu", "model.rotary_emb": "cpu", "model.norm": "cpu", "lm_head": "cpu"}
    layers = {f"model.layers.{index}": "cpu" for index in range(TEXT["num_hidden_layers"])}
    model = transformers.AutoModelForCausalLM.from_pretrained(
        text_model,
        device_map={"": "cpu"} if pieces == 1 else {**names, **layers},
        **compat.dtype_argument(torch.float32),
    )
    if pieces == 2 and getattr(model, "hf_device_map", None) is None:
        model.hf_device_map = {**names, **layers}
    model.to = None  # whoever moves it, fails
    patient = replace(admitted(subject=str(text_model)), model=model, reduced=model)
    results, found = outcomes(patient)
    assert found == []
    assert set(results.values()) == {(Outcome.PASS, "")}


@sliding_is_healthy
def test_dispatched_by_hooks(text_model: Path) -> None:
    """accelerate wraps the forward of modules; the instruments stand it."""
    accelerate = pytest.importorskip("accelerate")
    patient = admitted(subject=str(text_model))
    parts = {name: "cpu" for name, _ in patient.model.named_children()}
    model = accelerate.dispatch_model(patient.model.eval(), {**parts}, force_hooks=True)
    assert compat.is_placed(model)
    results, found = outcomes(replace(patient, model=model, reduced=model))
    assert found == [] and set(results.values()) == {(Outcome.PASS, "")}


def test_no_float32_copy_is_made_of_a_model_that_is_spread(text_model: Path) -> None:
    model = admitted(subject=str(text_model), dtype="bfloat16").model
    model.hf_device_map = {"model": "cpu", "lm_head": "cpu"}
    with pytest.raises(CouldNotLook, match="spread over devices"):
        _ = References(model, False, 8).exact


def test_what_is_placed_is_not_moved() -> None:
    plain = torch.nn.Linear(1, 1)
    assert not compat.is_placed(plain) and not compat.is_quantised(plain)
    plain.hf_device_map = {"": "cpu"}  # type: ignore[assignment]
    assert compat.is_placed(plain) and not compat.is_quantised(plain)
    plain.is_quantized = True  # type: ignore[assignment]
    assert compat.is_quantised(plain)


# --- configurations that say so --------------------------------------------------------------------------------------


def with_quantisation(folder: Path, text_model: Path, **keys: Any) -> Path:
    import shutil

    copied = Path(shutil.copytree(text_model, folder))
    config = json.loads((copied / "config.json").read_text(encoding="utf-8"))
    (copied / "config.json").write_text(json.dumps({**config, "quantization_config": keys}), encoding="utf-8")
    return copied


@pytest.mark.parametrize(
    ("method", "package"),
    [("gptq", "gptqmodel"), ("awq", "gptqmodel"), ("bitsandbytes", "bitsandbytes"), ("hqq", "hqq")],
)
def test_a_package_that_is_missing_is_one_line(
    text_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, package: str
) -> None:
    monkeypatch.setattr("gemma_doctor.compat.quantised._installed", lambda module: False)
    folder = with_quantisation(tmp_path / "q", text_model, quant_method=method)
    error = refused(subject=str(folder))
    assert f"quantised with '{method}', and {package} is not installed" in error.message
    assert error.hint.startswith(f"pip install {package}")
    assert admitted(subject=str(folder), weights="skeleton").subject.weights == "skeleton"


def test_methods_in_all_spellings() -> None:
    assert compat.quantisation({"quantization_config": {"quant_method": "gptq"}}) == "gptq"
    assert compat.quantisation({"quantization_config": {"load_in_4bit": True}}) == "bitsandbytes_4bit"
    assert compat.quantisation({"text_config": {"quantization_config": {"quant_method": "awq"}}}) == "awq"
    for none in ({}, {"quantization_config": None}, {"quantization_config": [1]}, {"quantization_config": {}}):
        assert compat.quantisation(none) == ""


@pytest.mark.parametrize("method", ["unheard-of", "x" * 5000, 7, "two\nlines"])
def test_a_method_that_nobody_knows(text_model: Path, tmp_path: Path, method: object) -> None:
    folder = with_quantisation(tmp_path / "q", text_model, quant_method=method)
    message = refused(subject=str(folder)).message
    assert "does not know" in message and len(message) < 400


def test_quantised_subjects_resolve_as_others(text_model: Path, tmp_path: Path) -> None:
    folder = with_quantisation(tmp_path / "q", text_model, quant_method="gptq", bits=4)
    assert resolve(Settings(subject=str(folder))).weights == "real"
