"""Makes text from models, tokenizers, configurations and prompts safe to show."""

from __future__ import annotations

import unicodedata

# Control characters, formats (among them the bidirectional overrides, which can reorder a whole line), lone
# surrogates, private use and unassigned code points, line and paragraph separators.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def escape(text: str) -> str:
    """`text` on one line, with every character that a terminal would act on written as Python writes it.

    Rich markup needs no escaping: the reports never parse any.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if unicodedata.category(character) not in _UNSAFE:
        return character
    return character.encode("unicode_escape").decode("ascii")
