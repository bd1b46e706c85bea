"""Which of torch's kernels ran, and what flash attention would be told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelRun:
    """One attention call, profiled.

    Attributes:
        layer: index.
        decode: a decode step (one query); else the prefill.
        queries, keys: lengths.
        ran: torch's kernels in order: "flash", "efficient", "cudnn", "math", "flex", "flash_attn"; "eager" where no
            fused attention ran.
        unrestricted: what torch runs for the very same call when every kernel is allowed, "" where nothing else is
            possible (eager).
        seconds: of the call as it was made, the least of a few repetitions.
        seconds_unrestricted: of the same call with every kernel allowed; None where `unrestricted` is "" or the same.
        seconds_without_mask: of the same call with is_causal instead of its mask, where the mask says no more than
            that; else None.
        without_mask: the kernel that torch runs with is_causal instead of the mask, whatever the mask says; "" where
            there is no mask, or none of torch's kernels ran.
    """

    layer: int
    decode: bool
    queries: int
    keys: int
    ran: str
    unrestricted: str
    seconds: float
    seconds_unrestricted: float | None
    seconds_without_mask: float | None
    without_mask: str = ""


@dataclass(frozen=True)
class KernelProfile:
    """Which kernels ran, layer by layer, in one prefill and one decode step.

    Attributes:
        asked: the attention implementation that the model is set to ("eager", "sdpa", "flash_attention_2" ...).
        device: where it ran.
        pass_name: for Location.passes of findings.
        runs: in order of execution; empty if profiling showed no attention call.
    """

    asked: str
    device: str
    pass_name: str
    runs: tuple[KernelRun, ...]


@dataclass(frozen=True)
class FlashWindow:
    """What this release would hand to flash attention for the model's window.

    Attributes:
        window: W of the model.
        shown: tokens that a query would see, itself included.
        in_use: the model is set to flash attention, or the route is declared.
    """

    window: int
    shown: int
    in_use: bool
