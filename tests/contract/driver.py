"""A daemon in thirty lines: decides by ``core``, writes by ``store``, and remembers what it wrote.

It stands between the store tests and the script, as a service does, but holds nothing back: no cache of the store, no
retries, no eviction. What a unit does to the store is what is under test.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from tests.core.strategies import KINDS

from amnesiad.core.callers import Caller
from amnesiad.core.decisions import Draft, create
from amnesiad.core.events import AnyNoteEvent, PolicyChanged, encode
from amnesiad.core.kinds import Kind
from amnesiad.core.notes import Note, Words
from amnesiad.core.policy import Policy
from amnesiad.store import workspaces
from amnesiad.store.keyring import Keyring
from amnesiad.store.keys import Keys
from amnesiad.store.log import Log, Outcome, Unit
from amnesiad.store.owners import NO_OWNER, owner_field, read_owner, reopened, set_owner
from amnesiad.store.policies import write_policy
from amnesiad.store.units import Builder
from amnesiad.store.vault import Tomb, tombs
from amnesiad.store.witness import Witness

NOW: Final = 1_700_000_000_000
POLICY: Final = Policy(kinds=KINDS)
HUMAN: Final = Caller(role="human")
KEYRING: Final = Keyring(b"k" * 32)


class Driver:
    """One workspace, driven from one place."""

    def __init__(self, redis: Redis, ws: str, policy: Policy = POLICY) -> None:
        self.redis = redis
        self.keys = Keys(ws)
        self.log = Log(redis, self.keys)
        self.witness = Witness(redis, self.keys)
        self.policy = policy
        self.policy_version = 0
        self.now = NOW
        self.notes: dict[str, Note] = {}
        self.words: dict[str, Words] = {}
        self._issued = 0

    @classmethod
    async def open(cls, redis: Redis, name: str = "tests", policy: Policy = POLICY) -> Driver:
        """A driver of the workspace of that name."""
        return cls(redis, await workspaces.find_or_create(redis, name), policy)

    def builder(self) -> Builder:
        return Builder(self.keys, KEYRING, self.policy, self.policy_version)

    def new_id(self) -> str:
        self._issued += 1
        return f"n{self._issued:09d}"

    def created(self, content: str, *, kind: Kind = "fact", **draft: Any) -> tuple[AnyNoteEvent, Words]:
        """The birth of a note with these words."""
        told = {name: draft.pop(name) for name in ("key", "tags", "anchors") if name in draft}
        words = Words(content=content, **told)
        note_id = draft.pop("id", None) or self.new_id()
        return create(Draft(id=note_id, kind=kind, words=words, **draft), HUMAN, self.policy, self.now), words

    def birth(self, content: str, **draft: Any) -> tuple[Unit, Note, Words]:
        """A unit that creates one note, the note and its words."""
        event, words = self.created(content, **draft)
        builder = self.builder()
        note = builder.change(None, [event], None, words)
        assert note is not None
        return builder.build(), note, words

    async def remember(self, content: str, **draft: Any) -> str:
        """Create a note, which must succeed; returns its id."""
        unit, note, words = self.birth(content, **draft)
        assert (await self.log.commit(unit)).status == "ok"
        self.take(note, words)
        return note.id

    def take(self, note: Note, words: Words | None) -> None:
        """Remember how a note stands after a commit."""
        self.notes[note.id] = note
        if note.state == "forgotten" or words is None:
            self.words.pop(note.id, None)
        else:
            self.words[note.id] = words

    async def change(self, note_id: str, events: Sequence[AnyNoteEvent], new_words: Words | None = None) -> Outcome:
        """Commit events of one note; remembers the result only if they were written."""
        words = self.words.get(note_id)
        builder = self.builder()
        after = builder.change(self.notes[note_id], events, words, new_words)
        outcome = await self.log.commit(builder.build())
        if outcome.status == "ok" and after is not None:
            self.take(after, new_words or words)
        return outcome

    async def open_owner(self, owner: str) -> int:
        """Make sure the owner is open; returns its incarnation."""
        known = await read_owner(self.redis, self.keys, owner)
        if known != NO_OWNER and known.open:
            return known.incarnation
        unit, fresh = Unit(), reopened(known, self.now)
        set_owner(unit, self.keys, owner, known, fresh, self.now)
        assert (await self.log.commit(unit)).status == "ok", owner_field(owner)
        return fresh.incarnation

    async def tomb(self, note_id: str) -> Tomb:
        """The tomb of a forgotten note."""
        (grave,) = await tombs(self.redis, self.keys, [note_id])
        assert grave is not None
        return grave.tomb


def policy_unit(driver: Driver, version: int, changes: dict[str, Any], resets: tuple[str, ...] = ()) -> Unit:
    """A change of live settings, as a service writes it."""
    unit = Unit()
    write_policy(unit, driver.keys, version, changes, resets)
    for name, reset in [*[(name, False) for name in changes], *[(name, True) for name in resets]]:
        event = PolicyChanged(
            at=NOW, actor="human", name=name, new=changes.get(name), reset=reset, policy_version=version + 1
        )
        unit.events.append(encode(event))
    return unit


def replace_policy(**values: Any) -> Any:
    """The shipped policy with some settings changed."""
    return msgspec.structs.replace(POLICY, **values)


def cut_in(redis: Redis, commands: Sequence[str], act: Callable[[], Awaitable[None]]) -> None:
    """Have something happen right behind the client's first command of these: another's work, or a death."""
    original: Any = redis.execute_command
    waiting = True

    async def execute(*args: Any, **options: Any) -> Any:
        nonlocal waiting
        answer = await original(*args, **options)
        if waiting and args[0] in commands:
            waiting = False
            await act()
        return answer

    redis.execute_command = execute  # type: ignore[method-assign]
