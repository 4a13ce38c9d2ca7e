"""A workspace to run passes over: notes written the way the service writes them, and a clock the test moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from redis.asyncio import Redis

from amnesiad.core.events import Created, Event, Scope, event_type
from amnesiad.core.kinds import Kind
from amnesiad.core.notes import Anchor, Note, Words
from amnesiad.core.policy import Policy
from amnesiad.settings import load_settings
from amnesiad.store import workspaces
from amnesiad.store.keyring import Keyring
from amnesiad.store.keys import Keys
from amnesiad.store.log import Log, Outcome, Unit
from amnesiad.store.owners import NO_OWNER, expect_open, read_owner, reopened, set_owner
from amnesiad.store.policies import read_policy, write_policy
from amnesiad.store.units import Builder
from amnesiad.store.vault import heads
from amnesiad_workers.passes import Context

START_MS = 1_700_000_000_000
MINUTE = 60_000
KEYRING = Keyring(b"k" * 32)
SETTINGS = load_settings(environ={})
POLICY: Policy = msgspec.structs.replace(SETTINGS.policy, max_store_bytes=1 << 30)


@dataclass
class World:
    """One workspace and the time it is."""

    redis: Any
    ws: str
    now: int = START_MS
    policy: Policy = POLICY
    keys: Keys = field(init=False)
    log: Log = field(init=False)

    def __post_init__(self) -> None:
        self.keys = Keys(self.ws)
        self.log = Log(self.redis, self.keys)

    @property
    def context(self) -> Context:
        """What a pass is given; its clock is this world's."""
        return Context(
            self.redis,
            KEYRING,
            self.policy,
            lambda: self.now,
            session_lease=SETTINGS.session_lease,
            child_lease=SETTINGS.child_lease,
        )

    async def remember(
        self,
        *ids: str,
        kind: Kind = "fact",
        ttl_ms: int | None = MINUTE,
        scope: Scope = "workspace",
        owner: str | None = None,
        incarnation: int | None = None,
        pinned: bool = False,
        anchors: Sequence[Anchor] = (),
    ) -> None:
        """Write notes with those ids, now. Their content names them."""
        policy = await read_policy(self.redis, self.keys, self.policy)
        units = []
        for note_id in ids:
            words = Words(content=f"the words of {note_id}", tags=("t",), anchors=tuple(anchors))
            builder = Builder(self.keys, KEYRING, policy.policy, policy.version)
            created = Created(
                note=note_id,
                version=1,
                at=self.now,
                actor="agent:a",
                kind=kind,
                provenance="agent",
                size=words.size(),
                scope=scope,
                owner=owner,
                incarnation=incarnation,
                ttl_ms=ttl_ms,
                curve="flat",
                pinned=pinned,
            )
            builder.change(None, [created], None, words)
            units.append(builder.build())
        assert {outcome.status for outcome in await self.log.commit_now(units)} <= {"ok"}

    async def call(self, owner: str, note_id: str) -> Outcome:
        """A scoped write as an agent's call does it: the owner is opened if it is not, and compared if it is."""
        known = await read_owner(self.redis, self.keys, owner)
        policy = await read_policy(self.redis, self.keys, self.policy)
        builder = Builder(self.keys, KEYRING, policy.policy, policy.version)
        mine = known if known.open else reopened(known, self.now)
        if known.open:
            expect_open(builder.unit, owner, known)
        else:
            set_owner(builder.unit, self.keys, owner, known, mine, self.now)
        words = Words(content=f"the words of {note_id}")
        created = Created(
            note=note_id,
            version=1,
            at=self.now,
            actor="agent:a",
            kind="finding",
            provenance="agent",
            size=words.size(),
            scope="session",
            owner=owner,
            incarnation=mine.incarnation,
        )
        builder.change(None, [created], None, words)
        return await self.log.commit(builder.build())

    async def open(self, owner: str) -> int:
        """Open an owner as a call would, and return its incarnation."""
        known = await read_owner(self.redis, self.keys, owner)
        new, unit = reopened(known, self.now), Unit()
        set_owner(unit, self.keys, owner, NO_OWNER if known == NO_OWNER else known, new, self.now)
        assert (await self.log.commit(unit)).status == "ok"
        return new.incarnation

    async def note(self, note_id: str) -> Note | None:
        """The note behind a head, if there is one."""
        found = (await heads(self.redis, self.keys, [note_id]))[0]
        return getattr(found, "note", None)

    async def events(self, note_id: str | None = None) -> list[Event]:
        """The log, or one note's part of it."""
        return [
            entry.event
            async for entry in self.log.entries()
            if note_id is None or getattr(entry.event, "note", None) == note_id
        ]

    async def counts(self) -> Counter[str]:
        """How many events of each type the log holds."""
        return Counter(event_type(event) for event in await self.events())

    async def once_each(self, name: str) -> bool:
        """Whether no note has more than one event of that type."""
        seen = Counter(getattr(event, "note", "") for event in await self.events() if event_type(event) == name)
        return set(seen.values()) <= {1}

    async def dump(self) -> dict[str, object]:
        """Every key of the workspace with its value, to see that nothing moved."""
        found: dict[str, object] = {}
        async for key in self.redis.scan_iter(match=f"{self.keys.prefix}*"):
            found[key.decode()] = await self.redis.dump(key)
        return found


async def new_world(redis: Redis, name: str = "w") -> World:
    """A new workspace."""
    return World(redis, await workspaces.find_or_create(redis, name))


async def set_policy(world: World, version: int, **changes: object) -> None:
    """Change live settings, as the service does."""
    unit = Unit()
    write_policy(unit, world.keys, version, changes, ())
    assert (await world.log.commit(unit)).status == "ok"


def ids(count: int, prefix: str = "n") -> list[str]:
    """That many note ids."""
    return [f"{prefix}{number:08d}" for number in range(count)]
