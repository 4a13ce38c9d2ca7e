"""The bridge: lifecycle events from the stream become effects. An event is acknowledged once its effect is sure.

A daemon is one consumer of the group. What is cheap (an owner opens, shows a sign of life, is closed; a session's
ledger goes) is done here, in the order of the stream, before the next event is looked at; the ending of notes is a job,
enqueued and acknowledged in one step. Everything may be done twice without harm, so an event that was handled and not
acknowledged is simply handled again, by whichever daemon claims it.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

from amnesiad import wire
from amnesiad.bridge.jobs import Job, Jobs
from amnesiad.core.callers import CHILD_KINDS, AgentKind
from amnesiad.core.lifecycle import (
    Check,
    Compacted,
    Effect,
    End,
    LifecycleEvent,
    Open,
    Settle,
    Touch,
    check_event,
    effects,
    leaves_kind_open,
    owner_of,
)
from amnesiad.core.policy import Policy
from amnesiad.errors import AmnesiaError, NotFound, StoreUnavailable
from amnesiad.secretscan import SecretScan
from amnesiad.store.contexts import forget_shown
from amnesiad.store.faults import store_errors
from amnesiad.store.keys import BRIDGE_GROUP, DEAD, LIFECYCLE, Keys
from amnesiad.store.log import Log, seq_key
from amnesiad.store.owners import close_owners, open_owner, read_owner, touch_owners
from amnesiad.store.policies import read_policy
from amnesiad.store.workspaces import find

BATCH: Final = 200
"""Events per read, so that one acknowledgement and one enqueuing serve many."""
BLOCK_MS: Final = 2_000
"""How long a read waits for events; it must stay below the client's socket timeout."""
CLAIM_EVERY_S: Final = 5.0
CLAIM_IDLE_MS: Final = 5_000
"""An event that was delivered this long ago and is not acknowledged belongs to nobody any more; or to one who is slow,
and then it is handled twice."""
MAX_DELIVERIES: Final = 10
"""An event that broke its handler this often is poison, whatever it looks like."""
MAX_EVENT_BYTES: Final = 64 * 1024
"""A larger event is poison: 256 paths of some length fit in. Of what is parked no more than this is kept."""
MAX_ERROR_CHARS: Final = 300
RETRY_S: Final = 0.5
"""Between tries while the store is away."""
MAX_CLEAN_IDS: Final = 20_000
"""Ids that were looked at and hold no secret, remembered so that each is looked at once."""
MASK: Final = "*"
"""Stands for an id that must not be told. It is none itself, so that a retry of the event is put aside again."""
_IDS: Final = ("id", "session", "agent", "team", "parent", "source")
_STRINGS: Final = re.compile(r'"([^"]{16,})"')
"""Long strings in what should have been JSON."""

logger = structlog.get_logger()
_Entry = tuple[bytes, dict[bytes, bytes]]


class _Poison(Exception):
    """An event that no repetition will mend; its message goes to the dead-letter stream. ``kept`` is what goes there
    instead of the event where that must not be kept as it came."""

    def __init__(self, message: str, kept: bytes | None = None) -> None:
        super().__init__(message)
        self.kept = kept


class _Scene(NamedTuple):
    """A workspace as one batch of events sees it."""

    log: Log
    policy: Policy


class _Batch:
    """What a batch of events adds up to: jobs, ids to acknowledge, signs of life, workspaces whose files to look at."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.acknowledged: list[str] = []
        self.signs: dict[str, dict[str, int]] = {}
        self.checks: set[str] = set()
        self.scenes: dict[str, _Scene | None] = {}


class Bridge:
    """One consumer of the lifecycle stream. ``run`` until cancelled; nothing is lost by cancelling it."""

    def __init__(self, redis: Redis, jobs: Jobs, base: Policy, secrets_: SecretScan) -> None:
        self._redis = redis
        self._jobs = jobs
        self._base = base
        self._secrets = secrets_
        self._clean: set[str] = set()
        self._consumer = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._next_claim = 0.0

    async def run(self) -> None:
        """Never returns. While the store is away it waits and goes on where it was."""
        ready = False
        while True:
            try:
                if not ready:
                    await self._make_group()
                    ready = True
                await self.turn()
            except StoreUnavailable:
                await asyncio.sleep(RETRY_S)
            except ResponseError:
                ready = False  # The stream was deleted, and the group with it.
            except AmnesiaError as error:
                logger.error("the bridge stumbled", error=type(error).__name__, code=error.code)
                await asyncio.sleep(RETRY_S)

    async def turn(self, block_ms: int = BLOCK_MS) -> int:
        """Handle what nobody holds any more and what is new; returns how many events that were.

        Raises ``StoreUnavailable``, and ``ResponseError`` where the group is gone.
        """
        handled = 0
        if time.monotonic() >= self._next_claim:
            handled += await self._claim()
            self._next_claim = time.monotonic() + CLAIM_EVERY_S
        rows = await self._call(
            "xreadgroup", BRIDGE_GROUP, self._consumer, {LIFECYCLE: ">"}, count=BATCH, block=block_ms
        )
        entries = rows[0][1] if rows else []
        await self.handle(entries)
        return handled + len(entries)

    async def _make_group(self) -> None:
        try:
            await self._call("xgroup_create", LIFECYCLE, BRIDGE_GROUP, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        self._next_claim = 0.0

    async def _call(self, command: str, *args: Any, **kwargs: Any) -> Any:
        """One stream command. What the server says of the group stays as it is, everything else becomes an error of
        ours."""
        try:
            return await getattr(self._redis, command)(*args, **kwargs)
        except (RedisError, OSError) as error:
            if isinstance(error, ResponseError) and str(error).startswith(("NOGROUP", "BUSYGROUP")):
                raise
            with store_errors():
                raise

    async def _claim(self) -> int:
        """Take over what a dead daemon, or this one in a bad moment, left unacknowledged; what was deleted meanwhile
        the server takes off the list by itself."""
        cursor, handled = b"0-0", 0
        while True:
            cursor, entries, _ = await self._call(
                "xautoclaim", LIFECYCLE, BRIDGE_GROUP, self._consumer, CLAIM_IDLE_MS, start_id=cursor, count=BATCH
            )
            if entries:
                span = {"min": entries[0][0], "max": entries[-1][0], "count": 2 * len(entries)}
                rows = await self._call("xpending_range", LIFECYCLE, BRIDGE_GROUP, **span)
                times = {row["message_id"]: row["times_delivered"] for row in rows}
                worn = [entry for entry in entries if times.get(entry[0], 0) > MAX_DELIVERIES]
                for seq, fields in worn:
                    await self._park(seq, fields, f"broke its handler {MAX_DELIVERIES} times")
                await self._jobs.hand_over([], [seq.decode() for seq, _ in worn])
                await self.handle([entry for entry in entries if entry not in worn])
                handled += len(entries)
            if cursor == b"0-0":
                return handled

    # -- handling ------------------------------------------------------------------------------------------------------

    async def handle(self, entries: Sequence[_Entry]) -> None:
        """Carry out a batch of events and acknowledge them. An event that broke us stays and is claimed later."""
        batch = _Batch()
        for seq, fields in entries:
            try:
                await self._event(batch, seq.decode(), fields)
            except StoreUnavailable:
                raise
            except _Poison as error:
                await self._park(seq, fields, str(error), error.kept)
            except Exception as error:
                logger.error("a lifecycle event broke its handler", id=seq.decode(), error=type(error).__name__)
                continue
            batch.acknowledged.append(seq.decode())
        for ws, signs in batch.signs.items():
            await touch_owners(self._redis, Keys(ws), signs)
        for ws in sorted(batch.checks):
            # One that runs already may have passed the file by; one that waits behind it has not.
            if not await self._jobs.enqueue("check_anchors", ws, key=ws):
                await self._jobs.enqueue("check_anchors", ws, key=f"{ws}-next")
        await self._jobs.hand_over(batch.jobs, batch.acknowledged)

    async def _event(self, batch: _Batch, seq: str, fields: dict[bytes, bytes]) -> None:
        try:
            event = _read(fields)
        except _Poison as error:
            raise await self._told(fields, error) from None
        scene = await self._scene(batch, event.workspace)
        mode = (self._base if scene is None else scene.policy).secret_guard
        if mode != "off":
            await self._guard(event)
        if scene is None:
            return  # Nobody has written there, so nothing can end.
        event = await self._of_its_kind(scene, event)
        heard_at = seq_key(seq)[0]
        for effect in effects(event, scene.policy):
            try:
                await self._effect(batch, scene, effect, event, seq, heard_at)
            except NotFound:
                return  # Dropped meanwhile.

    async def _guard(self, event: LifecycleEvent) -> None:
        """Ids enter cells, names of keys and the log for good, whoever put the event on the stream. Raises ``_Poison``
        for one that looks like a secret; what is kept of the event then tells no id."""
        for name in _IDS:
            value = getattr(event, name)
            if value is None or value in self._clean:
                continue
            if types := await self._secrets.types((value,)):
                masked = {one: MASK for one in _IDS if getattr(event, one) is not None}
                kept = msgspec.json.encode(msgspec.structs.replace(event, **masked, paths=()))
                raise _Poison(f"{name} looks like a secret: {', '.join(types)}", kept)
            if len(self._clean) >= MAX_CLEAN_IDS:
                self._clean.clear()
            self._clean.add(value)

    async def _told(self, fields: dict[bytes, bytes], error: _Poison) -> _Poison:
        """What may be told of an event that cannot be read: nothing of it, where a secret seems to be in it."""
        mode = self._base.secret_guard
        if mode == "off":
            return error
        text = fields.get(b"e", b"")[:MAX_EVENT_BYTES].decode(errors="replace")
        if types := await self._secrets.types((text, *_STRINGS.findall(text))):
            return _Poison(f"it cannot be read, and something in it looks like a secret: {', '.join(types)}", b"")
        return error

    async def _of_its_kind(self, scene: _Scene, event: LifecycleEvent) -> LifecycleEvent:
        """The event with the kind of child its owner began as, where it ends one without saying which."""
        owner = owner_of(event) if leaves_kind_open(event) else None
        if owner is None:
            return event
        known = (await read_owner(self._redis, scene.log.keys, owner)).agent_kind
        if known not in CHILD_KINDS:
            return event
        return msgspec.structs.replace(event, agent_kind=cast(AgentKind, known))

    async def _scene(self, batch: _Batch, name: str) -> _Scene | None:
        if name not in batch.scenes:
            ws = await find(self._redis, name)
            try:
                batch.scenes[name] = (
                    None
                    if ws is None
                    else _Scene(
                        Log(self._redis, Keys(ws)), (await read_policy(self._redis, Keys(ws), self._base)).policy
                    )
                )
            except NotFound:
                batch.scenes[name] = None
        return batch.scenes[name]

    async def _effect(
        self, batch: _Batch, scene: _Scene, effect: Effect, event: LifecycleEvent, seq: str, heard_at: int
    ) -> None:
        log, ws = scene.log, scene.log.keys.ws
        match effect:
            case Open(owner=owner, agent_kind=agent_kind):
                await open_owner(
                    log,
                    owner,
                    heard_at=heard_at,
                    at=event.at,
                    source=event.source,
                    agent_kind=agent_kind,
                )
                batch.signs.setdefault(ws, {})[owner] = heard_at
            case Touch(owner=owner):
                batch.signs.setdefault(ws, {})[owner] = heard_at
            case End(owner=owner, children=children):
                # Closed here and now, so that a start right behind this end is not taken for one of the same life.
                await close_owners(log, owner, children=children, heard_at=heard_at, at=event.at, source=event.source)
                args = (ws, owner, heard_at, event.at, event.source, children)
                batch.jobs.append(Job("unplug", args, key=f"{ws}-{seq}"))
            case Settle():
                self._jobs.due(ws, heard_at)
            case Check():
                batch.checks.add(ws)
            case Compacted(context=context):
                await forget_shown(self._redis, log.keys, context)

    async def _park(self, seq: bytes, fields: dict[bytes, bytes], error: str, kept: bytes | None = None) -> None:
        """Put an event aside, as it came, with what is wrong with it. With ``kept`` that takes its place, and the event
        is deleted from the stream it came by."""
        raw = fields.get(b"e", b"")[:MAX_EVENT_BYTES] if kept is None else kept
        logger.warning("a lifecycle event was put aside", id=seq.decode(), error=error)
        with store_errors():
            pipe = self._redis.pipeline(transaction=True)
            pipe.xadd(DEAD, {"e": raw, "error": error[:MAX_ERROR_CHARS], "id": seq})
            if kept is not None:
                pipe.xdel(LIFECYCLE, seq)
            await pipe.execute()


def _read(fields: dict[bytes, bytes]) -> LifecycleEvent:
    """The event in an entry. Raises ``_Poison`` saying what is wrong with it."""
    raw = fields.get(b"e")
    if raw is None:
        raise _Poison("the entry has no field e")
    if len(raw) > MAX_EVENT_BYTES:
        raise _Poison(f"the event is {len(raw)} bytes, the limit is {MAX_EVENT_BYTES}")
    try:
        return check_event(wire.decode_lifecycle(raw))
    except AmnesiaError as error:
        raise _Poison(error.message) from None
