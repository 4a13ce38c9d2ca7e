"""Payloads of every agent's hooks, made of the fields that each documents, and what each stands for."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

SESSION: Final = "0f7c3c1e-6a53-4c1e-9b7a-2f5d8c9e1a10"
CHILD: Final = "aa4c7d1c416b788a4"
MEMBER: Final = {"agent_id": "aamy-7650d29fa6dd76cd", "agent_type": "amy"}
"""Of a team, running in its lead's process."""
CWD: Final = "/src/app"


class Case(NamedTuple):
    """One hook: its own fields beside the base, its common name, the events it stands for, and what is injected for."""

    fields: dict[str, Any]
    hook: str
    events: tuple[str, ...]
    moment: str | None = None


BASES: Final[dict[str, dict[str, Any]]] = {
    "claude-code": {
        "session_id": SESSION, "transcript_path": "/t.jsonl", "cwd": CWD, "permission_mode": "default",
    },
    "codex": {
        "session_id": SESSION, "transcript_path": None, "cwd": CWD, "permission_mode": "default", "model": "m",
        "turn_id": "turn-1",
    },
    "vscode": {"sessionId": SESSION, "transcript_path": "/t.json", "cwd": CWD, "timestamp": "2026-11-30T10:00:00.000Z"},
    "gemini": {"session_id": SESSION, "transcript_path": "/t.json", "cwd": CWD, "timestamp": "2026-11-30T10:00:00.000Z"},
    "cursor": {
        "conversation_id": SESSION, "generation_id": "gen-1", "workspace_roots": [CWD], "model": "m",
        "cursor_version": "3.1.0", "user_email": None, "transcript_path": None,
    },
    "openhands": {
        "session_id": SESSION, "working_dir": CWD, "tool_name": None, "tool_input": None, "tool_output": None,
        "message": None, "metadata": {},
    },
}  # fmt: skip

_EVENT: Final = {"vscode": "hookEventName", "openhands": "event_type"}
SESSION_FIELD: Final = {"vscode": "sessionId", "cursor": "conversation_id"}
CWD_FIELD: Final = {"openhands": "working_dir", "cursor": "workspace_roots"}

_EDIT: Final = {
    "tool_name": "Edit",
    "tool_input": {"file_path": f"{CWD}/src/a.py", "old_string": "a"},
    "tool_use_id": "t1",
}
_RUN: Final = {"tool_name": "Bash", "tool_input": {"command": "npm run deploy"}, "tool_use_id": "t2"}
_STOP: Final = {"stop_hook_active": False, "last_assistant_message": "done"}
_AGENT: Final = {"agent_id": CHILD, "agent_type": "Explore"}

_COMMON: Final[dict[str, Case]] = {
    "SessionStart": Case({"source": "startup", "model": "m"}, "SessionStart", ("session-start",), "start"),
    "UserPromptSubmit": Case({"prompt": "mend the deploy"}, "UserPromptSubmit", ("pre-step",), "prompt"),
    "PreToolUse": Case(_EDIT, "PreToolUse", (), "edit"),
    "PostToolUse": Case({**_EDIT, "tool_response": {"ok": True}}, "PostToolUse", ("file-changed",)),
    "PreCompact": Case({"trigger": "auto"}, "PreCompact", ("compacted",)),
    "PostCompact": Case({"trigger": "auto"}, "PostCompact", ("heartbeat",)),
    "SubagentStart": Case(_AGENT, "SubagentStart", ("subagent-start",), "start"),
    "SubagentStop": Case({**_AGENT, **_STOP, "agent_transcript_path": "/s"}, "SubagentStop", ("subagent-end",)),
    "Stop": Case(_STOP, "Stop", ("turn-end",)),
    "SessionEnd": Case({"reason": "logout"}, "SessionEnd", ("session-end",)),
}

CASES: Final[dict[str, dict[str, Case]]] = {
    "claude-code": _COMMON
    | {
        "StopFailure": Case({"error": "rate_limit"}, "StopFailure", ("turn-end",)),
        "PostToolBatch": Case(
            {"tool_calls": [{**_EDIT, "tool_response": "ok"}, _RUN]}, "PostToolBatch", ("pre-step", "file-changed")
        ),
        "FileChanged": Case({"file_path": f"{CWD}/b.py", "event": "change"}, "FileChanged", ("file-changed",)),
        "TeammateIdle": Case({"teammate_name": "amy", "team_name": "one"}, "TeammateIdle", ("heartbeat",)),
        "TaskCompleted": Case({"teammate_name": "amy", "task_id": "7"}, "TaskCompleted", ("heartbeat",)),
        "WorktreeRemove": Case({**_AGENT, "worktree_path": "/w"}, "WorktreeRemove", ("agent-disposed",)),
        "CwdChanged": Case({"old_cwd": "/src", "new_cwd": CWD}, "CwdChanged", ("heartbeat",)),
        "Notification": Case({"message": "waiting"}, "", ()),
    },
    "codex": _COMMON
    | {
        "PreToolUse": Case(
            {
                "tool_name": "apply_patch",
                "tool_input": {"command": "*** Begin Patch\n*** Update File: src/a.py\n@@\n-a\n+b\n*** End Patch"},
                "tool_use_id": "call_1",
            },
            "PreToolUse", (), "edit",
        ),
        "Interrupt": Case({}, "Stop", ("turn-end",)),
    },
    "vscode": _COMMON
    | {
        "PreToolUse": Case(
            {"tool_name": "editFiles", "tool_input": {"files": ["src/a.py"]}, "tool_use_id": "tool-1"},
            "PreToolUse", (), "edit",
        ),
    },
    "gemini": {
        "SessionStart": Case({"source": "startup"}, "SessionStart", ("session-start",), "start"),
        "BeforeAgent": Case({"prompt": "mend the deploy"}, "UserPromptSubmit", ("pre-step",), "prompt"),
        "BeforeTool": Case(
            {"tool_name": "replace", "tool_input": {"file_path": f"{CWD}/src/a.py"}}, "PreToolUse", ()
        ),
        "AfterTool": Case(
            {"tool_name": "replace", "tool_input": {"file_path": f"{CWD}/src/a.py"}, "tool_response": {}},
            "PostToolUse", ("file-changed",), "edit",
        ),
        "AfterAgent": Case({"prompt": "x", "prompt_response": "y", "stop_hook_active": False}, "Stop", ("turn-end",)),
        "PreCompress": Case({"trigger": "auto"}, "PreCompact", ("compacted",)),
        "SessionEnd": Case({"reason": "exit"}, "SessionEnd", ("session-end",)),
        "BeforeModel": Case({"llm_request": {}}, "", ()),
    },
    "cursor": {
        "sessionStart": Case({"session_id": SESSION, "composer_mode": "agent"}, "SessionStart", ("session-start",), "start"),
        "beforeSubmitPrompt": Case(
            {"prompt": "mend the deploy", "attachments": []}, "UserPromptSubmit", ("pre-step",), "prompt"
        ),
        "preToolUse": Case({**_EDIT, "tool_name": "Write"}, "PreToolUse", ()),
        "postToolUse": Case({**_EDIT, "tool_name": "Write"}, "PostToolUse", ("file-changed",), "edit"),
        "afterFileEdit": Case({"file_path": f"{CWD}/src/a.py", "edits": []}, "FileChanged", ("file-changed",)),
        "preCompact": Case({"trigger": "auto"}, "PreCompact", ("compacted",)),
        "subagentStart": Case({"subagent_id": CHILD, "subagent_type": "x"}, "SubagentStart", ("subagent-start",)),
        "subagentStop": Case({"subagent_type": "x", "status": "completed"}, "SubagentStop", ("heartbeat",)),
        "stop": Case({"status": "completed", "loop_count": 0}, "Stop", ("turn-end",)),
        "sessionEnd": Case({"reason": "completed"}, "SessionEnd", ("session-end",)),
        "afterAgentThought": Case({"text": "hm"}, "", ()),
    },
    "openhands": {
        "SessionStart": Case({}, "SessionStart", ("session-start",)),
        "UserPromptSubmit": Case({"message": "mend the deploy"}, "UserPromptSubmit", ("pre-step",), "prompt"),
        "PreToolUse": Case({"tool_name": "terminal", "tool_input": {"command": "ls"}}, "PreToolUse", ()),
        "PostToolUse": Case(
            {"tool_name": "file_editor", "tool_input": {"command": "create", "path": f"{CWD}/src/a.py"}},
            "PostToolUse", ("file-changed",),
        ),
        "Stop": Case({}, "Stop", ("turn-end",)),
        "SessionEnd": Case({}, "SessionEnd", ("session-end",)),
    },
}  # fmt: skip
"""Every agent's hooks by the agent's own names."""

EVERY_HOOK: Final = [(agent, said) for agent, cases in CASES.items() for said in cases]
"""Every agent with each of its hooks."""


def payload(agent: str, said: str, **fields: Any) -> dict[str, Any]:
    """The payload of one hook; ``fields`` are put over it, and those given as ``...`` are taken out."""
    whole = {**BASES[agent], _EVENT.get(agent, "hook_event_name"): said, **CASES[agent][said].fields, **fields}
    return {name: value for name, value in whole.items() if value is not ...}
