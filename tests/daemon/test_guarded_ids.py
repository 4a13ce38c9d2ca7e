"""Secrets at the door: in ids that enter the log, in reasons, and by the guard and limits that are in force by then."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.daemon.desk import (
    HUMAN,
    WORKSPACE,
    call,
    happened,
    kept,
    listed,
    refused,
    refused_unchanged,
    remember,
)
from tests.daemon.lines import ELSEWHERE, exported, parsed, taken_in
from tests.support import dump

from amnesiad import wire
from amnesiad.service import Service
from amnesiad.store import keys as keyspace

TOKEN: Final = "gh" + "p_" + "x7Kd93mQp2" * 3 + "aB3dE9"
"""Looks like a key, and is one that nobody ever had."""


class TestIds:
    """Ids and pointers enter the log, from which nothing is erased: the guard keeps secrets out wherever it is on."""

    PLACES: Final[list[dict[str, Any]]] = [
        {"source_ref": TOKEN},
        {"request_id": TOKEN},
        {"caller": {"session": TOKEN}},
        {"caller": {"session": "s1", "agent": TOKEN, "agent_kind": "subagent"}},
        {"caller": {"team": TOKEN}, "scope": "team"},
        {"caller": HUMAN, "scope": "session", "owner": TOKEN},
        {"caller": HUMAN, "scope": "session", "owner": f"s1/{TOKEN}"},
    ]

    @pytest.mark.parametrize("fields", PLACES)
    async def test_no_id_holds_a_secret(self, service: Service, fields: dict[str, Any]) -> None:
        """What looks like a key in an id is refused though words would only be told of, and is nowhere in the store."""
        await remember(service, "there before")
        error = await refused_unchanged(service, "remember", content="of no interest", **fields)
        assert (error.code, error.rule) == ("refused", "secret-guard")
        assert error.field is not None
        assert error.field.rpartition(".")[2] in str(fields)
        assert TOKEN not in repr((error.message, error.hint, error.choices))
        await call(service, "policy", set={"secret_guard": "off"})
        await remember(service, "of no interest", **fields)

    @pytest.mark.parametrize(
        ("verb", "fields"),
        [
            ("supersede", {"content": "better"}),
            ("edit", {"tags": ["t"]}),
            ("revoke", {"reason": "refuted"}),
            ("renew", {}),
            ("pin", {}),
            ("forget", {}),
            ("promote", {"to": "workspace"}),
        ],
    )
    async def test_every_verb_that_writes_asks(self, service: Service, verb: str, fields: dict[str, Any]) -> None:
        """The actor of an event is an id too, whatever the event."""
        note = await remember(service, "there before")
        error = await refused_unchanged(service, verb, id=note, caller={"session": TOKEN}, **fields)
        assert (error.rule, error.field) == ("secret-guard", "caller.session")

    @pytest.mark.parametrize(
        ("verb", "fields"),
        [("recall", {"query": "there"}), ("inject", {"query": "there"}), ("fire", {"event": "pre-run"})],
    )
    async def test_every_read_that_is_logged_asks(self, service: Service, verb: str, fields: dict[str, Any]) -> None:
        """A read renews what it returns, in the name of its caller, and is kept in the ledger."""
        await remember(service, "there before", triggers=[{"event": "pre-run"}])
        error = await refused_unchanged(service, verb, caller={"session": TOKEN}, **fields)
        assert (error.rule, error.field) == ("secret-guard", "caller.session")
        await call(service, "policy", set={"secret_guard": "off"})
        await call(service, verb, caller={"session": TOKEN}, **fields)

    async def test_a_turn_is_an_id_too(self, service: Service) -> None:
        """It stands in the name of a key, and beside each note that was shown in it."""
        await remember(service, "there before", triggers=[{"event": "pre-run"}])
        error = await refused_unchanged(service, "fire", event="pre-run", turn=TOKEN, caller={"session": "s1"})
        assert (error.rule, error.field) == ("secret-guard", "turn")

    async def test_nor_does_forgetting_many_or_setting_policy(self, service: Service) -> None:
        """Neither several units in one call nor an event of the workspace let one through."""
        for number in range(3):
            await remember(service, f"note {number}")
        asked = {"all": True, "confirm": True, "caller": {"session": TOKEN}}
        assert (await refused_unchanged(service, "forget", **asked)).rule == "secret-guard"
        asked = {"set": {"default_ttl": "1d"}, "caller": {"session": TOKEN}}
        assert (await refused_unchanged(service, "policy", **asked)).rule == "secret-guard"

    @pytest.mark.parametrize("name", ["session", "agent", "team", "parent", "source", "id"])
    async def test_no_lifecycle_event_carries_one_in(self, service: Service, name: str) -> None:
        """An event whose id looks like a key is not put on the stream, nor are those that came with it."""
        fine = {"event": "session-start", "workspace": WORKSPACE, "session": "s1"}
        error = await refused(happened(service, fine, fine | {name: TOKEN}))
        assert (error.rule, error.field) == ("secret-guard", f"events[1].{name}")
        assert TOKEN not in error.message
        assert await dump(service.redis, keyspace.LIFECYCLE) == {}
        await call(service, "policy", set={"secret_guard": "off"})
        assert (await happened(service, fine | {name: TOKEN})).accepted == 1

    async def test_no_import_brings_one_in(self, service: Service) -> None:
        """A line with a key in an id is a problem of that line, in the plain form and in that of an export."""
        note = await remember(service, "the agent's", source_ref="commit:1")
        lines = parsed(await exported(service))
        for line in lines:
            if line["line"] == "note" and line["id"] == note:
                line["events"][0]["source_ref"] = TOKEN
        lines.append({"content": "plain", "source_ref": TOKEN})
        answer = await taken_in(service, lines)
        assert [problem.code for problem in answer.problems] == ["refused", "refused"]
        assert TOKEN not in repr(await kept(service, ELSEWHERE)) + repr(answer)

    async def test_ordinary_ids_pass(self, service: Service) -> None:
        """Ids as agents have them are none: UUIDs, hashes, dates, paths."""
        ids = [
            "7d444840-9dc0-11d1-b245-5ffdce74fad2",
            "01JABCDEFGHJKMNPQRSTVWXYZ0",
            "claude-code:2026-07-01T10.15.00#3",
        ]
        for number, id_ in enumerate(ids):
            caller = {"session": id_, "agent": f"agent-{id_}", "agent_kind": "subagent"}
            source = ["commit:f1d2d2f924e986ac86fdf7b36c94bcdf32beec15", "src/app/Main2.py:120", "PR#12345678901234"]
            await remember(service, f"note {number}", caller=caller, source_ref=source[number], request_id=f"r-{id_}")


WITH_REASON: Final[dict[str, dict[str, Any]]] = {
    "revoke": {},
    "flag": {},
    "pin": {},
    "unpin": {},
    "reinstate": {},
    "done": {},
    "promote": {"to": "workspace"},
    "undo": {},
    "forget": {},
    "supersede": {"content": "better"},
    "edit": {"tags": ["t"]},
    "restore": {},
}


class TestReasons:
    """A reason is words like any other."""

    def test_no_verb_with_a_reason_is_left_out(self) -> None:
        """Every verb that takes a reason is tried below."""
        takes = {name for name, spec in wire.VERBS.items() if "reason" in spec.request.__struct_fields__}
        assert takes - {"renew"} == set(WITH_REASON)

    @staticmethod
    async def ready(service: Service, verb: str) -> str:
        """A note that the verb has something to do to."""
        note = await remember(service, "there before", kind="task", caller={"session": "s1"}, scope="session")
        before: dict[str, list[tuple[str, dict[str, Any]]]] = {
            "unpin": [("pin", {})],
            "reinstate": [("revoke", {"reason": "r"})],
            "undo": [("pin", {})],
            "restore": [("policy", {"set": {"restorable": True}}), ("forget", {})],
        }
        for step, fields in before.get(verb, []):
            place: dict[str, Any] = {} if step == "policy" else {"id": note}
            await call(service, step, caller={"session": "s1"}, **place, **fields)
        return note

    @pytest.mark.parametrize("verb", WITH_REASON)
    async def test_warn_tells_of_a_secret_in_a_reason(self, service: Service, verb: str) -> None:
        """By default the answer says what the reason looks like, never what it is."""
        note = await self.ready(service, verb)
        fields = {"id": note, "reason": f"because of {TOKEN}", "caller": {"session": "s1"}, **WITH_REASON[verb]}
        answer = await call(service, verb, **fields)
        assert len(answer.notices) == 1
        assert "github-pat" in answer.notices[0]
        assert TOKEN not in answer.notices[0]

    @pytest.mark.parametrize("verb", WITH_REASON)
    async def test_refuse_keeps_it_out_of_a_reason(self, service: Service, verb: str) -> None:
        """Where the policy refuses, nothing happens to the note and the secret is nowhere."""
        note = await self.ready(service, verb)
        await call(service, "policy", set={"secret_guard": "refuse"})
        fields = {"id": note, "reason": f"because of {TOKEN}", "caller": {"session": "s1"}, **WITH_REASON[verb]}
        error = await refused_unchanged(service, verb, **fields)
        assert error.rule == "secret-guard"
        assert TOKEN not in repr(await kept(service))


class TestPolicyInForce:
    """C15: a change of policy that was acknowledged holds on every daemon from then on."""

    @pytest.mark.parametrize("was", ["warn", "off"])
    async def test_another_daemon_s_guard(self, service: Service, second: Service, was: str) -> None:
        """A secret is refused by the policy in force when its unit is decided, not by the one known when it came."""
        note = await remember(service, "there before")
        await call(service, "policy", set={"secret_guard": was})
        assert await listed(second) == [note]
        await call(service, "policy", set={"secret_guard": "refuse"})
        for verb, fields in (
            ("remember", {"content": f"the token is {TOKEN}"}),
            ("edit", {"id": note, "tags": [TOKEN]}),
            ("supersede", {"id": note, "content": f"the token is {TOKEN}"}),
            ("revoke", {"id": note, "reason": f"because of {TOKEN}"}),
            ("remember", {"content": "of no interest", "source_ref": TOKEN}),
        ):
            assert (await refused(call(second, verb, **fields))).rule == "secret-guard", verb
            second.close(WORKSPACE)
            await call(service, "policy", set={"secret_guard": was})
            await listed(second)
            await call(service, "policy", set={"secret_guard": "refuse"})
        assert TOKEN not in repr(await kept(service))

    async def test_another_daemon_s_limit(self, service: Service, second: Service) -> None:
        """A note is as long as the policy in force lets it be: no longer, and no shorter."""
        note = await remember(service, "there before")
        assert await listed(second) == [note]
        await call(service, "policy", set={"max_item_bytes": 100})
        for verb, fields in (("remember", {}), ("supersede", {"id": note})):
            error = await refused(call(second, verb, content="x" * 101, **fields))
            assert (error.code, error.field) == ("too_large", "content"), verb
        await call(service, "policy", set={"max_item_bytes": 4000})
        assert (await call(second, "remember", content="x" * 4000)).created
