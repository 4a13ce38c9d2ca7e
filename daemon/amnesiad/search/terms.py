r"""Text to terms, the same way for notes and for queries, so that whatever is written can be found.

A term is a case-folded (NFKC) word. Identifiers, paths and versions (``get_user``, ``getUser``, ``src/app.py``,
``--allow-dangerous``, ``v1.2.3``) give the whole and its parts; a path also its components. Chinese, Japanese, Korean
and Thai are written without spaces: a run of them gives every pair of neighbours, and each character, so that a query
of one character finds it too. Emoji are terms. A word with accents is also filed without them, under a sign that keeps
it apart: ``cafe`` finds ``café``, and is no word of it. All patterns run in linear time: the text may be hostile.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from operator import add
from typing import Final

_RUN: Final = (
    "\u0e00-\u0eff\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u3099-\u30fa\u30fc-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_EMOJI: Final = "\u2600-\u27bf\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff"
# Marks belong to the letter before them; Python's \w leaves them out, which would cut Hindi words to pieces.
_LETTER: Final = rf"(?:[^\W_{_RUN}]|[\u0300-\u036f\u0900-\u0963\u0970-\u0dff])"
_JOINER: Final = r"[_./:@#+~\\-]"
_PATH_SEPARATOR: Final = re.compile(r"[/\\]+")

PLAIN: Final = "\u00b4"
"""Before a word that is written with accents, without them. In NFKC no text holds this sign."""
_ACCENTS: Final = re.compile("[\u0300-\u036f]")
# Latin, Greek and Cyrillic: other scripts need not be taken apart, which takes longer than to look.
_ACCENTED: Final = re.compile("[\u00c0-\u024f\u0300-\u04ff\u1e00-\u1fff]")

# The look-behind keeps a long word from being tried again from each of its characters.
_ASCII_JOINED: Final = re.compile(rf"(?<![a-z0-9])[a-z0-9]++(?:{_JOINER}++[a-z0-9]++)+")
_PARTS: Final = re.compile(rf"{_LETTER}+")
_JOINED: Final = re.compile(rf"(?<!{_LETTER}){_LETTER}++(?:{_JOINER}++{_LETTER}++)+")
_WHOLES: Final = re.compile(rf"{_LETTER}++(?:{_JOINER}++{_LETTER}++)*")
_RUNS: Final = re.compile(rf"[{_RUN}]+")
_SIGNS: Final = re.compile(rf"[{_EMOJI}]")

# It begins with the capital, of which a text has few.
_HUMP: Final = re.compile(r"[A-Z](?:(?<=[a-z0-9].)|[A-Z][a-z])")
_PARTED: Final = "".join(char if char.isalnum() else " " for char in map(chr, range(128)))
"""As a translation of ASCII text: everything between words becomes a space."""

_HUMPED_WORD: Final = re.compile(r"[A-Za-z0-9]+")
_HUMPS: Final = re.compile(r"[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z0-9]+|[0-9]+")


def _normal(text: str) -> tuple[str, str]:
    """The text in NFKC, as written and case-folded."""
    if text.isascii():
        return text, text.lower()
    written = unicodedata.normalize("NFKC", text)
    return written, unicodedata.normalize("NFKC", written.casefold())


def terms(text: str) -> list[str]:
    """Every term of a text to be indexed, with repeats; the order means nothing."""
    written, folded = _normal(text)
    if folded.isascii():
        # Most words are plain: the pattern needs to look at the others only.
        found = folded.translate(_PARTED).split()
        joined = _ASCII_JOINED.findall(" ".join([word for word in folded.split() if not word.isalnum()]))
    else:
        found = _PARTS.findall(folded)
        if (plain := _without_accents(folded)) != folded:
            written_so = set(found)
            found += [PLAIN + word for word in _PARTS.findall(plain) if word not in written_so]
        joined = _JOINED.findall(folded)
        for run in _RUNS.findall(folded):
            found += run
            found += _pairs(run)
        found += _SIGNS.findall(folded)
    for whole in joined:
        found.append(whole)
        found += (part for part in _components(whole) if not part.isalnum())
    if _HUMP.search(written):
        found += _humps(written)
    return found


def query_terms(text: str) -> list[str]:
    """The terms to look up for a query, each once, in order of appearance by kind.

    As ``terms``, but a run of an unspaced script is looked up by its pairs, and by its character only if it is one.
    """
    written, folded = _normal(text)
    found: list[str] = _PARTS.findall(folded)
    for whole in _JOINED.findall(folded):
        found.append(whole)
        found += _components(whole)
    if _HUMP.search(written):
        found += _humps(written)
    found += _unspaced(folded)
    return list(dict.fromkeys(found))


def accent_terms(text: str) -> list[str]:
    """What to look up beside ``query_terms`` to find its words however they are accented, in the query and in notes."""
    _, folded = _normal(text)
    plain = _PARTS.findall(_without_accents(folded))
    written_so = set(plain if folded.isascii() else _PARTS.findall(folded))
    return list(dict.fromkeys([PLAIN + word for word in plain] + [word for word in plain if word not in written_so]))


def required_terms(text: str) -> list[str]:
    """The terms a note must all hold to contain *every word* of the query: wholes, not their parts.

    A path is required component by component, so that ``app/main.py`` finds ``src/app/main.py``.
    """
    _, folded = _normal(text)
    found: list[str] = []
    for whole in _WHOLES.findall(folded):
        found += _components(whole) if _PATH_SEPARATOR.search(whole) else [whole]
    found += _unspaced(folded)
    return list(dict.fromkeys(found))


def _without_accents(folded: str) -> str:
    if folded.isascii() or not _ACCENTED.search(folded):
        return folded
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", folded)))


def _unspaced(folded: str) -> Iterator[str]:
    if folded.isascii():
        return
    for run in _RUNS.findall(folded):
        yield from _pairs(run) if len(run) > 1 else run
    yield from _SIGNS.findall(folded)


def _pairs(run: str) -> Iterable[str]:
    return map(add, run, run[1:])


def _components(whole: str) -> list[str]:
    """The components of a path (``src/app.py`` → ``src``, ``app.py``); nothing for other compounds."""
    if not _PATH_SEPARATOR.search(whole):
        return []
    return [part for component in _PATH_SEPARATOR.split(whole) if (part := component.strip("_.:@#+~-"))]


def _humps(written: str) -> Iterator[str]:
    """The parts of camelCase words; the words themselves are terms already."""
    for word in _HUMPED_WORD.findall(written):
        if not word[1:].islower() and not word.isupper():
            parts = _HUMPS.findall(word)
            if len(parts) > 1:
                for part in parts:
                    yield part.lower()
