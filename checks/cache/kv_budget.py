"""The cache takes the memory that its keys and values need, and no more.

What it proves
    After every forward, the keys and values that each layer of the cache holds take 2 x key-value heads x head_dim x
    item size bytes per key and row, with the sizes of that layer's module and the dtype in which it computes. The
    sentence also says what the whole model takes at its full context, in the dtype of the run; with real weights, a
    note says when that does not fit in the device's memory beside the weights.

Why it matters
    A cache in float64, or one that stores a copy of every key for each query head, gives the right output and runs out
    of memory at a half or an eighth of the context that was planned for.

How to fix
    Cast keys and values to the model's dtype before they are stored, and repeat them for grouped queries after they
    are read. `gemma-doctor plan` computes contexts, batches and dtypes.

Known limits
    How many keys a layer holds is past-key-length's question, and memory that is allocated but not used is
    cache-growth's. Latent attention (DeepSeek's) is not evaluated: what it caches depends on the release. The full
    context of a skeleton is computed from the published file, where that names all that decides.

References
    Grouped-query attention, arXiv:2305.13245, section 2; the window, arXiv:2310.06825, section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gemma_doctor.check import CouldNotLook, check, nothing_there
from gemma_doctor.evidence import FULL, SLIDING, Config, DeviceMemory, LayerFacts, ModelFacts, Trace
from gemma_doctor.finding import Examined, Finding, Severity, Sighting
from gemma_doctor.oracle import ITEM_BYTES, KvLayer, agree, kv_layers, latent, size_in_words

MORE = "the cache takes more memory than its keys and values need"
TOO_LARGE = "the cache of the full context does not fit in memory"


@check()
def kv_budget(
    trace: Trace, facts: ModelFacts, config: Config, memory: DeviceMemory | None
) -> Iterator[Finding | Examined]:
    """The cache takes the bytes that its keys and values need."""
    if latent(facts.loaded):
        raise CouldNotLook(f"latent attention ({latent(facts.loaded)}): what its cache takes depends on the release")
    held = list(_held(trace, facts))
    if not held:
        raise nothing_there(trace, "no pass used a cache whose size could be read")
    too_much = [one for one in held if one.factor > 1 and not agree(one.factor, 1)]
    if too_much:
        yield _more(too_much)
    sentence = _per_key(held)
    whole = _full_context(facts, config, memory, held[0].dtype)
    if whole is not None:
        context, size = whole
        room = f" of {size_in_words(memory.total)} ({memory.device})" if memory else ""
        sentence += f"; at {context:,} tokens {size_in_words(size)} in {held[0].dtype}{room}"
        if memory is not None and memory.weights is not None and size + memory.weights > memory.total:
            yield _too_large(context, size, memory, memory.weights)
    yield Examined(len(held), sentence)


@dataclass(frozen=True)
class _Held:
    """What one layer of the cache held after one forward: bytes per key and row, needed and taken."""

    layer: LayerFacts
    dtype: str
    need: int
    taken: float
    pass_name: str
    place: str

    @property
    def factor(self) -> float:
        return self.taken / self.need


def _held(trace: Trace, facts: ModelFacts) -> Iterator[_Held]:
    layers = {layer.index: layer for layer in facts.layers}
    for one, step, forward in trace.forwards():
        dtypes = {call.layer: call.query_dtype for call in forward.calls}
        for cached in forward.cache:
            layer, dtype = layers.get(cached.layer), dtypes.get(cached.layer, "")
            if layer is None or dtype not in ITEM_BYTES or not cached.stored or not cached.bytes:
                continue
            need = KvLayer(layer.kind, None, layer.kv_heads, layer.head_dim).token_bytes(dtype)
            taken = cached.bytes / (len(forward.real) * cached.stored)
            yield _Held(layer, dtype, need, taken, one.name, one.place(step, forward.total))


def _per_key(held: Sequence[_Held]) -> str:
    needed = " and ".join(f"{need:,}" for need in sorted({one.need for one in held}))
    odd = sorted({f"{one.factor:.3g}" for one in held if not agree(one.factor, 1)})
    found = f", in places {' and '.join(odd)} x of it" if odd else " as computed"
    return f"{len(held):,} cache layers: {needed} bytes per key{found}"


def _more(held: Sequence[_Held]) -> Finding:
    first = held[0]
    layer, need = first.layer, f"2 x {first.layer.kv_heads} x {first.layer.head_dim} numbers"
    explained = [name for name, size in ITEM_BYTES.items() if agree(first.factor, size / ITEM_BYTES[first.dtype])]
    if agree(first.factor, layer.query_heads / layer.kv_heads):
        explained.append("one copy per query head")
    like = f", as {' or '.join(explained)} would" if explained else ""
    sighting = Sighting(
        f"{first.taken:,.0f} bytes per key and row in layer {layer.index}, {first.factor:.3g} x what is needed{like}",
        f"{first.need:,} bytes: {need} in {first.dtype}",
        f"first in {first.place}",
    )
    for one in held:
        sighting.at(one.pass_name, one.layer.index)
    do = "store keys and values once per key-value head, in the dtype of the model"
    return sighting.finding(MORE, Severity.WARNING, do)


def _full_context(facts: ModelFacts, config: Config, memory: DeviceMemory | None, dtype: str) -> tuple[int, int] | None:
    """As many tokens as the model has positions, and what their cache takes in one row; None if that is not known.

    A skeleton's own layers say nothing about the model that it stands for.
    """
    context = config.published.max_positions or facts.loaded.max_positions
    if memory is not None and memory.weights is not None:
        layers = tuple(_need(layer, facts) for layer in facts.layers)
    else:
        try:
            layers = kv_layers(config.published)
        except ValueError:
            return None
    if not context or any(layer.kind not in (SLIDING, FULL) for layer in layers):
        return None
    return context, sum(layer.token_bytes(dtype) * layer.keys(context) for layer in layers)


def _need(layer: LayerFacts, facts: ModelFacts) -> KvLayer:
    window = facts.loaded.window_in_force if layer.kind == SLIDING else None
    return KvLayer(layer.kind, window, layer.kv_heads, layer.head_dim, layer.shares_kv_with is not None)


def _too_large(context: int, size: int, memory: DeviceMemory, weights: int) -> Finding:
    return Finding(
        title=TOO_LARGE,
        severity=Severity.NOTE,
        observed=f"{size_in_words(size)} for {context:,} tokens, beside {size_in_words(weights)} of weights",
        expected=f"at most {size_in_words(memory.total)} together, on {memory.device}",
        do="gemma-doctor plan computes what a shorter context or a smaller dtype takes",
    )
