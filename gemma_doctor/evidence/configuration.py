"""The configuration: as published, as expected, as loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gemma_doctor.finding import Severity


@dataclass(frozen=True)
class Claim:
    """A value and the key under which it was written, e.g. ("text_config.sliding_window", 512)."""

    key: str
    value: Any


@dataclass(frozen=True)
class RopeClaim:
    """Rotary parameters as written for one layer kind.

    Attributes:
        key: where they were written, e.g. "rope_parameters.sliding_attention" or "rope_theta".
        theta: base wavelength, None when the text names none.
        rope_type: "default", "linear", "dynamic", "yarn", "llama3", "longrope", "proportional"; "" when the text
            names none (a class default decides).
        parameters: everything else that was written (factor, partial_rotary_factor, original_max_position_embeddings,
            low_freq_factor, beta_fast, attention_factor, truncate, mscale ...), numbers, strings and lists.
    """

    key: str
    theta: float | None
    rope_type: str = "default"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        """ "theta 1,000,000, linear (factor 8.0)"."""
        scaling = f", {self.rope_type}" if self.rope_type not in ("", "default") else ""
        terms = [f"{key} {value}" for key, value in self.parameters.items() if isinstance(value, (int, float, str))]
        return f"theta {theta_in_words(self.theta)}{scaling}" + (f" ({', '.join(terms)})" if terms else "")


def theta_in_words(theta: float | None) -> str:
    return "not named" if theta is None else f"{theta:,.6g}" if theta % 1 else f"{theta:,.0f}"


@dataclass(frozen=True)
class ConfigFacts:
    """One spelling of a text decoder's configuration (the published file, or the loaded object), read the same way.

    A field is None when that spelling says nothing: class defaults are filled in only by the loading library.

    Attributes:
        origin: who says so, for messages: "published config.json", "loaded config", "preset gemma-3-270m".
        family: model_type of the text decoder.
        window: the sliding window W, in tokens, the query included; Claim with value None if written as null.
        window_switch: a key that turns the window on or off (`use_sliding_window`), if written.
        layer_kinds: kind of every layer as written or as the written pattern implies, else None.
        pattern: the key that decided `layer_kinds`.
        rope: by layer kind; the key "" stands for "every layer" (flat spelling).
        eps: epsilon of the norms.
        head_dim, global_head_dim: size of one head on sliding (or all) and on full layers.
        raw: the text decoder's own mapping, as it was.
        prefix: of its keys: "text_config." if it is nested in another mapping, else "".
    """

    origin: str
    family: str
    window: Claim | None
    window_switch: Claim | None
    layer_kinds: tuple[str, ...] | None
    pattern: Claim | None
    rope: Mapping[str, RopeClaim]
    eps: Claim | None
    layers: int | None
    hidden_size: int | None
    heads: int | None
    kv_heads: int | None
    head_dim: int | None
    global_head_dim: int | None
    max_positions: int | None
    causal: bool
    raw: Mapping[str, Any]
    prefix: str = ""

    def written(self, *keys: str) -> tuple[str, ...]:
        """Those of the keys that stand in the text decoder's mapping, with their place in the file."""
        return tuple(self.prefix + key for key in keys if key in self.raw)

    @property
    def window_keys(self) -> tuple[str, ...]:
        """Where the window in force is written: the switch, if that turns it off, and the window."""
        decisive = (self.window_switch if self.switched_off else None, self.window)
        return tuple(claim.key for claim in decisive if claim is not None)

    def rope_of(self, kind: str) -> RopeClaim | None:
        """Rotary parameters of layers of a kind: their own, else those of every layer; None if none are written."""
        return self.rope.get(kind) or self.rope.get("")

    @property
    def switched_off(self) -> str:
        """What turns the window off, as "use_sliding_window=false"; "" if nothing does."""
        switch = self.window_switch
        return f"{switch.key}=false" if switch is not None and switch.value is False else ""

    @property
    def window_in_force(self) -> Any:
        """The window that this spelling asks for: None if it names none, writes null, or switches it off."""
        return None if self.window is None or self.switched_off else self.window.value


@dataclass(frozen=True)
class Expectation:
    """A configuration to hold the subject against.

    Attributes:
        facts: the expected spelling; None-valued fields expect nothing.
        binding: True for `expect:` in the run file (a mismatch is an error); False for the preset of the same shape
            (a mismatch is a warning: a fine-tune may differ on purpose).
    """

    facts: ConfigFacts
    binding: bool

    @property
    def severity(self) -> Severity:
        """Of a mismatch."""
        return Severity.ERROR if self.binding else Severity.WARNING


@dataclass(frozen=True)
class Config:
    """The subject's configuration as published, and what it is expected to be (evidence of `check --static`).

    Attributes:
        base: the preset that the subject is or comes from, whatever its positions: the one that it names, or else that
            of its family, size and depth. None if there is none.
    """

    published: ConfigFacts
    expectations: tuple[Expectation, ...] = ()
    base: ConfigFacts | None = None
