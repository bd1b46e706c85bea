"""The published window is a power of two.

What it proves
    The window that config.json writes has one bit set.

Why it matters
    It does not: this check is here to be found.

How to fix
    Nothing is broken.

Known limits
    A window of another size is as good.

References
    None.
"""

from __future__ import annotations

from collections.abc import Iterator

from gemma_doctor.check import NotApplicable, check
from gemma_doctor.evidence import Config
from gemma_doctor.finding import Examined, Finding, Severity

from ._words import tokens


@check()
def window_of_two(config: Config) -> Iterator[Finding | Examined]:
    """The window is a power of two."""
    window = config.published.window.value if config.published.window else None
    if not window:
        raise NotApplicable("no window is written")
    if window.bit_count() != 1:
        yield Finding(
            title="the window is no power of two",
            severity=Severity.WARNING,
            observed=tokens(window),
            expected="a power of two",
            do="nothing",
        )
    yield Examined(1, f"a window of {tokens(window)}")
