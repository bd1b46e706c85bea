"""What the key-value cache takes at a context: arithmetic on a configuration, see `oracle.kv_layers`. No torch.

A layer without a window keeps a key and a value of every token; a sliding layer needs W keys at a step, W-1 that it
kept and the new token's own; a layer that shares another's keeps none. Counted is what the last token of the context
needs, its own key and value included.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace

from gemma_doctor.evidence import ConfigFacts
from gemma_doctor.oracle import KvLayer, kv_layers

MEMORY = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*(?:([kmgt])(i?)b?|b)", re.ASCII | re.IGNORECASE)
UNITS_IN_WORDS = "B, kB, MB, GB, TB (1,000 each) or KiB, MiB, GiB, TiB (1,024 each)"


@dataclass(frozen=True)
class KindBudget:
    """Layers that are alike.

    Attributes:
        layer: what one of them keeps.
        layers: how many there are.
        keys: that one of them needs per row of the batch, at this context.
        bytes_per_token: of all of them, per row of the batch, while nothing is dropped.
        bytes: of all of them, for the whole batch.
        bytes_without_window: the same if the window were lost.
    """

    layer: KvLayer
    layers: int
    keys: int
    bytes_per_token: int
    bytes: int
    bytes_without_window: int


@dataclass(frozen=True)
class Budget:
    """The cache at one context.

    Attributes:
        context: tokens per row.
        batch: rows.
        dtype: torch dtype name of keys and values.
        kinds: in the order in which they come in the model.
    """

    context: int
    batch: int
    dtype: str
    kinds: tuple[KindBudget, ...]

    @property
    def bytes(self) -> int:
        return sum(kind.bytes for kind in self.kinds)

    @property
    def bytes_without_window(self) -> int:
        return sum(kind.bytes_without_window for kind in self.kinds)


def budget(facts: ConfigFacts, context: int, batch: int = 1, dtype: str = "bfloat16") -> Budget:
    """What the cache of a configuration takes.

    Args:
        facts: complete ones, see `oracle.kv_layers`.
        context: tokens per row, prompt and generated ones together.
        batch: rows.
        dtype: of keys and values, one of `oracle.ITEM_BYTES`.

    Raises:
        ValueError: the configuration does not say enough, or keeps something else than keys and values; or a number is
            below 1.
    """
    if context < 1 or batch < 1:
        raise ValueError("context and batch are at least 1")
    alike = Counter(kv_layers(facts))
    return Budget(
        context, batch, dtype, tuple(_kind(layer, count, context, batch, dtype) for layer, count in alike.items())
    )


def _kind(layer: KvLayer, count: int, context: int, batch: int, dtype: str) -> KindBudget:
    per_token, endless = count * layer.token_bytes(dtype), replace(layer, window=None)
    return KindBudget(
        layer=layer,
        layers=count,
        keys=layer.keys(context),
        bytes_per_token=per_token,
        bytes=batch * per_token * layer.keys(context),
        bytes_without_window=batch * per_token * endless.keys(context),
    )


def memory(text: str) -> int:
    """Bytes of "24GB", "22.5 GiB" or "512m"; G and GB are 10^9 bytes, Gi and GiB are 2^30.

    A number alone is refused: whoever writes 24 means no bytes.

    Raises:
        ValueError: with the end of a sentence, as in setting_values.py.
    """
    found = MEMORY.fullmatch(text.strip())
    if not found:
        raise ValueError(f"is {text!r}; it takes a number and a unit, such as 24GB: {UNITS_IN_WORDS}")
    number, prefix, binary = found.groups()
    size = float(number) * (1024 if binary else 1000) ** " kmgt".index((prefix or " ").lower())
    if not 1 <= size < 2**63:
        raise ValueError(f"is {text!r}; it takes 1 byte to 8 EiB")
    return int(size)
