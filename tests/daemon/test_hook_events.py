"""Whom agents' hooks speak for, and which events they tell, on a real store."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from tests.agents.payloads import CASES, CHILD, CWD, EVERY_HOOK, MEMBER, SESSION, payload
from tests.daemon.desk import HUMAN, WORKSPACE, ManualClock, call, refused, remember
from tests.daemon.hooked import CHILD_CALLER, MAIN, hook, stream, told

from amnesiad import wire
from amnesiad.agents import DIALECTS
from amnesiad.core.errors import Invalid
from amnesiad.errors import StoreUnavailable
from amnesiad.service import Service
from amnesiad.service.hooks.twins import WINDOW_MS
from amnesiad.store.keys import LIFECYCLE, WORKSPACES


class TestChildren:
    """A subagent has a context, an owner and a view of its own."""

    async def test_it_is_told_its_own_and_the_rules(self, service: Service) -> None:
        """Neither its session's notes nor another child's; the session's ledger is not its own."""
        await remember(service, "never push on friday", kind="directive")
        await remember(service, "the session's secret plan", scope="session", caller=MAIN)
        await remember(service, "the child's own find", caller=CHILD_CALLER)
        await remember(service, "another child's find", caller=CHILD_CALLER | {"agent": "other"})
        main = await told(service, "SessionStart")
        assert "secret plan" in main
        assert "find" not in main
        child = await told(service, "SubagentStart")
        assert "friday" in child
        assert "child's own find" in child
        assert "secret plan" not in child
        assert "another" not in child

    async def test_its_compaction_is_its_own(self, service: Service) -> None:
        """What a child lost, its session still has."""
        await remember(service, "a.py is touchy", kind="directive", anchors=["src/a.py"])
        child: dict[str, Any] = {"agent_id": CHILD, "agent_type": "Explore"}
        await told(service, "SessionStart")
        await told(service, "SubagentStart")
        assert await told(service, "PreToolUse", **child, tool_use_id="1") == ""
        await told(service, "PreCompact", **child)
        assert "touchy" in await told(service, "PreToolUse", **child, tool_use_id="2")
        assert await told(service, "PreToolUse", tool_use_id="3") == ""
        assert (await stream(service))[-1]["agent"] == CHILD

    async def test_a_hook_is_a_sign_of_life(self, service: Service, clock: ManualClock) -> None:
        """C33: of the child and of the session it works for, where they are open; a hook that reads opens nobody."""
        await remember(service, "the session's plan", scope="session", caller=MAIN)
        await remember(service, "the child's find", caller=CHILD_CALLER)
        await service.quiesce()
        clock.advance(3_600_000)
        await told(service, "PreToolUse", agent_id=CHILD)
        await told(service, "PreToolUse", session_id="never-heard-of")
        await service.quiesce()
        rows = {row.owner: row.last_seen_at for row in (await call(service, "owners", caller=HUMAN)).rows}
        assert rows == {SESSION: clock.now_ms(), f"{SESSION}/{CHILD}": clock.now_ms()}


class TestMembers:
    """A member of Claude Code's team, which runs inside its lead's session."""

    async def test_it_shares_its_teams_notes_which_outlive_its_turns(self, service: Service) -> None:
        """The team is its lead's session. It is shown the team's notes and the rules, not the lead's own; what it keeps
        is there for its lead and for the other members, and when it stops only its turn is over."""
        await remember(service, "never push on friday", kind="directive")
        await remember(service, "the lead's secret plan", scope="session", caller=MAIN)
        tool: dict[str, Any] = {"tool_name": "mcp__amnesiad__amnesia_remember", "tool_input": {"content": "x"}}
        await hook(service, "claude-code", "PreToolUse", **tool, tool_use_id="toolu_1", **MEMBER)
        claimed = service.announced.claim("toolu_1")
        assert claimed is not None
        kept = await remember(service, "the harbor is shallow", caller=msgspec.to_builtins(claimed[1]))
        (note,) = (await call(service, "list", caller=MAIN, scope="team")).notes
        assert (note.id, note.owner) == (kept, SESSION)
        other = {"agent_id": "abob-0123456789abcdef", "agent_type": "bob"}
        text = await told(service, "SubagentStart", **other)
        assert "friday" in text
        assert "harbor" in text
        assert "secret plan" not in text
        await hook(service, "claude-code", "SubagentStop", **MEMBER)
        (*_, last) = await stream(service)
        assert (last["event"], last["agent_kind"], last["team"]) == ("turn-end", "teammate", SESSION)


class TestEvents:
    """What hooks tell goes the way of all lifecycle events."""

    @pytest.mark.parametrize("agent", CASES)
    async def test_every_hook(self, service: Service, agent: str) -> None:
        """Each of our events, about the right session, with the workspace's own paths."""
        await remember(service, "never push on friday", kind="directive")
        for said, case in CASES[agent].items():
            await service.redis.delete(LIFECYCLE)
            answer = await hook(service, agent, said)
            assert answer == {} or case.hook in DIALECTS[agent].listens
            seen = await stream(service)
            assert tuple(event["event"] for event in seen) == case.events
            for event in seen:
                assert (event["workspace"], event["session"]) == (WORKSPACE, SESSION)
                if event["event"] == "file-changed":
                    assert event["paths"] in (["src/a.py"], ["b.py"])
                if event["event"] in ("subagent-start", "subagent-end", "agent-disposed"):
                    assert event["agent"] == CHILD

    async def test_a_file_elsewhere_has_not_changed_here(self, service: Service) -> None:
        """The workspace is told of its own files only."""
        await remember(service, "x")
        await hook(service, "claude-code", "PostToolUse", tool_input={"file_path": "/etc/passwd"})
        assert await stream(service) == []

    async def test_a_workspace_nobody_wrote_to_is_left_alone(self, service: Service) -> None:
        """Hooks run everywhere; one that has no memory gets none from them, and not an event."""
        for agent, said in EVERY_HOOK:
            assert await hook(service, agent, said, workspace="/nobody/here") == {}
        await service.quiesce()
        assert await service.redis.hlen(WORKSPACES) == 0
        assert await stream(service) == []

    @pytest.mark.parametrize("broken", ['"\\ud83d"', "NaN", "1" * 400, '{"x": ["\\udc00"]}', '"\xff"', "1e999"])
    async def test_what_nobody_reads_may_be_broken(self, broken: str, service: Service) -> None:
        """A program that shortens a text may cut a character in half; the end of its session counts all the same."""
        await remember(service, "x")
        body = json.dumps(payload("claude-code", "SessionEnd")).removesuffix("}")
        raw = f'{body}, "tool_response": {broken}}}'.encode("latin-1")
        assert await service.hooks(wire.decode_hook("claude-code", {"workspace": WORKSPACE}, raw)) == {}
        assert [event["event"] for event in await stream(service)] == ["session-end"]

    @pytest.mark.parametrize("raw", [b"{", b"[]", b"null", b'{"a": 1} x', b'{"a": "\\ud800"', b"[" * 100_000])
    def test_what_is_no_object_is_refused(self, raw: bytes) -> None:
        """Nothing can be read out of it."""
        with pytest.raises(Invalid):
            wire.decode_hook("claude-code", {}, raw)

    @pytest.mark.parametrize("last", ["/src/other", "/src/unknown"])
    async def test_an_end_reaches_every_workspace_that_the_session_walked_through(
        self, last: str, service: Service
    ) -> None:
        """An agent that has changed into another repository ends there, and its notes are where it began."""
        await remember(service, "x")
        await call(service, "remember", content="y", workspace="/src/other")
        for workspace in (WORKSPACE, "/src/other"):
            await hook(service, "claude-code", "UserPromptSubmit", workspace=workspace)
        await hook(service, "claude-code", "SubagentStop", workspace=last, agent_id="c1")
        await hook(service, "claude-code", "SessionEnd", workspace=last)
        ends = [(event["event"], event["workspace"]) for event in await stream(service)][2:]
        assert sorted(ends) == [
            ("session-end", "/src/other"), ("session-end", WORKSPACE),
            ("subagent-end", "/src/other"), ("subagent-end", WORKSPACE),
        ]  # fmt: skip

    async def test_a_missing_field_is_named_and_nothing_happens(self, service: Service) -> None:
        """The agent goes on without memory, and whoever looks finds out why."""
        await remember(service, "x")
        error = await refused(hook(service, "claude-code", "UserPromptSubmit", prompt=...))
        assert isinstance(error, Invalid)
        assert error.field == "prompt"
        assert await stream(service) == []

    async def test_an_ordinary_session_does_not_wait_for_the_secret_guard(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its engine takes seconds to get ready, and a hook is given one; ids that agents make need no engine."""

        async def engine() -> None:
            raise AssertionError("the engine was asked for")

        monkeypatch.setattr(service.secrets, "load", engine)
        await remember(service, "never push on friday", kind="directive")
        for agent, said in EVERY_HOOK:
            await hook(service, agent, said)
        await hook(service, "claude-code", "SubagentStart", **MEMBER)
        assert await stream(service)

    async def test_an_id_that_is_a_secret_is_refused(self, service: Service) -> None:
        """An id would enter the stream, and nothing there is erased."""
        await remember(service, "x")
        token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        assert (await refused(hook(service, "claude-code", "Stop", session_id=token))).code == "refused"
        assert await stream(service) == []


class TestTwins:
    """One hook that runs twice, for two files that name it."""

    async def test_the_second_says_and_is_told_nothing(self, service: Service, clock: ManualClock) -> None:
        """User's and project's settings each start the hook; the session is told once, and so are we."""
        await remember(service, "never push on friday", kind="directive")
        same: dict[str, Any] = {"prompt_id": "p1"}
        answers = await asyncio.gather(*(told(service, "SessionStart", **same) for _ in range(2)))
        assert sorted(map(len, answers))[0] == 0
        assert "friday" in max(answers, key=len)
        assert len(await stream(service)) == 1
        clock.advance(WINDOW_MS)
        assert "friday" in await told(service, "SessionStart", **same)

    async def test_a_session_of_cursor_that_reaches_both_files(self, service: Service) -> None:
        """Cursor reads Claude Code's files beside its own; by session, event and turn it is the same."""
        await remember(service, "the deploy needs a warm cache", kind="gotcha")
        first = await told(service, "beforeSubmitPrompt", "cursor", generation_id="g1")
        twin: dict[str, Any] = {"session_id": ..., "conversation_id": SESSION, "generation_id": "g1", "prompt_id": ...}
        assert "warm cache" in first
        assert await told(service, "UserPromptSubmit", **twin) == ""
        assert len(await stream(service)) == 1

    async def test_two_daemons_give_the_same_ids(self, service: Service, second: Service) -> None:
        """Each answers its own half of the pair, and whoever reads the events can tell that they are one."""
        await remember(service, "x")
        for daemon in (service, second):
            await hook(daemon, "claude-code", "Stop", prompt_id="p1", background_tasks=[
                {"id": "c1", "type": "subagent", "status": "completed"},
            ])  # fmt: skip
        first, ended, again, ended_again = await stream(service)
        assert (first, ended) == (again, ended_again)
        assert first["id"] != ended["id"]

    async def test_the_twin_of_one_that_failed_is_told(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """The store was away for a moment: what the first could not be told, the second is."""
        await remember(service, "never push on friday", kind="directive")

        async def away(request: wire.EventsRequest) -> wire.EventsAnswer:
            raise StoreUnavailable(f"{len(request.events)} events found no store")

        with monkeypatch.context() as patch:
            patch.setattr(service, "events", away)
            error = await refused(hook(service, "claude-code", "SessionStart", prompt_id="p1"))
        assert error.code == "store_unavailable"
        assert "friday" in await told(service, "SessionStart", prompt_id="p1")

    async def test_ended_resumed_and_ended_again_at_once(self, service: Service) -> None:
        """A script runs an agent several times on one session, each time for a second: each start and end counts, with
        the twins of each, and children that are called again likewise."""
        await remember(service, "x")
        for _ in range(2):
            for said, fields in (
                ("SessionStart", {"source": "resume"}), ("SubagentStart", {"agent_id": "c1"}),
                ("SubagentStop", {"agent_id": "c1"}), ("SessionEnd", {"reason": "other"}),
            ):  # fmt: skip
                one: dict[str, Any] = {"prompt_id": ..., **fields}
                await asyncio.gather(*(hook(service, "claude-code", said, **one) for _ in range(2)))
        events = await stream(service)
        names = ["session-start", "subagent-start", "subagent-end", "session-end"]
        assert [event["event"] for event in events] == names * 2
        assert len({event["id"] for event in events}) == 8

    async def test_different_calls_are_no_twins(self, service: Service) -> None:
        """By the turn, the call, the child, what is asked or what is done."""
        await remember(service, "x")
        for fields in (
            {"tool_use_id": "1"}, {"tool_use_id": "2"}, {"agent_id": "c1"}, {"prompt_id": "p2"}, {"session_id": "s2"},
            {"tool_input": {"file_path": f"{CWD}/other.py"}},
        ):  # fmt: skip
            call_of: dict[str, Any] = {"prompt_id": "p1", **fields}
            await hook(service, "claude-code", "PostToolUse", **call_of)
        assert len(await stream(service)) == 6


class TestOwnTools:
    """A call of our own tools is announced before it is made."""

    async def test_the_caller_is_known_by_the_calls_id(self, service: Service) -> None:
        """An MCP server is told of no caller; the hook before the tool tells whose call it is."""
        tool: dict[str, Any] = {"tool_name": "mcp__amnesiad__amnesia_remember", "tool_input": {"content": "x"}}
        assert await hook(service, "claude-code", "PreToolUse", **tool, tool_use_id="toolu_1", agent_id=CHILD) == {}
        assert await hook(service, "claude-code", "PreToolUse", **tool, tool_use_id="toolu_2") == {}
        assert service.announced.claim("toolu_1") == (WORKSPACE, wire.CallerSpec(**CHILD_CALLER))
        assert service.announced.claim("toolu_2") == (WORKSPACE, wire.CallerSpec(**MAIN))
        assert service.announced.claim("toolu_3") is None

    async def test_others_are_not_announced(self, service: Service) -> None:
        """Nor does a hook ever decide whether a tool may run."""
        await hook(service, "claude-code", "PreToolUse", tool_use_id="toolu_4")
        assert service.announced.claim("toolu_4") is None

    async def test_a_workspace_with_hooks_is_known(self, service: Service) -> None:
        """Any hook of an agent tells that this agent's are installed, and nothing of another's."""
        assert not service.announced.hooked(WORKSPACE, "gemini")
        await hook(service, "gemini", "BeforeModel")
        assert service.announced.hooked(WORKSPACE, "gemini")
        assert not service.announced.hooked(WORKSPACE, "claude-code")
