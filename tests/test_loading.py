"""From a subject to models in memory: what is loaded, how, and what is said when it cannot be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from packaging.version import Version

from gemma_doctor import compat, demo, loading, presets
from gemma_doctor.errors import DoctorError
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve

TEXT = {
    "model_type": "gemma3_text",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "sliding_window": 8,
    "sliding_window_pattern": 6,
}
VISION = {
    "model_type": "siglip_vision_model",
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
    "vision_use_head": False,
}


def said(_: str) -> None:
    pass


def saved(folder: Path, mapping: dict[str, Any], shard: str = "5GB") -> Path:
    """A small model with random weights on disk."""
    torch.manual_seed(0)
    config = compat.whole_config(mapping)
    loader = compat.auto_class(mapping["model_type"])
    loader.from_config(config).save_pretrained(folder, max_shard_size=shard)
    return folder


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "text", TEXT)


@pytest.fixture
def own_copy(text_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(text_model, tmp_path / "own"))


def admitted(**settings: Any) -> loading.Patient:
    chosen = Settings(**settings)
    return loading.admit(resolve(chosen), chosen, said)


def refused(**settings: Any) -> DoctorError:
    chosen = Settings(**settings)
    subject = resolve(chosen)
    with pytest.raises(DoctorError) as caught:
        loading.admit(subject, chosen, said)
    for line in (caught.value.message, caught.value.hint):
        assert line and "\n" not in line
    return caught.value


# --- what is loaded --------------------------------------------------------------------------------------------------


def test_real_weights_are_the_saved_ones(text_model: Path) -> None:
    patient = admitted(subject=str(text_model))
    expected = transformers.AutoModelForCausalLM.from_pretrained(text_model).state_dict()
    found = patient.model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert (patient.window, patient.reduced_window, patient.cut) == (8, 8, "")
    assert patient.models == (patient.model,) and not patient.model.training
    assert (patient.dtype, patient.backend, patient.tokenizer, patient.padding_side) == (
        "float32",
        "sdpa",
        None,
        "left",
    )


def test_dtype_and_backend_are_as_asked(text_model: Path) -> None:
    patient = admitted(subject=str(text_model), dtype="bfloat16", attn_implementation="eager")
    assert (patient.dtype, patient.backend) == ("bfloat16", "eager")


def test_overrides_reach_the_loaded_configuration(text_model: Path) -> None:
    patient = admitted(subject=str(text_model), overrides={"sliding_window": 4})
    assert patient.window == 4
    assert patient.subject.weights == "real"


def test_the_text_decoder_of_an_image_text_model(tmp_path: Path) -> None:
    mapping = {"model_type": "gemma3", "text_config": TEXT, "vision_config": VISION, "mm_tokens_per_image": 4}
    patient = admitted(subject=str(saved(tmp_path / "both", mapping)))
    assert type(patient.model).__name__ == "Gemma3ForConditionalGeneration"
    assert patient.window == 8


SPEECH = {"model_type": "granite_speech", "text_config": {"model_type": "granite"}}


def test_one_auto_class_decides_on_admission_and_loads() -> None:
    both = {"model_type": "gemma3", "text_config": TEXT}
    assert compat.loader_for(TEXT) is transformers.AutoModelForCausalLM
    assert compat.loader_for(both) is transformers.AutoModelForImageTextToText
    assert compat.loader_for({"model_type": "vit"}) is None


def test_a_family_of_which_only_the_text_part_can_be_loaded_is_refused_in_one_line(own_copy: Path) -> None:
    if "granite_speech" not in transformers.CONFIG_MAPPING or compat.auto_class("granite_speech") is not None:
        pytest.skip("no such family in this release")
    assert compat.loader_for(SPEECH) is transformers.AutoModelForCausalLM
    (own_copy / "config.json").write_text(json.dumps(SPEECH), encoding="utf-8")
    message = refused(subject=str(own_copy)).message
    assert "the model cannot be loaded" in message and "NoneType" not in message


def test_shards_are_joined(tmp_path: Path) -> None:
    folder = saved(tmp_path / "many", TEXT, shard="20KB")
    assert len(list(folder.glob("*.safetensors"))) > 1
    assert admitted(subject=str(folder)).subject.weights == "real"
    next(iter(sorted(folder.glob("*.safetensors")))).unlink()
    assert "weight files are missing" in refused(subject=str(folder)).message
    (folder / "model.safetensors.index.json").write_text("{}", encoding="utf-8")
    assert "not an index of weights" in refused(subject=str(folder)).message


def test_a_skeleton_comes_with_its_reduced_twin() -> None:
    patient = admitted(subject="gemma-3-1b-it", weights="skeleton")
    assert (patient.window, patient.reduced_window, patient.dtype) == (512, 64, "float32")
    assert patient.models == (patient.model, patient.reduced)
    assert "26 layers" in patient.cut


def test_two_admissions_with_one_seed_are_equal() -> None:
    one, other = (admitted(subject="mistral-7b-v0.1", seed=3).model.state_dict() for _ in range(2))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_tokenizer_that_cannot_be_loaded_is_a_remark(own_copy: Path) -> None:
    (own_copy / "tokenizer.json").write_text("{", encoding="utf-8")
    patient = admitted(subject=str(own_copy))
    assert patient.tokenizer is None
    assert any("tokenizer cannot be loaded" in remark for remark in patient.subject.remarks)


def test_a_tokenizer_decides_the_padding_side(own_copy: Path) -> None:
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({"<pad>": 0, "a": 1}, unk_token="<pad>"))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", padding_side="right")
    fast.save_pretrained(own_copy)
    patient = admitted(subject=str(own_copy))
    assert patient.tokenizer is not None
    assert patient.padding_side == "right"


def test_a_tokenizer_beside_a_skeleton_is_looked_at_and_does_not_encode(tmp_path: Path) -> None:
    """The skeleton's vocabulary is cut: the tokenizer's ids are not those of its embedding."""
    from tokenizers import Tokenizer, models

    from gemma_doctor.capture.collector import Collector

    words = {"<pad>": 900, "a": 901}
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="<pad>")), pad_token="<pad>", padding_side="right"
    )
    fast.save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({**TEXT, "vocab_size": 1000}), encoding="utf-8")
    settings = Settings(subject=str(tmp_path))
    patient = loading.admit(resolve(settings), settings, said)
    assert patient.subject.weights == "skeleton" and patient.tokenizer is not None and not patient.encodes
    assert patient.padding_side == "right"  # the setting is what is examined
    assert patient.pad_token_id < patient.model.config.vocab_size == 512
    text = Collector(patient, settings, said).passes.text
    assert int(text.exact(64).max()) < 512 and "random ids" in text.source


# --- what is refused -------------------------------------------------------------------------------------------------


def test_corrupt_weights(own_copy: Path) -> None:
    weights = own_copy / "model.safetensors"
    whole = weights.read_bytes()
    for broken in (whole[: len(whole) // 2], b"\0" * 64, b"", b"not safetensors at all"):
        weights.write_bytes(broken)
        assert "the model cannot be loaded" in refused(subject=str(own_copy)).message


def test_weights_without_a_tensor_are_no_weights(own_copy: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(own_copy / "model.safetensors")
    gone = "model.layers.3.mlp.up_proj.weight"
    del weights[gone]
    save_file(weights, own_copy / "model.safetensors", metadata={"format": "pt"})
    error = refused(subject=str(own_copy))
    assert "lack 1 tensors" in error.message and gone in error.message


def test_weights_of_another_shape(text_model: Path) -> None:
    assert "cannot be loaded" in refused(subject=str(text_model), overrides={"intermediate_size": 48}).message


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for device in ("cuda", "cuda:7", "mps", "meta"):
        assert refused(subject="gemma-3-1b-it", device=device).message.startswith(f"--device {device}")
    assert "knows no such device" in refused(subject="gemma-3-1b-it", device="toaster").message
    assert admitted(subject="gemma-3-1b-it", device="auto").device == "cpu"


def test_an_attention_implementation_that_there_is_not(text_model: Path) -> None:
    for subject in (str(text_model), "gemma-3-1b-it"):
        assert "fastest" in refused(subject=subject, attn_implementation="fastest").message
        assert "never run" in refused(subject=subject, attn_implementation="somebody/kernel").message


def config_file(folder: Path, **changes: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({**presets.load("gemma-3-270m"), **changes}), encoding="utf-8")
    return str(path)


def test_unknown_families(tmp_path: Path) -> None:
    path = config_file(tmp_path, model_type="gemma3_texx")
    assert "did you mean gemma3_text?" in refused(subject=path).message
    path = config_file(tmp_path, model_type="mine", auto_map={"AutoConfig": "configuration_mine.Mine"})
    assert "is never run" in refused(subject=path).message
    path = config_file(tmp_path, model_type="vit")
    assert "not a decoder that this tool examines" in refused(subject=path).message


@pytest.mark.parametrize(
    ("model_type", "says"),
    [
        ("gpt2", "has no module with decoder layers"),
        ("bert", "has no module with decoder layers"),
        ("mamba", "num_attention_heads"),
        ("bamba", "partly recurrent"),
        ("falcon_h1", "partly recurrent"),
        ("jamba", "partly recurrent"),
        ("qwen3_next", "partly recurrent"),
        ("bigbird_pegasus", "encoder-decoder"),
        ("longcat_flash", "have no attention module known here"),
    ],
)
def test_families_that_are_no_decoders_of_this_kind(tmp_path: Path, model_type: str, says: str) -> None:
    """From the model type alone: what the class fills in decides."""
    if model_type not in transformers.CONFIG_MAPPING:
        pytest.skip("no such family in this release")
    if model_type == "longcat_flash" and Version(transformers.__version__) < Version("5.20"):
        pytest.skip("its skeleton keeps 512 experts in this release, which no small machine holds")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")
    message = refused(subject=str(tmp_path / "config.json")).message
    assert message.startswith("not a decoder that this tool examines: ")
    if Version(transformers.__version__) >= Version("5.20"):
        assert says in message


def test_a_dtype_for_a_skeleton_is_ignored_and_said_to_be() -> None:
    patient = admitted(subject="gemma-3-1b-it", weights="skeleton", dtype="bfloat16")
    assert patient.dtype == "float32"
    assert patient.subject.remarks[-1] == "skeletons are examined in float32; --dtype bfloat16 is ignored"
    plain = admitted(subject="gemma-3-1b-it", weights="skeleton")
    assert not any("ignored" in remark for remark in plain.subject.remarks)


def test_code_beside_the_weights_is_never_run(own_copy: Path) -> None:
    ran = own_copy / "ran"
    (own_copy / "mine.py").write_text(f"open({str(ran)!r}, 'w').close()\n", encoding="utf-8")
    config = json.loads((own_copy / "config.json").read_text(encoding="utf-8"))
    config["auto_map"] = {"AutoConfig": "mine.Config", "AutoModelForCausalLM": "mine.Model"}
    (own_copy / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert admitted(subject=str(own_copy)).subject.weights == "real"  # the library's own class does
    assert not ran.exists()


@pytest.mark.skipif(Version(transformers.__version__) >= Version("5.5"), reason="this release knows gemma4")
def test_a_preset_that_the_release_is_too_old_for() -> None:
    error = refused(subject="gemma-4-E2B-it")
    assert error.message == f"gemma4 needs transformers >= 5.5; {transformers.__version__} is installed"


def test_every_family_that_is_not_known_has_its_release() -> None:
    """Whatever release runs this: a preset's family is known, or the table says since when."""
    known = set(transformers.CONFIG_MAPPING)
    for name in presets.names():
        family = presets.load(name)["model_type"]
        first = compat.FIRST_RELEASE.get(family)
        newer = first is not None and Version(transformers.__version__) < Version(first)
        assert (family in known) is not newer, name


@pytest.mark.skipif(Version(transformers.__version__) < Version("5.0"), reason="4.x accepts these configurations")
def test_configurations_that_the_library_refuses(tmp_path: Path) -> None:
    for changes in ({"sliding_window": "512"}, {"layer_types": ["full_attention"] * 3}):
        assert compat.release() in refused(subject=config_file(tmp_path, **changes)).message


# --- the demo --------------------------------------------------------------------------------------------------------


def test_the_demo_falls_back_to_its_skeleton_unless_real_weights_are_demanded(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_: object) -> Path:
        raise DoctorError("transformers cannot read it", "pip install another")

    monkeypatch.setattr(demo, "installed", lambda: True)
    monkeypatch.setattr(demo, "folder", unreadable)
    patient = admitted()
    assert (patient.subject.weights, patient.subject.demo) == ("skeleton", False)
    assert "transformers cannot read it" in patient.subject.remarks[0] and "SKELETON" in patient.subject.remarks[0]
    assert refused(weights="real").message == "transformers cannot read it"


def test_the_demo_carries_the_published_configuration(own_copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the one that a release made of the GGUF file."""
    monkeypatch.setattr(demo, "installed", lambda: True)
    monkeypatch.setattr(demo, "folder", lambda _: own_copy)
    sizes = {key: value for key, value in TEXT.items() if key != "model_type"}
    patient = admitted(overrides={**sizes, "layer_types": ["sliding_attention"] * 5 + ["full_attention"]})
    assert patient.subject.demo
    assert patient.model.config.rms_norm_eps == 1e-06
