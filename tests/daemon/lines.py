"""Lines out of an export and into an import, as the tests of both ask for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
from tests.daemon.desk import DAY, HUMAN, WORKSPACE, ManualClock, call, projection, remember

from amnesiad import wire
from amnesiad.core.notes import Note
from amnesiad.service import Service
from amnesiad.store import vault

ELSEWHERE = "elsewhere"


async def exported(service: Service, *, workspace: str = WORKSPACE, **fields: Any) -> list[bytes]:
    """Every line of an export, as a human gets it unless the fields say otherwise."""
    body = {"workspace": workspace, "caller": HUMAN, **fields}
    return [line async for line in service.export(wire.decode("export", msgspec.json.encode(body)))]


async def taken_in(
    service: Service, lines: Iterable[bytes | dict[str, Any]], *, workspace: str = ELSEWHERE, **fields: str
) -> wire.ImportAnswer:
    """Import lines as the door hands them on, as a human unless the fields say otherwise."""
    request = wire.decode_query(wire.ImportRequest, {"workspace": workspace, "role": "human", **fields})

    async def stream() -> AsyncIterator[bytes]:
        for line in lines:
            yield (line if isinstance(line, bytes) else msgspec.json.encode(line)).strip()

    return await service.import_notes(request, stream())


async def everything(service: Service, workspace: str) -> dict[str, tuple[Note, Any]]:
    """Each note ever issued as folded, with its words if it is not forgotten."""
    view = await projection(service, workspace)
    ids = [entry.event.note async for entry in view.log.entries() if hasattr(entry.event, "note")]
    found = await vault.find_many(service.redis, view.keys, sorted(set(ids)))
    notes = {}
    for one in found:
        assert isinstance(one.place, vault.Head | vault.Grave)
        note = one.place.note if isinstance(one.place, vault.Head) else one.place.tomb.note
        notes[note.id] = (note, one.words)
    return notes


def parsed(lines: Iterable[bytes]) -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for line in lines]


async def busy_life(service: Service, clock: ManualClock) -> dict[str, str]:
    """A workspace in which everything has happened once."""
    ids = {
        "plain": await remember(service, "the port is 8080", tags=["net"], kind="fact"),
        "pinned": await remember(service, "never push to main", kind="directive", caller=HUMAN),
        "renewed": await remember(service, "the build takes nine minutes", kind="episode", ttl_ms="20d"),
        "revoked": await remember(service, "the database is postgres 12", kind="finding"),
        "old": await remember(service, "deploys run on fridays", kind="decision", key="deploys"),
        "session": await remember(service, "trying the second fix", scope="session", caller={"session": "s1"}),
        "child": await remember(
            service, "the child's finding", caller={"session": "s1", "agent": "a1", "agent_kind": "subagent"}
        ),
        "forgotten": await remember(service, "a slip of the pen"),
        "task": await remember(service, "write the release notes", kind="task"),
    }
    ids["new"] = await remember(service, "deploys run on mondays", kind="decision", key="deploys")
    clock.advance(3 * DAY)
    await call(service, "renew", id=ids["renewed"])
    await call(service, "revoke", id=ids["revoked"], reason="it is postgres 16 since May")
    await call(service, "forget", id=ids["forgotten"])
    await call(service, "done", id=ids["task"])
    await call(service, "flag", id=ids["plain"], reason="somebody says 9090")
    await call(service, "edit", id=ids["plain"], tags=["net", "ports"])
    await call(service, "policy", set={"max_injected_tokens": 1234, "default_ttl": "45d"}, caller=HUMAN)
    return ids
