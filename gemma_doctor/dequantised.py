"""GGUF files as float32 models: what the library makes of one, kept in a cache folder by hash and release."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from gemma_doctor.disk import in_words, require_space
from gemma_doctor.errors import DoctorError, one_line
from gemma_doctor.gguf_file import GgufFile, Tensor
from gemma_doctor.settings import Progress

MODULES = ("gguf", "accelerate")
INSTALL = "pip install gguf accelerate"
PART = "part-"
KEPT = ("padding_side", "truncation_side", "clean_up_tokenization_spaces")
PROBE = "The capital of France is Paris."
STALE_SECONDS = 3600.0
BYTES = 4  # of a float32
GET_AGAIN = "a damaged file, or one that was converted wrongly: get it again"
ROTARY = ("rope_", "rot_embd")  # tensors that the library computes itself (rope_freqs, rope_factors_long)
LARGE_FILE = 2 * 10**9  # bytes; hashing it takes seconds
VARIABLE = "GEMMA_DOCTOR_CACHE"
LOCAL = {"trust_remote_code": False, "local_files_only": True}
# Measured with transformers 5.24 on two cores: 25 s for each of three readings of a vocabulary of 262,144, and 10 s
# for 268 million parameters.
SECONDS_A_TOKEN, SECONDS_A_PARAMETER = 3 * 25 / 262_144, 10 / 268e6


def lacking() -> str:
    """A package that is needed and not there, "" if all are. Cheap: nothing is imported."""
    return next((name for name in MODULES if importlib.util.find_spec(name) is None), "")


def cache_root() -> Path:
    """Where dequantised weights are kept: GEMMA_DOCTOR_CACHE, else the user's cache folder."""
    import platformdirs

    return Path(os.environ.get(VARIABLE) or platformdirs.user_cache_path("gemma-doctor"))


def target(name: str, digest: str) -> Path:
    """The folder for a file of this SHA-256 and this release of transformers.

    What a release makes of the file's tokenizer and configuration is part of what is examined.
    """
    from gemma_doctor import compat

    return cache_root() / f"{name}-{digest[:12]}-transformers-{compat.release()}"


def folder(file: GgufFile, progress: Progress) -> Path:
    """The folder with the float32 model of a GGUF file and its tokenizer, made at the first call.

    Raises:
        DoctorError: the release cannot read the file, or the cache cannot be written or has no room.
    """
    from gemma_doctor import compat

    if not compat.reads_gguf(file.architecture):
        since = compat.FIRST_GGUF_RELEASE.get(file.architecture)
        raise DoctorError(
            f"{file.path}: transformers {compat.release()} reads no GGUF files of {file.architecture[:40]!r}",
            f"pip install 'transformers>={since}'" if since else "--weights skeleton examines what its keys say",
        )
    if file.path.stat().st_size > LARGE_FILE:
        progress(f"hashing {file.path}")
    digest = sha256(file.path)
    place = target("gguf", digest)
    known = next((one for one in cache_root().glob(place.name.replace("gguf", "*", 1)) if one.is_dir()), None)
    if known is not None:  # under whatever name, so the packaged demo is not made twice
        return known
    _require_whole(file)
    size = BYTES * file.parameters
    require_space(place.parent, size, f"the float32 weights of {file.path}", VARIABLE)
    seconds = SECONDS_A_TOKEN * (file.vocabulary or 0) + SECONDS_A_PARAMETER * file.parameters
    progress(f"dequantising {file.path} into {place} (once, {in_words(size)}, about {max(seconds, 1):.0f} s)")
    refused = f"{file.path}: transformers {compat.release()} cannot load it"
    return made(place, lambda scratch: _alone(file.path, scratch), refused, file.tensors)


def _require_whole(file: GgufFile) -> None:
    """Every tensor ends within the file: the library's own words for one that does not are of arrays and shapes."""
    if lacking():
        return
    from gguf import GGML_QUANT_SIZES  # not written here once more: types are added from time to time

    sizes = {int(kind): size for kind, size in GGML_QUANT_SIZES.items()}
    end = file.path.stat().st_size
    for one in file.tensors:
        block, taken = sizes.get(one.kind, (1, 0))  # the library refuses types that it does not know
        if one.begin + one.numbers // block * taken > end:
            raise DoctorError(f"{file.path}: the file is cut short, within {one.name[:60]!r}", GET_AGAIN)


def _alone(path: Path, scratch: Path) -> Path:
    """A file under a folder without neighbours: the library also reads what lies beside one (tokenizer_config.json),
    which is no part of the hash that the result is kept under.
    """
    alone = scratch / "model.gguf"
    try:
        alone.symlink_to(path.resolve())
    except OSError:  # not every file system or user may
        shutil.copyfile(path, alone)
    return alone


def made(place: Path, source: Callable[[Path], Path], refused: str, listed: Collection[Tensor] = ()) -> Path:
    """Dequantise a file into `place`, which appears whole or not at all: it is made beside it, then renamed.

    Args:
        place: where it goes.
        source: gives the GGUF file, put alone into the folder that it is given.
        refused: what to say if the library cannot load it.
        listed: its tensors, to be held against what the library took; none for a file that is known.

    Raises:
        DoctorError: it cannot, the file lacks tensors of the model or holds others, or the cache cannot be written.
    """
    # safetensors reports a full disk with an exception of its own
    with one_line(f"{place}: cannot be written", f"set {VARIABLE} to a folder with more room"):
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(place.parent)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=PART, ignore_cleanup_errors=True) as scratch:
            new = Path(scratch) / "made"
            _dequantise(source(Path(scratch)), new, refused, listed)
            _publish(new, place)
    return place


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _dequantise(gguf: Path, new: Path, refused: str, listed: Collection[Tensor]) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from gemma_doctor import compat

    with one_line(refused, "pip install -U transformers gguf; a damaged file: get it again"):
        arguments = {**LOCAL, **compat.dequantising(), "output_loading_info": True}
        model, info = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, **arguments)
        missing = sorted(info["missing_keys"])
        if missing:  # the library fills them with random numbers and goes on
            said = f"the file lacks {len(missing)} tensors of the model, {missing[0]} among them"
            raise DoctorError(f"{refused}: {said}", GET_AGAIN)
        surplus = _left_unread(model, listed)
        if surplus > 0:
            said = f"{surplus:,} numbers of the file's tensors have no place in the model that its keys describe"
            raise DoctorError(f"{refused}: {said}", GET_AGAIN)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, **LOCAL)
    model.save_pretrained(new)
    _save_as_it_is(tokenizer, new)


def _left_unread(model: Any, listed: Collection[Tensor]) -> int:
    """How many numbers of a file the library dropped: it does so without a word (layers beyond block_count, norms of
    another architecture). Converting splits, joins and transposes tensors, and keeps their numbers.
    """
    head = model.get_output_embeddings()
    tied = head is not None and head.weight is model.get_input_embeddings().weight
    skipped = {"output.weight"} if tied else set()
    written = sum(one.numbers for one in listed if one.name not in skipped and not any(x in one.name for x in ROTARY))
    taken: dict[int, int] = {one.data_ptr(): one.numel() for one in model.state_dict().values()}  # tied ones once
    return written - sum(taken.values())


def _save_as_it_is(tokenizer: Any, new: Path) -> None:
    """Save a tokenizer so that it comes back as the library read it from the file.

    5.12 builds a Gemma tokenizer anew when it is loaded, which shatters words further than reading the file did
    (measured: "The capital of France is" in 24 pieces, not 10). The class that builds nothing keeps it as it was.
    """
    from transformers import AutoTokenizer

    tokenizer.save_pretrained(new)
    settings = new / "tokenizer_config.json"
    again = AutoTokenizer.from_pretrained(new, **LOCAL)
    if again(PROBE).input_ids != tokenizer(PROBE).input_ids and (new / "tokenizer.json").is_file():
        written = json.loads(settings.read_text(encoding="utf-8"))
        written |= {name: getattr(tokenizer, name) for name in KEPT}  # some are the class's own defaults
        settings.write_text(json.dumps({**written, "tokenizer_class": "PreTrainedTokenizerFast"}), encoding="utf-8")


def _publish(new: Path, place: Path) -> None:
    try:
        new.rename(place)
    except OSError:
        if not place.is_dir():  # another run was first
            raise


def _remove_stale(root: Path) -> None:
    """Remove what killed runs left behind. Younger folders may belong to a run that is still at work."""
    for left in root.glob(f"{PART}*"):
        if time.time() - left.stat().st_mtime > STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
