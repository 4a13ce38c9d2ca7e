"""A projection is derived: whatever two daemons do at once, each ends with what a third one loads from the store."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from redis.asyncio import Redis
from tests.daemon.conftest import serve
from tests.daemon.desk import DAY, HUMAN, ManualClock, call, kept, listed, problems, projection, refile, remember, sweep

from amnesiad import wire
from amnesiad.core.callers import Caller
from amnesiad.core.errors import AmnesiaError
from amnesiad.core.notes import Note
from amnesiad.core.strongest import TIERS
from amnesiad.search import Standing
from amnesiad.service import Service
from amnesiad.store import policies
from amnesiad.workspace import Workspace

CALLERS: tuple[dict[str, Any], ...] = (
    {},
    HUMAN,
    {"session": "s1"},
    {"session": "s1", "agent": "a1", "agent_kind": "subagent"},
    {"session": "s1", "team": "s1", "on_behalf": "user"},
)
TEXTS = tuple(f"belief {n} about the {word}" for n in range(6) for word in ("port", "cache"))
KINDS = ("fact", "episode", "finding", "task", "directive")


def _seen(workspace: Workspace) -> dict[str, object]:
    """Everything a projection derives from the store, in a form that can be compared."""
    return {
        "notes": workspace.notes,
        "words": workspace.words,
        "due": workspace.due,
        "bytes": workspace.bytes,
        "live": {note_id for note_id in workspace.notes if note_id in workspace.live},
        "ended": {note_id for note_id in workspace.notes if note_id in workspace.ended},
        "sizes": (len(workspace.live), len(workspace.ended)),
        "triggered": {note_id for note_id in workspace.notes if note_id in workspace.triggered},
        "pathed": len(workspace.pathed),
        "active": {note.id for tier in TIERS for note in workspace.active(Caller(role="human"), 0).strongest(tier)},
        "ended perishables": set(workspace.ended_perishables),
        "texts": workspace._texts,
        "slots": workspace._slots,
        "policy": (workspace.policy, workspace.policy_version, workspace.overrides),
        "position": workspace.position,
        "unreadable": workspace.unreadable,
    }


def _request(dice: random.Random, ids: list[str]) -> tuple[str, dict[str, Any]]:
    """Some request, sensible or not."""
    verb = dice.choice(
        ["remember"] * 8
        + ["supersede", "revoke", "flag", "reinstate", "pin", "unpin", "renew", "done", "promote", "edit", "undo"]
        + ["forget", "restore", "recall", "inject", "fire", "list", "policy"]
    )
    fields: dict[str, Any] = {"caller": dice.choice(CALLERS)}
    if "id" in wire.VERBS[verb].request.__struct_fields__:
        fields["id"] = dice.choice(ids)
    if verb in ("remember", "supersede"):
        fields["content"] = dice.choice(TEXTS)
        if dice.random() < 0.4:
            fields["key"] = dice.choice(["port", "cache"])
        if dice.random() < 0.3:
            fields["tags"] = [dice.choice("abc")]
            fields["triggers"] = [{"event": "pre-run"}]
    if verb == "remember":
        fields["kind"] = dice.choice(KINDS)
        if dice.random() < 0.2:
            fields["ttl_ms"] = dice.choice(["1d", "20d"])
        elif dice.random() < 0.1:
            fields["pinned"] = True
        elif dice.random() < 0.2:
            fields["supersedes"] = dice.choice(ids)
    if verb in ("revoke", "flag", "undo", "pin"):
        fields["reason"] = "because"
    if verb == "promote":
        fields["to"] = dice.choice(["workspace", "agent", "human"])
    if verb == "edit":
        fields["tags"] = [dice.choice("abcd")]
    if verb in ("recall", "inject"):
        fields["query"] = dice.choice(TEXTS)
    if verb == "fire":
        fields["event"] = "pre-run"
    if verb == "policy":
        fields["set"] = {dice.choice(["record_ttl", "default_ttl"]): dice.choice(["40d", "5d", "90d"])}
    return verb, fields


@pytest.mark.parametrize("round_", range(4))
async def test_every_daemon_ends_with_the_same_view(
    redis: Redis, service: Service, second: Service, clock: ManualClock, round_: int
) -> None:
    """C02, C32, C50: after some hundreds of requests, sensible or not, at two daemons at once while time passes, both
    projections are what a fresh daemon loads, and the store proves to be what its log says."""
    dice = random.Random(f"{random.random()}{round_}")
    await call(service, "policy", set={"max_store_bytes": 600, "restorable": dice.random() < 0.5})
    ids = [await remember(service, "the first note")]
    codes: set[str] = set()
    for _ in range(60):
        requests = [_request(dice, ids) for _ in range(6)]
        answers = await asyncio.gather(
            *(call(dice.choice((service, second)), verb, **fields) for verb, fields in requests),
            return_exceptions=True,
        )
        for answer in answers:
            if isinstance(answer, AmnesiaError):
                codes.add(answer.code)
            elif isinstance(answer, BaseException):
                raise answer
            elif isinstance(answer, wire.RememberAnswer | wire.RestoreAnswer):
                ids.append(answer.id)
        if dice.random() < 0.2:
            clock.advance(dice.choice((60_000, DAY, 9 * DAY)))
        if dice.random() < 0.2:
            await sweep(dice.choice((service, second)))
    await asyncio.gather(service.quiesce(), second.quiesce())
    assert codes <= {"refused", "forbidden", "not_found", "invalid", "store_full"}, codes
    await refile(service)
    assert await problems(service) == ()
    third = serve(redis, clock)
    views = []
    for asked in (service, second, third):
        await listed(asked)
        views.append(_seen(await projection(asked)))
    for view in views[:2]:
        for name, part in views[2].items():
            assert view[name] == part, name
    assert int(_totals(await kept(service)).get(b"perishable_bytes", 0)) <= 600


def _totals(stored: dict[str, Any]) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = next(value for key, value in stored.items() if key.endswith(":totals"))
    return found


async def test_a_late_reading_of_the_policy_is_dropped(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """C50: a policy that was read before a change but arrives after it never takes the place of the newer one."""
    await call(service, "policy", set={"default_ttl": "1d"})
    workspace = await projection(service)
    late = await policies.read_policy(service.redis, workspace.keys, workspace.base)
    await call(service, "policy", set={"default_ttl": "2d"})

    async def arrives_late(*_: object) -> policies.Effective:
        return late

    monkeypatch.setattr("amnesiad.workspace.read_policy", arrives_late)
    await workspace.reload_policy()
    assert (workspace.policy.default_ttl, workspace.policy_version) == (2 * DAY, late.version + 1)


async def test_a_policy_of_many_changes_is_taken_in_once(
    service: Service, second: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another daemon files its notes anew once for five settings, and not at all for those that move no clock."""
    note_id = await remember(service, "shelved")
    workspace = await projection(second)
    filed: list[str] = []
    file = workspace._file

    def noted(note: Note) -> Standing:
        filed.append(note.id)
        return file(note)

    monkeypatch.setattr(workspace, "_file", noted)
    five = {"stale_strength": 0.4, "forgotten_strength": 0.2, "ebbinghaus_k": 2, "max_deterrents": 1, "tie_width": 0.2}
    await call(service, "policy", set=five)
    before = (await projection(service)).due[note_id]
    assert (await call(second, "inspect", id=note_id)).note.next_transition.at == before
    assert filed == [note_id]
    await call(service, "policy", set={"max_injected_tokens": 10})
    await listed(second)
    assert (workspace.policy.max_injected_tokens, filed) == (10, [note_id])


async def test_a_note_that_cannot_be_read_stops_no_other(redis: Redis, service: Service, second: Service) -> None:
    """V09: a head of an unknown kind, or words that are damaged, hide that note alone; verify names it."""
    ids = [await remember(service, f"note {n}", kind="finding") for n in range(4)]
    keys = (await projection(service)).keys
    head = await redis.hget(keys.heads, ids[0])
    assert isinstance(head, bytes)
    await redis.hset(keys.heads, ids[0], head.replace(b'"finding"', b'"rumour"'))
    await redis.hset(keys.vault, ids[1], b"{damaged")
    assert sorted(await listed(second)) == sorted(ids[2:])
    assert set((await projection(second)).unreadable) == set(ids[:2])
    await call(second, "revoke", id=ids[2], reason="no")
    assert await listed(second) == [ids[3]]
    assert any(ids[0] in problem for problem in await problems(second))


async def test_a_store_that_lost_its_tail_is_loaded_anew(redis: Redis, service: Service) -> None:
    """C41: when the log ends before what a daemon has seen, as after a restore of an older copy, it loads
    everything."""
    await remember(service, "kept")
    keys = (await projection(service)).keys
    copies = {
        key: await redis.dump(key) for key in (keys.log, keys.heads, keys.vault, keys.cells, keys.due, keys.totals)
    }
    lost = await remember(service, "lost")
    assert lost in await listed(service)
    for key, copy in copies.items():
        assert copy is not None
        await redis.restore(key, 0, copy, replace=True)
    assert lost not in await listed(service)
    assert len(await listed(service)) == 1
    assert (await call(service, "remember", content="lost")).created


async def test_what_changes_while_it_is_loaded_is_read_again(
    service: Service, second: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between heads and words of a page one note is edited, one forgotten and one added: the load ends with all
    three."""
    edited = await remember(service, "the cache is warmed", kind="finding", tags=["old"])
    forgotten = await remember(service, "the port is 8080")
    read, added = second.redis.hmget, list[str]()

    async def overtaken(*args: Any) -> Any:
        if not added:
            added.append(await remember(service, "the nightly build fails"))
            await call(service, "edit", id=edited, tags=["new"])
            await call(service, "forget", id=forgotten)
        return await read(*args)

    monkeypatch.setattr(second.redis, "hmget", overtaken)
    assert sorted(await listed(second)) == sorted([edited, *added])
    assert _seen(await projection(second)) == _seen(await projection(service))
    assert (await projection(second)).notes[edited].version == 2
