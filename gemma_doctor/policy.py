"""Window, cache offset and rows without a key, decided in one place, for people who write their own decoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gemma_doctor.oracle import causal, sliding

if TYPE_CHECKING:
    import torch


@dataclass
class GemmaSlidingWindowPolicy:
    """Who may read whom in a sliding layer, over a whole sequence or with a cache that holds only the last keys.

    Attributes:
        sliding_window: W; a query reads itself and the W-1 keys before it.
        fallback_to_global: a row that would read nothing becomes causal over all keys that there are.
        keep_nearest: so many keys are opened in a row that reads nothing even so: those nearest to its query, causal
            ones first. 0 leaves it empty.

    Raises:
        ValueError: sliding_window is below 1, or keep_nearest below 0.
    """

    sliding_window: int
    fallback_to_global: bool = False
    keep_nearest: int = 1
    _past: int | None = field(default=None, init=False, repr=False, compare=False)
    _total: int | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.sliding_window < 1:
            raise ValueError(f"sliding_window is {self.sliding_window}; a query reads at least itself")
        if self.keep_nearest < 0:
            raise ValueError(f"keep_nearest is {self.keep_nearest}; it is a number of keys")

    def mask(self, position_ids: torch.Tensor, key_length: int, past_key_length: int = 0) -> torch.Tensor:
        """What may not be read.

        Args:
            position_ids: of the queries, whole numbers; shape (b, q), (b, 1, q), or (b, h, q, 1) with all heads alike.
                They count the columns of the sequence, as the keys do: with pads on the left, combine this mask with a
                padding mask.
            key_length: number of key columns k. The last of them belongs to the last token that is fed: column c is
                absolute key past_key_length + q - key_length + c, so a cache that holds only the last keys is right.
            past_key_length: tokens fed before these queries, whether or not their keys are still held.

        Returns:
            True = blocked, shape (b, 1, q, key_length), on the device of `position_ids`.

        Raises:
            ValueError: a shape or dtype that is not one of these, key_length below 1, past_key_length below 0, or more
                keys than tokens were fed.
        """
        return ~self.allowed(position_ids, key_length, past_key_length)

    def allowed(self, position_ids: torch.Tensor, key_length: int, past_key_length: int = 0) -> torch.Tensor:
        """What may be read: `mask` inverted, as torch's scaled_dot_product_attention takes it."""
        import torch

        queries = _queries(position_ids)
        total = past_key_length + queries.shape[-1]
        if past_key_length < 0:
            raise ValueError(f"past_key_length is {past_key_length}; it counts tokens")
        if not 1 <= key_length <= total:
            raise ValueError(f"key_length is {key_length}; there are 1 to {total} keys after {total} tokens")
        self._total = total
        query = queries[:, None, :, None]
        key = torch.arange(total - key_length, total, device=position_ids.device)
        readable: torch.Tensor = sliding(self.sliding_window)(query, key)
        if self.fallback_to_global:
            readable = readable | (_empty(readable) & causal(query, key))
        # In an empty row all keys lie on one side of the query: those nearest to it are those nearest to its edge.
        edge = query.clamp(total - key_length, total - 1)
        return readable | (_empty(readable) & ((key - edge).abs() < self.keep_nearest))

    def on_decode_step(self, past: int) -> None:
        """Say, before a step, how many tokens the cache has seen; refused if that is not what was fed.

        What was fed is known from `mask` and `allowed`: after the last call, past_key_length + q tokens. Without a call
        since the last step, that step fed one token. The first length is taken as it is if nothing was fed before.

        Args:
            past: cumulative length, not the number of keys that are held.

        Raises:
            ValueError: `past` is another number, or has not grown. What was remembered stays.
        """
        if past < 0:
            raise ValueError(f"past is {past}; it counts tokens")
        fed = self._total
        if fed is None and self._past is not None:
            fed = self._past + 1
        if fed is not None and past != fed:
            raise ValueError(f"past is {past}; {fed} tokens were fed")
        if self._past is not None and past <= self._past:
            raise ValueError(f"past is {past}; it was {self._past} a step ago (reset() begins a new sequence)")
        self._past, self._total = past, None

    def reset(self) -> None:
        """Begin a new sequence."""
        self._past = self._total = None


def _queries(position_ids: torch.Tensor) -> torch.Tensor:
    """Shape (b, q)."""
    import torch

    if position_ids.is_floating_point() or position_ids.is_complex() or position_ids.dtype == torch.bool:
        raise ValueError(f"position_ids are {position_ids.dtype}; they must be whole numbers")
    shape = tuple(position_ids.shape)
    if 0 in shape:
        raise ValueError(f"position_ids have shape {shape}: no query")
    if len(shape) == 2:
        return position_ids
    if len(shape) == 3 and shape[1] == 1:
        return position_ids[:, 0]
    if len(shape) == 4 and shape[3] == 1 and bool((position_ids == position_ids[:, :1]).all()):
        return position_ids[:, 0, :, 0]
    raise ValueError(f"position_ids have shape {shape}; it must be (b, q), (b, 1, q) or (b, h, q, 1), all heads alike")


def _empty(readable: torch.Tensor) -> torch.Tensor:
    """Rows without a key, shape (b, 1, q, 1)."""
    return ~readable.any(dim=-1, keepdim=True)
