"""Hub ids against a hub on this machine: revisions, refusals, downloads, and hubs that cannot be reached."""

from __future__ import annotations

import hashlib
import http.server
import json
import re
import shutil
import socket
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemma_doctor import adapters, disk, hub, presets
from gemma_doctor.errors import DoctorError
from gemma_doctor.settings import Settings
from gemma_doctor.subject import resolve
from tests.test_loading import TEXT, admitted, saved
from tests.test_subject import empty_hub_cache, lay_cache, refused, served, write

__all__ = ["empty_hub_cache"]  # a fixture that every test here uses
COMMIT = {"main": "a" * 40, "v1": "b" * 40, "refs/pr/1": "c" * 40}
REFUSED = {
    "gated/model": (401, "GatedRepo", ""),
    "closed/model": (403, "GatedRepo", ""),
    "mirror/model": (401, "", ""),
    "un/known": (401, "RepoNotFound", ""),
    "pri/vate": (404, "RepoNotFound", ""),
    "bad/token": (401, "", "Invalid credentials in Authorization header"),
    "busy/model": (429, "", ""),
}


class Hub(http.server.BaseHTTPRequestHandler):
    """A hub with one repository, known/model, made of the files of a folder; see REFUSED for others."""

    folder: Path
    seen: list[str]
    size: int | None = None  # that it says weights have, where not their own

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        self.seen.append(f"{self.command} {path}")
        parts = path.strip("/").split("/")
        repository = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        if repository in REFUSED:
            return self._refuse(*REFUSED[repository])
        if repository != "known/model":
            return self._refuse(404, "RepoNotFound", "")
        at = next((name for name in COMMIT if f"/{name}/" in f"{path}/" or COMMIT[name] in path), None)
        if at is None:
            return self._refuse(404, "RevisionNotFound", "")
        if parts[0] == "api":
            return self._answer(json.dumps(self._tree() if "tree" in parts else self._info(at)).encode(), at)
        file = self.folder / parts[-1]
        return self._answer(file.read_bytes(), at) if file.is_file() else self._refuse(404, "EntryNotFound", "")

    do_HEAD = do_GET  # noqa: N815

    def _sizes(self) -> dict[str, int]:
        return {
            one.name: self.size if self.size is not None and one.suffix == ".safetensors" else one.stat().st_size
            for one in self.folder.iterdir()
        }

    def _info(self, at: str) -> dict[str, Any]:
        siblings = [{"rfilename": name, "size": size} for name, size in self._sizes().items()]
        return {"id": "known/model", "modelId": "known/model", "sha": COMMIT[at], "siblings": siblings}

    def _tree(self) -> list[dict[str, Any]]:
        return [{"type": "file", "path": name, "size": size, "oid": name} for name, size in self._sizes().items()]

    def _answer(self, content: bytes, at: str) -> None:
        self.send_response(200)
        self.send_header("X-Repo-Commit", COMMIT[at])
        self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def _refuse(self, status: int, code: str, message: str) -> None:
        self.send_response(status)
        for name, value in (("X-Error-Code", code), ("X-Error-Message", message), ("Content-Length", "0")):
            if value:
                self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("hub") / "model", TEXT)


@pytest.fixture
def local_hub(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Hub]]:
    Hub.folder, Hub.seen, Hub.size = Path(shutil.copytree(model, tmp_path / "published")), [], None
    monkeypatch.setenv("HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with served(Hub) as address:
        monkeypatch.setenv("HF_ENDPOINT", address)
        yield Hub


# --- revisions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("revision", ["v1", "refs/pr/1", COMMIT["v1"]])
def test_a_revision_is_asked_for_and_named(local_hub: type[Hub], revision: str) -> None:
    subject = resolve(Settings(subject="known/model", revision=revision))
    assert subject.folder is not None and subject.folder.name == COMMIT.get(revision, revision)
    assert subject.remarks[0] == f"known/model at {revision}: commit {subject.folder.name}"
    assert all(f"/resolve/{revision}/config.json" in one for one in local_hub.seen)
    local_hub.seen.clear()
    again = resolve(Settings(subject="known/model", revision=revision, offline=True))  # from the cache
    assert again.folder == subject.folder and local_hub.seen == []


def test_a_revision_that_there_is_not(local_hub: type[Hub]) -> None:
    error = refused(subject="known/model", revision="v9")
    assert "known/model has no revision v9" in error.message and "/known/model/tree/main" in error.hint


def test_a_preset_is_what_was_published_on_main() -> None:
    assert "cannot be reached" in refused(subject="google/gemma-3-1b-it", revision="v1").message


def test_the_cache_is_asked_for_the_revision(empty_hub_cache: Path) -> None:
    folder = lay_cache(empty_hub_cache, "known/model", TEXT)
    assert resolve(Settings(subject="known/model", offline=True)).folder == folder
    assert resolve(Settings(subject="known/model", revision="0123abc", offline=True)).folder == folder
    assert "--offline" in refused(subject="known/model", revision="v1", offline=True).message


@pytest.mark.parametrize("revision", ["../../x", "a\nb", "-x", "x" * 300, "a..b"])
def test_words_that_are_no_revision(revision: str) -> None:
    assert "no revision" in refused(subject="known/model", revision=revision).message


def test_only_hub_ids_have_revisions(tmp_path: Path) -> None:
    for subject in ("gemma-3-1b-it", str(write(tmp_path, TEXT)), str(tmp_path)):
        assert "which has no revisions" in refused(subject=subject, revision="main").message
    assert "which has no revisions" in refused(revision="main").message  # the embedded default


def test_ids_that_no_hub_has() -> None:
    for name in ("a--b/c", "owner/.name", "owner/name-", "a/" + "b" * 100):
        assert "is no hub id" in refused(subject=name).message


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("repository", "says", "do"),
    [
        ("gated/model", "gated/model is gated", "hf auth login, and accept its terms on http"),
        ("closed/model", "closed/model is gated", "accept its terms"),
        ("mirror/model", "is gated or does not exist", "check the id; hf auth login"),
        ("un/known", "is gated or does not exist", "check the id"),
        ("pri/vate", "does not exist, or is private", "check the id"),
        ("bad/token", "does not accept your token", "with a new one"),
        ("busy/model", "answers with status 429", "try again later"),
        ("no/where", "no/where does not exist", "check the id"),
    ],
)
def test_what_the_hub_says_in_one_line_each(local_hub: type[Hub], repository: str, says: str, do: str) -> None:
    error = refused(subject=repository)
    assert says in error.message and do in error.hint
    assert local_hub.seen == [f"HEAD /{repository}/resolve/main/config.json"]  # asked once


def test_a_repository_without_config(local_hub: type[Hub]) -> None:
    (local_hub.folder / "config.json").unlink()
    error = refused(subject="known/model")
    assert "has no config.json on the hub" in error.message and "hf download known/model" in error.hint


def test_a_gated_preset_is_still_examined_as_a_skeleton(local_hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REFUSED, "google/gemma-3-1b-it", (401, "GatedRepo", ""))
    subject = resolve(Settings(subject="google/gemma-3-1b-it"))
    assert "is gated" in subject.remarks[0] and subject.weights == "skeleton"


def test_an_adapter_in_the_cache(empty_hub_cache: Path) -> None:
    folder = lay_cache(empty_hub_cache, "some/lora", TEXT)
    described = {"peft_type": "LORA", "base_model_name_or_path": "gemma-3-1b-it"}
    (folder / "config.json").rename(folder / "adapter_config.json")
    (folder / "adapter_config.json").write_text(json.dumps(described), encoding="utf-8")
    subject = resolve(Settings(subject="some/lora", offline=True))
    assert subject.remarks[0] == "adapter some/lora on gemma-3-1b-it"
    assert subject.published == presets.load("gemma-3-1b-it")


def test_a_cached_adapter_keeps_its_own_revision(empty_hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The base has another, under another id."""
    monkeypatch.setattr(adapters, "installed", lambda: True)
    base = lay_cache(empty_hub_cache, "known/model", TEXT)
    folder = lay_cache(empty_hub_cache, "some/lora", TEXT)
    described = {"peft_type": "LORA", "base_model_name_or_path": "known/model", "revision": base.name}
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").write_text(json.dumps(described), encoding="utf-8")
    (folder / "adapter_model.safetensors").touch()
    (folder.parent.parent / "refs" / "v1").write_text(folder.name, encoding="utf-8")
    remark = resolve(Settings(subject="some/lora", revision="v1", offline=True)).remarks[-1]
    assert remark.endswith("gemma-doctor check some/lora --weights real --revision v1")
    remark = resolve(Settings(subject="some/lora", offline=True)).remarks[-1]
    assert remark.endswith("gemma-doctor check some/lora --weights real")
    remark = resolve(Settings(subject=str(folder), offline=True)).remarks[-1]
    assert remark.endswith(f"gemma-doctor check {folder} --weights real")


# --- downloads -------------------------------------------------------------------------------------------------------


def test_real_weights_are_downloaded_after_saying_how_much_and_where(
    local_hub: type[Hub], empty_hub_cache: Path
) -> None:
    assert resolve(Settings(subject="known/model")).weights == "skeleton"
    assert not any("safetensors" in one for one in local_hub.seen)
    said: list[str] = []
    from gemma_doctor import loading

    settings = Settings(subject="known/model", weights="real", revision="v1")
    patient = loading.admit(resolve(settings), settings, said.append)
    assert patient.subject.weights == "real" and patient.window == 8
    assert said == [f"downloading 0 MB of weights of known/model at v1 into {empty_hub_cache}"]
    local_hub.seen.clear()
    assert admitted(subject="known/model", weights="real", revision="v1", offline=True).subject.weights == "real"
    assert local_hub.seen == []


def test_weights_that_do_not_fit_are_not_begun(local_hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    local_hub.size = 5 * 10**9
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9))
    settings = Settings(subject="known/model", weights="real")
    subject = resolve(settings)
    with pytest.raises(DoctorError, match=r"known/model: 5\.0 GB, and .* has 1\.0 GB free") as caught:
        hub.fetch_weights(hub.Repository("known/model"), lambda _: pytest.fail("it began"))
    assert "HF_HUB_CACHE" in caught.value.hint and subject.weights == "real"


def test_a_partly_cached_repository_is_a_skeleton_until_real_weights_are_asked_for(
    local_hub: type[Hub], empty_hub_cache: Path, tmp_path: Path
) -> None:
    local_hub.folder = saved(tmp_path / "many", TEXT, shard="20KB")
    first, *others = sorted(one.name for one in local_hub.folder.glob("*.safetensors"))
    folder = lay_cache(empty_hub_cache, "known/model", TEXT)
    for name in ("model.safetensors.index.json", *others):
        shutil.copy(local_hub.folder / name, folder)
    subject = resolve(Settings(subject="known/model"))
    assert subject.weights == "skeleton"
    assert f"1 of {len(others) + 1} weight files are missing, {first!r} among them" in subject.remarks[-1]
    assert subject.remarks[-1].endswith("gemma-doctor check known/model --weights real")
    assert local_hub.seen == []
    assert admitted(subject="known/model", weights="real").subject.weights == "real"
    assert any(f"/{first}" in one for one in local_hub.seen)


@pytest.mark.parametrize("shard", ["5GB", "20KB"])
def test_only_what_the_library_loads_is_downloaded(local_hub: type[Hub], tmp_path: Path, shard: str) -> None:
    local_hub.folder = saved(tmp_path / "own", TEXT, shard=shard)
    own = {one.name for one in local_hub.folder.glob("*.safetensors")}
    for name in (
        "consolidated.safetensors",
        "model.fp16.safetensors",
        "adapter_model.safetensors",
        "adapter_config.json",
    ):
        (local_hub.folder / name).write_bytes(b"x" * 10**6)
    said: list[str] = []
    folder = hub.fetch_weights(hub.Repository("known/model"), said.append)
    assert {one.name for one in folder.glob("*.safetensors")} == own
    assert not (folder / "adapter_config.json").exists()
    assert "downloading 0 MB" in said[0]


@pytest.mark.parametrize(
    "content", ["[]", "{", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}', '{"weight_map": {}}']
)
def test_an_index_that_is_none(local_hub: type[Hub], content: str) -> None:
    (local_hub.folder / "model.safetensors").unlink()
    (local_hub.folder / "model.safetensors.index.json").write_text(content, encoding="utf-8")
    with pytest.raises(DoctorError, match=r"index\.json: no"):
        hub.fetch_weights(hub.Repository("known/model"), lambda _: None)


def test_a_hub_without_safetensors(local_hub: type[Hub]) -> None:
    (local_hub.folder / "model.safetensors").rename(local_hub.folder / "pytorch_model.bin")
    with pytest.raises(DoctorError, match="no safetensors weights, and pickled ones are never read"):
        hub.fetch_weights(hub.Repository("known/model"), lambda _: None)


def test_offline_real_weights_are_refused(empty_hub_cache: Path) -> None:
    from tests.test_loading import refused as not_admitted

    lay_cache(empty_hub_cache, "known/model", TEXT)
    error = not_admitted(subject="known/model", weights="real", offline=True)
    assert "its weights are not on this machine, and the hub is switched off (--offline)" in error.message


# --- hubs that cannot be reached -------------------------------------------------------------------------------------


def silent_hub() -> socket.socket:
    """Takes connections and says nothing."""
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    return listening


def test_a_hub_that_cannot_be_reached_costs_at_most_3_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hub.PROBE_SECONDS < 3
    with silent_hub() as listening:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
        started = time.monotonic()
        assert re.search("did not answer|timed out", refused(subject="some/model").message)
        assert time.monotonic() - started < 3
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    started = time.monotonic()
    assert "cannot be reached" in refused(subject="some/model").message
    assert time.monotonic() - started < 1


def test_whatever_goes_wrong_on_the_way_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://localhost:port")
    started = time.monotonic()
    assert "cannot be reached (nonnumeric port" in refused(subject="some/model").message
    for content in (b"nonsense\r\n\r\n", b"x" * 100_000 + b"\r\n"):  # no HTTP
        with silent_hub() as listening:
            monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
            threading.Thread(target=answer_once, args=(listening, content), daemon=True).start()
            error = refused(subject="some/model")
        assert "cannot be reached" in error.message and len(error.message) < 500

    def broken() -> str:
        raise RuntimeError("no token store")

    monkeypatch.setattr("huggingface_hub.get_token", broken)
    assert "cannot be reached (no token store)" in refused(subject="some/model").message
    assert time.monotonic() - started < hub.PROBE_SECONDS
    assert "Traceback" not in capfd.readouterr().err


def test_a_configuration_that_trickles_in_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = threading.Event()
    monkeypatch.setattr(hub, "CONFIG_SECONDS", 0.2)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda *_, **__: hold.wait(20))
    started = time.monotonic()
    with pytest.raises(DoctorError, match=r"download failed: config.json did not arrive within 0.2 s"):
        hub.fetch_config(hub.Repository("some/model"))
    assert time.monotonic() - started < 2
    hold.set()


def test_a_damaged_configuration_in_the_cache_can_be_got_anew(local_hub: type[Hub]) -> None:
    (local_hub.folder / "config.json").write_text("{", encoding="utf-8")
    refused(subject="known/model")
    error = refused(subject="known/model", offline=True)  # from the cache
    assert "not JSON" in error.message
    assert "hf download known/model config.json --force-download; or delete" in error.hint
    assert "models--known--model," in error.hint


def answer_once(listening: socket.socket, content: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(4096)
        connection.sendall(content)


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    hold = threading.Event()

    def asked(*_: object, **__: object) -> list[Any]:
        hold.wait(20)
        return []

    monkeypatch.setattr(hub, "PROBE_SECONDS", 0.3)
    monkeypatch.setattr(socket, "getaddrinfo", asked)
    started = time.monotonic()
    assert "did not answer" in refused(subject="some/model").message
    assert time.monotonic() - started < 2
    hold.set()
