"""The verb ``mirror``: results from other stores in the history of notes that live, ended or are forgotten."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.daemon.desk import DAY, HUMAN, ManualClock, call, log_types, problems, refused, refused_unchanged, remember

from amnesiad import wire
from amnesiad.service import Service


async def history(service: Service, note_id: str) -> list[wire.HistoryEvent]:
    """The note's events."""
    answer: wire.HistoryAnswer = await call(service, "history", id=note_id, caller=HUMAN)
    return list(answer.events)


async def view(service: Service, note_id: str) -> wire.NoteView:
    """The note as inspect shows it to a human."""
    answer: wire.InspectAnswer = await call(service, "inspect", id=note_id, caller=HUMAN)
    return answer.note


async def test_a_result_stands_in_the_history_of_a_live_note(service: Service) -> None:
    """It is an event with target and result, the view shows the last of each target, and nothing else has moved."""
    note_id = await remember(service, "tea is at four", source_ref="mem0:4f2a+cache:7")
    before = await view(service, note_id)
    assert (await call(service, "mirror", id=note_id, target="mem0", result="hidden")).changed
    assert (await call(service, "mirror", id=note_id, target="cache", result="deleted")).changed
    answer = await call(service, "mirror", id=note_id, target="mem0", result="hidden")
    assert (answer.changed, answer.state) == (False, "active")
    events = await history(service, note_id)
    assert [(event.type, event.frm, event.to, event.facts) for event in events[1:]] == [
        ("mirrored", "active", "active", {"target": "mem0", "result": "hidden"}),
        ("mirrored", "active", "active", {"target": "cache", "result": "deleted"}),
    ]
    shown = await view(service, note_id)
    assert shown.mirrored == {"mem0": "hidden", "cache": "deleted"}
    assert (shown.state_at, shown.expires_at, shown.content) == (before.state_at, before.expires_at, before.content)
    assert await problems(service) == ()


async def test_a_reason_is_shown_whatever_became_of_the_item(service: Service) -> None:
    """C29: the warning tells the reason the note was revoked for, with results from elsewhere before and behind it."""
    note_id = await remember(service, "tea is at four", kind="finding", source_ref="mem0:1+cache:2")
    await call(service, "mirror", id=note_id, target="mem0", result="hidden")
    await call(service, "revoke", id=note_id, reason="it is at five")
    for target in ("", "mem0", "cache"):
        if target:
            assert (await call(service, "mirror", id=note_id, target=target, result="deleted")).changed
        (warning,) = (await call(service, "recall", query="tea")).deterrents
        assert "reason: it is at five" in warning.text, target


async def test_a_revocation_comes_back_with_its_reason_whatever_became_of_the_item(service: Service) -> None:
    """C29: a result came between a revocation and its undoing: undoing that in turn gives the reason of then again."""
    note_id = await remember(service, "tea is at four", kind="finding", source_ref="mem0:1")
    await call(service, "revoke", id=note_id, reason="it is at five")
    await call(service, "mirror", id=note_id, target="mem0", result="hidden")
    await call(service, "reinstate", id=note_id)
    answer = await call(service, "undo", id=note_id)
    assert (answer.changed, answer.state) == (True, "revoked")
    (warning,) = (await call(service, "recall", query="tea")).deterrents
    assert "reason: it is at five" in warning.text


async def test_a_result_is_recorded_after_the_words_are_gone(service: Service, second: Service) -> None:
    """A forgotten note takes the result too, in its tomb; it stays forgotten, on every daemon."""
    note_id = await remember(service, "tea is at four", source_ref="mem0:4f2a")
    await call(service, "forget", id=note_id)
    for asked in (service, second):
        assert (await call(asked, "mirror", id=note_id, target="mem0", result="deleted")).changed is (asked is service)
        shown = await view(asked, note_id)
        assert (shown.state, shown.content, shown.mirrored) == ("forgotten", None, {"mem0": "deleted"})
        assert await problems(asked) == ()
    assert await log_types(service) == ["created", "forgotten", "mirrored"]


async def test_a_result_and_what_time_owes_are_one_unit(service: Service, clock: ManualClock) -> None:
    """A note that has run out and that no pass has seen is erased by the unit that records the result."""
    note_id = await remember(service, "tea is at four", source_ref="mem0:4f2a", ttl_ms="1d")
    clock.advance(2 * DAY)
    answer = await call(service, "mirror", id=note_id, target="mem0", result="deleted")
    assert (answer.changed, answer.state) == (True, "forgotten")
    assert await log_types(service) == ["created", "expired", "forgotten", "mirrored"]
    assert await problems(service) == ()


async def test_two_governors_of_one_tomb(service: Service, second: Service) -> None:
    """V27: results that race for one tomb are recorded each, or found recorded; none is lost and none comes twice."""
    targets = [f"store{n}" for n in range(8)]
    note_id = await remember(service, "tea is at four", source_ref="+".join(f"{name}:1" for name in targets))
    await call(service, "forget", id=note_id)
    await asyncio.gather(
        *(
            call(asked, "mirror", id=note_id, target=name, result="deleted")
            for name in targets
            for asked in (service, second)
        )
    )
    assert (await view(service, note_id)).mirrored == dict.fromkeys(targets, "deleted")
    assert (await log_types(service)).count("mirrored") == len(targets)
    assert await problems(service) == ()


@pytest.mark.parametrize("forgotten", [False, True])
async def test_a_target_the_note_does_not_point_at(service: Service, forgotten: bool) -> None:
    """It is refused by its rule, and nothing changes."""
    note_id = await remember(service, "tea is at four", source_ref="mem0:4f2a")
    if forgotten:
        await call(service, "forget", id=note_id)
    error = await refused_unchanged(service, "mirror", id=note_id, target="cache", result="deleted")
    assert (error.code, getattr(error, "rule", None)) == ("refused", "no-mirror")


async def test_what_a_caller_cannot_see_it_cannot_report_on(service: Service) -> None:
    """C25: to another session the note is not there, living or forgotten."""
    mine: dict[str, Any] = {"session": "s1"}
    note_id = await remember(service, "tea is at four", source_ref="mem0:4f2a", scope="session", caller=mine)
    other: dict[str, Any] = {"session": "s2"}
    for _ in range(2):
        error = await refused(call(service, "mirror", id=note_id, target="mem0", result="deleted", caller=other))
        assert error.code == "not_found"
        await call(service, "forget", id=note_id, caller=mine)


async def test_what_is_wrong_is_named(service: Service) -> None:
    """V26: a result that does not exist and a target that is no token are refused at the door."""
    note_id = await remember(service, "tea is at four", source_ref="mem0:4f2a")
    for fields, name in (({"result": "eaten"}, "result"), ({"target": "mem 0"}, "target")):
        error = await refused(
            call(service, "mirror", **({"id": note_id, "target": "mem0", "result": "hidden"} | fields))
        )
        assert (error.code, error.field) == ("invalid", name)


async def test_results_travel_with_an_export(service: Service) -> None:
    """C19: results recorded before and after the end come over with the note's history, also onto a note known
    there."""
    kept = await remember(service, "tea is at four", source_ref="mem0:1")
    gone = await remember(service, "coffee is at ten", source_ref="mem0:2")
    await call(service, "mirror", id=kept, target="mem0", result="hidden")
    await call(service, "forget", id=gone)
    before = [line async for line in service.export(wire.decode("export", b'{"workspace": "desk"}'))]
    await call(service, "mirror", id=gone, target="mem0", result="deleted")
    later = [line async for line in service.export(wire.decode("export", b'{"workspace": "desk"}'))]

    async def brought(lines: list[bytes]) -> wire.ImportAnswer:
        async def each() -> Any:
            for line in lines:
                yield line

        request = wire.ImportRequest(workspace="other", caller=wire.CallerSpec(role="human"))
        return await service.import_notes(request, each())

    for lines in (before, later):
        assert (await brought(lines)).problems == ()
    shown = [await call(service, "inspect", id=id_, workspace="other", caller=HUMAN) for id_ in (kept, gone)]
    assert [one.note.mirrored for one in shown] == [{"mem0": "hidden"}, {"mem0": "deleted"}]
    assert await problems(service, "other") == ()


async def test_a_peek_renews_nothing(service: Service, clock: ManualClock) -> None:
    """A recall that only looks returns the same notes, is logged all the same, and leaves every lease as it is."""
    note_id = await remember(service, "tea is at four", ttl_ms="30d")
    ends = (await view(service, note_id)).expires_at
    clock.advance(10 * DAY)
    found = await call(service, "recall", query="tea", peek=True)
    await service.quiesce()
    assert [note.id for note in found.notes] == [note_id]
    assert (await view(service, note_id)).expires_at == ends
    assert len((await call(service, "ledger")).rows) == 1
    await call(service, "recall", query="tea")
    await service.quiesce()
    assert (await view(service, note_id)).expires_at == ends + 10 * DAY  # type: ignore[operator]
