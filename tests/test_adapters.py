"""Adapters: found with their base, merged into it, and refused where that would not be the same."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from gemma_doctor import adapters, demo, presets
from gemma_doctor.capture.gguf import gguf_facts
from gemma_doctor.errors import DoctorError
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve
from tests import tiny_gguf
from tests.test_gguf import needs_gguf
from tests.test_loading import TEXT, admitted, refused, saved

# PEFT still asks for what new releases of transformers deprecate.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("adapters") / "base", TEXT)


def lora(folder: Path, base: Path, target_modules: Sequence[str] = ("q_proj", "v_proj"), save: bool = False) -> Path:
    """A LoRA adapter that does something; `save` its embeddings as well."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_pretrained(base)
    config = peft.LoraConfig(r=2, target_modules=[*target_modules], init_lora_weights=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it saves embeddings
        beside = peft.get_peft_model(model, config)
        beside.peft_config["default"].base_model_name_or_path = str(base)
        beside.save_pretrained(folder, save_embedding_layers=save or "auto")
    return folder


def described(folder: Path, **keys: Any) -> Path:
    """An adapter's configuration without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    whole = {"peft_type": "LORA", "base_model_name_or_path": "gemma-3-1b-it", **keys}
    (folder / "adapter_config.json").write_text(json.dumps(whole), encoding="utf-8")
    return folder


def unresolved(subject: Path, **settings: Any) -> DoctorError:
    with pytest.raises(DoctorError) as caught:
        resolve(Settings(subject=str(subject), **settings))
    return caught.value


def test_an_adapter_is_merged_into_its_base(base: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    folder = lora(tmp_path / "lora", base)
    patient = admitted(subject=str(folder))
    assert patient.subject.name == str(folder)  # what a command can be given
    assert patient.subject.remarks == (f"adapter {folder} on {base}",)
    assert (patient.subject.kind, patient.subject.weights, patient.window) == ("adapter", "real", 8)
    plain = transformers.AutoModelForCausalLM.from_pretrained(base)
    ids = torch.arange(3, 23)[None]
    with torch.no_grad():
        alone = plain(input_ids=ids).logits
        beside = peft.PeftModel.from_pretrained(plain, folder)(input_ids=ids).logits
        found = patient.model(input_ids=ids).logits
    assert torch.allclose(found, beside, atol=1e-5)
    assert not torch.allclose(found, alone, atol=1e-2)
    assert type(patient.model).__name__ == "Gemma3ForCausalLM"
    assert not any("lora" in name for name, _ in patient.model.named_modules())


def test_a_tokenizer_beside_the_adapter_comes_first(base: Path, tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models

    folder = lora(tmp_path / "lora", base)
    words = Tokenizer(models.WordLevel({"<pad>": 0, "a": 1}, unk_token="<pad>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>").save_pretrained(folder)
    patient = admitted(subject=str(folder))
    assert patient.tokenizer is not None and len(patient.tokenizer) == 2


@needs_gguf
def test_a_tokenizer_of_its_own_is_not_held_against_the_gguf_file_of_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its padding, template or BOS may be changed on purpose."""
    monkeypatch.setenv("GEMMA_DOCTOR_CACHE", str(tmp_path / "cache"))
    gguf = tiny_gguf.write(tmp_path / "tiny.gguf")
    plain = admitted(subject=str(gguf), weights="real")
    folder = lora(tmp_path / "lora", next((tmp_path / "cache").iterdir()))
    described = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    described["base_model_name_or_path"] = str(gguf)
    (folder / "adapter_config.json").write_text(json.dumps(described), encoding="utf-8")
    patient = admitted(subject=str(folder), weights="real")
    assert patient.gguf is not None and patient.gguf.tokenizer is not None  # the base's
    assert plain.tokenizer is not None
    plain.tokenizer.pad_token = plain.tokenizer.unk_token
    plain.tokenizer.save_pretrained(folder)
    patient = admitted(subject=str(folder), weights="real")
    assert patient.tokenizer is not None and patient.tokenizer.pad_token == plain.tokenizer.unk_token
    facts = gguf_facts(patient.gguf)
    assert (facts.ids, facts.added, facts.tokens, facts.template) == ((), (), None, None) and facts.config


@pytest.mark.parametrize("changes", [{"target_modules": ["q_proj", "embed_tokens"]}, {"save": True}])
def test_embeddings_that_peft_saves_whole_are_not_foreign(tmp_path: Path, changes: dict[str, Any]) -> None:
    from safetensors import safe_open

    folder = lora(tmp_path / "lora", saved(tmp_path / "base", {**TEXT, "tie_word_embeddings": False}), **changes)
    with safe_open(folder / "adapter_model.safetensors", "pt") as file:
        assert any("embed_tokens" in name and "lora" not in name for name in file.keys())  # noqa: SIM118
    assert admitted(subject=str(folder)).subject.weights == "real"


@pytest.mark.parametrize("end", ["embed_tokens", "lm_head"])
def test_an_adapter_of_tied_embeddings_is_not_merged_into_another_model(base: Path, tmp_path: Path, end: str) -> None:
    error = refused(subject=str(lora(tmp_path / "lora", base, target_modules=["q_proj", end])))
    assert "tied to the head" in error.message
    assert admitted(subject=str(lora(tmp_path / "saved", base, save=True))).subject.weights == "real"


def test_tensors_that_are_not_those_of_the_base(base: Path, tmp_path: Path) -> None:
    """PEFT warns and goes on, and the adapter does nothing."""
    from safetensors.torch import load_file, save_file

    folder = lora(tmp_path / "lora", base)
    weights = load_file(folder / "adapter_model.safetensors")
    renamed = {name.replace(".layers.", ".language_model.layers."): one for name, one in weights.items()}
    save_file(renamed, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    assert f"{len(weights)} of {len(weights)} tensors fit no module" in refused(subject=str(folder)).message
    first = sorted(weights)[0]
    save_file({k: v for k, v in weights.items() if k != first}, folder / "adapter_model.safetensors", {"format": "pt"})
    error = refused(subject=str(folder))
    assert "lacks 1 of" in error.message and first in error.message
    (folder / "adapter_model.safetensors").write_bytes(b"\0" * 40)
    assert "cannot be merged" in refused(subject=str(folder)).message


def test_without_peft_it_is_a_skeleton_that_says_so(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = described(tmp_path / "lora", base_model_name_or_path=str(base))
    (folder / "adapter_model.safetensors").touch()
    monkeypatch.setattr(adapters, "installed", lambda: False)
    subject = resolve(Settings(subject=str(folder)))
    assert subject.weights == "skeleton" and "pip install peft" in subject.remarks[-1]
    assert unresolved(folder, weights="real").hint == "pip install peft"


def test_pickled_adapters_are_never_read(tmp_path: Path) -> None:
    folder = described(tmp_path / "lora")
    (folder / "adapter_model.bin").touch()
    subject = resolve(Settings(subject=str(folder)))
    assert subject.weights == "skeleton" and "pickled weights only, which are never read" in subject.remarks[-1]
    error = unresolved(folder, weights="real")
    assert "never read" in error.message and "where you trust it" in error.hint


def test_adapters_without_weights_say_what_is_missing(tmp_path: Path) -> None:
    error = unresolved(described(tmp_path / "lora"), weights="real")
    assert "the adapter has no adapter_model.safetensors" in error.message
    assert error.hint == "get the whole adapter: adapter_config.json and adapter_model.safetensors"


def test_the_base_may_be_a_preset_or_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "installed", lambda: True)
    monkeypatch.setattr(demo, "installed", lambda: True)
    for base in ("gemma-3-270m", "google/gemma-3-270m"):
        folder = described(tmp_path / "lora", base_model_name_or_path=base)
        (folder / "adapter_model.safetensors").touch()
        subject = resolve(Settings(subject=str(folder), offline=True))
        assert subject.published == presets.load("gemma-3-270m")
        assert subject.demo is (base == "gemma-3-270m")  # the packaged weights are not the hub's
        assert subject.remarks[0] == f"adapter {folder} on {base}"
    assert "SKELETON" in subject.remarks[-1] and "--offline" in subject.remarks[1]


def test_a_base_that_is_nowhere(tmp_path: Path) -> None:
    error = unresolved(described(tmp_path / "lora", base_model_name_or_path="/nowhere/at/all"))
    assert "its base cannot be examined" in error.message and "/nowhere/at/all" in error.message


def test_an_adapter_on_an_adapter(tmp_path: Path) -> None:
    one = described(tmp_path / "one", base_model_name_or_path=str(tmp_path / "one"))
    assert "is the adapter itself" in unresolved(one).message
    other = described(tmp_path / "other", base_model_name_or_path=str(one))
    assert "is an adapter as well" in unresolved(other).message


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"base_model_name_or_path": None}, "names no model"),
        ({"base_model_name_or_path": ["a"]}, "names no model"),
        ({"base_model_name_or_path": "two\nlines"}, "names no model"),
        ({"base_model_name_or_path": "x" * 5000}, "names no model"),
        ({"revision": 7}, "revision: 7 is none"),
        ({"peft_type": "PREFIX_TUNING"}, "cannot be merged"),
        ({"peft_type": {"a": 1}}, "cannot be merged"),
        ({"megatron_config": {"a": 1}, "megatron_core": "os"}, "megatron_config is set"),
        ({"alora_invocation_tokens": [1]}, "alora_invocation_tokens is set"),
    ],
)
def test_descriptions_that_are_refused(tmp_path: Path, keys: dict[str, Any], says: str) -> None:
    error = unresolved(described(tmp_path / "lora", **keys))
    assert says in error.message and "\n" not in error.message + error.hint and len(error.message) < 800


@pytest.mark.parametrize("content", ["[1]", "3", "{", "[" * 100_000, ""])
def test_a_file_that_describes_no_adapter(tmp_path: Path, content: str) -> None:
    described(tmp_path / "lora")
    (tmp_path / "lora" / "adapter_config.json").write_text(content, encoding="utf-8")
    assert "adapter_config.json: no" in unresolved(tmp_path / "lora").message


def test_a_model_and_an_adapter_in_one_folder(base: Path, tmp_path: Path) -> None:
    """Where PEFT is installed, transformers loads the model that the adapter names instead of the one beside it."""
    import shutil

    folder = described(Path(shutil.copytree(base, tmp_path / "both")))
    subject = resolve(Settings(subject=str(folder)))
    assert subject.weights == "skeleton" and "lies beside its weights" in subject.remarks[0]
    assert "lies beside its weights" in unresolved(folder, weights="real").message
