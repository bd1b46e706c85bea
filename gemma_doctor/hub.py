"""Hub repositories: the local cache first, then one short probe, and no download that was not asked for."""

from __future__ import annotations

import os
import threading
import urllib.error
import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path

from gemma_doctor.errors import DoctorError, one_line
from gemma_doctor.settings import Progress

PROBE_SECONDS = 3.0
SMALL_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
WEIGHT_FILES = ("*.safetensors",)
SKELETON_WILL_DO = "--weights skeleton examines its configuration"
REFUSALS = {
    401: "{0} is gated or does not exist",  # the hub does not tell strangers which
    403: "{0} is gated",
    404: "{0} has no config.json on the hub",
}


def cached(repository: str) -> Path | None:
    """The snapshot folder of a repository's branch `main` in the local hub cache, None if it holds no config.json."""
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(repository, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def unreachable_because(repository: str) -> str:
    """Ask the hub once for a repository's config.json. Empty if it may be had, else why not, in words.

    The library's own loaders retry for half a minute where there is no network. A name server that does not answer is
    not bound by a socket's time-out, so the question is asked in a thread that is left behind.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "the hub is switched off (HF_HUB_OFFLINE)"
    answer = [f"the hub did not answer within {PROBE_SECONDS:.0f} s"]
    asking = threading.Thread(target=lambda: answer.append(_ask(repository)), daemon=True)
    asking.start()
    asking.join(PROBE_SECONDS + 0.5)
    return answer[-1]


def fetch_config(repository: str) -> Path:
    """Bring config.json into the local hub cache. Returns the snapshot folder.

    Raises:
        DoctorError: the hub refuses, or the connection breaks.
    """
    from huggingface_hub import hf_hub_download

    with _download(repository):
        return Path(hf_hub_download(repository, "config.json", endpoint=_endpoint())).parent


def fetch_weights(repository: str, progress: Progress) -> Path:
    """Bring safetensors weights and the tokenizer into the local hub cache, after saying how much that is.

    Raises:
        DoctorError: there are no safetensors files, the hub refuses, or the connection breaks.
    """
    from huggingface_hub import HfApi, snapshot_download

    problem = unreachable_because(repository)
    if problem:
        raise DoctorError(f"{repository}: its weights are not on this machine, and {problem}", SKELETON_WILL_DO)

    with _download(repository):
        files = HfApi(endpoint=_endpoint()).model_info(repository, files_metadata=True).siblings or []
        size = sum(one.size or 0 for one in files if one.rfilename.endswith(".safetensors"))
        if not size:
            raise DoctorError(
                f"{repository}: publishes no safetensors weights, and pickled ones are never read",
                SKELETON_WILL_DO,
            )
        progress(f"downloading {size / 1e9:.1f} GB of weights from {repository}")
        patterns = [*SMALL_FILES, *WEIGHT_FILES]
        return Path(snapshot_download(repository, allow_patterns=patterns, endpoint=_endpoint()))


def _download(repository: str) -> AbstractContextManager[None]:
    """The hub's client passes on whatever its HTTP library raises."""
    return one_line(f"{repository}: the download failed", "try again later")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is answer enough; following it would hand the token to another host."""

    def redirect_request(self, *_: object) -> None:
        return None


def _ask(repository: str) -> str:
    from huggingface_hub import get_token

    token = get_token()
    request = urllib.request.Request(
        f"{_endpoint()}/{repository}/resolve/main/config.json",
        method="HEAD",
        headers={"Authorization": f"Bearer {token}"} if token else {},
    )
    try:
        urllib.request.build_opener(_NoRedirect).open(request, timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        if error.code < 400:
            return ""
        return REFUSALS.get(error.code, "the hub answers with status {code}").format(repository, code=error.code)
    except (OSError, ValueError) as error:
        return f"the hub cannot be reached ({getattr(error, 'reason', error)})"
    return ""


def _endpoint() -> str:
    from huggingface_hub import constants

    return os.environ.get("HF_ENDPOINT", constants.ENDPOINT).rstrip("/")
