"""A status line's question: from counts that may be some seconds old, for what the caller may see; and ``status``
itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.daemon.desk import DAY, HUMAN, WORKSPACE, ManualClock, call, remember

from amnesiad import wire
from amnesiad.core.errors import Invalid
from amnesiad.core.render import glance_line
from amnesiad.service import Service
from amnesiad.service.hooks.status_line import MAX_AGE_MS
from amnesiad.store import vault


async def glance(service: Service, payload: dict[str, Any] | None = None, named: str | None = WORKSPACE) -> str:
    """Ask as the door would."""
    pairs = {} if named is None else {"workspace": named}
    return await service.glance(wire.decode_hook("statusline", pairs, msgspec.json.encode(payload or {})))


@pytest.mark.parametrize(
    ("figures", "line"),
    [
        ((12, 3, 1234, 130_000), "🧠 12 active · 3 stale · 1.2k tok · last forgotten 2 min ago"),
        ((0, 0, 0, None), "🧠 0 active"),
        ((1, 0, 36, 59_999), "🧠 1 active · 36 tok · last forgotten just now"),
        ((1, 0, 999, 7_200_000), "🧠 1 active · 999 tok · last forgotten 2 h ago"),
        ((1, 0, 1000, 3 * DAY), "🧠 1 active · 1.0k tok · last forgotten 3 d ago"),
        ((9, 0, 2_240_200, None), "🧠 9 active · 2.2M tok"),
    ],
)
def test_the_line(figures: tuple[int, int, int, int | None], line: str) -> None:
    """Short, and without what is nought."""
    active, stale, tokens, ago = figures
    assert glance_line(active=active, stale=stale, tokens=tokens, forgotten_ago_ms=ago) == line


async def test_counts_are_taken_anew_after_a_while(service: Service, clock: ManualClock) -> None:
    """A note that comes is not counted at once, and is after ten seconds; status is always exact."""
    await remember(service, "one")
    assert (await glance(service)).startswith("🧠 1 active")
    await remember(service, "two")
    assert (await glance(service)).startswith("🧠 1 active")
    assert (await call(service, "status")).counts.active == 2
    clock.advance(MAX_AGE_MS + 1)
    assert (await glance(service)).startswith("🧠 2 active")


async def test_the_latest_end_is_always_told(service: Service, clock: ManualClock) -> None:
    """That somebody forgot something is what the line is looked at for."""
    note = await remember(service, "one")
    assert "forgotten" not in await glance(service)
    await call(service, "forget", id=note)
    clock.advance(120_000)
    assert (await glance(service)) == "🧠 0 active · last forgotten 2 min ago"


async def test_what_others_forgot_is_not_read_for_every_line(
    service: Service, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet's children forget thousands of notes that the session does not see: its line, status and audit read them
    once, and again when another is forgotten."""
    child = {"session": "s1", "agent": "a1", "agent_kind": "subagent"}
    for number in range(9):
        note_id = await remember(service, f"scrap {number}", caller=child)
        await call(service, "forget", id=note_id, caller=child)
    walks, graves = 0, vault.graves

    def counted(*args: Any, **fields: Any) -> Any:
        nonlocal walks
        walks += 1
        return graves(*args, **fields)

    monkeypatch.setattr(vault, "graves", counted)
    for _ in range(3):
        assert "forgotten" not in await glance(service, {"session_id": "s1"})
        status = await call(service, "status", caller={"session": "s1"})
        assert (status.counts.forgotten, status.recent) == (0, ())
        assert (await call(service, "audit", caller={"session": "s1"})).entries == ()
    assert walks == 1
    mine = await remember(service, "one")
    await call(service, "forget", id=mine)
    clock.advance(1)
    assert "last forgotten just now" in await glance(service, {"session_id": "s1"})
    assert [one.id for one in (await call(service, "audit", caller={"session": "s1"})).entries] == [mine]


async def test_a_session_sees_what_its_agent_does(service: Service, clock: ManualClock) -> None:
    """Its own notes and the workspace's, not another session's; an id that is none counts as none."""
    await remember(service, "all")
    await remember(service, "mine", scope="session", caller={"session": "s1"})
    for session, count in (("s1", 2), ("s2", 1), ("no token", 1), (None, 1)):
        clock.advance(MAX_AGE_MS + 1)
        assert (await glance(service, {"session_id": session})).startswith(f"🧠 {count} active"), session


async def test_one_count_serves_every_session(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty agents that draw at once cost one look at the notes."""
    await remember(service, "one")
    (workspace,) = service._workspaces.values()
    looks = 0
    settled = workspace.settled

    def counted(note_id: str, now: int) -> Any:
        nonlocal looks
        looks += 1
        return settled(note_id, now)

    monkeypatch.setattr(workspace, "settled", counted)
    lines = await asyncio.gather(*(glance(service, {"session_id": f"s{number}"}) for number in range(40)))
    assert set(lines) == {lines[0]}
    assert looks == 1


async def test_the_directory_names_the_workspace(service: Service, tmp_path: Path) -> None:
    """As it does for hooks; a name goes before it, and where neither is there the field is named."""
    await call(service, "remember", workspace=str(tmp_path), content="here")
    drawn = {"workspace": {"current_dir": str(tmp_path), "project_dir": "/x"}, "cwd": "/y", "model": {}}
    assert (await glance(service, drawn, None)).startswith("🧠 1 active")
    assert (await glance(service, {"cwd": str(tmp_path)}, None)).startswith("🧠 1 active")
    assert (await glance(service, drawn | {"session_id": ["?"], "cwd": 7}, None)).startswith("🧠 1 active")
    assert await glance(service, drawn) == ""
    for payload in (
        {}, {"cwd": "relative"}, {"workspace": {"current_dir": None}}, {"cwd": "/a\x00b"}, {"cwd": 7}, {"workspace": "/a"},
    ):  # fmt: skip
        with pytest.raises(Invalid, match="directory"):
            await glance(service, payload, None)
    with pytest.raises(Invalid):
        await glance(service, {"workspace": []}, None)


async def test_glancing_makes_and_renews_nothing(service: Service) -> None:
    """A line that is drawn at each prompt must leave no trace."""
    assert await glance(service, {"session_id": "s1"}) == ""
    assert (await call(service, "workspaces")).rows == ()
    note = await remember(service, "one")
    before = (await call(service, "inspect", id=note)).note
    await glance(service, {"session_id": "s1"})
    after = (await call(service, "inspect", id=note)).note
    assert (after.access_count, after.expires_at) == (before.access_count, before.expires_at)
    assert (await call(service, "owners")).rows == ()


async def test_status_lets_others_be_answered(service: Service) -> None:
    """It counts in slices: while three thousand notes are looked at, another request is answered."""
    items = [{"verb": "remember", "body": {"content": f"note {number}", "kind": "finding"}} for number in range(1000)]
    for part in range(3):
        for item in items:
            item["body"]["content"] += f" {part}"  # type: ignore[index]
        await service.batch(wire.decode("batch", msgspec.json.encode({"workspace": WORKSPACE, "requests": items})))
    (workspace,) = service._workspaces.values()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    busy = asyncio.create_task(others())
    counts, tokens, _ = await service.counts(workspace, wire.CallerSpec(**HUMAN).to_core(), service.clock.now_ms())
    seen = turns
    busy.cancel()
    assert counts.active == 3000
    assert tokens > 0
    assert seen > 3
