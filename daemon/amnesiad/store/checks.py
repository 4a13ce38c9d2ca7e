"""What is compared with the fold of the log, structure by structure, and what would mend each difference.

The checks read and never write; ``verify`` says how they are used. No text is ever in a difference.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import islice
from typing import Any, Final, cast

import msgspec
from redis.asyncio import Redis

from amnesiad.core.notes import encode_note
from amnesiad.core.policy import Policy
from amnesiad.store.cells import EXCLUSIVE
from amnesiad.store.compare import (
    OP,
    canonical,
    head_problem,
    number_of,
    read_words,
    setting_of,
    stamp_of,
    stored_form,
    tomb_problem,
)
from amnesiad.store.faults import store_errors
from amnesiad.store.findings import Command, Findings, Report
from amnesiad.store.fold import Folded, LogFold
from amnesiad.store.keyring import Keyring
from amnesiad.store.keys import Keys
from amnesiad.store.log import START
from amnesiad.store.owners import Owner, owner_field, readable_owner
from amnesiad.store.policies import FILED_CELL, fitting
from amnesiad.store.units import FORGOTTEN, PERISHABLE_BYTES, RECORD_BYTES, UNSCRUBBED, derived
from amnesiad.store.vault import encode_tomb
from amnesiad.store.workspaces import POLICY_CELL

CHUNK: Final = 500
"""Notes compared in one step: about half a megabyte of heads and words."""
MAX_ROUNDS: Final = 5
"""How often notes that changed between two reads are looked at again."""


def judged_by(keys: Keys) -> tuple[str, ...]:
    """The keys a mend relies on. Every commit changes one of them; what only counts uses does not."""
    aside = (keys.use, keys.access, keys.leases, keys.vectors)
    return tuple(key for key in keys.fixed if key not in aside)


class Checks:
    """One run of all checks over one workspace."""

    def __init__(self, redis: Redis, keys: Keys, keyring: Keyring, base: Policy) -> None:
        self.redis = redis
        self.keys = keys
        self.keyring = keyring
        self.base = base
        self.policy = base
        self.found = Findings()
        self.fold = LogFold(redis, keys, self.found.differs)
        self.damaged_types = False
        self.disturbed = False
        """The policy changed, or some notes never rested: what was found may be due to that."""
        self._cells: dict[str, str] = {}

    @property
    def log_lost(self) -> bool:
        """Whether there are notes beside an empty log: then it is not they that are wrong."""
        return (
            self.fold.position == START
            and not self.damaged_types
            and bool(self.found.counts["heads"] + self.found.counts["vault"])
        )

    def report(self) -> Report:
        """Everything found so far."""
        forgotten = sum(1 for folded in self.fold.notes.values() if folded.note.state == "forgotten")
        notes = len(self.fold.notes) - forgotten
        return Report(
            self.fold.position,
            self.fold.entries,
            notes,
            forgotten,
            dict(self.found.counts),
            tuple(self.found.differences),
        )

    async def run(self) -> None:
        """All checks, in an order in which each may rely on those before."""
        if not await self._types_hold():
            return
        await self._snapshot()
        self.policy = fitting(self.base, self.fold.policy)
        version = self.fold.policy_version
        for chunk in _chunks(list(self.fold.notes)):
            await self._check_notes(chunk)
        await self._check_strangers()
        await self._check_vectors()
        await self._check_cells()
        await self._check_owners()
        await self._check_totals()
        await self._check_policy()
        self.disturbed |= self.fold.policy_version != version

    async def _snapshot(self, *commands: Command) -> list[Any]:
        """Read at one instant, and fold the log to that instant."""
        with store_errors():
            pipe = self.redis.pipeline(transaction=True)
            pipe.xrevrange(self.keys.log, count=1)
            for command in commands:
                pipe.execute_command(*command)
            newest, *rows = await pipe.execute()
        await self.fold.read_to(newest[0][0].decode() if newest else START)
        return rows

    async def _types_hold(self) -> bool:
        k = self.keys
        hashes = dict.fromkeys((k.heads, k.vault, k.tomb, k.cells, k.totals, k.use, k.policy, k.vectors), b"hash")
        zsets = dict.fromkeys((k.due, k.audit, k.leases), b"zset")
        expected = {**hashes, **zsets, k.anchored: b"set", k.log: b"stream"}
        for key, wanted in expected.items():
            with store_errors():
                found = cast(bytes, await self.redis.type(key))
            if found not in (wanted, b"none"):
                self.damaged_types = True
                known = key in (k.log, k.vault)
                name = key.removeprefix(k.prefix)
                mend: tuple[Command, ...] = () if known else (("DEL", key),)
                self.found.differs(name, name, f"the key is a {found.decode()}, not a {wanted.decode()}", *mend)
        return not self.damaged_types

    # -- note by note --------------------------------------------------------------------------------------------

    async def _check_notes(self, ids: list[str]) -> None:
        k = self.keys
        for _ in range(MAX_ROUNDS):
            rows = await self._snapshot(
                ("HMGET", k.heads, *ids),
                ("HMGET", k.tomb, *ids),
                ("HMGET", k.vault, *ids),
                ("ZMSCORE", k.due, *ids),
                ("ZMSCORE", k.audit, *ids),
                ("SMISMEMBER", k.anchored, *ids),
            )
            wanted: dict[str, Folded] = {}
            for id_, *row in zip(ids, *rows, strict=True):
                if (folded := self.fold.notes.get(id_)) is None:
                    continue
                if folded.note.state == "forgotten":
                    self._check_forgotten(folded, *row)
                else:
                    wanted |= dict.fromkeys(self._check_kept(folded, *row), folded)
            moved = await self._check_held(wanted)
            if not (ids := list(dict.fromkeys(moved))):
                return
        self.disturbed = True

    def _check_kept(
        self,
        folded: Folded,
        head: bytes | None,
        tomb: bytes | None,
        raw: bytes | None,
        due: Any,
        audit: Any,
        anchored: int,
    ) -> frozenset[str]:
        """A note that is not forgotten; returns the cells it must hold."""
        k, note = self.keys, folded.note
        if problem := head_problem(folded, head):
            self.found.differs(
                note.id, "heads", problem, ("HSET", k.heads, note.id, stored_form(folded, encode_note(note)))
            )
        if tomb is not None:
            self.found.differs(note.id, "tomb", "it has a tomb, but is not forgotten", ("HDEL", k.tomb, note.id))
        words, problem = read_words(raw)
        if words is not None and words.size() != note.size:
            problem = f"the words have {words.size()} bytes, the log says {note.size}"
        if problem:
            self.found.differs(note.id, "vault", problem)
        follows = derived(note, words, self.policy, self.keyring)
        self._check_score(note.id, "due", k.due, due, follows.due)
        self._check_score(note.id, "audit", k.audit, audit, None)
        self._check_anchored(note.id, anchored, follows.anchored)
        return follows.cells

    def _check_forgotten(
        self,
        folded: Folded,
        head: bytes | None,
        raw: bytes | None,
        words: bytes | None,
        due: Any,
        audit: Any,
        anchored: int,
    ) -> None:
        k, note = self.keys, folded.note
        if head is not None:
            self.found.differs(note.id, "heads", "it has a head, but is forgotten", ("HDEL", k.heads, note.id))
        if words is not None:
            self.found.differs(note.id, "vault", "its words are there, but it is forgotten", *self._erase(note.id))
        problem, tomb = tomb_problem(folded, raw)
        if problem:
            self.found.differs(
                note.id, "tomb", problem, ("HSET", k.tomb, note.id, stored_form(folded, encode_tomb(tomb)))
            )
        self._check_score(note.id, "due", k.due, due, tomb.purge_at)
        self._check_score(note.id, "audit", k.audit, audit, note.state_at)
        self._check_anchored(note.id, anchored, False)

    def _check_score(self, note_id: str, field: str, key: str, found: float | None, wanted: int | None) -> None:
        if found == wanted:
            return
        mend: Command = ("ZREM", key, note_id) if wanted is None else ("ZADD", key, wanted, note_id)
        told = [("not there" if score is None else f"{score:.0f}") for score in (found, wanted)]
        self.found.differs(note_id, field, f"filed: {told[0]}; it should be: {told[1]}", mend)

    def _check_anchored(self, note_id: str, found: int, wanted: bool) -> None:
        if found == wanted:
            return
        problem = "its files are not watched" if wanted else "it is watched, and no live note with a file's hash"
        self.found.differs(note_id, "anchored", problem, ("SADD" if wanted else "SREM", self.keys.anchored, note_id))

    def _erase(self, note_id: str, key: str = "") -> tuple[Command, Command]:
        return ("HDEL", key or self.keys.vault, note_id), ("HINCRBY", self.keys.totals, UNSCRUBBED, 1)

    async def _check_held(self, wanted: dict[str, Folded]) -> list[str]:
        """The cells that these notes must hold; returns the notes that changed before their cells were read."""
        names, moved = list(wanted), []
        if not names:
            return []
        (held,) = await self._snapshot(("HMGET", self.keys.cells, *names))
        for name, raw in zip(names, held, strict=True):
            folded = wanted[name]
            note_id = folded.note.id
            if self.fold.notes.get(note_id) != folded:
                moved.append(note_id)
                continue
            self._cells[name] = note_id
            if stamp_of(raw) != note_id:
                mend: Command = ("HSET", self.keys.cells, name, f"{note_id}|{OP}||")
                self.found.differs(note_id, "cells", f"it does not hold its {name.partition(':')[0]} cell", mend)
        return moved

    # -- what belongs to no note ---------------------------------------------------------------------------------

    async def _check_strangers(self) -> None:
        """Ids in a structure that the log has never heard of."""
        k = self.keys
        for field, key in (("heads", k.heads), ("tomb", k.tomb), ("vault", k.vault)):
            found = [id_ async for id_ in self._fields(key)]
            for chunk in _chunks(found):
                (rows,) = await self._snapshot(("HMGET", key, *chunk))
                for id_, row in zip(chunk, rows, strict=True):
                    if row is not None and not self._known(id_):
                        mends = self._erase(id_) if field == "vault" else (("HDEL", key, id_),)
                        self.found.differs(id_, field, "the log does not know this note", *mends)
        for field, key, ask, remove in (
            ("due", k.due, "ZMSCORE", "ZREM"),
            ("audit", k.audit, "ZMSCORE", "ZREM"),
            ("anchored", k.anchored, "SMISMEMBER", "SREM"),
        ):
            found = [id_ async for id_ in self._members(key)]
            for chunk in _chunks(found):
                (rows,) = await self._snapshot((ask, key, *chunk))
                for id_, row in zip(chunk, rows, strict=True):
                    # 0 is the score of a member, or no member of a plain set.
                    if (row if key == k.anchored else row is not None) and not self._known(id_):
                        self.found.differs(id_, field, "the log does not know this note", (remove, key, id_))

    async def _check_vectors(self) -> None:
        """Vectors are made of words, so none may outlive them. One that is not there is made anew by who needs it."""
        k = self.keys
        with store_errors():
            every = cast(list[bytes], await self.redis.hkeys(k.vectors))
        for chunk in _chunks([field.decode(errors="replace") for field in every]):
            asked = [("HEXISTS", key, id_) for id_ in chunk for key in (k.vectors, k.vault)]
            held = await self._snapshot(*asked)
            for id_, vector, words in zip(chunk, held[::2], held[1::2], strict=True):
                gone = id_ not in self.fold.unknown and self._forgotten_or_unknown(id_)
                if vector and (gone or not words):
                    self.found.differs(
                        id_, "vectors", "the words it was made of are gone", *self._erase(id_, k.vectors)
                    )

    def _forgotten_or_unknown(self, note_id: str) -> bool:
        folded = self.fold.notes.get(note_id)
        return folded is None or folded.note.state == "forgotten"

    def _known(self, note_id: str) -> bool:
        return note_id in self.fold.notes or note_id in self.fold.unknown

    async def _fields(self, key: str) -> AsyncIterator[str]:
        """Ids in a hash that the fold did not know when they were read, each once."""
        seen = set()
        with store_errors():
            async for field, _ in self.redis.hscan_iter(key, count=CHUNK):
                if not self._known(id_ := field.decode(errors="replace")) and id_ not in seen:
                    seen.add(id_)
                    yield id_

    async def _members(self, key: str) -> AsyncIterator[str]:
        """Ids in a set, sorted or not, that the fold did not know when they were read, each once."""
        seen = set()
        plain = key == self.keys.anchored
        with store_errors():
            async for found in (self.redis.sscan_iter if plain else self.redis.zscan_iter)(key, count=CHUNK):
                member: bytes = found if plain else found[0]
                if not self._known(id_ := member.decode(errors="replace")) and id_ not in seen:
                    seen.add(id_)
                    yield id_

    async def _check_cells(self) -> None:
        """Slots and texts that are held by a note that should not hold them."""
        suspects: dict[str, None] = {}
        with store_errors():
            async for field, raw in self.redis.hscan_iter(self.keys.cells, count=CHUNK):
                name = field.decode(errors="replace")
                if (
                    name.startswith(EXCLUSIVE)
                    and self._cells.get(name) is None
                    and stamp_of(raw) not in self.fold.unknown
                ):
                    suspects[name] = None
        for chunk in _chunks(list(suspects)):
            await self._check_suspects(chunk)

    async def _check_suspects(self, names: list[str]) -> None:
        """Cells that no note had a claim to when it was checked: released since, taken since, or damaged."""
        k = self.keys
        (held,) = await self._snapshot(("HMGET", k.cells, *names))
        holders = [stamp_of(raw) or "" for raw in held]
        held, words = await self._snapshot(("HMGET", k.cells, *names), ("HMGET", k.vault, *holders))
        for name, raw, holder, text in zip(names, held, holders, words, strict=True):
            if raw is None:
                continue
            folded = self.fold.notes.get(holder)
            if (stamp_of(raw) or "") != holder:
                self.disturbed = True
            elif (
                folded is None or name not in derived(folded.note, read_words(text)[0], self.policy, self.keyring).cells
            ):
                what = f"it holds a {name.partition(':')[0]} cell that is not its own"
                self.found.differs(holder or name, "cells", what, ("HDEL", k.cells, name))

    async def _check_owners(self) -> None:
        k = self.keys
        stem = k.any_members.removesuffix("*")
        owners = dict.fromkeys(self.fold.members)
        with store_errors():
            async for key in self.redis.scan_iter(match=k.any_members, count=CHUNK):
                owners[key.decode().removeprefix(stem)] = None
        for owner in owners:
            found, cell = await self._snapshot(("SMEMBERS", k.members(owner)), ("HGET", k.cells, owner_field(owner)))
            wanted = self.fold.members.get(owner, set())
            members = {raw.decode(errors="replace") for raw in found} - self.fold.unknown
            for id_ in sorted(members - wanted):
                self.found.differs(id_, "members", f"{owner} does not own it", ("SREM", k.members(owner), id_))
            for id_ in sorted(wanted - members):
                self.found.differs(
                    id_, "members", f"it is missing among the notes of {owner}", ("SADD", k.members(owner), id_)
                )
            if wanted and (cell is None or readable_owner(cell) is None):
                await self._check_incarnation(owner, wanted)
        await self._check_closed()

    async def _check_closed(self) -> None:
        """Cells of owners without notes that cannot be read: nothing of theirs could be written any more. What is known
        of their lives is which were the last that any note was of; the cell is made anew, closed, in that one."""
        k = self.keys
        with store_errors():
            cells = [pair async for pair in self.redis.hscan_iter(k.cells, match=f"{owner_field('*')}", count=CHUNK)]
        for field, raw in cells:
            owner = field.decode(errors="replace").removeprefix(owner_field(""))
            if self.fold.members.get(owner) or readable_owner(raw) is not None:
                continue
            lives = [one.note.incarnation or 1 for one in self.fold.notes.values() if one.note.owner == owner]
            made = Owner(incarnation=max(lives, default=1), open=False)
            self.found.differs(
                owner, "cells", "the owner's cell cannot be read", ("HSET", k.cells, field, _cell_of(made))
            )

    async def _check_incarnation(self, owner: str, ids: Iterable[str]) -> None:
        notes = [self.fold.notes[id_].note for id_ in ids]
        lives = [note.incarnation for note in notes if note.incarnation is not None]
        if not lives:
            return
        with store_errors():
            seconds, micros = await self.redis.time()
        now = seconds * 1000 + micros // 1000
        made = Owner(incarnation=max(lives), open=True, opened_at=max(note.created_at for note in notes))
        self.found.differs(
            owner,
            "cells",
            "the owner of notes has no cell that can be read",
            ("HSET", self.keys.cells, owner_field(owner), _cell_of(made)),
            ("ZADD", self.keys.leases, "NX", now, owner),
        )

    # -- the workspace as a whole --------------------------------------------------------------------------------

    async def _check_totals(self) -> None:
        (found,) = await self._snapshot(("HGETALL", self.keys.totals))
        wanted = {PERISHABLE_BYTES: 0, RECORD_BYTES: 0, FORGOTTEN: 0}
        for note, _, _ in self.fold.notes.values():
            if note.state == "forgotten":
                wanted[FORGOTTEN] += 1
            else:
                wanted[PERISHABLE_BYTES if note.regime == "perishable" else RECORD_BYTES] += note.size
        values = {name: number_of(found.get(name.encode(), b"0")) for name in (*wanted, UNSCRUBBED)}
        # What a note of unknown state adds to the totals is unknown too.
        if not self.fold.unknown:
            for name, value in wanted.items():
                if values[name] != value:
                    problem = f"it is {values[name]}, not {value}"
                    self.found.differs(name, "totals", problem, ("HSET", self.keys.totals, name, value))
        count = values[UNSCRUBBED]
        if count is None or count < 0:
            mend: Command = ("HSET", self.keys.totals, UNSCRUBBED, self.fold.unscrubbed)
            self.found.differs(UNSCRUBBED, "totals", "it is not a count", mend)

    async def _check_policy(self) -> None:
        k = self.keys
        found, cell, filed = await self._snapshot(
            ("HGETALL", k.policy), ("HGET", k.cells, POLICY_CELL), ("HGET", k.cells, FILED_CELL)
        )
        stamp = stamp_of(cell)
        if stamp is None or not stamp.isdecimal() or int(stamp) < self.fold.policy_version:
            mend: Command = ("HSET", k.cells, POLICY_CELL, f"{self.fold.policy_version}|{OP}||")
            self.found.differs(POLICY_CELL, "cells", "the version of the policy is missing or behind", mend)
        if filed is not None and stamp_of(filed) is None:
            # Without it everything is filed anew, and it is written then.
            mend = ("HDEL", k.cells, FILED_CELL)
            self.found.differs(FILED_CELL, "cells", "by which policy all is filed cannot be read", mend)
        stored = {name.decode(errors="replace"): raw for name, raw in found.items()}
        for name, value in self.fold.policy.items():
            if name not in stored or setting_of(name, stored[name]) != canonical(name, value):
                mend = ("HSET", k.policy, name, msgspec.json.encode(value))
                self.found.differs(name, "policy", "the setting is not as it was last changed", mend)
        for name in stored.keys() - self.fold.policy.keys():
            self.found.differs(name, "policy", "the log does not tell of this setting", ("HDEL", k.policy, name))


def _chunks(ids: Sequence[str]) -> Iterable[list[str]]:
    rest = iter(ids)
    while chunk := list(islice(rest, CHUNK)):
        yield chunk


def _cell_of(owner: Owner) -> bytes:
    """A cell as a commit would have written it."""
    return f"{owner.stamp}|{OP}||".encode() + msgspec.json.encode(owner)
