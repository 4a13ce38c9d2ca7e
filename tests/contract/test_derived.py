"""Everything derived equals what ``units.derived`` says of the fold of the log, after every command."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis
from tests.contract.driver import HUMAN, KEYRING, POLICY, Driver
from tests.support import dump

from amnesiad.core import clocks, decisions
from amnesiad.core.errors import CallerError
from amnesiad.core.events import AnyNoteEvent
from amnesiad.core.kinds import DAY_MS, Kind
from amnesiad.core.notes import Anchor, Note, Words, decode_note, decode_words, fold
from amnesiad.store.log import parse_stored
from amnesiad.store.units import derived
from amnesiad.store.vault import read_tomb
from amnesiad.store.verify import verify

TEXTS: Final = ("alfa-bravo", "charlie-delta", "echo-foxtrot")
KEYS: Final = (None, None, "golf-hotel")
ANCHORS: Final = ((), (Anchor("lima/mike.py"),), (Anchor("november.py"), Anchor("oscar.py", "0" * 64)))
KINDS: Final[tuple[Kind, ...]] = ("fact", "task", "directive", "episode", "decision")
ACTS: Final = ("revoke", "supersede", "reinstate", "renew", "pin", "unpin", "done", "promote", "edit", "forget", "flag")

remembering = st.tuples(
    st.just("remember"),
    st.sampled_from(TEXTS),
    st.sampled_from(KEYS),
    st.sampled_from(KINDS),
    st.sampled_from([None, "s1", "s2/a"]),
    st.sampled_from(ANCHORS),
)
acting = st.tuples(st.sampled_from(ACTS), st.integers(0, 9), st.integers(0, 9))
waiting = st.tuples(st.just("wait"), st.integers(1, 40))
commands = st.lists(st.one_of(remembering, acting, acting, waiting), min_size=1, max_size=14)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=commands)
async def test_the_store_is_the_fold_of_its_log(store: Redis, script: list[tuple[Any, ...]]) -> None:
    """Whatever is done, in any order: heads, tombs, cells, members, due, totals and vault follow from the log alone,
    erased words are nowhere, and ``verify`` finds nothing."""
    await store.flushall()
    driver = await Driver.open(store)
    for command in script:
        before = await dump(store)
        if await run(driver, command) == "conflict":
            assert await dump(store) == before
        await check(driver)
    report = await verify(store, driver.keys, KEYRING, POLICY)
    assert report.differences == ()
    assert report.clean


async def run(driver: Driver, command: tuple[Any, ...]) -> str:
    """One command, decided as a service decides: settled first; what the rules refuse is not written."""
    if command[0] == "remember":
        return await remember(driver, *command[1:])
    if command[0] == "wait":
        driver.now += command[1] * DAY_MS
        for note_id, note in list(driver.notes.items()):
            if due := clocks.due_events(note, driver.policy, driver.now):
                assert (await driver.change(note_id, due)).status == "ok"
        return "ok"
    name, which, other = command
    ids = sorted(driver.notes)
    if not ids:
        return "ok"
    note_id, by = ids[which % len(ids)], ids[other % len(ids)]
    settled = clocks.settle(driver.notes[note_id], driver.policy, driver.now)
    owed = clocks.due_events(driver.notes[note_id], driver.policy, driver.now)
    if settled.state == "forgotten":
        return "ok"
    words = driver.words[note_id]
    try:
        events, new_words = decide(driver, name, settled, driver.notes[by], words)
    except CallerError:
        return "ok"
    return (await driver.change(note_id, [*owed, *events], new_words)).status


async def remember(
    driver: Driver, text: str, key: str | None, kind: Kind, owner: str | None, anchors: tuple[Anchor, ...]
) -> str:
    scoped: dict[str, Any] = {}
    if owner is not None:
        scoped = {"scope": "session", "owner": owner, "incarnation": await driver.open_owner(owner)}
    unit, note, words = driver.birth(text, key=key, kind=kind, anchors=anchors, **scoped)
    outcome = await driver.log.commit(unit)
    if outcome.status == "ok":
        driver.take(note, words)
    return outcome.status


def decide(driver: Driver, name: str, note: Note, by: Note, words: Words) -> tuple[list[AnyNoteEvent], Words | None]:
    now, reason = driver.now, "kilo-lima"
    if name == "revoke":
        told = msgspec.structs.replace(words, reasons={"1": reason})
        events = decisions.revoke(note, HUMAN, now, reason=reason)
        return [msgspec.structs.replace(event, size=told.size()) for event in events], told
    if name == "supersede":
        step = {id_: n.superseded_by for id_, n in driver.notes.items()}
        return decisions.supersede(note, by, HUMAN, now, successor=step.get), None
    if name == "edit":
        tags, anchors = (*words.tags, "india-juliett")[-3:], ANCHORS[now // DAY_MS % len(ANCHORS)]
        after = Words(content=words.content, key=words.key, tags=tags, anchors=anchors)
        return decisions.edit(note, HUMAN, now, before=words, after=after), after
    if name == "promote":
        return decisions.promote(note, HUMAN, now, to="workspace"), None
    if name == "renew":
        return decisions.renew(note, HUMAN, driver.policy, now), None
    if name == "flag":
        return decisions.flag(note, HUMAN, now, cause="distrusted"), None
    plain: Any = getattr(decisions, name)
    return plain(note, HUMAN, now), None


async def check(driver: Driver) -> None:
    """Read the whole store and hold every structure against the fold of the whole log."""
    k, stored = driver.keys, await dump(driver.redis)
    events: dict[str, list[AnyNoteEvent]] = {}
    last: dict[str, str] = {}
    for entry in await driver.log.read("0-0"):
        note_id = entry.event.note  # type: ignore[union-attr]
        assert entry.previous == last.get(note_id, "")
        events.setdefault(note_id, []).append(entry.event)  # type: ignore[arg-type]
        last[note_id] = entry.seq
    notes = {id_: fold(own) for id_, own in events.items()}
    assert notes == driver.notes
    kept = {id_: note for id_, note in notes.items() if note.state != "forgotten"}
    gone = {id_: note for id_, note in notes.items() if note.state == "forgotten"}

    heads = {id_.decode(): parse_stored(raw) for id_, raw in stored.get(k.heads, {}).items()}
    assert {id_: (decode_note(head.value), head.seq, head.stamp) for id_, head in heads.items()} == {
        id_: (note, last[id_], str(note.version)) for id_, note in kept.items()
    }
    tombs = {id_.decode(): read_tomb(raw) for id_, raw in stored.get(k.tomb, {}).items()}
    assert {id_: (grave.tomb.note, grave.seq) for id_, grave in tombs.items()} == {
        id_: (note, last[id_]) for id_, note in gone.items()
    }
    words = {id_.decode(): decode_words(raw) for id_, raw in stored.get(k.vault, {}).items()}
    assert words == driver.words
    assert words.keys() == kept.keys()

    follows = {id_: derived(note, words[id_], driver.policy, KEYRING) for id_, note in kept.items()}
    cells = {
        field.decode(): parse_stored(raw).stamp
        for field, raw in stored[k.cells].items()
        if field.startswith((b"slot:", b"text:"))
    }
    assert cells == {cell: id_ for id_, own in follows.items() for cell in own.cells}
    due = {id_: own.due for id_, own in follows.items() if own.due is not None}
    due |= {id_: grave.tomb.purge_at for id_, grave in tombs.items() if grave.tomb.purge_at is not None}
    assert {id_.decode(): int(at) for id_, at in stored.get(k.due, {}).items()} == due
    assert {id_.decode(): int(at) for id_, at in stored.get(k.audit, {}).items()} == {
        id_: note.state_at for id_, note in gone.items()
    }
    for owner in ("s1", "s2/a"):
        assert {raw.decode() for raw in stored.get(k.members(owner), ())} == {
            id_ for id_, own in follows.items() if own.owner == owner
        }
    assert {raw.decode() for raw in stored.get(k.anchored, ())} == {id_ for id_, own in follows.items() if own.anchored}
    totals = dict.fromkeys(("perishable_bytes", "record_bytes"), 0) | {"forgotten": len(gone), "unscrubbed": len(gone)}
    for own in follows.values():
        totals[own.total] += own.bytes
    found = {name.decode(): int(value) for name, value in stored.get(k.totals, {}).items()}
    assert {name: value for name, value in found.items() if value} == {n: v for n, v in totals.items() if v}
    check_erased(words, stored)


def check_erased(words: dict[str, Words], stored: dict[str, Any]) -> None:
    """What no living note says is said nowhere in the store."""
    everything = repr(stored)
    alive = repr(words)
    for word in (*TEXTS, "golf-hotel", "india-juliett", "kilo-lima"):
        assert word in alive or word not in everything, word
