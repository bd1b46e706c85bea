"""Where a SUBJECT lies: a preset, a folder, a file, an adapter, a hub id. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gemma_doctor import adapters, gguf_config, gguf_file, hub, presets
from gemma_doctor.disk import is_file
from gemma_doctor.errors import DoctorError, suggest
from gemma_doctor.json_file import read_mapping
from gemma_doctor.settings import DEFAULT_SUBJECT, Settings


@dataclass(frozen=True)
class Source:
    """Where a SUBJECT was found.

    Attributes:
        name: for headlines.
        kind: "preset", "folder", "config file", "GGUF file", "adapter", "hub id".
        mapping: the published configuration; an adapter's is that of its base.
        folder: where tokenizer and weights lie, None if there is no such folder.
        preset: that it is, or that was published under its hub id; "" for none.
        remarks: for the headline.
        repository: from which configuration and weights (an adapter's base's) come.
        revision: of the hub id that the user named (an adapter's, not its base's), None for whoever named none.
        adapter: what is laid over the weights of the base.
        gguf: what the file says.
    """

    name: str
    kind: str
    mapping: Mapping[str, Any]
    folder: Path | None = None
    preset: str = ""
    remarks: tuple[str, ...] = ()
    repository: hub.Repository | None = None
    revision: str | None = None
    adapter: adapters.Adapter | None = None
    gguf: gguf_file.GgufFile | None = None


def locate(settings: Settings) -> Source:
    """Find the subject that the settings name.

    Raises:
        DoctorError: there is none, or what was found there is none.
    """
    explicit = settings.subject is not None
    found = _locate(settings.subject or DEFAULT_SUBJECT, settings.revision, settings.offline, explicit)
    if settings.revision and found.revision is None:
        raise DoctorError(
            f"--revision {settings.revision!r}: {found.name} is a {found.kind}, which has no revisions"[:300],
            "leave it out, or name a hub id",
        )
    return found


def _locate(name: str, revision: str | None, offline: bool, explicit: bool = True) -> Source:
    path = Path(name).expanduser()
    if explicit and is_file(path / "config.json"):  # even if a preset has that name: so does the library
        return Source(name, "folder", read_config(path / "config.json"), folder=path)
    if name in presets.names():
        return Source(name, "preset", presets.load(name), preset=name)
    if is_file(path / adapters.CONFIG):
        return _of_adapter(name, path, offline)
    if path.is_dir():
        raise DoctorError(f"{name}: the folder holds no config.json", _other_subject_in(path))
    if path.exists() and path.suffix == ".gguf":
        return _of_gguf(name, path)
    if path.exists():
        return Source(name, "config file", read_config(path))
    if hub.LIKE_AN_ID.fullmatch(name) and path.suffix not in (".json", ".gguf") and not name.startswith("."):
        return _from_hub(hub.repository(name, revision, offline))
    raise DoctorError(
        f"there is no preset, file or folder {name!r}{suggest(name, presets.names())}",
        "gemma-doctor presets lists the presets; hub ids are written owner/name",
    )


def _other_subject_in(folder: Path) -> str:
    ggufs = sorted(folder.glob("*.gguf"))
    return f"name the file: {ggufs[0]}" if ggufs else "name a model's folder"


def _of_gguf(name: str, path: Path) -> Source:
    file = gguf_file.read(path)
    return Source(name, "GGUF file", gguf_config.published(file), gguf=file)


def _of_adapter(name: str, folder: Path, offline: bool) -> Source:
    """An adapter, and the base that it names, found as the user would have named it."""
    found = adapters.read(folder)
    base_path = Path(found.base).expanduser()
    if is_file(base_path / adapters.CONFIG) and not is_file(base_path / "config.json"):
        same = base_path.resolve() == folder.resolve()
        raise DoctorError(
            f"{name}: its base {found.base!r} is {'the adapter itself' if same else 'an adapter as well'}"[:300],
            f"write the model that it was trained on into base_model_name_or_path of {adapters.CONFIG}",
        )
    try:
        base = _locate(found.base, found.base_revision, offline)
    except DoctorError as error:
        raise DoctorError(f"{name}: its base cannot be examined: {error.message}", error.hint) from None
    remarks = f"adapter {name} on {base.name}", *base.remarks
    return replace(base, name=name, kind="adapter", remarks=remarks, revision=None, adapter=found)


def _from_hub(repository: hub.Repository) -> Source:
    preset = presets.for_hub_id(repository.id) or ""
    folder = hub.cached(repository)
    as_adapter = hub.cached(repository, adapters.CONFIG) if folder is None else None
    if as_adapter is not None:
        return replace(_of_adapter(repository.id, as_adapter, repository.offline), revision=repository.revision)
    refused = None if folder is not None else hub.refusal(repository)
    if folder is None and refused is None:
        folder = hub.fetch_config(repository)
    if folder is not None:
        remarks = () if repository.revision == "main" else (f"{repository}: commit {folder.name}",)
        try:
            mapping = read_config(folder / "config.json")
        except DoctorError as error:  # deleting the snapshot alone would bring the same blob back
            again = f"{repository.command} config.json --force-download"
            raise DoctorError(error.message, f"{again}; or delete {folder.parent.parent}, its cache") from None
        return Source(repository.id, "hub id", mapping, folder, preset, remarks, repository, repository.revision)
    assert refused is not None
    missing = f"{repository}: not in the local hub cache, and {refused.why}"
    if not preset or repository.revision != "main":  # a preset is what was published on main
        raise DoctorError(missing, refused.do)
    remark = f"{missing}; this is the configuration of preset {preset}"
    mapping = presets.load(preset)
    return Source(repository.id, "hub id", mapping, None, preset, (remark,), repository, repository.revision)


def read_config(path: Path) -> dict[str, Any]:
    """A published config.json.

    Raises:
        DoctorError: it cannot be read, is not JSON, or is no model's configuration.
    """
    mapping = read_mapping(path, "name a model's config.json, a mapping with a model_type")
    if not isinstance(mapping.get("model_type"), str) or not mapping["model_type"]:
        raise DoctorError(
            f"{path}: no configuration of a model: it names no model_type", 'add e.g. "model_type": "gemma3_text"'
        )
    return mapping
