"""What agents' hooks are told, and what they tell: every agent's payloads against the service on a real store."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any, Final

import msgspec
import pytest
from tests.agents.payloads import CASES, CHILD, CWD, EVERY_HOOK, MEMBER, SESSION, payload
from tests.daemon.desk import HUMAN, WORKSPACE, ManualClock, call, refused, remember
from tests.support import dump

from amnesiad import wire
from amnesiad.agents import DIALECTS, MAX_CONTEXT_UNITS
from amnesiad.core.errors import Invalid
from amnesiad.errors import StoreUnavailable
from amnesiad.service import Service
from amnesiad.service.hooking import MAX_WATCHED
from amnesiad.service.twins import WINDOW_MS
from amnesiad.store.keys import LIFECYCLE, WORKSPACES

_turns = itertools.count()

MAIN: Final[dict[str, Any]] = {"session": SESSION}
CHILD_CALLER: Final[dict[str, Any]] = {"session": SESSION, "agent": CHILD, "agent_kind": "subagent"}


async def hook(service: Service, agent: str, said: str, *, workspace: str | None = WORKSPACE, **fields: Any) -> Any:
    """One call of a hook, as the door would make it; each in a turn of its own unless the fields say otherwise."""
    turn = {"cursor": "generation_id", "codex": "turn_id"}.get(agent, "prompt_id")
    body = payload(agent, said, **{turn: str(next(_turns)), **fields})
    named = {} if workspace is None else {"workspace": workspace}
    return await service.hooks(wire.decode_hook(agent, named, json.dumps(body).encode()))


async def told(service: Service, said: str, agent: str = "claude-code", **fields: Any) -> str:
    """The text that a hook brings into the context; empty for none."""
    answer = await hook(service, agent, said, **fields)
    if not answer:
        return ""
    if "hookSpecificOutput" in answer:
        assert list(answer) == ["hookSpecificOutput"]
        keys = set(answer["hookSpecificOutput"])
        assert (
            {"hookEventName"}
            < keys
            <= {"hookEventName", "additionalContext", *(["watchPaths"] if agent == "claude-code" else [])}
        )
        return str(answer["hookSpecificOutput"].get("additionalContext", ""))
    (text,) = answer.values()
    return str(text)


async def stream(service: Service) -> list[dict[str, Any]]:
    """The lifecycle events on the stream, oldest first."""
    rows: Any = await service.redis.xrange(LIFECYCLE)
    return [json.loads(fields[b"e"]) for _, fields in rows]


class TestStart:
    """A context that begins is told what may matter in it."""

    async def test_it_is_told_of_rules_tasks_and_what_is_strong(self, service: Service) -> None:
        """Pinned notes, directives and open tasks come first, then the strongest."""
        await remember(service, "the harbor is shallow", kind="finding")
        await remember(service, "mend the crane", kind="task")
        await remember(service, "never push on friday", kind="directive")
        await remember(service, "the mole is long", kind="finding", pinned=True)
        text = await told(service, "SessionStart")
        lines = [line.partition(": ")[2] for line in text.splitlines()[1:-1]]
        assert lines == ["the mole is long", "never push on friday", "mend the crane", "the harbor is shallow"]
        (row,) = (await call(service, "ledger", caller=MAIN)).rows
        assert (row.kind, row.session, len(row.ids)) == ("inject", SESSION, 4)

    async def test_a_done_task_is_not_open(self, service: Service) -> None:
        """What is done is not told."""
        done = await remember(service, "mend the crane", kind="task")
        await call(service, "done", id=done)
        assert await told(service, "SessionStart") == ""

    async def test_a_switched_off_injection_says_nothing(self, service: Service) -> None:
        """The operator's word holds for hooks too; the events still go on."""
        await remember(service, "never push on friday", kind="directive")
        await call(service, "policy", set={"injection_enabled": False}, caller=HUMAN)
        assert await hook(service, "claude-code", "SessionStart") == {}
        assert [event["event"] for event in await stream(service)] == ["session-start"]

    async def test_a_resumed_context_is_not_told_again(self, service: Service) -> None:
        """What was injected is replayed with the transcript: only what is new is told."""
        await remember(service, "never push on friday", kind="directive")
        assert "friday" in await told(service, "SessionStart")
        assert await told(service, "SessionStart", source="resume") == ""
        await remember(service, "the mole is long", kind="finding")
        text = await told(service, "SessionStart", source="resume")
        assert "mole" in text
        assert "friday" not in text


class TestPrompt:
    """A prompt brings up what it is about, once."""

    async def test_only_what_matches_and_only_once(self, service: Service) -> None:
        """Neither the whole block again at each prompt, nor a note that the context has."""
        await remember(service, "never push on friday", kind="directive")
        await told(service, "SessionStart")
        await remember(service, "the deploy needs a warm cache", kind="gotcha")
        await remember(service, "the harbor is shallow", kind="finding")
        text = await told(service, "UserPromptSubmit", prompt="mend our deploy")
        assert "warm cache" in text
        assert "harbor" not in text
        assert "friday" not in text
        assert await told(service, "UserPromptSubmit", prompt="and our deploy again") == ""
        assert "harbor" in await told(service, "UserPromptSubmit", prompt="how deep is the harbor?")

    async def test_a_context_that_was_told_nothing_is_told_all_at_its_first_prompt(self, service: Service) -> None:
        """The daemon was away when the session began, or the agent takes nothing in then."""
        await remember(service, "never push on friday", kind="directive")
        await remember(service, "the deploy needs a warm cache", kind="gotcha")
        for agent, said in [
            ("openhands", "UserPromptSubmit"),
            ("gemini", "BeforeAgent"),
            ("cursor", "beforeSubmitPrompt"),
        ]:
            text = await told(service, said, agent, **_session(agent, f"{agent}-1"))
            assert text.index("friday") < text.index("warm cache")
            assert await told(service, said, agent, **_session(agent, f"{agent}-1")) == ""

    async def test_a_note_that_changed_is_told_again(self, service: Service) -> None:
        """It is told as what it has become: here as taken back; and that once."""
        note = await remember(service, "the deploy needs a warm cache", kind="gotcha")
        assert "warm cache" in await told(service, "SessionStart")
        await call(service, "revoke", id=note, reason="it warms itself", caller=HUMAN)
        assert "it warms itself" in await told(service, "UserPromptSubmit", prompt="mend the deploy")
        assert await told(service, "UserPromptSubmit", prompt="mend the deploy now") == ""

    async def test_a_warning_is_given_once(self, service: Service) -> None:
        """A revoked note that this context never saw as a fact comes as a warning, not at each prompt."""
        await remember(service, "never push on friday", kind="directive")
        note = await remember(service, "the deploy needs a warm cache", kind="gotcha")
        await call(service, "revoke", id=note, reason="it warms itself", caller=HUMAN)
        await told(service, "SessionStart")
        assert "[REVOKED]" in await told(service, "UserPromptSubmit", prompt="mend the deploy")
        assert await told(service, "UserPromptSubmit", prompt="mend the deploy now") == ""

    async def test_a_prompt_of_any_length_is_a_query(self, service: Service) -> None:
        """What somebody pastes does not hide what they ask, before or behind it."""
        await remember(service, "the deploy needs a warm cache", kind="gotcha")
        log = "0x00ff " * 20_000
        for prompt in (f"why does the deploy fail? {log}", f"{log} why does the deploy fail?"):
            await told(service, "SessionStart")
            await told(service, "PostCompact")
            assert "warm cache" in await told(service, "UserPromptSubmit", prompt=prompt)

    async def test_nothing_of_a_prompt_or_command_is_kept(self, service: Service) -> None:
        """C25: neither the stream nor the ledger nor anything else holds a word of it."""
        await remember(service, "the deploy needs a warm cache", kind="gotcha")
        await told(service, "UserPromptSubmit", prompt="mend the deploy xylophone-4711")
        await told(service, "PreToolUse", tool_name="Bash", tool_input={"command": "echo xylophone-4711"})
        await service.quiesce()
        assert "xylophone" not in str(await dump(service.redis))


def _session(agent: str, session: str) -> dict[str, Any]:
    return {"conversation_id" if agent == "cursor" else "session_id": session}


class TestTooLate:
    """A busy machine answers when nobody listens any more."""

    async def test_what_was_not_heard_is_told_next_time(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The event counts, and nothing passes for shown that never entered the context."""
        await remember(service, "never push on friday", kind="directive")

        hung_up, begun = asyncio.Event(), asyncio.Event()

        async def gone() -> None:
            await hung_up.wait()

        async def stuck(*_: object, **__: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(service, "inject", stuck)
            request = wire.decode_hook(
                "claude-code", {"workspace": WORKSPACE}, json.dumps(payload("claude-code", "SessionStart")).encode()
            )
            asked = asyncio.create_task(service.hooks(request, hung_up=gone))
            await begun.wait()
            assert not asked.done()
            hung_up.set()
            assert await asked == {}
        assert [event["event"] for event in await stream(service)] == ["session-start"]
        assert "friday" in await told(service, "UserPromptSubmit", prompt="on with it")


class TestCompaction:
    """What was shown before a compaction is gone from the context."""

    @pytest.mark.parametrize("said", ["PreCompact", "PostCompact"])
    async def test_everything_is_told_again_at_the_next_prompt(self, service: Service, said: str) -> None:
        """Where nothing is taken in at the compaction itself, the next prompt brings it back."""
        await remember(service, "never push on friday", kind="directive")
        await told(service, "SessionStart")
        assert await told(service, "UserPromptSubmit", prompt="anything") == ""
        assert await told(service, said) == ""
        assert "friday" in await told(service, "UserPromptSubmit", prompt="anything else")

    async def test_a_start_after_it_tells_everything_at_once(self, service: Service) -> None:
        """Claude Code starts a compacted session anew; it is still the same session to its owner."""
        await remember(service, "never push on friday", kind="directive")
        await told(service, "SessionStart")
        assert "friday" in await told(service, "SessionStart", source="compact")
        assert await told(service, "UserPromptSubmit", prompt="anything") == ""
        assert [event["event"] for event in await stream(service)] == ["session-start", "heartbeat", "pre-step"]

    async def test_gemini_says_so_beforehand(self, service: Service) -> None:
        """It has no word for the time after."""
        await remember(service, "never push on friday", kind="directive")
        await told(service, "SessionStart", "gemini")
        await told(service, "PreCompress", "gemini")
        assert "friday" in await told(service, "BeforeAgent", "gemini")


class TestTools:
    """A file about to be changed and a command about to be run bring up what is known about them."""

    async def test_a_file_brings_its_notes(self, service: Service) -> None:
        """Those anchored there and those whose trigger asks for it, each once; the rest stays where it is."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py"])
        await remember(service, "run the formatter", kind="finding", triggers=[{"event": "pre-edit", "path": "*.py"}])
        await remember(service, "the harbor is shallow", kind="finding")
        text = await told(service, "PreToolUse")
        assert "lock order" in text
        assert "formatter" in text
        assert "harbor" not in text
        assert await told(service, "PreToolUse", tool_use_id="later") == ""

    async def test_every_agent_is_told_where_it_listens(self, service: Service) -> None:
        """Before the change where that is read, else along with what the tool answers, and never in both."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py"])
        heard = {
            (agent, said)
            for agent, said in EVERY_HOOK
            if CASES[agent][said].hook in ("PreToolUse", "PostToolUse")
            and "lock order" in await told(service, said, agent, **_session_of(agent, f"{agent}-2"))
        }
        assert heard == {
            ("claude-code", "PreToolUse"), ("codex", "PreToolUse"), ("vscode", "PreToolUse"), ("gemini", "AfterTool"),
            ("cursor", "postToolUse"),
        }  # fmt: skip

    async def test_a_file_elsewhere_brings_nothing(self, service: Service) -> None:
        """V12: notes are about this workspace's files."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py"])
        for path in ("/other/src/a.py", "/src/app/../../etc/src/a.py"):
            assert await told(service, "PreToolUse", tool_input={"file_path": path}, tool_use_id=path) == ""

    async def test_a_command_brings_what_asks_for_it(self, service: Service) -> None:
        """By the globs and words of triggers alone: a command is no question."""
        await remember(service, "deploys go out at noon", kind="gotcha", triggers=[{"command": "npm run deploy*"}])
        await remember(service, "npm is pinned", kind="finding")
        run: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "npm run deploy --now"}}
        text = await told(service, "PreToolUse", **run)
        assert "noon" in text
        assert "pinned" not in text
        assert await told(service, "PreToolUse", **run, tool_use_id="later") == ""

    async def test_a_trigger_may_ask_again_later(self, service: Service, clock: ManualClock) -> None:
        """Once its cooldown is over, though not in the same turn."""
        trigger = {"command": "npm run deploy*", "cooldown_ms": 60_000}
        await remember(service, "deploys go out at noon", kind="gotcha", triggers=[trigger])
        run: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "npm run deploy"}}
        assert "noon" in await told(service, "PreToolUse", **run, prompt_id="p1", tool_use_id="1")
        clock.advance(120_000)
        assert await told(service, "PreToolUse", **run, prompt_id="p1", tool_use_id="2") == ""
        assert "noon" in await told(service, "PreToolUse", **run, prompt_id="p2", tool_use_id="3")

    async def test_parallel_calls_bring_a_note_once(self, service: Service) -> None:
        """An agent that changes one file by eight calls at once is told by one of them."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py"])
        texts = await asyncio.gather(
            *(told(service, "PreToolUse", tool_use_id=f"t{n}", prompt_id="p") for n in range(8))
        )
        assert sum("lock order" in text for text in texts) == 1


def _session_of(agent: str, session: str) -> dict[str, Any]:
    return {{"cursor": "conversation_id", "vscode": "sessionId"}.get(agent, "session_id"): session}


class TestWatching:
    """Claude Code tells of every change of a file that it was asked to watch."""

    async def test_it_is_asked_to_watch_what_notes_are_anchored_to(self, service: Service) -> None:
        """As paths of the tree it works in; ended notes' files are nobody's business, and no other agent is asked."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py", "src/b.py"])
        gone = await remember(service, "c.py is old", kind="gotcha", anchors=["src/c.py"])
        await call(service, "revoke", id=gone, reason="it was rewritten", caller=HUMAN)
        answer = await hook(service, "claude-code", "SessionStart")
        assert set(answer["hookSpecificOutput"]) == {"hookEventName", "additionalContext", "watchPaths"}
        assert answer["hookSpecificOutput"]["watchPaths"] == [f"{CWD}/src/a.py", f"{CWD}/src/b.py"]
        again = await hook(service, "claude-code", "FileChanged", file_path=f"{CWD}/src/a.py")
        assert set(again["hookSpecificOutput"]) == {"hookEventName", "watchPaths"}
        for agent in ("codex", "vscode", "gemini"):
            other = await hook(service, agent, "SessionStart", **_session_of(agent, "s3"))
            assert "watchPaths" not in other["hookSpecificOutput"]

    async def test_it_is_asked_again_wherever_it_goes(self, service: Service) -> None:
        """It forgets what it watched when it changes its directory, and watches what it is told there; going back and
        forth within a moment is no call that came twice."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py"])
        for place in ("lib", "src", "lib"):
            answer = await hook(service, "claude-code", "CwdChanged", prompt_id="p", new_cwd=f"{CWD}/{place}")
            assert answer["hookSpecificOutput"] == {"hookEventName": "CwdChanged", "watchPaths": [f"{CWD}/src/a.py"]}

    async def test_there_are_only_so_many(self, service: Service) -> None:
        """A watch costs the agent a handle."""
        for number in range(5):
            anchors = [f"src/{number}-{each}.py" for each in range(50)]
            await remember(service, f"they hang together: {number}", kind="gotcha", anchors=anchors)
        answer = await hook(service, "claude-code", "SessionStart")
        assert len(answer["hookSpecificOutput"]["watchPaths"]) == MAX_WATCHED


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
        """The team is its lead's session. It is shown the team's notes and the rules, not the lead's own; what it keeps is
        there for its lead and for the other members, and when it stops only its turn is over."""
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


class TestCeiling:
    """No hook's text is longer than an agent takes in."""

    @pytest.mark.parametrize(("agent", "said"), [("claude-code", "SessionStart"), ("gemini", "BeforeAgent")])
    async def test_whole_notes_up_to_ten_thousand_characters(self, service: Service, agent: str, said: str) -> None:
        """C45: however large the budget and whatever the notes are made of; no note is cut, and the frame is closed."""
        for word in ("harbor " * 40, "x" * 1800, "=" * 1500, "🦀" * 400, "港口" * 300):
            place = f"full of {word[:2].strip()}"
            notes = [f"{number} {word}".strip() for number in range(40)]
            items = [{"verb": "remember", "body": {"content": note, "kind": "finding"}} for note in notes]
            await call(service, "batch", workspace=place, requests=items)
            await call(service, "policy", workspace=place, set={"max_injected_tokens": 100_000}, caller=HUMAN)
            text = await told(service, said, agent, workspace=place)
            units = len(text.encode("utf-16-le")) // 2
            longest = max(len(note.encode("utf-16-le")) // 2 for note in notes) + 80
            assert MAX_CONTEXT_UNITS - 3 * longest < units <= MAX_CONTEXT_UNITS
            *lines, end = text.splitlines()
            assert end.startswith("END AMNESIA MEMORY")
            assert {line.partition(": ")[2] for line in lines[1:]} <= set(notes)


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
