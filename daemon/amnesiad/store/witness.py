"""Before an answer leaves: does what it shows still stand, and is it on record that it was shown?

The script is ``witness.lua``; this module is its Python half, and reads back what the script records: the ledger of
recalls and injections, and what ``fire`` has shown. It writes nothing about notes but their use. What a context was
told is read in ``contexts``; what is worth showing is not decided here.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from typing import Any, Final, NamedTuple, cast

import msgspec
from redis.asyncio import Redis

from amnesiad.errors import NotFound
from amnesiad.store.contexts import Telling
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import Keys

WITNESS_LUA: Final = resources.files("amnesiad.store").joinpath("witness.lua").read_text()

_encoder: Final = msgspec.json.Encoder()


class Once:
    """What was shown already to those who are shown a note once: the notes of one ledger, each with when and in which
    turn. ``Witness.check`` compares it with the store before it lets an answer out, and brings it up to date."""

    __slots__ = ("keep_ms", "marks", "name", "turn")

    def __init__(self, name: str, turn: str, keep_ms: int, marks: dict[str, str]) -> None:
        self.name = name
        self.turn = turn
        self.keep_ms = keep_ms
        self.marks = marks

    def shown(self, note: str) -> tuple[int, str] | None:
        """When the note was shown (epoch ms) and in which turn; ``None`` for not yet."""
        at, _, turn = self.marks.get(note, "").partition("|")
        return (int(at), turn) if at.isdecimal() else None


class Witnessed(NamedTuple):
    """What a witness found."""

    last: str
    """The log's last id."""
    later_policy: bool
    moved: list[str]
    """Notes that do not stand at the version given."""
    shown: list[str]
    """Notes that were shown to the same ones by another answer."""
    told: dict[str, str]
    """Corrections that another answer has made, or whose note was shown again: what stands there instead."""

    def stands(self, seen: str) -> bool:
        """Whether the answer may leave that was made from the log up to ``seen`` (``""``: it does not insist)."""
        return seen in ("", self.last) and not (self.later_policy or self.moved or self.shown or self.told)


class Witness:
    """One workspace's. Safe for concurrent use on one event loop."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self._script = redis.register_script(WITNESS_LUA)

    async def check(
        self,
        now: int,
        shown: Iterable[tuple[str, int]],
        *,
        entry: bytes = b"",
        used: int = 0,
        seen: str = "",
        policy: int | None = None,
        once: Once | None = None,
        telling: Telling | None = None,
    ) -> Witnessed:
        """Check that notes still stand at the versions shown and, if so, log that they were.

        With ``seen``, the answer's position, nothing is logged either where the log has grown past it; with ``policy``,
        the version it was made by, where a later one is in force; with ``once``, where another answer has shown one of
        the notes meanwhile, and those shown, used or only warned of, are marked in the same step; with ``telling``,
        where one of its corrections was made meanwhile, and the used notes are recorded as shown to its context.

        ``entry`` is the ledger entry (no words), ``used`` how many of the first notes shown count as used. Raises
        ``NotFound`` when the workspace was dropped.
        """
        k = self._keys
        keys = [k.log, k.heads, k.access, k.use, k.cells]
        keys += (k.ledger("" if once is None else once.name), k.shown("" if telling is None else telling.context))
        marks_seen: dict[str, str] = {} if once is None else once.marks
        asked: dict[str, Any] = {
            "now": str(now),
            "seen": seen,
            "policy": "" if policy is None else str(policy),
            "notes": [(note, str(version), marks_seen.get(note, "")) for note, version in shown],
            "used": used,
            "mark": "",
            "corrections": (),
            "context_ms": "",
        }
        if once is not None:
            asked |= {"mark": f"{now}|{once.turn}", "mark_ms": str(once.keep_ms)}
        if telling is not None:
            told_of = [
                (one.note, "" if one.version is None else str(one.version), one.mark) for one in telling.corrections
            ]
            asked |= {"corrections": told_of, "telling": telling.op, "context_ms": str(telling.keep_ms)}
        with store_errors():
            rows = await self._script(keys=keys, args=[_encoder.encode(asked), entry])
        if not rows:
            raise NotFound("the workspace was dropped", field="workspace")
        last, later, *found = rows
        moved, marks, told = (_texts(one) for one in found)
        if once is not None:
            once.marks.update(zip(marks[::2], marks[1::2], strict=True))
        return Witnessed(last.decode(), bool(later), moved, marks[::2], dict(zip(told[::2], told[1::2], strict=True)))

    async def entries(self, limit: int, *, before: str = "+") -> list[tuple[str, bytes]]:
        """The latest ledger entries (JSON) with their stream ids, newest first; ``before`` is the newest to read.

        Entries that somebody else put there are left out.
        """
        with store_errors():
            rows = cast(
                list[tuple[bytes, dict[bytes, bytes]]],
                await self._redis.xrevrange(self._keys.access, max=before, count=limit),
            )
        return [(seq.decode(), fields[b"e"]) for seq, fields in rows if b"e" in fields]

    async def once(self, name: str, turn: str, keep_ms: int) -> Once:
        """What the ledger ``name`` (a session since its last compaction, or a turn) was shown already. It is kept for
        ``keep_ms`` after the last note; whatever is shown from here on belongs to ``turn``."""
        with store_errors():
            rows = cast(dict[bytes, bytes], await self._redis.hgetall(self._keys.ledger(name)))
        marks = {note.decode(errors="replace"): mark.decode(errors="replace") for note, mark in rows.items()}
        return Once(name, turn, keep_ms, marks)

    async def fired(self, context: str) -> dict[str, tuple[int, str]]:
        """Which notes ``fire`` has shown this context since its last compaction: when (epoch ms) and in which turn."""
        once = await self.once(context, "", 0)
        return {note: shown for note in once.marks if (shown := once.shown(note)) is not None}


def _texts(rows: Iterable[bytes]) -> list[str]:
    return [row.decode(errors="replace") for row in rows]
