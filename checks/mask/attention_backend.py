"""The kernel that really ran is the one that was asked for, and no slower one than torch would take.

What it proves
    Of one prefill that crosses the window and one decode step: which kernel the attention of each layer really reached
    (torch's flash, memory-efficient, cuDNN or math kernel, flex, the flash_attn package, or matrix products by hand:
    eager); whether torch takes another one for the very same call when every kernel is allowed; and that all layers of
    one kind run the same. Where the mask that is passed makes torch take another kernel, that is said.

Why it matters
    The implementation that a model is set to is only a wish. The math kernel, like eager, holds a table of queries x
    keys for every head: 64 GB a layer for 16 heads at 32,768 tokens in float32, where a fused kernel holds none.

How to fix
    Look in the process for torch.backends.cuda.enable_flash_sdp(False) and its kin, torch.nn.attention.sdpa_kernel, and
    code that sets another attention implementation after loading.

Known limits
    Measured times (as it ran, with every kernel allowed, without a mask that says no more than is_causal) differ from
    run to run: they stand under `timing` in the JSON report, never in a finding. The kernels of flex and of functions
    that reach theirs past torch's dispatcher are not seen; the function's name is given instead. Where torch has no
    fused kernel for a call, that is named and no fault.

References
    torch.nn.functional.scaled_dot_product_attention and torch.nn.attention.sdpa_kernel, in torch's documentation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gemma_doctor.check import CouldNotLook, check
from gemma_doctor.evidence import KernelProfile, KernelRun, ModelFacts
from gemma_doctor.finding import Examined, Finding, Severity, Sighting, counted

FORCED = "the math kernel runs where torch would take a fused one"
OTHER = "another attention implementation runs than the model is set to"
# These promise a fused kernel. What other code registered under a name of its own may compute as it likes.
FUSED = ("sdpa", "flash_attention", "flex_attention")
UNEQUAL = "layers of one kind run different kernels"
HOW = {
    FORCED: "allow the fused kernels again: torch.backends.cuda.enable_flash_sdp(True) and its kin",
    OTHER: "look for code that sets another implementation after loading, or replaces an attention function",
    UNEQUAL: "look for code that changes single layers: their dtype, device or attention function",
}


@check()
def attention_backend(profile: KernelProfile, facts: ModelFacts) -> Iterator[Finding | Examined]:
    """The attention kernel that ran is the one asked for, and none that torch would not choose itself."""
    if not profile.runs:
        raise CouldNotLook("profiling showed no attention call")
    kinds = {layer.index: layer.kind for layer in facts.layers}
    alike: dict[tuple[object, ...], Counter[str]] = {}
    for run in profile.runs:
        alike.setdefault(_same(run, kinds), Counter())[run.ran] += 1
    seen: dict[str, Sighting] = {}
    for run in profile.runs:
        for title, expected in _faults(profile.asked, run, alike[_same(run, kinds)]):
            observed = f"{run.ran}, for {run.queries:,} x {run.keys:,} scores a head"
            boundary = f"first in pass '{profile.pass_name}', {_phase(run)}, layer {run.layer}"
            seen.setdefault(title, Sighting(observed, expected, boundary)).at(profile.pass_name, run.layer)
    for title, sighting in seen.items():
        yield sighting.finding(title, Severity.WARNING, HOW[title])
    yield Examined(len(profile.runs), _sentence(profile))


def _same(run: KernelRun, kinds: dict[int, str]) -> tuple[object, ...]:
    """What calls must have in common to be compared: one kind has one mask and one head size."""
    return kinds.get(run.layer), run.decode, run.queries, run.keys


def _faults(asked: str, run: KernelRun, alike: Counter[str]) -> Iterator[tuple[str, str]]:
    """Title, and what is expected; the first fault explains the others."""
    ((usual, times),) = alike.most_common(1)
    by_hand = run.ran == "eager"
    if (asked == "eager" and not by_hand) or (asked.startswith(FUSED) and by_hand):
        yield OTHER, f"{asked}, as the model is set to"
    elif run.ran == "math" and run.unrestricted not in ("", "math"):
        yield FORCED, f"{run.unrestricted}: torch takes it for this very call when every kernel is allowed"
    elif run.ran != usual:
        yield UNEQUAL, f"{usual}, as in {counted(times, 'layer')} of the same kind"


def _phase(run: KernelRun) -> str:
    return "decode step" if run.decode else "prefill"


def _sentence(profile: KernelProfile) -> str:
    """E.g. "sdpa on cpu: flash in 6 layers, prefill and decode step; the same with every kernel allowed"."""
    phases: dict[str, list[str]] = {}
    for phase in dict.fromkeys(map(_phase, profile.runs)):
        layers = Counter(run.ran for run in profile.runs if _phase(run) == phase)
        kernels = ", ".join(f"{kernel} in {counted(number, 'layer')}" for kernel, number in layers.items())
        phases.setdefault(kernels, []).append(phase)
    said = "; ".join(f"{kernels}, {' and '.join(names)}" for kernels, names in phases.items())
    chosen = {(run.ran, run.unrestricted) for run in profile.runs if run.unrestricted}
    others = ", ".join(f"{other} for {ran}" for ran, other in sorted(chosen) if ran != other)
    if chosen:
        said += f"; with every kernel allowed {others}" if others else "; the same with every kernel allowed"
    forced = Counter((run.without_mask, run.ran) for run in profile.runs if run.without_mask not in ("", run.ran))
    for (unmasked, ran), calls in forced.items():
        said += (
            f"; in {counted(calls, 'call')} the mask that is passed takes {ran} where {unmasked} would run without it"
        )
    return f"{profile.asked} on {profile.device}: {said}"
