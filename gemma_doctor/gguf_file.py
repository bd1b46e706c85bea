"""What a GGUF file says about itself: its keys and the sizes of its tensors. Standard library alone.

Read here and not with the `gguf` package, which the library reads it with too: what is held against the loaded model
should not come from what loaded it. (It also takes 25 s for a vocabulary of 262,144, and this a tenth of a second.)
The format: magic, version, counts of tensors and keys; keys as name, type and value; tensors as name, sizes, type and
offset; then their data.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isfinite, prod
from pathlib import Path
from typing import Any

from gemma_doctor.errors import DoctorError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
# By type number; 8 is a string, 9 an array.
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
# Longer arrays (vocabularies) are counted, not kept; longer texts (chat templates) are kept, and others cut.
LONGEST_ARRAY, LONGEST_TEXT = 10_000, 1_000_000
MOST_SIZES = 8
ALIGNMENT = 32  # bytes, where general.alignment names no other
LONGEST_NAME = 64  # of an architecture; it goes into names of keys and lines of errors
NOT_ONE = "name a GGUF file that is whole, or a model's folder"


@dataclass(frozen=True)
class Long:
    """An array of which only the length was kept."""

    length: int


@dataclass(frozen=True)
class Tensor:
    """One tensor as the file lists it.

    Attributes:
        name: of the file's own, "blk.0.attn_q.weight".
        numbers: how many it holds.
        kind: number of its type.
        begin: where its data begin, in bytes from the start of the file.
    """

    name: str
    numbers: int
    kind: int
    begin: int


@dataclass(frozen=True)
class GgufFile:
    """What is written in a GGUF file, but for the weights.

    Attributes:
        path: of the file.
        keys: key -> value; lists for arrays, `Long` for long ones.
        tensors: as they are listed.
    """

    path: Path
    keys: Mapping[str, Any]
    tensors: tuple[Tensor, ...] = ()

    @property
    def parameters(self) -> int:
        """How many numbers its tensors hold."""
        return sum(one.numbers for one in self.tensors)

    @property
    def architecture(self) -> str:
        """The first part of the keys that describe the model, "gemma3" of "gemma3.block_count"."""
        return str(self.keys["general.architecture"])

    def of_model(self, key: str) -> Any:
        """The value of a key of its architecture, None if it is not written."""
        return self.keys.get(f"{self.architecture}.{key}")

    def of_tokenizer(self, key: str) -> Any:
        """The value of "tokenizer.ggml.<key>", None if it is not written."""
        return self.keys.get(f"tokenizer.ggml.{key}")

    @property
    def vocabulary(self) -> int | None:
        """How many tokens it lists."""
        tokens = self.of_tokenizer("tokens")
        if isinstance(tokens, Long):
            return tokens.length
        return len(tokens) if isinstance(tokens, list) else None


def read(path: Path, whole: bool = True) -> GgufFile:
    """Read a file's keys and the list of its tensors.

    Args:
        path: of the file.
        whole: the tensors' data are expected behind it; False for the first part of a file.

    Raises:
        DoctorError: it cannot be read, is no GGUF file, or is cut short before its last tensor begins (a cut within
            that one is found when it is dequantised).
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parsed(path, _Reader(data), whole)
    except OSError as error:
        raise DoctorError(f"{path}: cannot be read ({error.strerror})", "name a file that can be read") from None
    except (_Damaged, struct.error, ValueError, OverflowError) as error:
        why = str(error) if isinstance(error, _Damaged) else "no GGUF file, or a damaged one"
        raise DoctorError(f"{path}: {why}", NOT_ONE) from None


class _Damaged(Exception):
    """The message says in what way."""


class _Reader:
    """Reads one thing after the other; never beyond the end."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data, self._at, self._end = data, 0, len(data)

    @property
    def at(self) -> int:
        return self._at

    @property
    def end(self) -> int:
        return self._end

    def number(self, form: str) -> Any:
        size = struct.calcsize("<" + form)
        self.skip(size)
        return struct.unpack_from("<" + form, self._data, self._at - size)[0]

    def skip(self, size: int) -> None:
        if size > self._end - self._at:
            raise _Damaged("the file is cut short")
        self._at += size

    def text(self) -> str:
        size = self.number("Q")
        self.skip(size)
        raw = self._data[self._at - size : self._at - size + min(size, LONGEST_TEXT)]
        return raw.decode("utf-8", errors="replace")

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.number(self._form(kind))
        of, length = self.number("I"), self.number("Q")
        if of == ARRAY:
            raise _Damaged("it holds an array of arrays, which no key is known to be")
        if length <= LONGEST_ARRAY:
            return [self.value(of) for _ in range(length)]
        if of == STRING:
            for _ in range(length):
                self.skip(self.number("Q"))
        else:
            self.skip(length * struct.calcsize(self._form(of)))
        return Long(length)

    def _form(self, kind: int) -> str:
        if kind not in NUMBERS:
            raise _Damaged(f"it has a key of unknown type {kind}")
        return NUMBERS[kind]


def _parsed(path: Path, reader: _Reader, whole: bool) -> GgufFile:
    if reader.end < len(MAGIC) or reader.number("4s") != MAGIC:
        raise _Damaged("not a GGUF file")
    version = reader.number("I")
    if version not in VERSIONS:
        raise _Damaged(f"GGUF version {version} is not known here (2 and 3 are, in little-endian order)")
    tensors, count = reader.number("Q"), reader.number("Q")
    keys: dict[str, Any] = {}
    for _ in range(count):
        name = reader.text()
        keys[name] = reader.value(reader.number("I"))
    architecture = keys.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise _Damaged("it names no architecture (general.architecture)")
    if len(architecture) > LONGEST_NAME or not architecture.isprintable():
        raise _Damaged(f"its architecture is no name: {architecture[:LONGEST_NAME]!r}")
    for name, value in keys.items():
        numbers = value if isinstance(value, list) else [value]
        if name.startswith(f"{architecture}.") and any(isinstance(x, float) and not isfinite(x) for x in numbers):
            raise _Damaged(f"a key is no finite number: {name[:LONGEST_NAME]!r}")
    listed = [_tensor(reader) for _ in range(tensors)]
    alignment = keys.get("general.alignment")
    alignment = alignment if type(alignment) is int and alignment > 0 else ALIGNMENT
    start = -(-reader.at // alignment) * alignment  # the data of tensors begin at a multiple of it
    found = tuple(replace(one, begin=start + one.begin) for one in listed)
    if whole and any(one.begin >= reader.end for one in found):
        raise _Damaged("the file is cut short")
    return GgufFile(path, keys, found)


def _tensor(reader: _Reader) -> Tensor:
    """The next in the list; its data's place is counted from where the data of all begin."""
    name, dimensions = reader.text(), reader.number("I")
    if dimensions > MOST_SIZES:
        raise _Damaged(f"a tensor has {dimensions} dimensions")
    numbers = prod(reader.number("Q") for _ in range(dimensions))
    return Tensor(name, numbers, reader.number("I"), reader.number("Q"))
