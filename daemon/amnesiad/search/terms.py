r"""Text to terms, the same way for notes and for queries, so that whatever is written can be found.

A term is a case-folded (NFKC) word. Identifiers, paths and versions (``get_user``, ``getUser``, ``src/app.py``,
``--allow-dangerous``, ``v1.2.3``) give the whole and its parts; a path also its components, camelCase also every two
parts that stand together (``mysql`` of ``MySQLClient``). Chinese, Japanese, Korean, Thai, Burmese and Khmer are written
without spaces: a run of them gives every pair of neighbors, and each character, so that a query of one character finds
it too. Emoji are terms. Characters that show nothing count for nothing, as where a note is shown. A word with accents
is also filed without them, under a sign that keeps it apart: ``cafe`` finds ``café``, and is no word of it. All
patterns run in linear time: the text may be hostile.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from operator import add
from typing import Final

from amnesiad.core.invisible import seen

_RUN: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1100-\u11ff\u3005-\u3007\u3041-\u3096\u3099-\u30fa\u30fc-\u318f\u31a0-\u31bf\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_EMOJI: Final = "\u2600-\u27bf\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff"
_POINTS: Final = (
    "\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed"
)
"""The vowels and marks of Hebrew and Arabic, which most texts leave out."""
# Marks belong to the letter before them; Python's \w leaves them out, which would cut Hindi words to pieces.
_LETTER: Final = rf"(?:[^\W_{_RUN}]|[\u0300-\u036f{_POINTS}\u0900-\u0963\u0970-\u0dff])"
_JOINER: Final = r"[_./:@#+~\\-]"
_PATH_SEPARATOR: Final = re.compile(r"[/\\]+")

PLAIN: Final = "\u00b4"
"""Before a word that is written with accents, without them. In NFKC no text holds this sign."""
_ACCENTS: Final = re.compile(f"[\u0300-\u036f{_POINTS}]")
# Latin, Greek, Cyrillic, Hebrew and Arabic: other scripts need not be taken apart, which takes longer than to look.
_ACCENTED: Final = re.compile(f"[\u00c0-\u024f\u0300-\u04ff\u0622-\u0626{_POINTS}\u1e00-\u1fff]")
_BARE: Final = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ı": "i", "ħ": "h", "ŧ": "t", "æ": "ae", "œ": "oe"})
"""Letters with something about them that is no mark of its own to Unicode, as people type them without it."""

_COMMON: Final = (
    "a about am an and any are as at be been but by can could did do does for from had has have he her here him his "
    "how i if in into is it its just me my of on or our please she should so some than that the their them then "
    "there these they this those to too us very was we were what when where which who why will with would you your"
)
STOPWORDS: Final = frozenset(_COMMON.split())
"""English words that carry no statement, those that make a question of one among them; not *no*, *not*, *never*, *must*
and *only*."""
_EDGES: Final = ".,;:!?\"'`()[]{}<>*"
"""What may stand around a word in a sentence."""

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
_HUMPS: Final = re.compile(r"[A-Z]{2,}s(?![a-z])|[A-Z]+(?![a-z])[0-9]*|[A-Z]?[a-z0-9]+|[0-9]+")


def _normal(text: str) -> tuple[str, str]:
    """The text as it is seen, as written and case-folded."""
    written = seen(text)
    if written.isascii():
        return written, written.lower()
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


def content_words(query: str) -> str:
    """The query without the words that carry no statement, for they would find what has nothing to do with it; as it is
    where it has no others."""
    kept = " ".join(word for word in query.split() if word.strip(_EDGES).lower() not in STOPWORDS)
    return kept if query_terms(kept) else query


def _without_accents(folded: str) -> str:
    if folded.isascii() or not _ACCENTED.search(folded):
        return folded
    return unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", folded))).translate(_BARE)


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
    """The parts of camelCase words, and two that stand together; the words themselves are terms already."""
    for word in _HUMPED_WORD.findall(written):
        if word[1:].islower() or word.isupper():
            continue
        parts = [part.lower() for part in _HUMPS.findall(word)]
        if len(parts) > 1:
            yield from parts
        if len(parts) > 2:
            yield from map(add, parts, parts[1:])
