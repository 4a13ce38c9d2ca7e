"""The service writes: several daemons at once, slots, identical texts, replaced notes, drops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from tests.daemon.desk import (
    DAY,
    HUMAN,
    ManualClock,
    Recorder,
    call,
    listed,
    log_types,
    problems,
    projection,
    recalled,
    refused,
    refused_unchanged,
    remember,
    state_of,
    sweep,
)

from amnesiad import wire
from amnesiad.errors import NotFound
from amnesiad.service import Service
from amnesiad.store.workspaces import all_workspaces, find, find_or_create
from amnesiad.workspace import Workspace


async def test_two_daemons_writing_at_once_lose_nothing(service: Service, second: Service) -> None:
    """C02: two services write 20 notes each at once; both list all 40 and the log holds 40 created events."""
    await asyncio.gather(
        *(remember(service, f"first says {n}") for n in range(20)),
        *(remember(second, f"second says {n}") for n in range(20)),
    )
    ours, theirs = await listed(service), await listed(second)
    assert len(ours) == 40
    assert sorted(ours) == sorted(theirs)
    assert await log_types(service) == ["created"] * 40
    assert await problems(service) == ()


async def test_fifty_remembers_at_once_make_fifty_notes(service: Service) -> None:
    """C01, behind the door: fifty concurrent remembers end as fifty distinct notes."""
    ids = await asyncio.gather(*(remember(service, f"note {n}") for n in range(50)))
    assert len(set(ids)) == 50
    assert len(await listed(service)) == 50


async def test_a_note_that_supersedes_another_leaves_it_retained(service: Service) -> None:
    """C12: "love X", then "hate X" with ``supersedes``: the new one lives, the old is kept as superseded."""
    old = await remember(service, "the user loves tabs", kind="preference")
    answer = await call(service, "remember", content="the user hates tabs", kind="preference", supersedes=old)
    assert answer.superseded == (old,)
    assert await listed(service) == [answer.id]
    note = (await call(service, "inspect", id=old)).note
    assert (note.state, note.superseded_by, note.content) == ("superseded", answer.id, "the user loves tabs")


async def test_a_slot_holds_one_value_and_links_to_the_last(service: Service) -> None:
    """C13: the same key with a new value: only the new value is recalled, and the old one names its successor."""
    old = await remember(service, "the port is 8080", key="port")
    new = await remember(service, "the port is 9090", key="port")
    assert await recalled(service, "port") == ["the port is 9090"]
    view = (await call(service, "inspect", id=old)).note
    assert (view.state, view.superseded_by) == ("superseded", new)
    assert (await call(service, "inspect", id=new)).note.supersedes == (old,)


async def test_a_text_that_lives_already_gives_way_to_one_with_its_key(service: Service, second: Service) -> None:
    """C13: a text said before without the key is said under it: one new note with the key, and the slot goes on."""
    stated = await remember(service, "the port is 9090")
    old = await remember(service, "the port is 8080", key="port")
    answer = await call(second, "remember", content="the port is 9090", key="port")
    assert (answer.created, sorted(answer.superseded)) == (True, sorted((stated, old)))
    note = (await call(service, "inspect", id=answer.id)).note
    assert (note.key, sorted(note.supersedes)) == ("port", sorted((stated, old)))
    again = await call(service, "remember", content="the port is 9090", key="port")
    assert (again.id, again.created, again.superseded) == (answer.id, False, ())
    await remember(service, "the port is 7070", key="port")
    for daemon in (service, second):
        assert await recalled(daemon, "port") == ["the port is 7070"]
    assert await problems(service) == ()


async def test_superseding_by_a_text_that_lives_already_keeps_the_slot(service: Service) -> None:
    """C13: supersede hands the slot on to a text that stood without a key, and costs none that has another."""
    old = await remember(service, "the port is 8080", key="port")
    stated = await remember(service, "the port is 9090")
    answer = await call(service, "supersede", id=old, content="the port is 9090")
    assert answer.by != stated
    assert (await call(service, "inspect", id=answer.by)).note.key == "port"
    assert await listed(service) == [answer.by]
    other = await remember(service, "the host is a", key="host")
    assert (await call(service, "supersede", id=answer.by, content="the host is a")).by == other
    assert (await call(service, "inspect", id=other)).note.key == "host"
    assert await problems(service) == ()


async def test_a_key_for_a_human_s_text_is_not_an_agent_s_to_give(service: Service) -> None:
    """V27: saying a human's text under a key would end the human's note, so an agent is told that it may not."""
    theirs = await remember(service, "the port is 9090", caller=HUMAN)
    error = await refused(call(service, "remember", content="the port is 9090", key="port"))
    assert error.code == "forbidden"
    assert await listed(service) == [theirs]


async def test_a_text_that_lives_ends_what_it_is_said_to_supersede(service: Service) -> None:
    """C12: saying a live text once more, in place of another note, makes no note and ends the other all the same."""
    old = await remember(service, "the port is 8080", kind="finding")
    lives = await remember(service, "the port is 9090", kind="finding")
    answer = await call(service, "remember", content="the port is 9090", kind="finding", supersedes=old)
    assert (answer.id, answer.created, answer.superseded) == (lives, False, (old,))
    note = (await call(service, "inspect", id=old)).note
    assert (note.state, note.superseded_by) == ("superseded", lives)
    assert await listed(service) == [lives]


async def test_an_echo_ends_what_it_is_said_to_supersede(service: Service) -> None:
    """C31: a line of ours is no new text, yet a note that it is to replace does not live on beside it."""
    old, new = await remember(service, "the port is 8080"), await remember(service, "the port is 9090", key="port")
    line = next(line for line in (await call(service, "inject")).text.splitlines() if new in line)
    answer = await call(service, "remember", content=line, supersedes=old, key="port")
    assert (answer.id, answer.created, answer.superseded) == (new, False, (old,))
    view = (await call(service, "inspect", id=old)).note
    assert (view.state, view.superseded_by) == ("superseded", new)
    assert (await call(service, "remember", content=line, supersedes=old)).superseded == ()


async def test_an_echo_under_a_key_that_its_note_has_not_is_refused(service: Service) -> None:
    """C13: nothing that was asked for is dropped without a word; the note and the slot stay as they were."""
    note_id = await remember(service, "the port is 9090")
    old = await remember(service, "the port is 8080", key="port")
    line = next(line for line in (await call(service, "inject")).text.splitlines() if note_id in line)
    for asked in (("remember", {}), ("supersede", {"id": old})):
        error = await refused(call(service, asked[0], content=line, key="port", **asked[1]))
        assert (error.rule, error.field) == ("echo-key", "key")
    assert sorted(await listed(service)) == sorted((note_id, old))


async def test_a_human_who_says_an_agent_s_text_makes_it_a_human_s(service: Service, second: Service) -> None:
    """C14: the note that lives takes the higher provenance, in one event, and is protected from then on."""
    note_id = await remember(service, "deploy on Fridays never", kind="decision")
    answer = await call(second, "remember", content="deploy on Fridays never", kind="decision", caller=HUMAN)
    assert (answer.id, answer.created) == (note_id, False)
    assert (await call(service, "inspect", id=note_id)).note.provenance == "human"
    await remember(service, "deploy on Fridays never", kind="decision")
    assert await log_types(service) == ["created", "promoted"]
    assert (await refused(call(service, "revoke", id=note_id, reason="no"))).code == "forbidden"
    old = await remember(service, "deploy on Fridays", kind="decision")
    said = await remember(service, "deploy on Mondays", kind="decision")
    answer = await call(service, "supersede", id=old, content="deploy on Mondays", caller=HUMAN)
    assert (answer.by, (await call(service, "inspect", id=said)).note.provenance) == (said, "human")
    assert await problems(service) == ()


async def test_the_same_text_five_times_is_one_note(service: Service, second: Service) -> None:
    """C14: the same text added five times, by two daemons, is one live note; the repeats say so."""
    answers = [await call((service, second)[n % 2], "remember", content="the build needs Java 17") for n in range(5)]
    assert [answer.created for answer in answers] == [True, False, False, False, False]
    assert len({answer.id for answer in answers}) == 1
    assert await log_types(service) == ["created"]


async def test_another_kind_or_scope_is_another_statement(service: Service) -> None:
    """C14: identity of a text is per scope, owner and kind; nothing wider is merged."""
    await remember(service, "use ruff")
    await remember(service, "use ruff", kind="directive")
    await remember(service, "use ruff", scope="session", caller={"session": "s1"})
    assert len(await listed(service, caller=HUMAN)) == 3


@pytest.mark.parametrize("fields", [{"key": "port"}, {}], ids=["same key", "same text"])
async def test_racing_writers_leave_one_live_note(service: Service, second: Service, fields: dict[str, str]) -> None:
    """V27: two daemons write the same key (or the same text) at the same instant, 200 times: one live note each
    time."""
    for n in range(200):
        texts = [f"value {n} of a", f"value {n} of b"] if fields else [f"value {n}"] * 2
        field = {"key": f"port{n}"} if fields else {}
        a, b = await asyncio.gather(
            call(service, "remember", content=texts[0], kind="finding", **field),
            call(second, "remember", content=texts[1], kind="finding", **field),
        )
        if fields:
            assert (a.superseded, b.superseded) in (((b.id,), ()), ((), (a.id,)))
        else:
            assert a.id == b.id
            assert sorted((a.created, b.created)) == [False, True]
    assert len(await listed(service)) == 200
    assert await problems(service) == ()


async def test_awkward_tags_come_back_exactly_and_filter_exactly(service: Service) -> None:
    """C24: tags with separators, globs, braces, a newline, emoji and CJK round trip, and each finds only its note."""
    tags = ["a,b", "a|b", "*", "{x}", ":", "line\nbreak", "🦊", "配置", " padded ", "A"]
    ids = {tag: await remember(service, f"note number {n}", tags=[tag]) for n, tag in enumerate(tags)}
    await remember(service, "without tags")
    await remember(service, "lower case", tags=["a"])
    for tag, note_id in ids.items():
        assert await listed(service, tags=[tag]) == [note_id]
        found = (await call(service, "recall", tags=[tag])).notes
        assert [(note.id, note.tags) for note in found] == [(note_id, (tag,))]


async def test_a_revoked_text_may_be_said_again_with_a_warning(service: Service) -> None:
    """C29: remembering a revoked text again is accepted as a new note with a warning; the counts stay separate."""
    old = await remember(service, "the port is 8080", kind="finding")
    await call(service, "revoke", id=old, reason="it is 9090")
    answer = await call(service, "remember", content="the port is 8080", kind="finding")
    assert answer.created
    assert answer.id != old
    assert [(warning.kind, warning.id) for warning in answer.warnings] == [("revoked", old)]
    assert "it is 9090" in answer.warnings[0].text
    counts = (await call(service, "status")).counts
    assert (counts.active, counts.revoked) == (1, 1)
    assert (await call(service, "history", id=answer.id)).events[0].type == "created"
    assert len((await call(service, "history", id=answer.id)).events) == 1


async def test_what_has_expired_warns_before_any_pass_has_said_so(service: Service, clock: ManualClock) -> None:
    """C29: dead is dead, swept or not: the warning is the same before the sweep as after it, the closest note first."""
    await remember(service, "the port is 8080 in the lab", kind="finding")
    old = await remember(service, "the port is 8080", kind="finding", ttl_ms=DAY)
    clock.advance(30 * DAY)
    assert await state_of(service, old) == "expired"
    before = await call(service, "remember", content="the port is 8080 here", kind="finding")
    await call(service, "forget", id=before.id)
    await sweep(service)
    after = await call(service, "remember", content="the port is 8080 here", kind="finding")
    assert [(one.kind, one.id) for one in before.warnings] == [("expired", old)]
    assert before.warnings == after.warnings


async def test_similar_notes_are_never_merged(service: Service) -> None:
    """C20: a chain of similar notes keeps every text and every id."""
    texts = [f"the staging server runs release {n} of the api" for n in range(10)]
    ids = [await remember(service, text, kind="finding") for text in texts]
    notes = (await call(service, "list", with_content=True)).notes
    assert {note.id: note.content for note in notes} == dict(zip(ids, texts, strict=True))


async def test_superseding_with_content_inherits_the_slot(service: Service) -> None:
    """C12: ``supersede`` with content writes the successor in one unit; it takes over kind and slot."""
    old = await remember(service, "deploy by hand", kind="decision", key="deploy")
    answer = await call(service, "supersede", id=old, content="deploy by pipeline", reason="we have one now")
    new = (await call(service, "inspect", id=answer.by)).note
    assert (new.kind, new.key, new.supersedes) == ("decision", "deploy", (old,))
    assert await log_types(service) == ["created", "created", "superseded"]
    assert "we have one now" in (await call(service, "inspect", id=old)).text


@pytest.mark.parametrize("kind", ["fact", "finding"])
@pytest.mark.parametrize("key", [None, "port"])
async def test_what_is_over_holds_neither_text_nor_slot(
    service: Service, clock: ManualClock, kind: str, key: str | None
) -> None:
    """C10, C14: said again after its end, which no pass has written down yet, it is a note of its own and replaces
    none."""
    text = "the port is 8080" if key is None else "the port is 9090"
    await remember(service, "the port is 8080", kind=kind, key=key, ttl_ms="1d")
    clock.advance(2 * DAY)
    answer = await call(service, "remember", content=text, kind=kind, key=key)
    assert (answer.created, answer.superseded) == (True, ())
    assert await listed(service) == [answer.id]
    assert await problems(service) == ()


async def test_a_list_by_tags_is_exact(service: Service) -> None:
    """C24: a tag that is made of the same words as another is another, for a list as for a recall and a forget."""
    tags = ["a,b", "a|b", "a b", "A,B", "b,a"]
    ids = {
        tag: await remember(service, f"tagged {number}", kind="finding", tags=[tag]) for number, tag in enumerate(tags)
    }
    for tag, note_id in ids.items():
        assert await listed(service, tags=[tag]) == [note_id]
        assert [note.id for note in (await call(service, "recall", tags=[tag])).notes] == [note_id]
        assert list((await call(service, "forget", tags=[tag], dry_run=True)).ids) == [note_id]


EDITS: list[tuple[str, Any, dict[str, Any], dict[str, Any]]] = [
    ("tags", ["new"], {"tags": ["old"]}, {"tags": ["new"]}),
    ("anchors", ["new.py"], {"paths": ["old.py"]}, {"paths": ["new.py"]}),
    ("triggers", [{"path": "new/**"}], {"paths": ["old/a"]}, {"paths": ["new/a"]}),
]


@pytest.mark.parametrize(("field", "new", "found_by", "then_by"), EDITS, ids=[row[0] for row in EDITS])
async def test_an_edit_changes_what_it_names_and_how_the_note_is_found(
    service: Service, second: Service, field: str, new: Any, found_by: dict[str, Any], then_by: dict[str, Any]
) -> None:
    """C02: at both daemons the note is found by what it has now and no longer by what it had; all else stays."""
    everything: dict[str, Any] = {
        "tags": ["old"], "anchors": ["old.py"], "triggers": [{"path": "old/**"}], "key": "port",
    }  # fmt: skip
    note_id = await remember(service, "the port is 8080", kind="finding", **everything)
    assert await recalled(second, **found_by) == ["the port is 8080"]
    before = (await call(service, "inspect", id=note_id)).note
    assert (await call(service, "edit", id=note_id, **{field: new})).changed
    for asked in (service, second):
        after = (await call(asked, "inspect", id=note_id)).note
        moved = {name for name in (*everything, "content", "ttl_ms") if getattr(after, name) != getattr(before, name)}
        assert moved == {field}
        assert await recalled(asked, **then_by) == ["the port is 8080"]
        assert await recalled(asked, **found_by) == []
    assert not (await call(second, "edit", id=note_id, **{field: new})).changed
    assert await problems(service) == ()


async def test_what_has_ended_hands_no_slot_on(service: Service) -> None:
    """C13: superseding the value that a slot had once leaves the value that it has now in its place."""
    old = await remember(service, "deploy by hand", kind="task", key="deploy")
    await call(service, "done", id=old)
    now = await remember(service, "deploy by pipeline", kind="task", key="deploy")
    answer = await call(service, "supersede", id=old, content="deploying by hand was never written down")
    assert (await call(service, "inspect", id=answer.by)).note.key is None
    assert sorted(await listed(service)) == sorted([now, answer.by])


async def test_nobody_is_warned_of_what_they_replace(service: Service) -> None:
    """C29: whoever supersedes an expired note by one that says nearly the same knows of it; of others they are told."""
    old, other = [await remember(service, f"deploy by hand on {day}", kind="task") for day in ("monday", "friday")]
    for note_id in (old, other):
        await call(service, "done", id=note_id)
    answer = await call(service, "supersede", id=old, content="deploy by hand on monday night")
    assert [warned.id for warned in answer.warnings] == [other]
    assert await state_of(service, old) == "superseded"


@pytest.mark.parametrize("more", [{}, {"key": "deploy"}])
async def test_a_note_is_not_superseded_by_its_own_text(service: Service, more: dict[str, str]) -> None:
    """V03: what says exactly the same is refused as that, by the field that was given, and makes no second note."""
    note_id = await remember(service, "deploy by hand", kind="finding")
    error = await refused_unchanged(service, "supersede", id=note_id, content="deploy by hand", **more)
    assert (error.code, error.rule, error.field) == ("refused", "supersede-itself", "content")


async def test_a_restored_note_is_what_the_old_one_was(service: Service) -> None:
    """C30: kind, scope, owner, provenance, curve, origin and every word come back under the new id; the TTL is new."""
    caller = {"session": "s1", "on_behalf": "user"}
    await call(service, "policy", set={"restorable": True})
    fields: dict[str, Any] = {
        "kind": "episode", "scope": "session", "curve": "linear", "source_ref": "mem0:7", "key": "port",
        "tags": ["net"], "anchors": ["src/app.py"], "triggers": [{"event": "pre-run"}], "provenance": "user-stated",
    }  # fmt: skip
    old = await remember(service, "the port is 8080", caller=caller, ttl_ms="7d", **fields)
    before = (await call(service, "inspect", id=old, caller=HUMAN)).note
    await call(service, "forget", id=old, caller=caller, reason="a mistake")
    new = (await call(service, "restore", id=old, caller=caller, reason="a mistake")).id
    after = (await call(service, "inspect", id=new, caller=HUMAN)).note
    for name in (*fields, "owner", "content"):
        assert getattr(after, name) == getattr(before, name), name
    assert (after.restored_from, after.ttl_ms) == (old, service.settings.policy.default_ttl)
    assert await problems(service) == ()


@pytest.mark.parametrize("said", ["the same text", "the slot's new value"])
async def test_what_has_taken_its_place_keeps_a_note_from_being_restored(service: Service, said: str) -> None:
    """C30, V27: where its text lives again, or its slot has another value, restoring would make two; it says which."""
    await call(service, "policy", set={"restorable": True})
    old = await remember(service, "the port is 8080", key="port")
    await call(service, "forget", id=old)
    text, key = ("the port is 8080", None) if said == "the same text" else ("the port is 9090", "port")
    lives = await remember(service, text, key=key)
    error = await refused_unchanged(service, "restore", id=old)
    assert (error.code, error.rule) == ("refused", "restore-duplicate" if key is None else "restore-slot")
    assert key is None or error.choices == (lives,)
    await call(service, "revoke", id=lives, reason="no")
    assert (await call(service, "restore", id=old)).restored_from == old
    assert await problems(service) == ()


async def test_a_restored_note_brings_no_reasons_along(service: Service) -> None:
    """C30: reasons were given for what became of the old note; none of them turns up beside an event of the new one."""
    await call(service, "policy", set={"restorable": True})
    old = await remember(service, "the port is 8080")
    await call(service, "flag", id=old, reason="somebody moved it")
    await call(service, "forget", id=old)
    new = (await call(service, "restore", id=old)).id
    await call(service, "pin", id=new)
    told = (await call(service, "history", id=new)).events
    assert [(event.type, event.reason_text) for event in told] == [("created", None), ("pinned", None)]
    view = await projection(service)
    assert view.notes[new].size == view.words[new].size() == len("the port is 8080")


async def test_a_human_moves_a_note_to_another_scope_only_with_an_owner(service: Service) -> None:
    """C23: superseding into a session without saying whose is refused; no note without an owner is made."""
    old = await remember(service, "notes of today", caller=HUMAN)
    error = await refused(call(service, "supersede", id=old, content="other", scope="session", caller=HUMAN))
    assert error.code == "refused"
    answer = await call(service, "supersede", id=old, content="other", scope="session", owner="s7", caller=HUMAN)
    assert (await call(service, "inspect", id=answer.by, caller=HUMAN)).note.owner == "s7"


async def test_a_read_after_a_seq_has_seen_that_write(service: Service, second: Service) -> None:
    """C02: what one daemon acknowledged is in another's answer that was asked for ``after`` its seq."""
    await listed(second)
    for n in range(20):
        answer = await call(service, "remember", content=f"step {n}")
        found = await call(second, "recall", query=f"step {n}", after=answer.seq)
        assert answer.id in [note.id for note in found.notes]


async def test_a_workspace_dropped_by_another_daemon_is_simply_new(service: Service, second: Service) -> None:
    """C30: after a drop elsewhere reads find nothing, addresses find no note, and a write begins a new workspace."""
    old = await remember(service, "before the drop")
    assert await listed(second) == [old]
    await call(service, "workspaces", drop="desk", confirm=True)
    assert await recalled(second) == []
    assert await listed(second) == []
    assert (await call(second, "inject")).text == ""
    error = await refused(call(second, "revoke", id=old, reason="gone"))
    assert error.code == "not_found"
    new = await remember(second, "after the drop")
    assert await listed(service) == [new]
    assert await log_types(second) == ["created"]


async def test_an_empty_workspace_that_was_dropped_and_made_anew_is_seen(service: Service, second: Service) -> None:
    """C30: a projection of a workspace without events notices that another one bears the name now."""
    await call(service, "policy", set={"default_ttl": "1d"})
    await call(service, "workspaces", drop="desk", confirm=True)
    await find_or_create(service.redis, "desk")
    assert await listed(second) == []
    await call(service, "workspaces", drop="desk", confirm=True)
    note_id = await remember(service, "here now")
    assert await listed(second) == [note_id]


@pytest.mark.parametrize(("method", "nth"), [("load", 1), ("reload_policy", 1), ("reload_policy", 2)])
async def test_a_write_racing_a_drop_begins_the_workspace_anew(
    service: Service, second: Service, monkeypatch: pytest.MonkeyPatch, method: str, nth: int
) -> None:
    """C30: a drop at whatever moment of a write, even while it reads the workspace anew, makes it no 404."""
    await remember(second, "before the drop")
    if method == "reload_policy":
        await listed(service)
        await call(second, "policy", set={"max_item_bytes": 100}, caller=HUMAN)
    real, times = getattr(Workspace, method), 0

    async def read(workspace: Workspace) -> None:
        nonlocal times
        if workspace.redis is service.redis:
            times += 1
            if times == nth:
                await call(second, "workspaces", drop="desk", confirm=True, caller=HUMAN)
        await real(workspace)

    monkeypatch.setattr(Workspace, method, read)
    new = await remember(service, "after the drop")
    assert times >= nth
    assert await listed(second) == [new]
    assert await log_types(service) == ["created"]


async def test_writes_and_drops_at_once_refuse_no_write(service: Service, second: Service) -> None:
    """C30: while one daemon drops a workspace over and over, the other's writes are all accepted."""

    async def write(writer: int) -> None:
        for n in range(15):
            await remember(service, f"{writer} says {n}")

    async def drop() -> None:
        for _ in range(30):
            with suppress(NotFound):  # it was dropped just now, and nobody has written since
                await call(second, "workspaces", drop="desk", confirm=True, caller=HUMAN)

    await asyncio.gather(*(write(n) for n in range(4)), drop())
    last = await remember(service, "the last word")
    assert last in await listed(second)
    assert await problems(service) == ()


async def test_an_import_racing_a_drop_is_taken_in(
    service: Service, second: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C30: also an import, in earnest or not, finds the workspace anew."""
    await remember(second, "before the drop")
    real = Workspace.load

    async def read(workspace: Workspace) -> None:
        if workspace.redis is service.redis and await find(service.redis, "desk") == workspace.ws:
            monkeypatch.setattr(Workspace, "load", real)
            await call(second, "workspaces", drop="desk", confirm=True, caller=HUMAN)
        await real(workspace)

    async def lines() -> AsyncIterator[bytes]:
        yield b'{"content": "taken in"}'

    for dry_run in (True, False):
        monkeypatch.setattr(Workspace, "load", read)
        answer = await service.import_notes(wire.ImportRequest(workspace="desk", dry_run=dry_run), lines())
        assert (answer.imported, answer.problems) == (1, ())
    assert await recalled(second) == ["taken in"]


async def test_asking_for_unknown_workspaces_makes_none(service: Service) -> None:
    """C25: reads, addresses and refusals at the door leave no workspace behind."""
    for verb in ("list", "recall", "inject", "preview", "status", "audit"):
        await call(service, verb, workspace="nowhere")
    await refused(call(service, "revoke", workspace="nowhere", id="abcd", reason="no"))
    await refused(call(service, "remember", workspace="nowhere", content="   "))
    assert await all_workspaces(service.redis) == {}


async def test_a_write_lets_the_timer_know_what_falls_due(service: Service) -> None:
    """C10: every write with a shelf life tells the timer its next instant; an erasure asks for a scrub."""
    jobs = service.jobs
    assert isinstance(jobs, Recorder)
    answer = await call(service, "remember", content="for a while", ttl_ms="1h")
    assert jobs.dues[-1] == ((await projection(service)).ws, answer.stale_at)
    await call(service, "forget", id=answer.id)
    await service.quiesce()
    assert jobs.scrubs == 1


async def test_a_write_that_came_between_is_decided_again(service: Service, second: Service) -> None:
    """C50: a refusal is never let out on a view that another daemon has moved: it is decided again."""
    old = await remember(service, "use the old parser", kind="decision")
    new = await remember(service, "use the new parser", kind="decision")
    third = await remember(service, "use no parser", kind="decision")
    await call(service, "supersede", id=old, by=new)
    await listed(second)
    await call(service, "reinstate", id=old)
    answers = await asyncio.gather(
        call(second, "supersede", id=old, by=third), *(call(second, "list") for _ in range(5))
    )
    assert answers[0].changed
    assert await state_of(second, old) == "superseded"
