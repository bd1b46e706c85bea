"""What the checks of this folder share."""

from __future__ import annotations


def tokens(count: int) -> str:
    return f"{count:,} tokens"
