"""What the tests of the service stand on: a clock to move, a recorder in place of the worker, and a way to ask."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

import msgspec
from redis.asyncio import Redis
from tests.support import dump

from amnesiad import wire
from amnesiad.core.errors import AmnesiaError
from amnesiad.core.kinds import DAY_MS
from amnesiad.service import Service
from amnesiad.service.writing.change import Change
from amnesiad.store import due
from amnesiad.store.workspaces import find
from amnesiad.workspace import Workspace

WORKSPACE: Final = "desk"
HUMAN: Final[dict[str, Any]] = {"role": "human"}
DAY: Final = DAY_MS


class ManualClock:
    """A store clock that moves only when a test says so: thirty days are an argument, not a wait."""

    def __init__(self, now_ms: int) -> None:
        self._now = now_ms

    @property
    def stale(self) -> bool:
        return False

    @property
    def doubt_ms(self) -> float:
        return 0.0

    def now_ms(self) -> int:
        return self._now

    async def sync(self, client: Redis) -> None:
        """Nothing to ask: the test is the clock."""

    def advance(self, ms: int) -> int:
        """Let time pass; returns the time it is now."""
        self._now += ms
        return self._now


class Recorder:
    """The worker's place: what the service asked for, and nothing of it done."""

    def __init__(self) -> None:
        self.scrubs = 0
        self.ended: list[tuple[str, str]] = []
        self.refiled: list[str] = []
        self.ran: list[tuple[str, ...]] = []
        self.dues: list[tuple[str, int]] = []

    async def scrub(self) -> None:
        self.scrubs += 1

    async def end_owner(self, ws: str, owner: str) -> None:
        self.ended.append((ws, owner))

    async def refile(self, ws: str) -> None:
        self.refiled.append(ws)

    async def run(self, name: str, *args: str) -> dict[str, Any]:
        self.ran.append((name, *args))
        return {}

    async def worker_status(self) -> wire.WorkerStatus:
        return wire.WorkerStatus(alive=False, lag_ms=None)

    def due(self, ws: str, at: int) -> None:
        self.dues.append((ws, at))


async def call(service: Service, verb: str, **fields: Any) -> Any:
    """Ask for a verb as the door would: the fields go through ``wire.decode`` first."""
    request = wire.decode(verb, msgspec.json.encode({"workspace": WORKSPACE, **fields}))
    return await getattr(service, wire.VERBS[verb].method)(request)


async def remember(service: Service, content: str, **fields: Any) -> str:
    """Write a note and return its id."""
    return str((await call(service, "remember", content=content, **fields)).id)


async def happened(service: Service, *events: dict[str, Any]) -> Any:
    """Report lifecycle events as the door would."""
    request = wire.decode("events", msgspec.json.encode({"events": events}))
    return await service.events(request)


async def recalled(service: Service, query: str | None = None, **fields: Any) -> list[str]:
    """The contents a recall returns, in its order."""
    asked = fields if query is None else {"query": query, **fields}
    return [note.content for note in (await call(service, "recall", **asked)).notes]


async def listed(service: Service, **fields: Any) -> list[str]:
    """The ids a list returns."""
    return [note.id for note in (await call(service, "list", limit=1000, **fields)).notes]


async def state_of(service: Service, note_id: str, **fields: Any) -> str:
    """The state that inspect shows, to a human unless the fields say otherwise."""
    return str((await call(service, "inspect", id=note_id, **({"caller": HUMAN} | fields))).note.state)


async def kept(service: Service, name: str = WORKSPACE) -> dict[str, Any]:
    """Everything the store holds of a workspace, key by key."""
    ws = await find(service.redis, name)
    return {} if ws is None else await dump(service.redis, f"amnesia:{{{ws}}}:*")


async def projection(service: Service, name: str = WORKSPACE) -> Workspace:
    """The service's own view of a workspace."""
    workspace = await service.open(name, create=False)
    assert workspace is not None
    return workspace


async def log_types(service: Service, name: str = WORKSPACE) -> list[str]:
    """The types of all events in the log, oldest first."""
    workspace = await projection(service, name)
    return [msgspec.to_builtins(entry.event)["type"] async for entry in workspace.log.entries()]


async def sweep(service: Service, name: str = WORKSPACE) -> int:
    """Write down what time owes every note, as the worker's pass does; returns how many notes moved."""
    workspace = await projection(service, name)
    await workspace.catch_up()
    moved = 0
    for note_id in [id_ for id_, at in workspace.due.items() if at <= service.clock.now_ms()]:
        change = Change(workspace, service.clock.now_ms())
        change.owe(note_id)
        unit = change.finish()
        if unit is not None:
            outcome = await workspace.log.commit(unit)
            if outcome.status == "ok":
                workspace.absorb(outcome, change.results)
                moved += 1
    return moved


async def refile(service: Service, name: str = WORKSPACE) -> None:
    """File every note at its due time under the policy as it is, as the worker does after a change of it."""
    workspace = await projection(service, name)
    await workspace.catch_up()
    filings = [due.Filing(note.id, note.version, workspace.due.get(note.id)) for note in workspace.notes.values()]
    assert await due.refile(service.redis, workspace.keys, workspace.policy_version, filings) is not None


async def refused(work: Awaitable[Any]) -> AmnesiaError:
    """The refusal that the work must end in."""
    try:
        answer = await work
    except AmnesiaError as error:
        return error
    raise AssertionError(f"it was not refused but answered {type(answer).__name__}")


async def refused_unchanged(service: Service, verb: str, **fields: Any) -> AmnesiaError:
    """The refusal that the verb ends in, once every key of the workspace was found as it was before."""
    name = str(fields.get("workspace", WORKSPACE))
    await service.quiesce()
    before = await kept(service, name)
    error = await refused(call(service, verb, **fields))
    await service.quiesce()
    assert await kept(service, name) == before, "a refusal changed the store"
    return error


async def problems(service: Service, name: str = WORKSPACE) -> tuple[str, ...]:
    """What verify finds: the proof that heads, cells, members, due times and totals follow from the log."""
    return tuple((await call(service, "verify", workspace=name)).problems)
