"""What agents' hooks say and how they are answered, on payloads of every agent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.agents.payloads import (
    BASES,
    CASES,
    CHILD,
    CWD,
    CWD_FIELD,
    EVERY_HOOK,
    MEMBER,
    SESSION,
    SESSION_FIELD,
    payload,
)

from amnesiad import agents
from amnesiad.agents import Occurrence, Told
from amnesiad.agents.payload import MAX_PATHS
from amnesiad.agents.tools import is_ours
from amnesiad.core.errors import Invalid, NotFound

WORDS = "the tulip code is 4711"
NEVER_TOLD = {"Stop", "StopFailure", "SubagentStop", "SessionEnd", "PreCompact", "PostCompact"}


def read(agent: str, said: str, **fields: Any) -> Occurrence:
    """The occurrence in a hook's payload."""
    return agents.read(agent, payload(agent, said, **fields))


def names(seen: Occurrence) -> tuple[str, ...]:
    """The events that an occurrence stands for."""
    return tuple(event.event for event in seen.events)


@pytest.mark.parametrize(("agent", "said"), EVERY_HOOK)
class TestEveryHook:
    """What holds for each hook of each agent."""

    def test_it_is_understood(self, agent: str, said: str) -> None:
        """Session, directory, hook, events and what is injected for, as the agent documents its fields."""
        case = CASES[agent][said]
        seen = read(agent, said)
        assert (seen.session, seen.cwd, seen.said, seen.hook) == (SESSION, CWD, said, case.hook)
        assert names(seen) == case.events
        assert seen.moment == case.moment

    def test_fields_nobody_knows_change_nothing(self, agent: str, said: str) -> None:
        """A newer version of the agent sends more."""
        more = {"effort": {"level": "high"}, "x": [1, {"y": None}], "agentMode": "plan", "_meta": 7}
        assert read(agent, said, **more) == read(agent, said)

    def test_a_missing_session_is_named(self, agent: str, said: str) -> None:
        """Whose hook it is must be said; the refusal names the agent's own field."""
        field = SESSION_FIELD.get(agent, "session_id")
        with pytest.raises(Invalid, match=f"{field} is missing") as refusal:
            read(agent, said, **{field: ..., "session_id": ...})
        assert refusal.value.field == field

    def test_a_missing_directory_is_named(self, agent: str, said: str) -> None:
        """Without a directory nobody knows which workspace is meant, unless somebody names it."""
        without = payload(agent, said, **{CWD_FIELD.get(agent, "cwd"): ...})
        with pytest.raises(Invalid, match="is missing"):
            agents.read(agent, without)
        assert agents.read(agent, without, named=True).cwd is None

    @pytest.mark.parametrize("wrong", [7, True, ["s"], {"id": "s"}, "two words", "a/b", "x" * 200])
    def test_a_session_of_another_type_is_named(self, agent: str, said: str, wrong: Any) -> None:
        """What is no id is refused by the field's name, and not repeated."""
        field = SESSION_FIELD.get(agent, "session_id")
        with pytest.raises(Invalid) as refusal:
            read(agent, said, **{field: wrong})
        assert refusal.value.field == field
        assert "two words" not in refusal.value.message

    def test_a_child_that_is_no_id_does_not_pass_for_its_session(self, agent: str, said: str) -> None:
        """An agent whose id cannot be read is refused; it is never widened to the session."""
        field = "subagent_id" if agent == "cursor" else "agent_id"
        for wrong in (7, {"a": 1}, "not an id"):
            with pytest.raises(Invalid) as refusal:
                read(agent, said, **{field: wrong})
            assert refusal.value.field == field

    def test_the_answer_is_put_as_the_agent_reads_it(self, agent: str, said: str) -> None:
        """Only where it is read, with these keys and no other; nothing to say is an empty object."""
        seen = read(agent, said)
        told = agents.answer(agent, seen, WORDS)
        assert agents.answer(agent, seen, "") == {}
        listens = seen.hook in agents.DIALECTS[agent].listens
        if not listens:
            assert told == {}
        elif agent == "cursor":
            assert told == {"additional_context": WORDS}
        elif agent == "openhands":
            assert told == {"additionalContext": WORDS}
        else:
            assert told == {"hookSpecificOutput": {"hookEventName": said, "additionalContext": WORDS}}


@pytest.mark.parametrize("agent", BASES)
def test_nobody_is_told_anything_as_they_stop(agent: str) -> None:
    """Context given at a stop makes an agent go on that was about to stop."""
    assert not NEVER_TOLD & agents.DIALECTS[agent].listens


@pytest.mark.parametrize(("agent", "said"), [("claude-code", "SubagentStart"), ("codex", "SubagentStop")])
@pytest.mark.parametrize("value", [..., None, ""])
def test_a_childs_own_hook_must_name_the_child(agent: str, said: str, value: Any) -> None:
    """Where an agent always says which child it is about, a payload that does not is refused by that field."""
    with pytest.raises(Invalid, match="agent_id is missing"):
        read(agent, said, agent_id=value)


@pytest.mark.parametrize(
    ("said", "field"),
    [("UserPromptSubmit", "prompt"), ("PreToolUse", "tool_name"), ("PostToolUse", "tool_name"), ("FileChanged", "file_path")],
)  # fmt: skip
@pytest.mark.parametrize("wrong", [..., 3, ["a"], {"a": 1}])
def test_a_hook_without_what_it_is_about_is_refused_by_name(said: str, field: str, wrong: Any) -> None:
    """A prompt without its text, a tool without its name."""
    with pytest.raises(Invalid) as refusal:
        read("claude-code", said, **{field: wrong})
    assert refusal.value.field == field


def test_a_payload_without_its_hooks_name_is_refused() -> None:
    """Each agent's own word for it is named."""
    for agent, field in {
        "claude-code": "hook_event_name",
        "vscode": "hookEventName",
        "openhands": "event_type",
    }.items():
        with pytest.raises(Invalid) as refusal:
            agents.read(agent, BASES[agent])
        assert refusal.value.field == field


def test_an_unknown_agent_is_not_found() -> None:
    """The refusal says whose hooks are known."""
    with pytest.raises(NotFound) as refusal:
        agents.read("emacs", {})
    assert "codex" in refusal.value.hint


@pytest.mark.parametrize("wrong", [None, 5, "x", [1, "two", None], [{"id": 7}], [{"type": "subagent"}], {"id": "a"}])
def test_optional_fields_of_another_shape_do_not_lose_the_event(wrong: Any) -> None:
    """A turn ends, whatever becomes of a field that tells more about it."""
    assert names(read("claude-code", "Stop", background_tasks=wrong)) == ("turn-end",)
    seen = read("claude-code", "PreToolUse", tool_input=wrong, tool_use_id=wrong, prompt_id={"a": 1})
    assert (seen.paths, seen.moment, seen.turn) == ((), None, None)


class TestWhoItIs:
    """The agent's id tells a child from its session, and the type what kind of child."""

    def test_a_child_by_its_id(self) -> None:
        """A tool call inside a subagent is the subagent's."""
        seen = read("claude-code", "PreToolUse", agent_id=CHILD, agent_type="Explore")
        assert (seen.agent, seen.agent_kind) == (CHILD, "subagent")

    def test_a_type_alone_makes_no_child(self) -> None:
        """A session that was started as some type of agent is still the session."""
        seen = read("claude-code", "PreToolUse", agent_type="Explore")
        assert (seen.agent, seen.agent_kind) == (None, "main")

    def test_a_workflows_agent(self) -> None:
        """It goes on after a subagent's end, so its end is one of its own."""
        start = read("claude-code", "SubagentStart", agent_type="workflow-subagent")
        assert (start.agent_kind, start.events[0].agent_kind) == ("workflow", "workflow")
        assert names(read("claude-code", "SubagentStop", agent_type="workflow-subagent")) == ("workflow-agent-end",)

    def test_a_member_of_a_team(self) -> None:
        """Claude Code makes its id of its name, which is its type too, and runs it inside its lead's session. It stops
        at the end of each of its turns, and waits for the next."""
        seen = read("claude-code", "PreToolUse", **MEMBER)
        assert (seen.agent_kind, seen.team_of(seen.agent_kind)) == ("teammate", SESSION)
        assert read("claude-code", "TeammateIdle", **MEMBER).agent_kind == "teammate"
        assert names(read("claude-code", "SubagentStop", **MEMBER)) == ("turn-end",)

    @pytest.mark.parametrize("agent", ["amy", "aamy", "aamy-7650d29f", "abob-7650d29fa6dd76cd", CHILD])
    def test_a_child_of_a_type_is_no_member(self, agent: str) -> None:
        """A subagent that somebody called as a member is called ends as subagents do."""
        seen = read("claude-code", "SubagentStop", agent_id=agent, agent_type="amy")
        assert (seen.agent_kind, seen.team_of(seen.agent_kind)) == ("subagent", None)

    def test_the_kind_of_a_child_that_ends_is_its_owners_to_say(self) -> None:
        """A continuable agent looks like any other in a hook, and may have to be kept."""
        (end,) = read("claude-code", "SubagentStop").events
        assert end == Told(event="subagent-end", agent=CHILD)

    @pytest.mark.parametrize("said", ["WorktreeRemove", "Stop"])
    def test_without_an_id_no_session_is_ended(self, said: str) -> None:
        """An end that names no agent never ends a session's notes unless it is the session's own end."""
        ends = {"session-end", "agent-disposed", "subagent-end", "workflow-agent-end"}
        assert not ends & set(names(read("claude-code", said, agent_id=..., agent_type=...)))


class TestBackgroundTasks:
    """The next stop says what still runs."""

    def test_what_runs_is_alive_and_what_is_over_has_ended(self) -> None:
        """Ends are lost in the field. Whoever is not named is left to its lease, and a teammate is no child."""
        tasks = [
            {"id": "runs", "type": "subagent", "status": "running", "agent_type": "Explore", "name": "x"},
            {"id": "over", "type": "subagent", "status": "completed"},
            {"id": "died", "type": "subagent", "status": "failed"},
            {"id": "odd", "type": "subagent", "status": "hibernating"},
            {"id": "sh1", "type": "shell", "status": "completed"},
            {"id": "amy", "type": "teammate", "status": "completed"},
            {"id": "not an id", "type": "subagent", "status": "completed"},
        ]
        _, *told = read("claude-code", "Stop", background_tasks=tasks).events
        assert [(event.event, event.agent) for event in told] == [
            ("heartbeat", "runs"), ("subagent-end", "over"), ("subagent-end", "died"), ("heartbeat", "odd"),
        ]  # fmt: skip

    def test_a_child_that_stops_is_not_said_to_run(self) -> None:
        """Claude Code lists a child among the tasks in flight until its stop hook is over."""
        tasks = [{"id": name, "type": "subagent", "status": "running"} for name in (CHILD, "other")]
        told = read("claude-code", "SubagentStop", background_tasks=tasks).events
        assert [(event.event, event.agent) for event in told] == [("subagent-end", CHILD), ("heartbeat", "other")]

    def test_there_may_be_many(self) -> None:
        """What is made of one payload is bounded."""
        tasks = [{"id": f"t{n}", "type": "subagent", "status": "running"} for n in range(5000)]
        assert len(read("claude-code", "Stop", background_tasks=tasks).events) == 101


class TestBeginnings:
    """Whether what was shown before is still in the context."""

    @pytest.mark.parametrize(
        ("source", "anew", "event"),
        [
            ("startup", True, "session-start"),
            ("clear", True, "session-start"),
            ("compact", True, "heartbeat"),
            ("resume", False, "session-start"),
            ("fork", False, "session-start"),
            (..., True, "session-start"),
        ],
    )
    def test_a_start_by_its_source(self, source: Any, anew: bool, event: str) -> None:
        """A resumed transcript replays what was injected; a compacted one has lost it, and is still the same
        session."""
        seen = read("claude-code", "SessionStart", source=source)
        assert (seen.anew, names(seen)) == (anew, (event,))

    @pytest.mark.parametrize("said", ["PreCompact", "PostCompact"])
    def test_a_compaction(self, said: str) -> None:
        """It takes everything with it."""
        assert read("claude-code", said).anew


class TestTools:
    """What a tool call is about to touch."""

    @pytest.mark.parametrize(
        ("agent", "tool", "given", "paths"),
        [
            ("claude-code", "Write", {"file_path": "/src/app/a", "content": "x"}, ("/src/app/a",)),
            ("claude-code", "NotebookEdit", {"notebook_path": "n.ipynb"}, ("n.ipynb",)),
            ("claude-code", "Read", {"file_path": "/src/app/a"}, ()),
            ("codex", "apply_patch", {"input": "*** Add File: b\n+x\n*** Move to: c d\n*** Delete File: e"}, ("b", "c d", "e")),
            ("vscode", "replace_string_in_file", {"filePath": "/src/app/a"}, ("/src/app/a",)),
            ("vscode", "editFiles", {"files": ["a", 7, "a", "b"]}, ("a", "b")),
            ("vscode", "editFiles", {"files": [f"f{n}" for n in range(999)]}, tuple(f"f{n}" for n in range(MAX_PATHS))),
            ("claude-code", "Edit", {"file_path": "x" * 5000}, ()),
        ],
    )  # fmt: skip
    def test_the_files_it_changes(self, agent: str, tool: str, given: dict[str, Any], paths: tuple[str, ...]) -> None:
        """By each agent's names for tools and fields; reading a file is not changing it."""
        assert read(agent, "PreToolUse", tool_name=tool, tool_input=given).paths == paths

    def test_an_editor_that_only_looks(self) -> None:
        """OpenHands views files with the tool that changes them."""
        given = {"command": "view", "path": f"{CWD}/a"}
        assert names(read("openhands", "PostToolUse", tool_name="file_editor", tool_input=given)) == ()

    @pytest.mark.parametrize(
        ("agent", "tool", "given", "command"),
        [
            ("claude-code", "Bash", {"command": "make up"}, "make up"),
            ("claude-code", "Monitor", {"command": "make up", "timeout_ms": 1000}, "make up"),
            ("claude-code", "Monitor", {"ws": {"url": "wss://example.org"}}, None),
            ("codex", "shell", {"command": ["bash", "-lc", "make up"]}, "bash -lc make up"),
            ("codex", "exec_command", {"cmd": "make up"}, "make up"),
            ("vscode", "run_in_terminal", {"command": "make up"}, "make up"),
            ("claude-code", "Bash", {"command": {"no": "text"}}, None),
            ("claude-code", "Grep", {"command": "make up"}, None),
        ],
    )
    def test_the_command_it_runs(self, agent: str, tool: str, given: dict[str, Any], command: str | None) -> None:
        """As one text, whatever the agent makes of it."""
        seen = read(agent, "PreToolUse", tool_name=tool, tool_input=given)
        assert (seen.command, seen.moment) == (command, "run" if command else None)

    @pytest.mark.parametrize(
        ("tool", "ours"),
        [
            ("mcp__amnesiad__amnesia_remember", True),
            ("mcp__plugin_amnesiad_amnesiad__amnesia_recall", True),
            ("mcp__plugin_my_tools_amnesiad__amnesia_recall", True),
            ("MCP:amnesia_recall", True),
            ("mcp__github__amnesiad", False),
            ("mcp__amnesiad_evil__x", False),
            ("xmcp__amnesiad__x", False),
            ("Bash", False),
        ],
    )
    def test_our_own(self, tool: str, ours: bool) -> None:
        """Known by its server's name, in a configuration or in a plugin; nothing is injected for it."""
        assert is_ours(tool) is ours
        if ours:
            seen = read("claude-code", "PreToolUse", tool_name=tool, tool_input={"content": WORDS})
            assert (seen.ours, seen.moment, seen.tool_use_id) == (True, None, "t1")


class TestPaths:
    """An agent's paths become the workspace's."""

    ROOTS = ("/src/tree", "/src/app")

    @pytest.mark.parametrize(
        ("path", "relative"),
        [
            ("/src/app/a/b.py", ("a/b.py",)),
            ("/src/tree/a.py", ("a.py",)),
            ("a.py", ("lib/a.py",)),
            ("../a.py", ("a.py",)),
            ("./x//y.py", ("lib/x/y.py",)),
            ("/src/app/lib/../../../etc/passwd", ()),
            ("/src/application/a.py", ()),
            ("/src/app", ()),
            ("~/a.py", ("lib/~/a.py",)),
            ("a\x00b", ()),
            ("a" * 2000, ()),
            ("配置.py", ("lib/配置.py",)),
        ],
    )
    def test_by_the_root_they_start_at(self, path: str, relative: tuple[str, ...]) -> None:
        """V12: what lies outside of the workspace, or can be no path of a note, is left out."""
        assert agents.relative_paths([path, path], "/src/app/lib", self.ROOTS) == relative

    def test_a_relative_path_without_a_directory_is_nobodys(self) -> None:
        """It cannot be told where it starts."""
        assert agents.relative_paths(["a.py", "/src/app/b"], None, self.ROOTS) == ("b",)


@pytest.mark.parametrize("wrong", ["src/app", "C:\\src", "/a\x00b", "/" + "x" * 5000])
def test_a_directory_that_is_none_is_refused(wrong: str) -> None:
    """A relative one does not say relative to what."""
    with pytest.raises(Invalid) as refusal:
        read("claude-code", "Stop", cwd=wrong)
    assert refusal.value.field == "cwd"


@pytest.mark.parametrize(("agent", "said"), [pair for pair in EVERY_HOOK if pair[0] in ("vscode", "openhands")])
def test_another_agents_session_by_way_of_claude_codes_files(agent: str, said: str) -> None:
    """It runs the hooks that it finds there, and says the same in them as in its own."""
    own, seen = read(agent, said), agents.read("claude-code", payload(agent, said))
    assert (seen.hook, seen.session, seen.cwd, seen.agent, seen.prompt, seen.events) == (
        own.hook, own.session, own.cwd, own.agent, own.prompt, own.events,
    )  # fmt: skip


def test_a_session_of_cursor_in_claude_codes_words() -> None:
    """Cursor reads Claude Code's files too and may name its conversation there; it is the same session."""
    body = json.loads(json.dumps(payload("claude-code", "UserPromptSubmit", session_id=..., conversation_id=SESSION)))
    assert agents.read("claude-code", body).session == SESSION
