"""Window, cache offset and rows without a key, decided in one place, for people who write their own decoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gemma_doctor.oracle import causal, sliding

if TYPE_CHECKING:
    import torch

MOST = 2**62  # sums and differences of two such numbers are right in int64
INTEGERS = ("uint8", "int8", "int16", "int32", "int64")


@dataclass
class GemmaSlidingWindowPolicy:
    """Who may read whom in a sliding layer, over a whole sequence or with a cache that holds only the last keys.

    Attributes:
        sliding_window: W; a query reads itself and the W-1 keys before it.
        fallback_to_global: a row that would read nothing becomes causal over all keys that there are.
        keep_nearest: so many keys are opened in a row that reads nothing even so: those nearest to its query, causal
            ones first. 0 leaves it empty.

    Raises:
        ValueError: sliding_window is no int from 1 to 2**62, or keep_nearest none from 0.
    """

    sliding_window: int
    fallback_to_global: bool = False
    keep_nearest: int = 1
    _past: int | None = field(default=None, init=False, repr=False, compare=False)
    _total: int | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _whole("sliding_window", self.sliding_window, least=1)  # a query reads at least itself
        _whole("keep_nearest", self.keep_nearest)

    def mask(self, position_ids: torch.Tensor, key_length: int, past_key_length: int = 0) -> torch.Tensor:
        """What may not be read.

        Args:
            position_ids: of the queries, a torch tensor of integers (torch.as_tensor makes one of an array or a list);
                shape (b, q), (b, 1, q), or (b, h, q, 1) with all heads alike. They count the columns of the sequence,
                as the keys do: with pads on the left, combine this mask with a padding mask.
            key_length: number of key columns k. The last of them belongs to the last token that is fed: column c is
                absolute key past_key_length + q - key_length + c, so a cache that holds only the last keys is right.
            past_key_length: tokens fed before these queries, whether or not their keys are still held. Once
                `on_decode_step` has counted a sequence, it is the length that was said there, or up to what was fed
                since. Where nothing is counted, or after `reset`, calls may speak of several sequences.

        Returns:
            True = blocked, shape (b, 1, q, key_length), on the device of `position_ids`.

        Raises:
            ValueError: a type, shape or dtype that is not one of these, key_length below 1, past_key_length below 0 or
                not what was counted, or more keys than tokens were fed.
        """
        return ~self.allowed(position_ids, key_length, past_key_length)

    def allowed(self, position_ids: torch.Tensor, key_length: int, past_key_length: int = 0) -> torch.Tensor:
        """What may be read: `mask` inverted, as torch's scaled_dot_product_attention takes it."""
        import torch

        queries = _queries(position_ids)
        _whole("past_key_length", past_key_length)
        _whole("key_length", key_length, least=1)
        if self._past is not None:
            fed = self._past if self._total is None else self._total
            if not self._past <= past_key_length <= fed:
                known = f"{self._past}" if fed == self._past else f"{self._past} to {fed}"
                raise ValueError(f"past_key_length is {past_key_length}, not {known} (reset() begins a new sequence)")
        total = past_key_length + queries.shape[-1]
        if key_length > total:
            raise ValueError(f"key_length is {key_length}; past and queries together are {total}")
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
            ValueError: `past` is no int from 0 to 2**62, or another number. What was remembered stays.
        """
        _whole("past", past)
        fed = self._total
        if fed is None and self._past is not None:
            fed = self._past + 1
        if fed is not None and past != fed:
            raise ValueError(f"past is {past}; {fed} tokens were fed (reset() begins a new sequence)")
        self._past, self._total = past, None

    def reset(self) -> None:
        """Begin a new sequence."""
        self._past = self._total = None


def _whole(name: str, value: object, least: int = 0) -> None:
    """Refuse what is no int from `least` to MOST."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
        raise ValueError(f"{name} is {value!r}; it must be an int from {least} to 2**62")


def _queries(position_ids: torch.Tensor) -> torch.Tensor:
    """Shape (b, q), int64: in the tensor's own dtype a window or a past could overflow."""
    import torch

    if not isinstance(position_ids, torch.Tensor):
        raise ValueError(f"position_ids are a {type(position_ids).__name__}; torch.as_tensor() makes a tensor of it")
    if position_ids.dtype not in [getattr(torch, name) for name in INTEGERS]:
        raise ValueError(f"position_ids are {position_ids.dtype}; they must be one of {', '.join(INTEGERS)}")
    position_ids = position_ids.to(torch.int64)
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
