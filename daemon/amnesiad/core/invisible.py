"""Characters that show nothing, and texts made of nothing else.

What is kept must be seen when it is shown: ``render`` drops these characters, so ``intake`` takes no text without
others, and what looks for words looks for those that are seen.
"""

from __future__ import annotations

import unicodedata
from typing import Final

INVISIBLE: Final = frozenset(
    (
        0x034F,
        0x115F,
        0x1160,
        0x17B4,
        0x17B5,
        *range(0x180B, 0x1810),
        0x2065,
        0x2800,
        0x3164,
        0xFFA0,
        *range(0xFE00, 0xFE0E),
        *range(0xFFF0, 0xFFF9),
        0x16FE4,
        0x1D159,
        *range(0xE0000, 0xE1000),
    )
)
"""Characters that show nothing but are no format characters, and so could carry text that only a model reads. The
variation selectors 15 and 16 are not among them: emoji need them."""

SELECTORS: Final = frozenset((0xFE0E, 0xFE0F))
"""The two variation selectors that say whether a sign is drawn as text or as an emoji; behind a letter they do
nothing."""


def dropped(code: int) -> bool:
    """Whether the character shows nothing wherever it stands: format characters and those of ``INVISIBLE``."""
    return code in INVISIBLE or unicodedata.category(chr(code)) == "Cf"


def shows_nothing(text: str) -> bool:
    """Whether the text is blank to the eye: blanks, line breaks, and characters that show nothing by themselves."""
    return all(char.isspace() or dropped(ord(char)) or ord(char) in SELECTORS for char in text)


REMEMBERED: Final = 0x10000
"""Characters below this are decided about once: a text of all the others must not fill the memory with answers."""


class _Seen(dict[int, int | None]):
    """A table for ``str.translate`` that drops what shows nothing, and decides about a character when it first meets
    it."""

    def __missing__(self, code: int) -> int | None:
        kept = None if dropped(code) or code in SELECTORS else code
        if code < REMEMBERED:
            self[code] = kept
        return kept


_seen: Final = _Seen()


def seen(text: str) -> str:
    """The text as it is read, for whoever compares words: in NFKC, and without what shows nothing."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text.translate(_seen))
