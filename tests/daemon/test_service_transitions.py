"""The service moves notes from state to state: what is allowed, what is a no-op, what is refused, what can be
undone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.desk import (
    DAY,
    HUMAN,
    ManualClock,
    call,
    kept,
    listed,
    log_types,
    problems,
    recalled,
    refused,
    refused_unchanged,
    remember,
    state_of,
)

from amnesiad import anchors
from amnesiad.service import Service


async def test_of_two_edits_at_once_both_stand_or_one_is_told(service: Service, second: Service) -> None:
    """C50: two edits of one note at one version: each is decided on what the other left; no event is lost or
    doubled."""
    note_id = await remember(service, "contested")
    await listed(second)
    for n in range(30):
        answers = await asyncio.gather(
            call(service, "edit", id=note_id, tags=[f"a{n}"]),
            call(second, "edit", id=note_id, tags=[f"b{n}"]),
        )
        assert [answer.changed for answer in answers] == [True, True]
    assert (await log_types(service)).count("edited") == 60
    assert (await call(service, "inspect", id=note_id)).note.tags in (("a29",), ("b29",))
    assert await problems(service) == ()


async def test_of_two_opposite_endings_one_wins_and_the_other_is_refused(service: Service, second: Service) -> None:
    """C50: a note superseded by two daemons at once gets one successor; the other is refused, naming it."""
    for n in range(20):
        note_id = await remember(service, f"contested {n}", kind="decision")
        by = [await remember(service, f"successor {n}.{m}", kind="decision") for m in range(2)]
        await listed(second)
        answers = await asyncio.gather(
            call(service, "supersede", id=note_id, by=by[0]),
            call(second, "supersede", id=note_id, by=by[1]),
            return_exceptions=True,
        )
        refusals = [answer for answer in answers if isinstance(answer, Exception)]
        assert len(refusals) == 1
        winner = (await call(service, "inspect", id=note_id)).note.superseded_by
        assert winner in by
        assert winner in str(refusals[0])


@pytest.mark.parametrize(
    "given", [{"kind": "task"}, {"tags": ["x"]}, {"pinned": True}, {"scope": "workspace"}, {"ttl_ms": None}]
)
async def test_a_note_that_is_there_is_not_changed_by_superseding_with_it(
    service: Service, given: dict[str, Any]
) -> None:
    """What describes a new note is refused by name beside ``by``, in place of being dropped in silence."""
    a, b = [await remember(service, f"release {n}", kind="finding") for n in "ab"]
    error = await refused_unchanged(service, "supersede", id=a, by=b, **given)
    assert (error.code, error.field) == ("invalid", next(iter(given)))


async def test_superseding_the_superseded_names_the_successor(service: Service) -> None:
    """V03: superseding what is superseded already is refused, naming its successor, and changes nothing."""
    a, b, c = [await remember(service, f"release {n}", kind="finding") for n in "abc"]
    assert (await call(service, "supersede", id=a, by=b)).changed
    assert not (await call(service, "supersede", id=a, by=b)).changed
    error = await refused_unchanged(service, "supersede", id=a, by=c)
    assert (error.code, error.choices) == ("refused", (b,))
    error = await refused_unchanged(service, "supersede", id=a, content="release d")
    assert (error.code, error.choices) == ("refused", (b,))
    error = await refused_unchanged(service, "remember", content="release d", kind="finding", supersedes=a)
    assert error.code == "refused"


async def test_cycles_are_refused(service: Service) -> None:
    """V03: A→B→A, longer rings and a note that would supersede itself are refused and change nothing."""
    a, b, c = [await remember(service, f"release {n}", kind="finding") for n in "abc"]
    await call(service, "supersede", id=a, by=b)
    await call(service, "supersede", id=b, by=c)
    for old, by in ((c, a), (c, b), (c, c)):
        assert (await refused_unchanged(service, "supersede", id=old, by=by)).code == "refused"
    await call(service, "reinstate", id=a)
    assert (await call(service, "supersede", id=c, by=a)).changed, "a reinstated note is nobody's predecessor"


async def test_of_a_long_chain_only_the_newest_is_recalled(service: Service) -> None:
    """V03: of forty notes that superseded one another a recall of one returns the newest."""
    note_id = await remember(service, "the answer is 0", kind="finding")
    for n in range(1, 40):
        note_id = (await call(service, "supersede", id=note_id, content=f"the answer is {n}")).by
    assert await recalled(service, "the answer is", limit=1) == ["the answer is 39"]
    assert await listed(service) == [note_id]
    assert len(await listed(service, states=["superseded"])) == 39


REPEATS: list[tuple[str, dict[str, Any], str]] = [
    ("revoke", {"reason": "again"}, "fact"),
    ("flag", {"reason": "again"}, "fact"),
    ("reinstate", {}, "fact"),
    ("pin", {}, "fact"),
    ("unpin", {}, "fact"),
    ("renew", {}, "fact"),
    ("done", {}, "task"),
    ("promote", {"to": "workspace"}, "fact"),
    ("promote", {"to": "agent"}, "fact"),
    ("edit", {"tags": ["a", "b"]}, "fact"),
    ("edit", {"tags": ["a", "a", "b"], "ttl_ms": 30 * DAY}, "fact"),
]


@pytest.mark.parametrize(("verb", "fields", "kind"), REPEATS, ids=[f"{row[0]}-{n}" for n, row in enumerate(REPEATS)])
async def test_asking_for_what_holds_already_appends_nothing(
    service: Service, second: Service, verb: str, fields: dict[str, Any], kind: str
) -> None:
    """C32: a verb repeated answers ``changed: false`` with the state as it is, at any daemon, and writes no key."""
    note_id = await remember(service, "the subject", kind=kind, tags=["a", "b"])
    await call(service, verb, id=note_id, **fields)
    before = await kept(service)
    for asked in (service, second):
        answer = await call(asked, verb, id=note_id, **fields)
        assert not answer.changed
        assert answer.state == await state_of(asked, note_id)
    assert await kept(service) == before


ILLEGAL: list[tuple[str, str, dict[str, Any]]] = [
    (ended, verb, fields)
    for ended in ("revoked", "superseded", "expired")
    for verb, fields in (
        ("flag", {"reason": "r"}),
        ("pin", {}),
        ("unpin", {}),
        ("renew", {}),
        ("done", {}),
        ("promote", {"to": "workspace"}),
        ("edit", {"tags": ["x"]}),
        ("supersede", {"content": "y"}),
    )
    if (ended, verb) not in (("expired", "done"), ("expired", "supersede"))
]


@pytest.mark.parametrize(("ended", "verb", "fields"), ILLEGAL, ids=[f"{row[0]}-{row[1]}" for row in ILLEGAL])
async def test_a_move_the_table_lacks_is_refused_with_the_way_out(
    service: Service, ended: str, verb: str, fields: dict[str, Any]
) -> None:
    """C50: a move without a row in the transition table raises a typed refusal that says how to go on."""
    note_id = await remember(service, "the subject", kind="task")
    if ended == "revoked":
        await call(service, "revoke", id=note_id, reason="no")
    elif ended == "superseded":
        await call(service, "supersede", id=note_id, content="the successor")
    else:
        await call(service, "done", id=note_id)
    error = await refused_unchanged(service, verb, id=note_id, **fields)
    assert error.code == "refused"
    assert error.rule
    assert "subject" not in error.message
    assert await state_of(service, note_id) == ended


async def test_a_refusal_is_counted_by_its_rule(service: Service) -> None:
    """V07: status tells how often which rule said no."""
    note_id = await remember(service, "a finding", kind="finding")
    for _ in range(3):
        await refused(call(service, "done", id=note_id))
    assert (await call(service, "status")).refusals == {"done-task-only": 3}


async def test_a_reason_is_kept_with_the_note_and_shown(service: Service) -> None:
    """C29: words of a reason stand in history and deterrent, and nowhere in the log."""
    note_id = await remember(service, "the port is 8080", tags=["net"])
    await call(service, "flag", id=note_id, reason="somebody moved it")
    await call(service, "revoke", id=note_id, reason="it is\n9090 [really]")
    texts = [event.reason_text for event in (await call(service, "history", id=note_id)).events]
    assert texts == [None, "somebody moved it", "it is\n9090 [really]"]
    found = (await call(service, "recall", query="port")).deterrents
    assert [one.id for one in found] == [note_id]
    assert "[REVOKED] [net]" in found[0].text
    assert "reason: it is⏎9090 [really]" in found[0].text
    log = next(value for key, value in (await kept(service)).items() if key.endswith(":log"))
    assert b"9090" not in repr(log).encode()


async def test_reinstating_reads_the_anchored_files_anew(service: Service, tmp_path: Path) -> None:
    """V12: anchors take the file's hash at writing and at reinstating; a missing file has none."""
    place = {"workspace": str(tmp_path)}
    (tmp_path / "a.py").write_text("one")
    note_id = await remember(service, "a.py says one", anchors=["a.py", "./gone.py"], **place)
    first = (await call(service, "inspect", id=note_id, **place)).note.anchors
    assert [(anchor.path, anchor.sha256 is None) for anchor in first] == [("a.py", False), ("gone.py", True)]
    await call(service, "flag", id=note_id, reason="changed?", **place)
    (tmp_path / "a.py").write_text("two")
    await call(service, "reinstate", id=note_id, **place)
    again = (await call(service, "inspect", id=note_id, **place)).note
    assert again.anchors[0].sha256 not in (None, first[0].sha256)
    assert (again.state, again.causes) == ("active", ())


@pytest.mark.parametrize("verb", ["reinstate", "undo"])
async def test_anchors_that_are_edited_meanwhile_stay_as_edited(
    service: Service, second: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """C50: while the files of a note in doubt are read for its return, somebody names other files: those are its
    anchors."""
    place = {"workspace": str(tmp_path)}
    for name in ("a.py", "b.py", "c.py"):
        (tmp_path / name).write_text(name)
    note_id = await remember(service, "how it works", anchors=["a.py", "b.py"], **place)
    await call(service, "flag", id=note_id, reason="changed?", **place)
    read = anchors.hash_files

    async def read_then_edit(*args: Any) -> Any:
        hashed = await read(*args)
        monkeypatch.setattr(anchors, "hash_files", read)
        await call(second, "edit", id=note_id, anchors=["b.py", "c.py"], **place)
        if verb == "undo":  # the edit was last, and it is the doubt that is to be undone
            await call(second, "flag", id=note_id, reason="still?", **place)
        return hashed

    if verb == "undo":
        await call(service, "reinstate", id=note_id, **place)
    monkeypatch.setattr(anchors, "hash_files", read_then_edit)
    await call(service, verb, id=note_id, **place)
    note = (await call(service, "inspect", id=note_id, **place)).note
    assert note.state == "active"
    assert [(anchor.path, anchor.sha256 is None) for anchor in note.anchors] == [("b.py", False), ("c.py", False)]


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "src/../../outside", "~/x", "C:\\x", "", "."])
async def test_an_anchor_stays_inside_the_workspace(service: Service, path: str) -> None:
    """V12: absolute anchors, ``..`` and names of nothing are refused by field, in every verb that takes paths."""
    note_id = await remember(service, "the subject")
    for verb, fields, field in (
        ("remember", {"content": "x", "anchors": ["ok.py", path]}, "anchors[1]"),
        ("supersede", {"id": note_id, "content": "x", "anchors": [path]}, "anchors[0]"),
        ("edit", {"id": note_id, "anchors": [path]}, "anchors[0]"),
        ("recall", {"paths": [path]}, "paths[0]"),
        ("inject", {"paths": [path]}, "paths[0]"),
        ("fire", {"event": "pre-run", "paths": [path]}, "paths[0]"),
    ):
        error = await refused_unchanged(service, verb, **fields)
        assert (error.code, error.field) == ("invalid", field)


@pytest.mark.parametrize("key", [None, "port"])
async def test_reinstating_makes_no_second_of_a_text_or_slot(service: Service, key: str | None) -> None:
    """V27: while the text lives again, or its slot has another value, reinstating is refused and says which note that
    is."""
    old = await remember(service, "port 8080", kind="finding", key=key)
    await call(service, "revoke", id=old, reason="no")
    new = await remember(service, "port 8080" if key is None else "port 9090", kind="finding", key=key)
    error = await refused_unchanged(service, "reinstate", id=old)
    assert (error.code, error.rule) == ("refused", "duplicate-text" if key is None else "slot-taken")
    assert new in error.message
    await call(service, "revoke", id=new, reason="no")
    assert (await call(service, "reinstate", id=old)).state == "active"


async def test_what_undo_brings_back_is_anchored_to_the_files_of_now(service: Service, tmp_path: Path) -> None:
    """V12: a note that was revoked while its file changed is not in doubt for that once the revocation is undone."""
    place = {"workspace": str(tmp_path)}
    (tmp_path / "a.py").write_text("one")
    note_id = await remember(service, "about a file", kind="finding", anchors=["a.py"], **place)
    (before,) = (await call(service, "inspect", id=note_id, **place)).note.anchors
    await call(service, "revoke", id=note_id, reason="no", **place)
    (tmp_path / "a.py").write_text("two")
    assert (await call(service, "undo", id=note_id, **place)).state == "active"
    (after,) = (await call(service, "inspect", id=note_id, **place)).note.anchors
    assert after.sha256 not in (None, before.sha256)
    assert await problems(service, str(tmp_path)) == ()


async def test_a_link_out_of_the_workspace_is_not_followed(service: Service, tmp_path: Path) -> None:
    """V12: a symbolic link that leads outside is anchored without a hash: no file outside is ever read."""
    (tmp_path / "outside").write_text("secret")
    inside = tmp_path / "repo"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path / "outside")
    note_id = await remember(service, "about a link", anchors=["link"], workspace=str(inside))
    assert (await call(service, "inspect", id=note_id, workspace=str(inside))).note.anchors[0].sha256 is None


async def test_what_cannot_be_read_is_anchored_without_a_hash(service: Service, tmp_path: Path) -> None:
    """V12: links that lead in a circle, a folder and a file that is not there are as good as any: nothing is known of
    them."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    (tmp_path / "folder").mkdir()
    paths, place = ["a", "a/b/c", "folder", "nowhere"], {"workspace": str(tmp_path)}
    note_id = await remember(service, "about all of them", anchors=paths, **place)
    await call(service, "edit", id=note_id, anchors=paths[:3], **place)
    note = (await call(service, "inspect", id=note_id, **place)).note
    assert [(anchor.path, anchor.sha256) for anchor in note.anchors] == [(path, None) for path in paths[:3]]


LIMITS: list[tuple[dict[str, Any], str, str]] = [
    ({"content": "x" * 2049}, "too_large", "content"),
    ({"content": "é" * 1025}, "too_large", "content"),
    ({"content": ""}, "invalid", "content"),
    ({"content": " \n\t"}, "invalid", "content"),
    ({"content": "a\x00b"}, "invalid", "content"),
    ({"content": "x", "tags": [f"t{n}" for n in range(33)]}, "too_large", "tags"),
    ({"content": "x", "tags": ["t" * 129]}, "too_large", "tags[0]"),
    ({"content": "x", "tags": [""]}, "invalid", "tags[0]"),
    ({"content": "x", "key": "k" * 129}, "too_large", "key"),
    ({"content": "x", "anchors": [f"a{n}" for n in range(65)]}, "too_large", "anchors"),
    ({"content": "x", "triggers": [{"event": "e"}] * 17}, "too_large", "triggers"),
    ({"content": "x", "triggers": [{}]}, "invalid", "triggers[0]"),
    ({"content": "x", "tags": "abc"}, "invalid", "tags"),
    ({"content": ["x"]}, "invalid", "content"),
    ({"content": "x", "colour": "red"}, "invalid", "colour"),
    ({"content": "x", "kind": "rumour"}, "invalid", "kind"),
    ({"content": "x", "pinned": "yes"}, "invalid", "pinned"),
]


@pytest.mark.parametrize(("fields", "code", "field"), LIMITS, ids=[f"{row[2]}-{n}" for n, row in enumerate(LIMITS)])
async def test_what_no_note_may_hold_is_refused_by_field(
    service: Service, fields: dict[str, Any], code: str, field: str
) -> None:
    """V25, V26: too long, too many, empty, NUL, wrong types and unknown fields are refused by name; nothing is kept."""
    error = await refused(call(service, "remember", **fields))
    assert (error.code, error.field) == (code, field)
    assert await kept(service) == {}


async def test_the_limits_themselves_are_allowed(service: Service) -> None:
    """V25: a note exactly at its limits is kept exactly."""
    content, key = "x" * 2048, "k" * 128
    tags = [f"{n:03d}" + "t" * 125 for n in range(32)]
    note_id = await remember(service, content, key=key, tags=tags, kind="finding")
    note = (await call(service, "inspect", id=note_id)).note
    assert (note.content, note.key, list(note.tags)) == (content, key, tags)


# -- undo ----------------------------------------------------------------------------------------------------------

UNDOABLE: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("revoke", {"reason": "wrong port"}, "revoked", "active", "revoked"),
    ("flag", {"reason": "hm"}, "stale_flagged", "active", "stale"),
    ("done", {}, "expired", "active", "expired"),
    ("supersede", {"content": "the successor"}, "superseded", "active", "superseded"),
    ("pin", {}, "pinned", "active", "active"),
]


@pytest.mark.parametrize(("verb", "fields", "event", "back", "again"), UNDOABLE, ids=[row[0] for row in UNDOABLE])
async def test_a_transition_is_undone_and_the_undo_undone(
    service: Service, second: Service, verb: str, fields: dict[str, Any], event: str, back: str, again: str
) -> None:
    """C12: undo takes back the last transition by one more event, and an undo of an undo is one more still."""
    note_id = await remember(service, "the subject", kind="task")
    await call(service, verb, id=note_id, **fields)
    ended = (await call(service, "inspect", id=note_id)).note
    answer = await call(second, "undo", id=note_id)
    assert (answer.changed, answer.undone, answer.state) == (True, event, back)
    answer = await call(service, "undo", id=note_id)
    assert (answer.changed, answer.state) == (True, again)
    now = (await call(second, "inspect", id=note_id)).note
    assert (now.state, now.state_reason, now.causes, now.pinned, now.superseded_by) == (
        ended.state, ended.state_reason, ended.causes, ended.pinned, ended.superseded_by,
    )  # fmt: skip
    events = (await call(service, "history", id=note_id)).events
    assert len(events) == 4
    assert events[3].type == events[1].type
    assert events[3].reason_text == events[1].reason_text
    assert await problems(service) == ()


@pytest.mark.parametrize(("curve", "reason"), [("flat", "ttl"), ("ebbinghaus", "decayed")])
async def test_what_time_ended_is_undone_before_any_pass_has_run(
    service: Service, clock: ManualClock, curve: str, reason: str
) -> None:
    """C09: undo of a record that its shelf life has ended brings it back; undone again, it has expired as before, by
    its TTL or by the floor of its curve."""
    note_id = await remember(service, "for a week", kind="finding", ttl_ms="7d", curve=curve)
    clock.advance(8 * DAY)
    assert (await call(service, "inspect", id=note_id)).note.state_reason == reason
    answer = await call(service, "undo", id=note_id)
    assert (answer.undone, answer.state) == ("expired", "active")
    whole = answer.expires_at == clock.now_ms() + 7 * DAY
    assert whole == (reason == "ttl")
    assert (await call(service, "undo", id=note_id)).state == "expired"
    assert (await call(service, "inspect", id=note_id)).note.state_reason == reason


NOT_UNDOABLE: list[tuple[str, dict[str, Any], str]] = [
    ("", {}, "undo-created"),
    ("edit", {"tags": ["x"]}, "undo-edited"),
    ("promote", {"to": "workspace"}, "undo-promoted"),
    ("renew", {}, "undo-renewed"),
    ("forget", {}, "forgotten"),
]


@pytest.mark.parametrize(("verb", "fields", "rule"), NOT_UNDOABLE, ids=[row[2] for row in NOT_UNDOABLE])
async def test_what_cannot_be_undone_is_refused_with_the_way_out(
    service: Service, clock: ManualClock, verb: str, fields: dict[str, Any], rule: str
) -> None:
    """C09: where the table has no way back undo says which other way there is, and changes nothing."""
    caller = {"session": "s1"}
    note_id = await remember(service, "the subject", scope="session", caller=caller)
    clock.advance(DAY)
    if verb:
        await call(service, verb, id=note_id, caller=caller, **fields)
    error = await refused_unchanged(service, "undo", id=note_id, caller=caller)
    assert (error.code, error.rule) == ("refused", rule)
    assert error.hint


async def test_one_of_two_doubts_is_not_undone_by_itself(service: Service, clock: ManualClock) -> None:
    """C09: of a note that had faded before it was flagged, undo would clear a doubt that nobody meant; it says so."""
    note_id = await remember(service, "the subject")
    clock.advance(13 * DAY)
    assert (await call(service, "flag", id=note_id, reason="r")).state == "stale"
    assert set((await call(service, "inspect", id=note_id)).note.causes) == {"decayed", "distrusted"}
    error = await refused_unchanged(service, "undo", id=note_id)
    assert (error.code, error.rule, error.hint) == ("refused", "undo-one-doubt", "reinstate clears them all")
    assert (await call(service, "reinstate", id=note_id)).state == "active"


async def test_undo_makes_no_second_holder_of_a_slot(service: Service) -> None:
    """V27: undoing the end of a slot's old value while the new one lives is refused: a slot has one live value."""
    old = await remember(service, "port 8080", key="port")
    new = await remember(service, "port 9090", key="port")
    error = await refused_unchanged(service, "undo", id=old)
    assert (error.code, error.rule) == ("refused", "slot-taken")
    assert new in error.message
    await call(service, "revoke", id=new, reason="no")
    assert (await call(service, "undo", id=old)).state == "active"
    assert (await refused_unchanged(service, "undo", id=new)).rule == "slot-taken"


async def test_a_human_s_end_is_undone_by_a_human(service: Service) -> None:
    """V07: who may not end a note may not undo its end either."""
    note_id = await remember(service, "ask first", kind="directive", caller=HUMAN)
    await call(service, "revoke", id=note_id, reason="no longer", caller=HUMAN)
    assert (await refused_unchanged(service, "undo", id=note_id)).code == "forbidden"
    assert (await call(service, "undo", id=note_id, caller=HUMAN)).state == "active"


async def test_undo_of_a_note_that_keeps_moving_is_still_right(service: Service, second: Service) -> None:
    """C50: undo beside another daemon's writes takes back the last event there was, never one that somebody built
    on."""
    note_id = await remember(service, "contested", kind="finding")
    for n in range(20):
        await call(service, "pin", id=note_id)
        answer, _ = await asyncio.gather(
            call(second, "undo", id=note_id, caller={"session": f"u{n}"}),
            call(service, "flag", id=note_id, reason="r"),
        )
        events = (await call(service, "history", id=note_id, limit=1000)).events
        at = next(index for index, event in enumerate(events) if event.actor == f"agent:u{n}")
        assert events[at - 1].type == answer.undone
        assert events[at].type == {"pinned": "unpinned", "stale_flagged": "reinstated"}[answer.undone]
        await call(service, "reinstate", id=note_id)
        await call(service, "unpin", id=note_id)
    assert await problems(service) == ()
