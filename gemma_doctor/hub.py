"""Hub repositories: the local cache first, then one short probe, and no download that was not asked for."""

from __future__ import annotations

import os
import re
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

from gemma_doctor import adapters, weight_files
from gemma_doctor.disk import in_words, require_space
from gemma_doctor.errors import DoctorError, in_one_line, one_line
from gemma_doctor.settings import Progress

# All that a hub that cannot be reached may cost, name service included.
PROBE_SECONDS = 2.5
# All that a config.json may take, a few kilobytes: a hub that sends byte after byte never runs into a time-out.
CONFIG_SECONDS = 30.0
SMALL_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
# What a user means as an id, and what is one, as the hub's own client has it.
LIKE_AN_ID = re.compile(r"[\w.-]+/[\w.-]+")
ID = re.compile(r"\w([\w.-]*\w)?/\w([\w.-]*\w)?")
LONGEST_ID = 96
REVISION = re.compile(r"\w[\w./-]{0,199}")
CHECK_NETWORK = "check the id and the network, or name a folder or a preset (gemma-doctor presets)"


@dataclass(frozen=True)
class Repository:
    """A model repository at one revision.

    Attributes:
        id: owner/name.
        revision: branch, tag or commit.
        offline: the user wants the local cache alone to be looked at.
    """

    id: str
    revision: str = "main"
    offline: bool = False

    def __str__(self) -> str:
        return self.id if self.revision == "main" else f"{self.id} at {self.revision}"

    @property
    def command(self) -> str:
        """What downloads it."""
        at = f" --revision {self.revision}" if self.revision != "main" else ""
        return f"hf download {self.id}{at}"

    @property
    def page(self) -> str:
        """Where a person reads about it."""
        return f"{_endpoint()}/{self.id}"


@dataclass(frozen=True)
class Refusal:
    """Why a repository cannot be had, and what to do about it, one line each."""

    why: str
    do: str


def repository(name: str, revision: str | None, offline: bool) -> Repository:
    """The repository of a hub id.

    Raises:
        DoctorError: the hub has no such ids, or no such names of revisions.
    """
    if not ID.fullmatch(name) or "--" in name or ".." in name or len(name) > LONGEST_ID:
        raise DoctorError(f"{name[:LONGEST_ID]!r} is no hub id", "hub ids are written owner/name")
    if revision is not None and (not REVISION.fullmatch(revision) or ".." in revision):
        raise DoctorError(f"--revision {revision!r}"[:200] + ": no revision", "name a branch, a tag or a commit")
    return Repository(name, revision or "main", offline)


def cached(wanted: Repository, file: str = "config.json") -> Path | None:
    """The snapshot folder of a repository in the local hub cache, None if it does not hold `file`."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(wanted.id, file, revision=wanted.revision)
    return Path(found).parent if isinstance(found, str) else None


def refusal(wanted: Repository) -> Refusal | None:
    """Ask the hub once for a repository's config.json. None if it may be had.

    The library's own loaders retry for half a minute where there is no network. A name server that does not answer is
    not bound by a socket's time-out, so the question is asked in a thread that is left behind.
    """
    from huggingface_hub import constants

    if wanted.offline or constants.HF_HUB_OFFLINE:
        said = "--offline" if wanted.offline else "HF_HUB_OFFLINE"
        return Refusal(f"the hub is switched off ({said})", f"leave {said} out, or run {wanted.command} before")
    answer: list[Refusal | None] = [Refusal(f"the hub did not answer within {PROBE_SECONDS:g} s", CHECK_NETWORK)]
    _wait_for(lambda: answer.append(_asked(wanted)), PROBE_SECONDS)
    return answer[-1]


def fetch_config(wanted: Repository) -> Path:
    """Bring config.json into the local hub cache. Returns the snapshot folder.

    Raises:
        DoctorError: the hub refuses, the connection breaks, or it takes too long.
    """
    from huggingface_hub import hf_hub_download

    answer: list[str | Exception] = [TimeoutError(f"config.json did not arrive within {CONFIG_SECONDS:g} s")]

    def get() -> None:
        try:
            answer.append(hf_hub_download(wanted.id, "config.json", revision=wanted.revision, endpoint=_endpoint()))
        except Exception as error:  # raised again below: a thread has nobody to catch it
            answer.append(error)

    _wait_for(get, CONFIG_SECONDS)
    with _download(wanted):
        if isinstance(answer[-1], Exception):
            raise answer[-1]
        return Path(answer[-1]).parent


def _wait_for(work: Callable[[], None], seconds: float) -> None:
    """Leave it behind when the time is over."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)


def fetch_weights(wanted: Repository, progress: Progress) -> Path:
    """Bring safetensors weights and the tokenizer into the local hub cache, after saying how much that is.

    Raises:
        DoctorError: there are no safetensors files, they do not fit on the disk, the hub refuses, or the connection
            breaks.
    """
    from huggingface_hub import HfApi, constants, snapshot_download

    refused = refusal(wanted)
    if refused is not None:
        raise DoctorError(
            f"{wanted}: its weights are not on this machine, and {refused.why}",
            f"{refused.do}; {weight_files.SKELETON_WILL_DO}",
        )
    with _download(wanted):
        info = HfApi(endpoint=_endpoint()).model_info(wanted.id, revision=wanted.revision, files_metadata=True)
        published = {one.rfilename: one.size or 0 for one in info.siblings or []}
        sizes = {name: published[name] for name in weight_files.of(published, _in_index(wanted, published))}
        if not sum(sizes.values()):
            raise DoctorError(
                f"{wanted}: publishes no safetensors weights, and pickled ones are never read",
                weight_files.SKELETON_WILL_DO,
            )
        missing = sum(size for name, size in sizes.items() if cached(wanted, name) is None)
        place = Path(constants.HF_HUB_CACHE)
        require_space(place, missing, f"the weights of {wanted}", "HF_HUB_CACHE")
        progress(f"downloading {in_words(missing)} of weights of {wanted} into {place}")
        return Path(
            snapshot_download(
                wanted.id,
                revision=wanted.revision,
                allow_patterns=[*SMALL_FILES, *sizes],
                ignore_patterns=[adapters.CONFIG],  # with which the library would load another model
                endpoint=_endpoint(),
            )
        )


def _in_index(wanted: Repository, published: Collection[str]) -> set[str]:
    """What a repository's index of weights names, empty if it has none."""
    if weight_files.INDEX not in published:
        return set()
    from huggingface_hub import hf_hub_download

    return weight_files.in_index(
        Path(hf_hub_download(wanted.id, weight_files.INDEX, revision=wanted.revision, endpoint=_endpoint()))
    )


def _download(wanted: Repository) -> AbstractContextManager[None]:
    """The hub's client passes on whatever its HTTP library raises."""
    return one_line(f"{wanted}: the download failed", "try again later")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is answer enough; following it would hand the token to another host."""

    def redirect_request(self, *_: object) -> None:
        return None


def _asked(wanted: Repository) -> Refusal | None:
    """Whatever is raised on the way is an answer too: a thread has nobody to catch it."""
    try:
        return _ask(wanted)
    except Exception as error:
        reason = getattr(error, "reason", None)
        said = in_one_line(reason if isinstance(reason, Exception) else error)
        return Refusal(f"the hub cannot be reached ({said})", CHECK_NETWORK)


def _ask(wanted: Repository) -> Refusal | None:
    from huggingface_hub import get_token

    token = get_token()
    revision = urllib.parse.quote(wanted.revision, safe="")
    request = urllib.request.Request(
        f"{_endpoint()}/{wanted.id}/resolve/{revision}/config.json",
        method="HEAD",
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )
    try:
        urllib.request.build_opener(_NoRedirect).open(request, timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        return None if error.code < 400 else _meaning(wanted, error.code, error.headers, bool(token))
    return None


def _meaning(wanted: Repository, status: int, headers: Message, has_token: bool) -> Refusal:
    """The hub says in a header what its status alone leaves open; mirrors may say nothing."""
    named = headers.get("X-Error-Code", "")
    accept = f"accept its terms on {wanted.page}"
    log_in = f"hf auth login, and {accept}"
    if status == 401 and "Invalid credentials" in headers.get("X-Error-Message", ""):
        return Refusal("the hub does not accept your token", "hf auth login with a new one")
    if named == "GatedRepo" or status == 403:
        return Refusal(f"{wanted.id} is gated", accept if has_token else log_in)
    if status == 401:  # the hub does not tell strangers which
        return Refusal(f"{wanted.id} is gated or does not exist", f"check the id; {log_in}")
    if named == "RevisionNotFound":
        return Refusal(
            f"{wanted.id} has no revision {wanted.revision}", f"its branches and tags are on {wanted.page}/tree/main"
        )
    if named == "RepoNotFound":
        return Refusal(f"{wanted.id} does not exist, or is private", f"check the id; {log_in}")
    if status == 404:
        return Refusal(
            f"{wanted} has no config.json on the hub",
            f"an adapter or a GGUF file: {wanted.command}, then name the folder or the file that it brought",
        )
    return Refusal(f"the hub answers with status {status}", "try again later, or name a folder or a preset")


def _endpoint() -> str:
    from huggingface_hub import constants

    return os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")
