"""GGUF files: what they say, what is loaded from them, and files that are damaged."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from checks.config.gguf_metadata import gguf_metadata
from gemma_doctor import compat, demo, dequantised, disk, gguf_config, gguf_file
from gemma_doctor.capture.gguf import gguf_facts
from gemma_doctor.check import NotApplicable
from gemma_doctor.diagnosis import diagnose
from gemma_doctor.drill import HealthyTwin
from gemma_doctor.drilled import Verdict
from gemma_doctor.errors import DoctorError
from gemma_doctor.evidence import FULL, SLIDING, GgufFacts, GgufKey
from gemma_doctor.faults import all_faults
from gemma_doctor.finding import Outcome, Severity
from gemma_doctor.loading import FromGguf, admit
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve
from gemma_doctor.testing import run_check
from tests import tiny_gguf

needs_gguf = pytest.mark.skipif(bool(dequantised.lacking()), reason="needs the packages gguf and accelerate")
reads_gemma3 = pytest.mark.skipif(not compat.reads_gguf("gemma3"), reason="this release reads no GGUF of Gemma 3")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GEMMA_DOCTOR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("gguf")
    return tiny_gguf.write(tmp_path_factory.mktemp("gguf") / "tiny.gguf", chat_template="{{ messages }}")


# --- reading ---------------------------------------------------------------------------------------------------------


def test_it_says_what_the_package_says(tiny: Path) -> None:
    import gguf

    file, theirs = gguf_file.read(tiny), gguf.GGUFReader(tiny)
    own = {key: field.contents() for key, field in theirs.fields.items() if not key.startswith("GGUF.")}
    assert dict(file.keys) == own
    assert file.parameters == sum(int(one.n_elements) for one in theirs.tensors)
    assert (file.architecture, file.vocabulary) == ("gemma3", len(tiny_gguf.TOKENS))


def test_what_it_publishes_has_the_names_of_its_own_keys(tiny: Path) -> None:
    published = resolve(Settings(subject=str(tiny), static=True)).config.published
    assert published.window is not None and published.eps is not None
    assert (published.window.key, published.window.value) == ("gemma3.attention.sliding_window", 8)
    assert published.eps.key == "gemma3.attention.layer_norm_rms_epsilon"
    assert published.rope[FULL].key == "gemma3.rope.freq_base" and published.rope[FULL].theta == 1e6
    assert (published.family, published.layers, published.max_positions) == ("gemma3_text", 6, 256)


def file_of(**keys: Any) -> gguf_file.GgufFile:
    return gguf_file.GgufFile(Path("x.gguf"), {"general.architecture": "a", **keys})


def test_spellings_that_need_more_than_a_name() -> None:
    pattern = {"a.block_count": 3, "a.attention.sliding_window_pattern": [True, True, False]}
    assert gguf_config.published(file_of(**pattern))["layer_types"] == [SLIDING, SLIDING, FULL]
    narrow = {"a.attention.key_length": 512, "a.attention.key_length_swa": 256}
    published = gguf_config.published(file_of(**narrow))
    assert (published["head_dim"], published["global_head_dim"]) == (256, 512)
    scaled = {"a.rope.scaling.type": "linear", "a.rope.scaling.factor": 8.0}
    assert gguf_config.published(file_of(**scaled))["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}
    assert "rope_scaling" not in gguf_config.published(file_of(**{"a.rope.scaling.type": "none"}))
    assert "sliding_window" not in gguf_config.published(file_of(**{"a.attention.sliding_window": 0}))


def text(content: str) -> bytes:
    return struct.pack("<Q", len(content)) + content.encode()


def header(tensors: int = 0, keys: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys)


ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8) + text("gemma3")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "no GGUF file"),
        (b"GG", "not a GGUF file"),
        (b"PK\3\4" + b"\0" * 60, "not a GGUF file"),
        (header(), "names no architecture"),
        (header(version=1), "version 1 is not known"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "little-endian"),
        (header(keys=2**63), "cut short"),
        (header(keys=1) + struct.pack("<Q", 2**62), "cut short"),
        (header(keys=1) + text("a") + struct.pack("<I", 99), "unknown type 99"),
        (header(keys=1) + text("a") + struct.pack("<IIQ", 9, 9, 1), "array of arrays"),
        (header(keys=1) + text("a") + struct.pack("<IIQ", 9, 4, 2**61), "cut short"),
        (header(keys=1) + text("a") + struct.pack("<IIQ", 9, 8, 2**61), "cut short"),
        (header(keys=1) + text("general.architecture") + struct.pack("<II", 4, 7), "names no architecture"),
        *(
            (header(keys=1) + text("general.architecture") + struct.pack("<I", 8) + text(name), "is no name")
            for name in ("a" * 65, "a" * 10**6, "two\nlines", "\x1b[31m")
        ),
        (header(tensors=1, keys=1) + ARCHITECTURE + text("t") + struct.pack("<I", 10**6), "1000000 dimensions"),
        (header(tensors=1, keys=1) + ARCHITECTURE + text("t") + struct.pack("<IQIQ", 1, 9, 0, 2**40), "cut short"),
    ],
)
def test_files_that_are_none_or_damaged(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(content)
    with pytest.raises(DoctorError) as caught:
        resolve(Settings(subject=str(path)))
    assert says in caught.value.message and "\n" not in caught.value.message
    assert len(caught.value.message) < len(str(path)) + 200


def test_a_file_cut_anywhere_is_one_line(tiny: Path, tmp_path: Path) -> None:
    whole, path = tiny.read_bytes(), tmp_path / "cut.gguf"
    info = whole.index(b"token_embd.weight") + 2000
    for size in (*range(1, 400, 37), *range(400, info, 1500), info):
        path.write_bytes(whole[:size])
        with pytest.raises(DoctorError):
            gguf_file.read(path)


def test_hostile_values_are_judged_as_a_configuration_is(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    for changes, says in (({"block_count": 10**8}, "more than 10,000 layers"), ({"architecture": "two\nlines"}, "")):
        path = tiny_gguf.write(tmp_path / "h.gguf", **changes)
        settings = Settings(subject=str(path))
        with pytest.raises(DoctorError) as caught:
            admit(resolve(settings), settings, lambda _: None)
        assert says in caught.value.message


# --- loading ---------------------------------------------------------------------------------------------------------


@needs_gguf
@reads_gemma3
def test_a_file_is_dequantised_once_and_examined(tiny: Path, own_cache: Path) -> None:
    said: list[str] = []
    settings = Settings(subject=str(tiny), weights="real")
    patient = admit(resolve(settings), settings, said.append)
    (place,) = own_cache.iterdir()
    assert len(said) == 1 and "once, 0 MB, about 1 s" in said[0] and str(place) in said[0]
    assert place.name.startswith("gguf-") and place.name.endswith(compat.release())
    assert (patient.subject.kind, patient.window, patient.dtype) == ("GGUF file", 8, "float32")
    assert patient.tokenizer is not None and patient.encodes
    assert patient.gguf is not None and patient.gguf.config["max_position_embeddings"] == 256
    if Version(compat.release()) >= Version("5.20"):  # releases between 5.0 and that lose the BOS
        assert run_check(gguf_metadata, facts=gguf_facts(patient.gguf)).findings == ()
    copied = tiny.rename(tiny.with_name("other name.gguf"))
    again = replace(settings, subject=str(copied))
    admit(resolve(again), again, said.append)  # the same content under another name
    copied.rename(tiny)
    assert len(said) == 1


@needs_gguf
@reads_gemma3
def test_what_lies_beside_the_file_is_no_part_of_it(tiny: Path, tmp_path: Path) -> None:
    """The result is kept under the hash of the file alone."""
    file = gguf_file.read(tiny)
    alone = dequantised.folder(file, lambda _: None).rename(tmp_path / "alone")
    folder = tmp_path / "my models"
    folder.mkdir()
    beside = folder / "tiny.gguf"
    beside.write_bytes(tiny.read_bytes())
    settings = {"tokenizer_class": "PreTrainedTokenizerFast"}  # pads on the other side (transformers 5.24)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "generation_config.json").write_text('{"max_length": 77}', encoding="utf-8")
    made = dequantised.folder(replace(file, path=beside), lambda _: None)
    assert {one.name for one in made.iterdir()} == {one.name for one in alone.iterdir()}
    for name in ("tokenizer_config.json", "generation_config.json", "config.json"):
        assert (made / name).read_bytes() == (alone / name).read_bytes()
    assert sorted(one.name for one in folder.iterdir()) == [
        "generation_config.json",
        "tiny.gguf",
        "tokenizer_config.json",
    ]


@pytest.mark.parametrize("links", [True, False])
def test_a_file_is_put_alone_into_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    if not links:
        monkeypatch.setattr(Path, "symlink_to", refuse)
    (tmp_path / "a.gguf").write_bytes(b"whole")
    (tmp_path / "scratch").mkdir()
    alone = dequantised._alone(tmp_path / "a.gguf", tmp_path / "scratch")
    assert (alone.parent, alone.read_bytes()) == (tmp_path / "scratch", b"whole")


@needs_gguf
@reads_gemma3
def test_a_key_that_is_lost_on_the_way_is_a_finding(tmp_path: Path) -> None:
    """Gemma 3 of 4B and more is scaled by 8, which the library's table of keys does not have."""
    path = tiny_gguf.write(
        tmp_path / "scaled.gguf", rope__scaling__type="linear", rope__scaling__factor=8.0, final_logit_softcapping=30.0
    )
    settings = Settings(
        subject=str(path), weights="real", select=("gguf-metadata", "rope-theta", "rms-norm-eps"), depth="quick"
    )
    report = diagnose(settings, lambda _: None)
    found = {one.title: one for one in report.findings if one.severity is Severity.ERROR and "BOS" not in one.title}
    assert {one.check for one in found.values()} == {"gguf-metadata", "rope-theta"}
    said = " ".join(f"{one.title} {one.observed} {one.expected}" for one in found.values())
    assert "gemma3.final_logit_softcapping" in said and "gemma3.rope" in said


@needs_gguf
@reads_gemma3
@pytest.mark.skipif(Version(compat.release()) < Version("5.20"), reason="this release loses more than the fault does")
def test_the_fault_has_one_cause(tiny: Path) -> None:
    """The skeletons that the drill has are from no GGUF file."""
    settings = Settings(subject=str(tiny), weights="real", select=("config", "rope-theta", "rms-norm-eps"))
    fault = all_faults()["gguf-key-lost"]
    twin = HealthyTwin(admit(resolve(settings), settings, lambda _: None), settings, [fault])
    assert [f"{one.check}: {one.title}" for one in twin.findings] == []
    drilled = twin.with_fault(fault)
    assert (drilled.verdict, drilled.causes) == (Verdict.CAUGHT, ("gguf-metadata",))


def test_a_tokenizer_comes_back_as_it_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """5.12 builds a Gemma tokenizer anew when it is loaded: here, one that puts every text into one piece."""
    import transformers
    from tokenizers import Tokenizer, models

    words = Tokenizer(models.WordLevel({"<unk>": 0, "a": 1}, unk_token="<unk>"))
    read = transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", padding_side="left")
    built_anew = type("Encoding", (), {"input_ids": [7]})
    with monkeypatch.context() as patched:
        patched.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: lambda text: built_anew)
        dequantised._save_as_it_is(read, tmp_path)
    again = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert again("a").input_ids == [1] and again.padding_side == "left"


@needs_gguf
def test_an_architecture_that_nobody_reads_is_one_line(tmp_path: Path) -> None:
    settings = Settings(subject=str(tiny_gguf.write(tmp_path / "new.gguf", architecture="gemma99")))
    with pytest.raises(DoctorError, match="gemma99"):
        admit(resolve(settings), settings, lambda _: None)


@needs_gguf
@reads_gemma3
def test_a_file_cut_within_its_last_tensor_is_one_line(tmp_path: Path, tiny: Path) -> None:
    damaged = tmp_path / "cut.gguf"
    damaged.write_bytes(tiny.read_bytes()[:-64])  # within the last tensor
    settings = Settings(subject=str(damaged), weights="real")
    with pytest.raises(DoctorError, match=r"cut short, within 'blk\.5"):
        admit(resolve(settings), settings, lambda _: None)


@needs_gguf
@reads_gemma3
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"block_count": 7}, "the file lacks 13 tensors of the model, model.layers.6"),
        ({"block_count": 5}, "9,376 numbers of the file's tensors have no place"),  # one layer
        ({"architecture": "gemma2"}, "192 numbers of the file's tensors have no place"),  # norms of queries and keys
    ],
)
def test_tensors_that_are_lacking_or_left_unread(
    tmp_path: Path, own_cache: Path, changes: dict[str, Any], says: str
) -> None:
    """The library fills in random numbers, or drops what it does not know, and goes on."""
    settings = Settings(subject=str(tiny_gguf.write(tmp_path / "a.gguf", **changes)), weights="real")
    with pytest.raises(DoctorError, match=says):
        admit(resolve(settings), settings, lambda _: None)
    assert list(own_cache.iterdir()) == []


def test_a_number_that_is_none_is_one_line(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    for value in (float("nan"), float("inf")):
        path = tiny_gguf.write(tmp_path / "nan.gguf", attention__layer_norm_rms_epsilon=value)
        with pytest.raises(DoctorError, match=r"no finite number: 'gemma3\.attention\.layer_norm_rms"):
            gguf_file.read(path)


def test_without_the_packages_it_is_a_skeleton(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dequantised, "lacking", lambda: "gguf")
    settings = Settings(subject=str(tiny))
    subject = resolve(settings)
    assert subject.weights == "skeleton" and "gguf is not installed" in subject.remarks[0]
    patient = admit(subject, settings, lambda _: None)
    assert (patient.window, patient.tokenizer, patient.gguf) == (8, None, None)
    with pytest.raises(DoctorError) as caught:
        resolve(Settings(subject=str(tiny), weights="real"))
    assert caught.value.hint == "pip install gguf accelerate"


def test_a_full_disk_is_found_before_anything_is_written(
    tiny: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compat, "reads_gguf", lambda architecture: True)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 0}))
    with pytest.raises(DoctorError, match="has 0 MB free") as caught:
        dequantised.folder(gguf_file.read(tiny), lambda _: None)
    assert "GEMMA_DOCTOR_CACHE" in caught.value.hint and not own_cache.exists()


@pytest.mark.skipif(not demo.installed(), reason="needs the demo extra")
def test_the_packaged_file_says_its_keys_in_its_first_part() -> None:
    keys = demo.keys()
    assert (keys.architecture, keys.vocabulary, keys.of_model("attention.sliding_window")) == ("gemma3", 262144, 512)
    assert keys.of_tokenizer("add_bos_token") is True


# --- the check -------------------------------------------------------------------------------------------------------


def gguf(**changes: Any) -> GgufFacts:
    """A healthy file."""
    fields: dict[str, Any] = {
        "config": (GgufKey("gemma3.block_count", 6, 6, "num_hidden_layers"),),
        "ids": (GgufKey("tokenizer.ggml.bos_token_id", 2, 2, "tokenizer.bos_token_id"),),
        "added": (GgufKey("tokenizer.ggml.add_bos_token", True, True, "in front of a plain text"),),
        "tokens": GgufKey("tokenizer.ggml.tokens", 57, 57, "tokenizer"),
        "template": None,
    }
    return GgufFacts(**(fields | changes))


def test_a_healthy_file() -> None:
    result = run_check(gguf_metadata, facts=gguf())
    assert (result.outcome, result.findings) == (Outcome.PASS, ())
    assert result.examined is not None and result.examined.sentence.startswith("4 keys")
    float32 = GgufKey("gemma3.final_logit_softcapping", 30.000001907348633, 30.0, "final_logit_softcapping")
    more = GgufKey("tokenizer.ggml.tokens", 57, 60, "tokenizer")
    assert run_check(gguf_metadata, facts=gguf(config=(float32,), tokens=more)).findings == ()


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        ({"config": (GgufKey("gemma3.block_count", 6, 5, "num_hidden_layers"),)}, Severity.ERROR),
        (
            {"config": (GgufKey("gemma2.final_logit_softcapping", 30.0, None, "final_logit_softcapping"),)},
            Severity.ERROR,
        ),
        ({"ids": (GgufKey("tokenizer.ggml.bos_token_id", 2, None, "tokenizer.bos_token_id"),)}, Severity.ERROR),
        ({"ids": (GgufKey("tokenizer.ggml.padding_token_id", 0, 3, "tokenizer.pad_token_id"),)}, Severity.WARNING),
        ({"added": (GgufKey("tokenizer.ggml.add_bos_token", True, False, "in front of a text"),)}, Severity.ERROR),
        ({"added": (GgufKey("tokenizer.ggml.add_bos_token", False, True, "in front of a text"),)}, Severity.WARNING),
        ({"added": (GgufKey("tokenizer.ggml.add_eos_token", False, True, "behind a plain text"),)}, Severity.ERROR),
        ({"tokens": GgufKey("tokenizer.ggml.tokens", 57, 56, "tokenizer")}, Severity.NOTE),
        ({"template": GgufKey("tokenizer.chat_template", "{{ a }}", None, "tokenizer")}, Severity.WARNING),
    ],
)
def test_what_was_lost(changes: dict[str, Any], severity: Severity) -> None:
    (finding,) = run_check(gguf_metadata, facts=gguf(**changes)).findings
    assert finding.severity is severity and finding.observed and finding.expected and finding.standing


class Words:
    """A tokenizer of one word."""

    bos_token_id, eos_token_id, pad_token_id, chat_template = 2, 1, 0, None

    def __init__(self, adds_bos: bool = True) -> None:
        self._adds_bos = adds_bos

    def __call__(self, text: str, add_special_tokens: bool = True) -> Any:
        ids = [2, 9] if add_special_tokens and self._adds_bos else [9]
        return type("Encoding", (), {"input_ids": ids})

    def __len__(self) -> int:
        return 57


def test_what_is_held_beside_what(tiny: Path) -> None:
    file = gguf_file.read(tiny)
    config = {**gguf_config.published(file), "final_logit_softcapping": None}
    healthy = gguf_facts(FromGguf(file, config, Words()))
    assert run_check(gguf_metadata, facts=replace(healthy, template=None)).findings == ()
    assert {one.place for one in healthy.config} == {  # positions are judged by context-length
        "num_hidden_layers",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
    }
    (lost,) = run_check(gguf_metadata, facts=gguf_facts(FromGguf(file, config, Words(False)))).findings[:1]
    assert "lost the BOS" in lost.title
    qwen = replace(file, keys={**file.keys, "tokenizer.ggml.add_bos_token": False})
    assert "bos" not in str(gguf_facts(FromGguf(qwen, config, Words(False))).ids)  # names one, and has none
    assert gguf_facts(FromGguf(file, config, None)).added == ()
    with pytest.raises(NotApplicable):
        gguf_facts(None)
