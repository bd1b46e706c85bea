"""Flash attention is told a window that shows as many tokens as the model's own.

What it proves
    What this release would hand to flash attention for the model's window W: the count of keys on either side of the
    query, itself left out, is W-1. It is read at the level of the argument, on any machine.

Why it matters
    With W instead of W-1 every query sees one token more than eager attention and sdpa show it, and more than the
    model was trained with. Nothing fails: logits are a little off, and differ between backends.

How to fix
    Use another attn_implementation, or a release of transformers outside the range that known-release names.

Known limits
    The kernel itself is not run: flash-attention-parity does, where there is one.

References
    transformers issue 39408 and pull request 40163 (4.34-4.55). The flash_attn package's documentation of window_size:
    both sides count.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.check import check
from gemma_doctor.evidence import FlashWindow
from gemma_doctor.finding import Examined, Finding, Severity


@check()
def flash_window(flash: FlashWindow) -> Iterator[Finding | Examined]:
    """Flash attention is told a window that shows as many tokens as the model's own."""
    if flash.shown != flash.window:
        yield Finding(
            title="flash attention shows another window than the model's"
            + ("" if flash.in_use else " (if you use flash_attention_2)"),
            severity=Severity.ERROR if flash.in_use else Severity.WARNING,
            observed=f"{flash.shown} tokens, the query itself included",
            expected=f"{flash.window} tokens: a window argument of {flash.window - 1}",
            do="use attn_implementation='sdpa' or 'eager', or another transformers release",
        )
    yield Examined(1, f"window argument {flash.shown - 1} for W = {flash.window:,}")
