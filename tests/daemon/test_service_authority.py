"""Who may govern: policy, workspaces, owners, parked events, and what an import may claim."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, cast

import msgspec
import pytest
from tests.daemon.desk import (
    DAY,
    HUMAN,
    WORKSPACE,
    ManualClock,
    Recorder,
    call,
    happened,
    kept,
    listed,
    projection,
    recalled,
    refused,
    refused_unchanged,
    remember,
    state_of,
)
from tests.support import dump

from amnesiad import wire
from amnesiad.core.callers import OWN_SETTINGS
from amnesiad.core.intake import NOTE_ID_ALPHABET
from amnesiad.core.policy import LIVE_SETTINGS
from amnesiad.service import Service
from amnesiad.settings import RULES
from amnesiad.store import keys as keyspace
from amnesiad.store import vault, workspaces

CHILD: Final[dict[str, Any]] = {"session": "s1", "agent": "a1", "agent_kind": "subagent"}
SIBLING: Final[dict[str, Any]] = {"session": "s1", "agent": "a2", "agent_kind": "subagent"}
MATE: Final[dict[str, Any]] = {"session": "m1", "agent": "m1", "agent_kind": "teammate", "team": "s1"}
FRESH: Final[dict[str, Any]] = {"session": "s1", "agent": "f1", "agent_kind": "fresh"}
SUBORDINATE: Final = [CHILD, MATE, FRESH]
ON_BEHALF: Final[dict[str, Any]] = {"on_behalf": "user"}
ELSEWHERE: Final = "elsewhere"

REACHING: Final[dict[str, Any]] = {
    "record_ttl": "1s",
    "auto_expire": False,
    "ended_retention": "1s",
    "audit_retention": "1s",
    "restorable": True,
    "max_store_bytes": 1,
    "max_record_bytes": 1,
    "stale_strength": 0.9,
    "forgotten_strength": 0.2,
    "ebbinghaus_k": 90,
    "injection_enabled": False,
    "max_injected_tokens": 1,
    "child_sees": "own",
    "secret_guard": "off",
    "trust_human": 0,
}


class TestAHumansDecisions:
    """What an agent may not do to a human's note directly it may not do by taking something back either."""

    @pytest.mark.parametrize("before", ["expired", "flag", "revoke", "done"])
    async def test_no_agent_takes_back_what_a_human_reinstated(
        self, service: Service, clock: ManualClock, before: str
    ) -> None:
        """V07: whatever the note was before a human reinstated it, no agent's undo makes it that again."""
        note = await remember(service, "never force-push", kind="task", ttl_ms="1d", caller=HUMAN)
        if before == "expired":
            clock.advance(2 * DAY)
        else:
            await call(service, before, id=note, reason="a mistake", caller=HUMAN)
        assert (await call(service, "reinstate", id=note, caller=HUMAN)).changed
        for caller in ({}, ON_BEHALF):
            error = await refused_unchanged(service, "undo", id=note, reason="no", caller=caller)
            assert (error.code, error.rule) == ("forbidden", "provenance")
        assert await state_of(service, note) == "active"

    async def test_a_kept_copy_comes_back_by_whoever_may_speak_for_it(self, service: Service) -> None:
        """V07: a human's by a human, the user's also by an agent that declares it and says why; as what they were."""
        await call(service, "policy", set={"restorable": True}, caller=HUMAN)
        mine = await remember(service, "never force-push", caller=HUMAN)
        users = await remember(service, "tabs, says the user", caller=ON_BEHALF)
        await call(service, "forget", ids=[mine, users], caller=HUMAN)
        for note, asked in ((mine, {}), (mine, {"caller": ON_BEHALF, "reason": "asked"}), (users, {"reason": "asked"})):
            error = await refused_unchanged(service, "restore", id=note, **asked)
            assert (error.code, error.rule) == ("forbidden", "provenance")
        by: list[tuple[str, dict[str, Any], str]] = [(mine, HUMAN, "human"), (users, ON_BEHALF, "user-stated")]
        for note, caller, provenance in by:
            made = (await call(service, "restore", id=note, reason="asked", caller=caller)).id
            assert (await call(service, "inspect", id=made, caller=HUMAN)).note.provenance == provenance


class TestPolicy:
    """What an agent may not end note by note it may not have ended by a rule either."""

    @pytest.mark.parametrize("setting", REACHING)
    async def test_an_agent_does_not_reach_a_human_s_notes_by_policy(self, service: Service, setting: str) -> None:
        """V07: beside a human's note no agent sets or resets what could end, hide or erase it, whatever it declares."""
        note = await remember(service, "never force-push", kind="decision", caller=HUMAN)
        for caller in ({}, ON_BEHALF):
            error = await refused_unchanged(service, "policy", set={setting: REACHING[setting]}, caller=caller)
            assert (error.code, error.rule, error.field) == ("forbidden", "policy-role", setting)
        await call(service, "policy", set={setting: REACHING[setting]}, caller=HUMAN)
        assert (await refused_unchanged(service, "policy", reset=[setting])).rule == "policy-role"
        assert await state_of(service, note) == "active"

    async def test_one_reaching_setting_is_enough(self, service: Service) -> None:
        """A harmless setting beside a reaching one is refused with it: nothing is done by halves."""
        await remember(service, "never force-push", kind="directive", caller=HUMAN)
        wanted = {"default_ttl": "1d", "record_ttl": "1s"}
        assert (await refused_unchanged(service, "policy", set=wanted)).field == "record_ttl"

    @pytest.mark.parametrize("asked", [{"set": {"defualt_ttl": "1d"}}, {"reset": ["socket"]}])
    async def test_what_is_no_setting_is_called_that(self, service: Service, asked: dict[str, Any]) -> None:
        """An agent's typing error is told of as one, not sent to the user as a matter of who may."""
        await remember(service, "never force-push", kind="directive", caller=HUMAN)
        error = await refused_unchanged(service, "policy", **asked)
        assert error.code == "invalid"
        assert "not a setting that can be changed live" in error.message

    async def test_the_settings_of_the_process_are_shown_too(self, service: Service) -> None:
        """Every setting is there with its origin, and those that no workspace can change are marked."""
        values = (await call(service, "policy")).values
        assert set(values) == set(RULES)
        assert {name for name, one in values.items() if one.live} == LIVE_SETTINGS
        assert (values["durability"].value, values["durability"].origin) == ("everysec", "default")

    async def test_what_shapes_only_new_notes_stays_the_agents_own(self, service: Service) -> None:
        """An agent sets the default shelf life also where a human's notes live: it reaches none of them."""
        await remember(service, "never force-push", kind="directive", caller=HUMAN)
        await call(service, "policy", set={"default_ttl": "1d", "default_kind": "episode"})
        assert (await call(service, "policy")).values["default_ttl"].origin == "workspace"

    async def test_the_user_s_words_need_the_declaration(self, service: Service) -> None:
        """What the user said is reached only by an agent that declares to act for the user."""
        await remember(service, "the user wants tabs", kind="decision", caller=ON_BEHALF, provenance="user-stated")
        assert (await refused_unchanged(service, "policy", set={"record_ttl": "1s"})).rule == "policy-role"
        await call(service, "policy", set={"record_ttl": "1d"}, caller=ON_BEHALF)

    async def test_an_agent_among_its_own_notes_sets_what_it_likes(self, service: Service) -> None:
        """Where nothing is a human's or the user's, a main agent governs."""
        await remember(service, "the build needs node 20", kind="finding")
        await call(service, "policy", set=REACHING | {"forgotten_strength": 0.2, "stale_strength": 0.9})
        assert (await call(service, "policy")).values["record_ttl"].origin == "workspace"

    async def test_nothing_is_both_set_and_reset(self, service: Service) -> None:
        """V26: nobody can tell which of the two is meant, so neither is done."""
        await call(service, "policy", set={"tie_width": 0.5})
        wanted: dict[str, Any] = {"set": {"tie_width": 0.2, "default_ttl": "1d"}, "reset": ["tie_width"]}
        error = await refused_unchanged(service, "policy", **wanted)
        assert (error.code, error.field) == ("invalid", "tie_width")

    @pytest.mark.parametrize("change", [{"restorable": False}, {"audit_retention": "1s"}])
    async def test_a_human_s_kept_copy_is_not_purged_by_policy(self, service: Service, change: dict[str, Any]) -> None:
        """V07: a forgotten note of a human's is still a human's while its copy or hash is kept."""
        await call(service, "policy", set={"restorable": True}, caller=HUMAN)
        note = await remember(service, "the human's own", caller=HUMAN)
        await call(service, "forget", id=note, caller=HUMAN)
        assert (await refused_unchanged(service, "policy", set=change)).rule == "policy-role"
        assert (await call(service, "restore", id=note, caller=HUMAN)).restored_from == note

    async def test_a_human_s_hash_is_not_purged_by_policy(self, service: Service) -> None:
        """V07: of a forgotten note without a copy the hash is left, and how long is a human's to say as well."""
        note = await remember(service, "the human's own", caller=HUMAN)
        await call(service, "forget", id=note, caller=HUMAN)
        assert (await refused_unchanged(service, "policy", set={"audit_retention": "1s"})).rule == "policy-role"
        (entry,) = (await call(service, "audit", caller=HUMAN)).entries
        assert entry.content_hash is not None

    async def test_a_human_s_note_written_meanwhile_counts(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """V07: it is there when the change is decided, though it was not when it was asked for."""
        await remember(service, "the build needs node 20", kind="finding")
        real = Service._check_policy

        async def checked(self: Service, *args: Any) -> None:
            await real(self, *args)
            await remember(service, "never force-push", kind="decision", caller=HUMAN)

        monkeypatch.setattr(Service, "_check_policy", checked)
        error = await refused(call(service, "policy", set={"record_ttl": "1s"}))
        assert (error.code, error.rule) == ("forbidden", "policy-role")
        assert (await call(service, "policy")).values["record_ttl"].origin == "default"

    @pytest.mark.parametrize("caller", SUBORDINATE)
    async def test_nobody_below_the_main_agent_changes_policy(self, service: Service, caller: dict[str, Any]) -> None:
        """C23: a child, a teammate and a fresh agent set nothing, not even where there is nothing yet, but may look."""
        error = await refused(call(service, "policy", set={"default_ttl": "1d"}, caller=caller))
        assert (error.code, error.rule) == ("forbidden", "policy-role")
        assert await workspaces.all_workspaces(service.redis) == {}
        await remember(service, "of no interest")
        assert (await refused_unchanged(service, "policy", reset=["default_ttl"], caller=caller)).rule == "policy-role"
        assert (await call(service, "policy", caller=caller)).values["default_ttl"].origin == "default"
        assert (await call(service, "status")).refusals["policy-role"] == 2
        assert (await call(service, "status", workspace="elsewhere")).refusals == {}

    async def test_a_damaged_note_may_be_a_human_s(self, service: Service) -> None:
        """V09: what cannot be read is not taken for the agent's own."""
        note = await remember(service, "the human's own", caller=HUMAN)
        workspace = await projection(service)
        await service.redis.hset(workspace.keys.heads, note, "garbage")
        service.close(WORKSPACE)
        assert (await refused(call(service, "policy", set={"record_ttl": "1s"}))).rule == "policy-role"
        assert (await refused(call(service, "workspaces", drop=WORKSPACE, confirm=True))).code == "forbidden"

    async def test_a_repeated_request_is_answered_as_before(self, service: Service) -> None:
        """C12: what was allowed when it was asked first is answered again, though it would not be allowed now."""
        asked = {"set": {"restorable": True}, "request_id": "r1"}
        await remember(service, "of no interest")
        await call(service, "policy", **asked)
        await remember(service, "the human's own", caller=HUMAN)
        assert (await call(service, "policy", **asked)).values["restorable"].value is True
        assert (await refused(call(service, "policy", set={"restorable": False}))).rule == "policy-role"

    @pytest.mark.parametrize("dry_run", [True, False])
    async def test_an_import_sets_no_policy_past_that(self, service: Service, dry_run: bool) -> None:
        """V07: an agent's import of a policy line is refused where its policy call would be; the rest comes in."""
        await remember(service, "the human's", workspace=ELSEWHERE, caller=HUMAN)
        lines: list[Any] = [{"line": "policy", "values": {"record_ttl": "1s"}}, {"content": "the agent's"}]
        answer = await taken_in(service, lines, dry_run=dry_run)
        assert [(problem.line, problem.code) for problem in answer.problems] == [(1, "forbidden")]
        assert answer.imported == 1
        assert (await call(service, "policy", workspace=ELSEWHERE)).values["record_ttl"].origin == "default"
        child = await taken_in(service, lines[:1], workspace="new", dry_run=dry_run, **CHILD)
        assert [problem.code for problem in child.problems] == ["forbidden"]

    def test_every_setting_is_on_one_side(self) -> None:
        """The settings left to agents exist; a new one is not theirs until somebody says so."""
        assert OWN_SETTINGS < LIVE_SETTINGS
        assert not OWN_SETTINGS & set(REACHING)


class TestWorkspaces:
    """A workspace that holds anything of a human's is a human's to drop or rename."""

    ASKED: Final = [{"drop": WORKSPACE, "confirm": True}, {"rename": WORKSPACE, "to": "bench"}]

    @pytest.mark.parametrize("asked", ASKED)
    @pytest.mark.parametrize("caller", [*SUBORDINATE, {"agent_kind": "subagent"}])
    async def test_nobody_below_the_main_agent_disposes_of_one(
        self, service: Service, asked: dict[str, Any], caller: dict[str, Any]
    ) -> None:
        """C23: a child, identified or not, a teammate and a fresh agent neither drop nor rename a workspace."""
        note = await remember(service, "the agent's")
        error = await refused_unchanged(service, "workspaces", caller=caller, workspace=WORKSPACE, **asked)
        assert (error.code, error.rule) == ("forbidden", "workspace-role")
        assert await listed(service) == [note]

    @pytest.mark.parametrize("asked", ASKED)
    async def test_what_a_human_forgot_is_a_human_s_too(self, service: Service, asked: dict[str, Any]) -> None:
        """V07: an agent does not take a human's audit and kept copies away with the workspace they are in."""
        await call(service, "policy", set={"restorable": True}, caller=HUMAN)
        note = await remember(service, "the human's own", caller=HUMAN)
        await call(service, "forget", id=note, caller=HUMAN)
        assert (await refused_unchanged(service, "workspaces", workspace=WORKSPACE, **asked)).code == "forbidden"
        assert [entry.id for entry in (await call(service, "audit")).entries] == [note]
        assert (await call(service, "workspaces", caller=HUMAN, **asked)).changed == 1

    @pytest.mark.parametrize("asked", ASKED)
    async def test_a_human_s_write_in_between_is_looked_at(
        self, service: Service, second: Service, asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """V07: what a human writes while an agent's drop is looking through the workspace keeps the workspace."""
        await remember(service, "the agent's")
        looked = vault.graves
        written: list[str] = []

        async def graves(*args: Any, **bounds: Any) -> AsyncIterator[vault.Grave]:
            async for grave in looked(*args, **bounds):
                yield grave
            if not written:
                written.append(await remember(second, "the human's own", caller=HUMAN))

        monkeypatch.setattr(vault, "graves", graves)
        assert (await refused(call(service, "workspaces", **asked))).code == "forbidden"
        assert written[0] in await listed(service)

    async def test_a_store_script_holds_on_to_what_was_seen(self, service: Service) -> None:
        """A workspace that moved on, or was made anew under its name, is not the one that was decided about."""
        await remember(service, "first")
        workspace = await projection(service)
        seen = workspaces.Seen(workspace.ws, workspace.position)
        await remember(service, "second")
        for work in (
            workspaces.drop(service.redis, WORKSPACE, seen=seen),
            workspaces.rename(service.redis, WORKSPACE, "bench", seen=seen),
            workspaces.drop(service.redis, WORKSPACE, seen=workspaces.Seen("another", seen.last)),
        ):
            with pytest.raises(workspaces.MovedOn):
                await work
        assert list(await workspaces.all_workspaces(service.redis)) == [WORKSPACE]
        assert await workspaces.drop(service.redis, WORKSPACE)

    async def test_a_missing_one_is_named_by_its_own_field(self, service: Service) -> None:
        """A refusal names the field that was wrong: the one renamed, not the one the request came from."""
        error = await refused(call(service, "workspaces", rename="nope", to="bench"))
        assert (error.code, error.field) == ("not_found", "rename")
        assert (await refused(call(service, "workspaces", drop="nope", confirm=True))).field == "drop"


class TestImports:
    """An agent's import says nothing in anybody else's name."""

    FORGED: Final[dict[str, dict[str, Any]]] = {
        "a human's": {"type": "pinned", "actor": "human"},
        "a human's revocation": {"type": "revoked", "actor": "human"},
        "the user's": {"type": "pinned", "actor": "agent:a1", "on_behalf": True},
        "the system's revocation": {"type": "revoked", "actor": "system"},
        "the system's completion": {"type": "expired", "actor": "system", "reason": "completed"},
        "the system's doubt": {"type": "stale_flagged", "actor": "system", "cause": "distrusted"},
        "the system's promotion": {"type": "promoted", "actor": "system", "provenance": "user-stated"},
        "the system's erasure": {"type": "forgotten", "actor": "system", "reason": "evicted"},
    }

    @pytest.mark.parametrize("name", FORGED)
    async def test_a_forged_actor_is_a_problem_of_its_line(self, service: Service, name: str) -> None:
        """V07: an event in a human's, the user's or amnesiad's own name does not come in through an agent's file."""
        note = await remember(service, "the agent's", kind="finding")
        lines = await exported(service)
        for line in lines:
            if line["line"] == "note":
                line["events"].append({"note": note, "version": 2, "at": line["events"][0]["at"], **self.FORGED[name]})
        answer = await taken_in(service, [*lines, {"content": "plain"}])
        assert [problem.code for problem in answer.problems] == ["forbidden"]
        assert await recalled(service, workspace=ELSEWHERE) == ["plain"]
        assert note not in repr(await kept(service, ELSEWHERE))

    async def test_a_birth_is_not_forged_either(self, service: Service) -> None:
        """A note that says a human wrote it, as an agent's, is refused too."""
        await remember(service, "the agent's", kind="finding")
        lines = await exported(service)
        for line in lines:
            for event in line.get("events", ()):
                event["actor"] = "human"
        assert [problem.code for problem in (await taken_in(service, lines)).problems] == ["forbidden"]

    async def test_what_passes_wrote_comes_in(self, service: Service) -> None:
        """A note that went stale by its age, and whose agent acts for the user, is still an agent's to bring in."""
        note = await remember(service, "what the user said", kind="finding", caller=ON_BEHALF)
        lines = await exported(service)
        for line in lines:
            if line["line"] == "note":
                at = line["events"][0]["at"]
                flagged = {"type": "stale_flagged", "note": note, "version": 2, "at": at, "actor": "system"}
                line["events"].append(flagged | {"cause": "anchor"})
        assert len((await taken_in(service, lines)).problems) == 1, "it says that it acts for the user, and must"
        answer = await taken_in(service, lines, on_behalf="user")
        assert (answer.imported, answer.problems) == (1, ())
        assert await state_of(service, note, workspace=ELSEWHERE) == "stale"


class TestWhatIsTold:
    """Ids and counts are told to those who may see the notes."""

    async def test_choices_name_no_forgotten_note_of_another(self, service: Service) -> None:
        """C23: a prefix that a child's note shares with another's forgotten one names the child's alone, or nothing."""
        mine = await remember(service, "the child's", caller=CHILD)
        theirs = await remember(service, "the sibling's", caller=SIBLING)
        await call(service, "forget", id=theirs, caller=SIBLING)
        twin = await self.twin_of(service, theirs, mine)
        error = await refused(call(service, "inspect", id=mine[:4], caller=CHILD))
        assert (error.code, error.choices) == ("ambiguous", (mine,))
        assert twin not in repr((error.message, error.hint))
        error = await refused(call(service, "inspect", id=theirs[:4], caller=CHILD))
        assert (error.code, error.choices) == ("not_found", ())

    @staticmethod
    async def twin_of(service: Service, grave: str, like: str) -> str:
        """The id of a forgotten note like ``grave`` that begins as the note ``like`` does."""
        workspace = await projection(service)
        last = NOTE_ID_ALPHABET[(NOTE_ID_ALPHABET.index(like[-1]) + 1) % len(NOTE_ID_ALPHABET)]
        twin = like[:-1] + last
        raw = cast(bytes, await service.redis.hget(workspace.keys.tomb, grave))
        await service.redis.hset(workspace.keys.tomb, twin, raw.replace(grave.encode(), twin.encode()))
        return twin

    @pytest.mark.parametrize("verb", ["forget", "inspect", "history", "restore", "pin"])
    @pytest.mark.parametrize("caller", [SIBLING, MATE, FRESH, {"session": "s2"}])
    async def test_an_invisible_forgotten_note_is_like_one_that_never_was(
        self, service: Service, verb: str, caller: dict[str, Any]
    ) -> None:
        """C23: nobody finds out by asking whether an id was ever another's: the answers are the same but for the id."""
        note = await remember(service, "the child's", caller=CHILD)
        await call(service, "forget", id=note, caller=CHILD)
        never = "zzzzzzzzzz"
        told = await refused_unchanged(service, verb, id=note, caller=caller)
        of_none = await refused_unchanged(service, verb, id=never, caller=caller)
        assert told.code == "not_found"
        assert (told.message, told.hint, told.field) == (
            of_none.message.replace(never, note),
            of_none.hint,
            of_none.field,
        )
        if verb == "forget":
            assert (await call(service, "forget", id=note, caller=CHILD)).forgotten == 0

    async def test_status_counts_what_one_may_see(self, service: Service) -> None:
        """C23: forgotten notes are counted for those who could see them, and again when one more is gone."""
        shared = [await remember(service, f"shared {number}") for number in range(2)]
        child = await remember(service, "the child's", caller=CHILD)
        await call(service, "forget", id=shared[0])
        await call(service, "forget", id=child, caller=CHILD)
        for _ in range(2):
            assert await self.forgotten(service, FRESH, SIBLING, MATE, CHILD, {}, HUMAN) == [0, 0, 0, 1, 1, 2]
        await call(service, "forget", id=shared[1])
        assert await self.forgotten(service, FRESH, CHILD, {}, HUMAN) == [0, 1, 2, 3]
        assert "perishable_bytes" not in (await call(service, "status", caller=FRESH)).store
        assert "perishable_bytes" in (await call(service, "status")).store

    @staticmethod
    async def forgotten(service: Service, *callers: dict[str, Any]) -> list[int]:
        return [(await call(service, "status", caller=caller)).counts.forgotten for caller in callers]

    async def test_owners_are_told_to_themselves(self, service: Service) -> None:
        """C23: a child sees itself among the owners, a teammate its team, a fresh agent nobody, a main agent all."""
        await remember(service, "the child's", caller=CHILD)
        await remember(service, "the team's", caller=MATE)
        seen = [
            {row.owner for row in (await call(service, "owners", caller=caller)).rows}
            for caller in (CHILD, SIBLING, MATE, FRESH, {}, HUMAN)
        ]
        assert seen == [{"s1/a1"}, set(), {"s1"}, set(), {"s1", "s1/a1"}, {"s1", "s1/a1"}]

    @pytest.mark.parametrize("caller", SUBORDINATE)
    async def test_workspaces_and_parked_events_are_not_told(self, service: Service, caller: dict[str, Any]) -> None:
        """C23: what belongs to all is neither listed to nor treated by a child, a teammate or a fresh agent."""
        await remember(service, "of no interest")
        seq = cast(bytes, await service.redis.xadd(keyspace.DEAD, {"e": "{}", "error": "malformed"})).decode()
        assert (await call(service, "workspaces", caller=caller)).rows == ()
        assert (await call(service, "dead", caller=caller)).rows == ()
        for asked in ({"drop": [seq]}, {"retry": [seq]}):
            error = await refused(call(service, "dead", caller=caller, **asked))
            assert (error.code, error.rule) == ("forbidden", "dead-role")
        assert [row.id for row in (await call(service, "dead")).rows] == [seq]
        assert (await call(service, "dead", drop=[seq])).changed == 1

    @pytest.mark.parametrize("caller", SUBORDINATE)
    async def test_passes_and_proofs_tell_them_no_figures(self, service: Service, caller: dict[str, Any]) -> None:
        """C23: how many notes there are, and the ids of damaged ones, are no child's to learn by running a pass."""
        await remember(service, "of no interest")
        for verb in ("verify", "rebuild"):
            assert (await refused_unchanged(service, verb, caller=caller)).rule == "proof-role"
            assert (await call(service, verb)).figures["notes"] == 1
        for verb in ("settle", "scrub", "check"):
            assert (await call(service, verb, caller=caller)).figures == {}
        assert isinstance(service.jobs, Recorder)
        assert len(service.jobs.ran) == 3


class TestOwners:
    """Ending an owner by hand, and by an event."""

    async def test_an_owner_nobody_heard_of_is_not_closed(self, service: Service) -> None:
        """What does not exist is not found, and one that has ended already counts as no change."""
        recorder = service.jobs
        assert isinstance(recorder, Recorder)
        await remember(service, "the child's", caller=CHILD)
        error = await refused(call(service, "owners", close="nope", caller=HUMAN))
        assert (error.code, error.field) == ("not_found", "close")
        assert (await refused(call(service, "owners", close="nope"))).rule == "close-own"
        assert recorder.ended == []
        for owner in ("s1/a1", "s1"):
            assert (await call(service, "owners", close=owner, caller=HUMAN)).changed == 1
        assert [owner for _, owner in recorder.ended] == ["s1/a1", "s1"]

    @pytest.mark.parametrize("event", ["session-end", "session-start", "heartbeat", "compacted", "agent-disposed"])
    async def test_an_event_about_nobody_is_refused(self, service: Service, event: str) -> None:
        """An event that would be taken and do nothing, because it does not say whose it is, names what is missing."""
        error = await refused(happened(service, {"event": event, "workspace": WORKSPACE}))
        assert (error.code, error.field) == ("invalid", "events[0].session")
        alone = wire.decode("events", msgspec.json.encode({"event": event, "workspace": WORKSPACE}))
        assert (await refused(service.events(alone))).field == "session"
        assert await dump(service.redis, keyspace.LIFECYCLE) == {}
        for who in ({"session": "s1"}, {"agent_kind": "fresh"}, {"agent_kind": "teammate", "team": "s1"}):
            assert (await happened(service, {"event": event, "workspace": WORKSPACE, **who})).accepted == 1

    @pytest.mark.parametrize("event", ["turn-end", "file-changed", "pre-step"])
    async def test_an_event_about_the_workspace_needs_nobody(self, service: Service, event: str) -> None:
        """What is about files and due notes says enough without a session."""
        assert (await happened(service, {"event": event, "workspace": WORKSPACE})).accepted == 1


async def exported(service: Service) -> list[Any]:
    """The lines of an export by a human, decoded."""
    request = wire.decode("export", msgspec.json.encode({"workspace": WORKSPACE, "caller": HUMAN}))
    return [json.loads(line) async for line in service.export(request)]


async def taken_in(
    service: Service, lines: Iterable[Any], *, workspace: str = ELSEWHERE, dry_run: bool = False, **caller: str
) -> wire.ImportAnswer:
    """Import lines as an agent, unless the caller says otherwise."""
    asked = {"workspace": workspace, "dry_run": str(dry_run).lower(), **caller}
    request = wire.decode_query(wire.ImportRequest, asked)

    async def stream() -> AsyncIterator[bytes]:
        for line in lines:
            yield json.dumps(line).encode()

    return await service.import_notes(request, stream())
