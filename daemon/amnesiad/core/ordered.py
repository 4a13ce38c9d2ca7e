"""A list that stays sorted by a key, in chunks, so that neither putting in nor taking out moves much of it. Pure.

The key is computed when it is needed and never kept: a hundred thousand items cost a hundred thousand references. It
must be unique, and an item's key must not change while the item is in the list. What is put in waits unsorted until
somebody reads or takes out, so that loading a workspace costs one sort.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")
Key = Callable[[T], Any]

CHUNK: Final = 128
"""Items a chunk is cut into; it is split when it holds twice as many. Only the last key of each chunk is kept."""
MANY: Final = 8
"""More new items than the eighth part of all are sorted together with them; fewer are put in one by one."""


class Ordered(Generic[T]):
    """Items in ascending order of ``key``."""

    def __init__(self, key: Key[T]) -> None:
        self._key = key
        self._chunks: list[list[T]] = []
        self._lasts: list[Any] = []
        self._new: list[T] = []
        self._size = 0

    def __len__(self) -> int:
        return self._size + len(self._new)

    def add(self, item: T) -> None:
        """Put an item in."""
        self._new.append(item)

    def remove(self, item: T) -> None:
        """Take an item out. Raises ``ValueError`` if none with its key is here."""
        self._sort_in()
        key = self._key(item)
        number = bisect_left(self._lasts, key)
        chunk = self._chunks[number] if number < len(self._chunks) else []
        at = bisect_left(chunk, key, key=self._key)
        if at == len(chunk) or self._key(chunk[at]) != key:
            raise ValueError("not in the list")
        del chunk[at]
        self._size -= 1
        if not chunk:
            del self._chunks[number], self._lasts[number]
        elif at == len(chunk):
            self._lasts[number] = self._key(chunk[-1])

    def first(self) -> T | None:
        """The item with the lowest key, ``None`` if there is no item."""
        self._sort_in()
        return self._chunks[0][0] if self._chunks else None

    def __iter__(self) -> Iterator[T]:
        """Every item in order. The list must not change meanwhile."""
        self._sort_in()
        for chunk in self._chunks:
            yield from chunk

    def beyond(self, key: Any) -> Iterator[T]:
        """The items whose key is above this one, in order. The list must not change meanwhile."""
        self._sort_in()
        number = bisect_left(self._lasts, key)
        if number == len(self._chunks):
            return
        yield from self._chunks[number][bisect_right(self._chunks[number], key, key=self._key) :]
        for chunk in self._chunks[number + 1 :]:
            yield from chunk

    def _sort_in(self) -> None:
        if not self._new:
            return
        new, self._new = self._new, []
        if len(new) * MANY > self._size:
            every = [*(item for chunk in self._chunks for item in chunk), *new]
            every.sort(key=self._key)
            self._chunks = [every[start : start + CHUNK] for start in range(0, len(every), CHUNK)]
            self._lasts = [self._key(chunk[-1]) for chunk in self._chunks]
        else:
            for item in new:
                self._insert(item)
        self._size += len(new)

    def _insert(self, item: T) -> None:
        key = self._key(item)
        number = min(bisect_left(self._lasts, key), len(self._chunks) - 1)
        chunk = self._chunks[number]
        chunk.insert(bisect_left(chunk, key, key=self._key), item)
        if len(chunk) >= 2 * CHUNK:
            self._chunks[number : number + 1] = [chunk[:CHUNK], chunk[CHUNK:]]
            self._lasts[number : number + 1] = [self._key(chunk[CHUNK - 1]), self._key(chunk[-1])]
        elif key > self._lasts[number]:
            self._lasts[number] = key
