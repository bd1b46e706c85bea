"""The model as it stands: its modules, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemma_doctor.evidence.arrays import Floats
from gemma_doctor.evidence.configuration import ConfigFacts


@dataclass(frozen=True)
class LayerFacts:
    """One decoder layer of the examined model.

    Attributes:
        index: of the layer (`layer_idx` of its attention module).
        kind: as the model's own config names it.
        window_attributes: window-like attributes that the attention module itself carries (`sliding_window`, ...),
            None values included; empty when it carries none (some families pass the window at call time).
        head_dim, query_heads, kv_heads: sizes seen in the module.
        shares_kv_with: layer whose keys and values this one reuses, else None.
    """

    index: int
    kind: str
    window_attributes: Mapping[str, int | None]
    head_dim: int
    query_heads: int
    kv_heads: int
    shares_kv_with: int | None = None


@dataclass(frozen=True)
class NormFacts:
    """One normalisation module.

    Attributes:
        name: dotted module name.
        attribute: the epsilon that the module stores, None if it stores none under a known name.
        measured: the epsilon that acts: from the outputs for two inputs of alternating sign, one of RMS near
            sqrt(expected eps) and one large; None where it could not be measured.
        dtype: name of the dtype in which it was fed ("float32", "bfloat16").
        tolerance: relative error of `measured` that the dtype's rounding explains.
    """

    name: str
    attribute: float | None
    measured: float | None
    dtype: str
    tolerance: float


@dataclass(frozen=True)
class RotaryBuffer:
    """Inverse frequencies that live in a rotary module, radians per position, shape (rotary_dim / 2,).

    `kind` is the layer kind it serves, "" if it serves all.
    """

    name: str
    kind: str
    values: Floats
    dtype: str


@dataclass(frozen=True)
class ModelFacts:
    """The loaded configuration and the modules built from it.

    Attributes:
        loaded: configuration that the running model carries (class defaults filled in).
        layers, norms, rotary: as found in the modules of the text decoder.
        causal: False for bidirectional models.
    """

    loaded: ConfigFacts
    layers: tuple[LayerFacts, ...]
    norms: tuple[NormFacts, ...]
    rotary: tuple[RotaryBuffer, ...]
    causal: bool

    @property
    def shares_kv(self) -> bool:
        """Some layers reuse another's keys and values."""
        return any(layer.shares_kv_with is not None for layer in self.layers)

    def head_dim_of(self, kind: str) -> int:
        """Size of one head of the first layer of a kind ("": of any); 0 if there is none."""
        return next((layer.head_dim for layer in self.layers if kind in ("", layer.kind)), 0)


@dataclass(frozen=True)
class DeviceMemory:
    """Memory of the device that the model runs on, in bytes.

    Attributes:
        device: "cpu", "cuda:0" ...
        total: all of it.
        weights: what the examined model's weights take; None for a skeleton.
    """

    device: str
    total: int
    weights: int | None
