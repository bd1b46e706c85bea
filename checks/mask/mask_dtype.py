"""Each mask has a dtype and values that its kernel reads as "may" and "may not".

What it proves
    For every mask that reached the attention function: its dtype fits that function (eager adds it to the scores, so
    it must be floating, of the query's dtype, holding only 0 and values that no score can outweigh; scaled dot product
    attention takes bool or the query's dtype; flash attention a 2-D padding mask; flex attention a BlockMask).

Why it matters
    A bool mask that is added to scores adds 1 to the allowed ones and 0 to the forbidden ones: every key is read and
    nothing raises. An integer mask does the same. A blocking value that is merely large and negative in one dtype can
    overflow or vanish in another.

How to fix
    Build the mask for the implementation in use (let the library do it), or convert: bool True = may attend for scaled
    dot product attention; 0 and torch.finfo(dtype).min for addition.

Known limits
    Where the library passes no mask there is nothing to look at; whether its kernel is causal then is the business of
    `mask-shape`. Masks of kernels that are not known here are counted and not judged.

References
    torch.nn.functional.scaled_dot_product_attention: bool True takes part in attention (the reverse of
    torch.nn.MultiheadAttention).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gemma_doctor.check import CouldNotLook, check, nothing_there
from gemma_doctor.evidence import KernelCall, MaskFacts, Trace
from gemma_doctor.finding import Examined, Finding, Severity, Sighting


@check()
def mask_dtype(trace: Trace) -> Iterator[Finding | Examined]:
    """Masks have the dtype and the values that their kernel expects."""
    wrong: dict[str, Sighting] = {}
    judged: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for one, step, total, call, _ in trace.attempted_calls():  # kernels that do not take a mask raise
        if call.mask is None:
            continue
        kind = f"{call.mask.dtype or call.mask.form} for {call.kernel}"
        if not _can_judge(call.kernel, call.mask):
            unknown[kind] += 1
            continue
        judged[kind] += 1
        fault = _fault(call, call.mask)
        if fault:
            title, observed, expected = fault
            boundary = f"first in {one.place(step, total)}, layer {call.layer}"
            wrong.setdefault(title, Sighting(observed, expected, boundary)).at(one.name, call.layer)
    if not judged and not unknown:
        raise nothing_there(trace, "every mask is None: causality is left to the kernel")
    if not judged:
        raise CouldNotLook(f"what these kernels read is not known: {_listed(unknown)}")
    for title, seen in wrong.items():
        do = "build the mask for the attention implementation in use, or leave it to the library"
        yield seen.finding(title, Severity.ERROR, do)
    rest = f"; not judged: {_listed(unknown)}" if unknown else ""
    yield Examined(judged.total(), _listed(judged) + rest)


def _listed(kinds: Counter[str]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())


def _can_judge(kernel: str, mask: MaskFacts) -> bool:
    if kernel in ("eager", "sdpa"):
        return mask.form == "dense"  # any other shape is mask-shape's business
    return kernel.startswith("flash") or kernel == "flex_attention"


def _fault(call: KernelCall, mask: MaskFacts) -> tuple[str, str, str] | None:
    """(title, observed, expected), or None."""
    if call.kernel.startswith("flash"):
        return _form(mask, "padding", "a 2-D padding mask")
    if call.kernel == "flex_attention":
        return _form(mask, "block", "a BlockMask")
    if mask.nans:
        return "the mask holds NaN", f"{mask.nans} NaN in a {mask.dtype} mask", "no NaN"
    if mask.dtype == call.query_dtype:
        if call.kernel == "eager" and mask.between:
            observed = f"{mask.between} other values, up to {mask.highest:g}"
            return "the mask holds values that neither allow nor block", observed, "0, or at most finfo.min / 2"
        return None
    if call.kernel == "sdpa":
        if mask.dtype == "bool":
            return None
        return "the mask has a dtype that the kernel misreads", mask.dtype, f"bool or {call.query_dtype}"
    if mask.dtype == "bool":
        observed = "bool: adds 1 where a key may be read, 0 where not"
        return "a bool mask is added to the scores", observed, call.query_dtype
    return "the mask has another dtype than the query", mask.dtype, call.query_dtype


def _form(mask: MaskFacts, form: str, words: str) -> tuple[str, str, str] | None:
    if mask.form == form:
        return None
    return "the kernel cannot use a mask of this form", f"{mask.form} mask {mask.dtype} {list(mask.shape)}", words
