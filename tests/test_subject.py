"""SUBJECTs: where they are found, what they are held against, and what is said when they cannot be examined."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gemma_doctor import demo, hub, presets
from gemma_doctor.errors import DoctorError
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve

NO_DECODERS = {
    "diffusiongemma-26B-A4B-it": "a diffusion model",
    "gemma-4-12B-it-assistant": "a drafter",
    "gemma-4-26B-A4B-it-assistant": "a drafter",
    "gemma-4-31B-it-assistant": "a drafter",
    "gemma-4-E2B-it-assistant": "a drafter",
    "gemma-4-E4B-it-assistant": "a drafter",
    "recurrentgemma-2b-it": "partly recurrent",
    "recurrentgemma-9b": "partly recurrent",
    "t5gemma-2b-2b-prefixlm": "an encoder-decoder",
    "t5gemma-b-b-prefixlm": "an encoder-decoder",
}
NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def empty_hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads the hub cache of this machine, or asks the real hub."""
    from huggingface_hub import constants

    cache = tmp_path / "hub"
    cache.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_ENDPOINT", NOWHERE)
    return cache


@pytest.fixture
def no_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "installed", lambda: False)


def write(folder: Path, content: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def refused(**settings: Any) -> DoctorError:
    with pytest.raises(DoctorError) as caught:
        resolve(Settings(**settings))
    for line in (caught.value.message, caught.value.hint):
        assert line and "\n" not in line
    return caught.value


# --- presets ---------------------------------------------------------------------------------------------------------


def test_there_are_53_presets_each_with_its_source() -> None:
    names = presets.names()
    assert len(names) == 53
    sources = Path(presets.__file__).with_name("SOURCES.md").read_text(encoding="utf-8")
    assert [name for name in names if f"\n| {name} |" not in sources] == []


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_is_resolved_or_clearly_refused(name: str) -> None:
    settings = Settings(subject=name, weights="skeleton")
    if name in NO_DECODERS:
        error = refused(subject=name)
        assert error.message.startswith("not a decoder that this tool examines: ")
        assert NO_DECODERS[name] in error.message
        return
    subject = resolve(settings)
    assert (subject.kind, subject.weights) == ("preset", "skeleton")
    assert subject.published == presets.load(name)
    assert subject.config.expectations == ()  # it is not held against itself
    assert any("SKELETON" in remark for remark in subject.remarks)


def test_hub_ids_lead_to_presets() -> None:
    assert presets.for_hub_id("google/gemma-3-1b-it") == "gemma-3-1b-it"
    assert presets.for_hub_id("Qwen/Qwen2.5-7B-Instruct") == "qwen2.5-7b-instruct"
    assert presets.for_hub_id("qwen/qwen2.5-7b-instruct") == "qwen2.5-7b-instruct"
    assert presets.for_hub_id("somebody/gemma-3-1b-it") is None
    assert set(presets.OTHER_HUB_IDS) <= set(presets.names())


@pytest.mark.parametrize(
    ("name", "window", "pattern"),
    [
        ("gemma-3-270m", "512", "5 sliding, 1 full"),
        ("gpt-oss-20b", "128", "1 sliding, 1 full"),
        ("vaultgemma-1b", "not written", "all full"),
        ("mistral-7b-instruct-v0.3", "none", "not written"),
        ("qwen2.5-7b-instruct", "131072 (off)", "not written"),
    ],
)
def test_summary(name: str, window: str, pattern: str) -> None:
    summary = presets.summary(name)
    assert (summary.window, summary.pattern) == (window, pattern)


def test_an_unknown_preset_gets_a_suggestion() -> None:
    assert "did you mean gemma-3-270m?" in refused(subject="gemma-3-270").message


def test_the_default_is_a_skeleton_without_the_demo_extra(no_demo: None) -> None:
    subject = resolve(Settings())
    assert (subject.name, subject.weights, subject.demo) == ("gemma-3-270m", "skeleton", False)
    assert demo.INSTALL in subject.remarks[0]
    assert refused(weights="real").hint == demo.INSTALL


def test_the_default_is_real_with_the_demo_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "installed", lambda: True)
    subject = resolve(Settings())
    assert (subject.weights, subject.demo, subject.remarks) == ("real", True, ())


# --- overrides and expectations --------------------------------------------------------------------------------------


def test_overrides_reach_the_text_part() -> None:
    subject = resolve(Settings(subject="gemma-3-4b-it", overrides={"sliding_window": None}))
    assert subject.published["text_config"]["sliding_window"] is None
    assert "sliding_window" not in subject.published
    assert subject.config.published.window is not None and subject.config.published.window.value is None
    assert presets.load("gemma-3-4b-it")["text_config"]["sliding_window"] == 1024


def test_a_changed_preset_is_held_against_the_preset() -> None:
    subject = resolve(Settings(subject="gemma-2-2b-it", overrides={"sliding_window": 1024}))
    (expectation,) = subject.config.expectations
    assert (expectation.facts.origin, expectation.binding) == ("preset gemma-2-2b-it", False)


def test_expect_is_binding_and_takes_keys() -> None:
    (demanded,) = resolve(Settings(subject="gemma-3-1b-it", expect="gemma-3-1b-pt")).config.expectations
    assert (demanded.binding, demanded.facts.origin) == (True, "expect: preset gemma-3-1b-pt")
    expect = {"preset": "gemma-3-1b-pt", "sliding_window": 77}
    (demanded,) = resolve(Settings(subject="gemma-3-1b-it", expect=expect)).config.expectations
    assert demanded.facts.window is not None and demanded.facts.window.value == 77
    assert demanded.facts.eps is not None
    (demanded,) = resolve(Settings(subject="gemma-3-1b-it", expect={"sliding_window": 77})).config.expectations
    assert demanded.facts.window is not None and demanded.facts.window.value == 77
    assert demanded.facts.eps is None  # nothing else is demanded
    assert "did you mean" in refused(expect="gemma-3-270").message


@pytest.mark.parametrize(
    ("expect", "says"),
    [
        ({"foo_bar": 512}, "no check compares foo_bar"),
        ({"max_position_embeddings": 5, "vocab_size": 1}, "no check compares max_position_embeddings"),
        ({"sliding_windw": 512}, "did you mean sliding_window?"),
        ({"preset": "gemma-3-1b-pt", "head_dim": 7}, "no check compares head_dim"),
        ({"text_config": {"sliding_window": 512, "foo": 1}}, "no check compares foo"),
        ({"use_sliding_window": True}, "says nothing that a check compares"),
        ({"partial_rotary_factor": 0.5}, "says nothing that a check compares"),
        ({"sliding_window": "512"}, "cannot be right"),
        ({"rope_theta": "x"}, "cannot be right"),
        ({"rms_norm_eps": -1e-6}, "cannot be right"),
    ],
)
def test_keys_that_nobody_would_compare_cannot_be_expected(expect: dict[str, Any], says: str) -> None:
    assert says in refused(subject="gemma-3-1b-it", expect=expect).message


@pytest.mark.parametrize(
    "expect",
    [
        {"sliding_window": None},
        {"use_sliding_window": False},
        {"sliding_window": 512, "use_sliding_window": True},
        {"layer_types": ["full_attention"] * 26},
        {"sliding_window_pattern": 6},
        {"rope_theta": 1e6, "rope_local_base_freq": 1e4},
        {"rope_scaling": None},
        {"text_config": {"layer_norm_eps": 1e-5}},
    ],
)
def test_every_spelling_that_is_read_can_be_expected(expect: dict[str, Any]) -> None:
    (demanded,) = resolve(Settings(subject="gemma-3-1b-it", expect=expect)).config.expectations
    assert demanded.binding


def test_fine_tunes_are_held_against_the_preset_that_they_are_nearest_to(tmp_path: Path) -> None:
    """Mistral 7B v0.1 and v0.3 have one shape; v0.2, published without a window, is no sick v0.1."""
    second = {**presets.load("mistral-7b-instruct-v0.3"), "vocab_size": 32000}
    write(tmp_path / "m", second)
    (expectation,) = resolve(Settings(subject=str(tmp_path / "m"))).config.expectations
    assert expectation.facts.origin == "preset mistral-7b-instruct-v0.3"


def test_a_model_of_another_generation_is_not_held_against_a_preset(tmp_path: Path) -> None:
    """Llama 3 has the sizes of Llama 3.1, and rightly no rope scaling."""
    llama = {**presets.load("llama-3.1-8b-instruct"), "max_position_embeddings": 8192, "rope_scaling": None}
    write(tmp_path / "l", llama)
    assert resolve(Settings(subject=str(tmp_path / "l"))).config.expectations == ()


@pytest.mark.parametrize(
    "name",
    [
        "google/gemma-3-1b-it",
        "/data/models/gemma-3-1b-it/",
        "unsloth/gemma-3-1b-it",
        "~/.cache/huggingface/hub/models--google--gemma-3-1b-it/snapshots/0123abc",
    ],
)
@pytest.mark.parametrize("key", ["_name_or_path", "base_model_name_or_path"])
def test_a_fine_tune_is_held_against_the_preset_that_it_names(tmp_path: Path, key: str, name: str) -> None:
    """Even where its positions differ, which alone would make it a model of another generation."""
    tuned = {**presets.load("gemma-3-1b-it"), key: name, "max_position_embeddings": 65536, "sliding_window": 1024}
    write(tmp_path / "t", tuned)
    config = resolve(Settings(subject=str(tmp_path / "t"))).config
    (expectation,) = config.expectations
    assert (expectation.facts.origin, expectation.binding) == ("preset gemma-3-1b-it", False)
    assert config.base is not None and config.base.max_positions == 32768


@pytest.mark.parametrize("name", ["google/gemma-3-270m", "somebody/else", "", "\n", "x" * 9999, 7, None, ["a"]])
def test_a_name_that_fits_no_preset_of_its_shape_is_not_believed(tmp_path: Path, name: object) -> None:
    write(tmp_path / "t", {**presets.load("gemma-3-1b-it"), "_name_or_path": name, "max_position_embeddings": 65536})
    config = resolve(Settings(subject=str(tmp_path / "t"))).config
    assert config.expectations == ()
    assert config.base is not None and config.base.origin == "preset gemma-3-1b-it"  # by its shape alone


def test_a_subject_that_nobody_knows_has_no_base(tmp_path: Path) -> None:
    write(tmp_path / "t", {**presets.load("gemma-3-1b-it"), "hidden_size": 96})
    assert resolve(Settings(subject=str(tmp_path / "t"))).config.base is None
    write(tmp_path / "k", {**presets.load("llama-3.1-8b-instruct"), "num_key_value_heads": 32})
    assert resolve(Settings(subject=str(tmp_path / "k"))).config.base is None


def test_a_preset_is_its_own_base() -> None:
    config = resolve(Settings(subject="gemma-2-2b")).config
    assert config.expectations == () and config.base is not None and config.base.origin == "preset gemma-2-2b"


def test_a_resaved_sparse_file_still_meets_its_preset(tmp_path: Path) -> None:
    mapping = presets.load("gemma-3-4b-it")
    mapping["text_config"] |= {"num_attention_heads": 8, "max_position_embeddings": 131072}
    write(tmp_path / "g", mapping)
    (expectation,) = resolve(Settings(subject=str(tmp_path / "g"))).config.expectations
    assert expectation.facts.origin == "preset gemma-3-4b-it"  # and not medgemma-4b-it, tuned from it


@pytest.mark.parametrize("value", [[1], 7, {}, "x" * 10**6])
@pytest.mark.parametrize("name", ["gemma-3-1b-it", "gemma-3-4b-it"])
def test_overrides_are_judged_as_a_file_is(name: str, value: object) -> None:
    assert "model_type must be a name" in refused(subject=name, overrides={"model_type": value}).message


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("key", ["num_hidden_layers", "n_layer"])
def test_absurd_numbers_of_layers_are_refused_before_anything_is_built_of_them(key: str, static: bool) -> None:
    for name in ("gemma-3-1b-it", "gemma-3-4b-it"):
        assert "more than 10,000 layers" in refused(subject=name, overrides={key: 10**8}, static=static).message


def test_a_configuration_nested_too_deeply(tmp_path: Path) -> None:
    path = write(tmp_path, '{"model_type": "llama", "deep": ' + "[" * 900 + "]" * 900 + "}")
    assert "nested too deeply" in refused(subject=str(path)).message


@pytest.mark.parametrize(
    "keys", [{"layers_block_type": ["attention", "mamba"]}, {"layer_types": ["hybrid"] * 2}, {"layer_types": ["conv"]}]
)
def test_recurrent_layers_under_any_key(tmp_path: Path, keys: dict[str, Any]) -> None:
    path = write(tmp_path, {"model_type": "jamba", "num_hidden_layers": 2, **keys})
    assert "is partly recurrent" in refused(subject=str(path)).message


# --- files and folders -----------------------------------------------------------------------------------------------


def test_a_folder_a_file_and_their_weights(tmp_path: Path) -> None:
    folder = tmp_path / "my-gemma"
    path = write(folder, presets.load("gemma-2-2b"))
    subject = resolve(Settings(subject=str(path)))
    assert (subject.kind, subject.folder, subject.weights) == ("config file", None, "skeleton")
    subject = resolve(Settings(subject=str(folder)))
    assert (subject.kind, subject.folder, subject.weights) == ("folder", folder, "skeleton")
    assert "holds no model.safetensors" in subject.remarks[0]
    (folder / "model.safetensors").touch()
    subject = resolve(Settings(subject=str(folder)))
    assert (subject.weights, subject.remarks) == ("real", ())
    subject = resolve(Settings(subject=str(folder), weights="skeleton"))
    assert subject.weights == "skeleton" and "--weights skeleton" in subject.remarks[0]


def test_a_folder_comes_before_a_preset_of_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "gemma-3-1b-it", presets.load("gemma-2-2b"))
    write(tmp_path / "gemma-3-270m", presets.load("gemma-2-2b"))
    monkeypatch.chdir(tmp_path)
    assert resolve(Settings(subject="gemma-3-1b-it")).config.published.family == "gemma2"
    assert resolve(Settings()).config.published.family == "gemma3_text"  # the default is always the preset


def test_pickled_weights_are_never_read(tmp_path: Path) -> None:
    write(tmp_path / "old", presets.load("gemma-2-2b"))
    (tmp_path / "old" / "pytorch_model.bin").touch()
    subject = resolve(Settings(subject=str(tmp_path / "old")))
    assert subject.weights == "skeleton" and "pickled" in subject.remarks[0]
    assert "pickled" in refused(subject=str(tmp_path / "old"), weights="real").message


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "not JSON"),
        ("[1, 2]", "no mapping, but a list"),
        ("3", "no mapping, but a int"),
        ("{}", "names no model_type"),
        ('{"model_type": 7}', "names no model_type"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, content: str, says: str) -> None:
    path = write(tmp_path, content)
    assert says in refused(subject=str(path)).message
    assert says in refused(subject=str(tmp_path)).message


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00{")
    assert "not JSON" in refused(subject=str(tmp_path)).message


def test_places_that_hold_no_model(tmp_path: Path) -> None:
    assert "no preset, file or folder" in refused(subject=str(tmp_path / "nothing.json")).message
    assert "no config.json" in refused(subject=str(tmp_path)).message
    (tmp_path / "a.gguf").touch()
    assert "a.gguf" in refused(subject=str(tmp_path)).hint


def test_a_sick_config_is_a_patient_and_no_error(tmp_path: Path) -> None:
    for window in (0, 1, -5, "512"):
        path = write(tmp_path, {**presets.load("gemma-3-270m"), "sliding_window": window})
        published = resolve(Settings(subject=str(path), static=True)).config.published
        assert published.window is not None and published.window.value == window


def test_static_says_nothing_about_weights() -> None:
    assert resolve(Settings(static=True)).remarks == ()


# --- hub ids ---------------------------------------------------------------------------------------------------------


def lay_cache(cache: Path, repository: str, mapping: object) -> Path:
    """A hub cache as the hub's client writes it."""
    root = cache / f"models--{repository.replace('/', '--')}"
    (root / "refs").mkdir(parents=True)
    (root / "refs" / "main").write_text("0123abc", encoding="utf-8")
    write(root / "snapshots" / "0123abc", mapping)
    return root / "snapshots" / "0123abc"


def test_the_local_cache_comes_first(empty_hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "refusal", lambda repository: pytest.fail("the hub was asked"))
    folder = lay_cache(empty_hub_cache, "google/gemma-3-1b-it", presets.load("gemma-3-1b-it"))
    subject = resolve(Settings(subject="google/gemma-3-1b-it"))
    assert (subject.kind, subject.folder, subject.weights) == ("hub id", folder, "skeleton")
    assert "--weights real" in subject.remarks[0]
    (folder / "model.safetensors").touch()
    assert resolve(Settings(subject="google/gemma-3-1b-it")).weights == "real"


def test_an_unreachable_hub_falls_back_to_the_preset_visibly() -> None:
    started = time.monotonic()
    subject = resolve(Settings(subject="google/gemma-3-1b-it"))
    assert time.monotonic() - started < hub.PROBE_SECONDS + 2
    assert (subject.kind, subject.folder, subject.weights) == ("hub id", None, "skeleton")
    assert "cannot be reached" in subject.remarks[0] and "preset gemma-3-1b-it" in subject.remarks[0]
    assert subject.remarks[1].startswith("SKELETON")
    assert "cannot be reached" in refused(subject="somebody/else").message
    assert refused(subject="google/gemma-3-1b-it", weights="real").message.startswith("--weights real")


def test_offline_the_hub_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(hub, "_ask", lambda repository: pytest.fail("the hub was asked"))
    assert "switched off" in refused(subject="somebody/else").message


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub with one repository; "gated/..." is gated, everything else is unknown."""

    seen: list[tuple[str, str]]
    config = json.dumps(presets.load("gemma-2-2b")).encode()

    def do_HEAD(self) -> None:
        self.seen.append((self.command, self.path))
        known = self.path.endswith("/resolve/main/config.json")
        if not self.path.startswith("/known/") or not known:
            self.send_response(401 if self.path.startswith("/gated/") else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("X-Repo-Commit", "a" * 40)
        self.send_header("ETag", '"b"')
        self.send_header("Content-Length", str(len(self.config)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(self.config)

    do_GET = do_HEAD  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def local_hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, str]]]:
    Hub.seen = []
    with served(Hub) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield Hub.seen


def test_a_reachable_hub_gives_the_configuration_and_no_weights(
    local_hub: list[tuple[str, str]], empty_hub_cache: Path
) -> None:
    subject = resolve(Settings(subject="known/model"))
    assert subject.config.published.family == "gemma2"
    assert subject.folder is not None and empty_hub_cache in subject.folder.parents
    assert subject.weights == "skeleton"
    assert {path for _, path in local_hub} == {"/known/model/resolve/main/config.json"}


def test_what_the_hub_refuses(local_hub: list[tuple[str, str]]) -> None:
    assert "is gated or does not exist" in refused(subject="gated/model").message
    assert "has no config.json" in refused(subject="un/known").message
    assert local_hub == [
        ("HEAD", "/gated/model/resolve/main/config.json"),
        ("HEAD", "/un/known/resolve/main/config.json"),
    ]


def test_a_hub_that_never_answers_costs_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = threading.Event()
    monkeypatch.setattr(hub, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(hub, "_ask", lambda repository: str(hold.wait(20)))
    started = time.monotonic()
    refusal = hub.refusal(hub.Repository("some/model"))
    assert refusal is not None and "did not answer" in refusal.why
    assert time.monotonic() - started < 5
    hold.set()


def test_resolving_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import sys; from gemma_doctor import subject, settings, presets\n"
        "[presets.summary(name) for name in presets.names()]\n"
        "subject.resolve(settings.Settings()); subject.resolve(settings.Settings(subject='google/gemma-3-1b-it'))\n"
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
