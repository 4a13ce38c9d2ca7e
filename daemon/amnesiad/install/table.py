"""Which hooks of which agent lead to us, and where that agent keeps them: one table, for settings and plugin alike.

Names of events, tools and files are the agents' own, so they are data and nothing else. What a hook's payload means is
not known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

Scope = Literal["user", "project"]
SCOPES: Final[tuple[Scope, ...]] = ("user", "project")

HOOK_SECONDS: Final = 5
"""What the agents are told to wait for a hook at most; ours gives up after one second."""

SERVER: Final = "amnesiad"
"""Our name among an agent's MCP servers."""


class Hook(NamedTuple):
    """One event of an agent's, the tools it is wanted for (a pattern of the agent's; ``None`` where it takes none), and
    whether the hook writes the session's environment, which the Python form alone can."""

    event: str
    matcher: str | None = None
    writes_env: bool = False


class Mcp(NamedTuple):
    """Where an agent keeps its MCP servers: the file, and the key above them; some want the kind of transport named."""

    file: str
    key: str
    typed: bool = False


class Agent(NamedTuple):
    """An agent that runs hooks. Files of scope ``user`` are below the home directory, those of ``project`` below the
    repository; ``home`` is a variable that moves the directory ``home_default``."""

    name: str
    title: str
    hooks: tuple[Hook, ...]
    files: Mapping[Scope, str]
    mcp: Mapping[Scope, Mcp]
    grouped: bool = True
    """Whether hooks stand in groups with a matcher, or by themselves."""
    home: str = ""
    home_default: str = ""
    frame: Mapping[str, int] = {}
    """What else the file must say."""
    handler: Mapping[str, str] = {"type": "command"}
    """What every hook says beside its command and time-out."""
    timeout: int = HOOK_SECONDS
    off: str = ""
    """A setting that, where it is true, keeps the agent from running any hook."""
    status_line: bool = False
    """Whether it has a status line that a command can fill."""
    mcp_by_hand: Mapping[Scope, Mcp] = {}
    """Where its MCP servers are in a scope that is not in ``mcp``, because we do not edit that file."""
    note: str = ""
    """What a person must do besides."""


_EDITS: Final = "Edit|Write|MultiEdit|NotebookEdit"
_OURS: Final = f"mcp__.*{SERVER}.*"

CLAUDE_CODE: Final = Agent(
    name="claude-code",
    title="Claude Code",
    # Not WorktreeRemove: whoever has a hook there is taken to remove the tree, and without another it would stay. Not
    # PostToolBatch: it says nothing that PreToolUse and PostToolUse did not, at the price of a process for every batch.
    # FileChanged needs CwdChanged, at which the agent forgets what it was asked to watch.
    hooks=(
        Hook("SessionStart", writes_env=True),
        Hook("UserPromptSubmit"),
        Hook("PreToolUse", f"{_EDITS}|Bash|Monitor|PowerShell|{_OURS}"),
        Hook("PostToolUse", _EDITS),
        Hook("FileChanged"),
        Hook("CwdChanged"),
        Hook("PreCompact"),
        Hook("PostCompact"),
        Hook("SubagentStart"),
        Hook("SubagentStop"),
        Hook("TeammateIdle"),
        Hook("TaskCompleted"),
        Hook("Stop"),
        Hook("StopFailure"),
        Hook("SessionEnd"),
    ),
    files={"user": ".claude/settings.json", "project": ".claude/settings.json"},
    mcp={"user": Mcp(".claude.json", "mcpServers"), "project": Mcp(".mcp.json", "mcpServers")},
    home="CLAUDE_CONFIG_DIR",
    home_default=".claude",
    off="disableAllHooks",
    status_line=True,
)

CODEX: Final = Agent(
    name="codex",
    title="Codex",
    hooks=(
        Hook("SessionStart"),
        Hook("UserPromptSubmit"),
        Hook("PreToolUse", f"Bash|apply_patch|Edit|Write|{_OURS}"),
        Hook("PostToolUse", "apply_patch|Edit|Write"),
        Hook("PreCompact"),
        Hook("PostCompact"),
        Hook("SubagentStart"),
        Hook("SubagentStop"),
        Hook("Stop"),
        Hook("Interrupt"),
    ),
    files={"user": ".codex/hooks.json", "project": ".codex/hooks.json"},
    mcp={},
    home="CODEX_HOME",
    home_default=".codex",
    note="Codex runs new hooks only after you have trusted them: open /hooks in it.",
)

_CURSOR_EDITS: Final = "Write|StrReplace|Delete|EditNotebook"

CURSOR: Final = Agent(
    name="cursor",
    title="Cursor",
    hooks=(
        Hook("sessionStart"),
        Hook("beforeSubmitPrompt"),
        Hook("preToolUse", f"Shell|{_CURSOR_EDITS}|MCP:amnesia_.*"),
        Hook("postToolUse", _CURSOR_EDITS),
        Hook("afterFileEdit"),
        Hook("preCompact"),
        Hook("subagentStart"),
        Hook("subagentStop"),
        Hook("stop"),
        Hook("sessionEnd"),
    ),
    files={"user": ".cursor/hooks.json", "project": ".cursor/hooks.json"},
    mcp={"user": Mcp(".cursor/mcp.json", "mcpServers"), "project": Mcp(".cursor/mcp.json", "mcpServers")},
    grouped=False,
    frame={"version": 1},
    handler={},
)

GEMINI: Final = Agent(
    name="gemini",
    title="Gemini CLI",
    hooks=(
        Hook("SessionStart"),
        Hook("BeforeAgent"),
        Hook("BeforeTool", f"write_file|replace|run_shell_command|.*{SERVER}.*"),
        Hook("AfterTool", "write_file|replace"),
        Hook("AfterAgent"),
        Hook("PreCompress"),
        Hook("SessionEnd"),
    ),
    files={"user": ".gemini/settings.json", "project": ".gemini/settings.json"},
    mcp={"user": Mcp(".gemini/settings.json", "mcpServers"), "project": Mcp(".gemini/settings.json", "mcpServers")},
    handler={"type": "command", "name": SERVER},
    timeout=HOOK_SECONDS * 1000,
)

VSCODE: Final = Agent(
    name="vscode",
    title="VS Code",
    hooks=(
        Hook("SessionStart"),
        Hook("UserPromptSubmit"),
        Hook("PreToolUse"),
        Hook("PostToolUse"),
        Hook("PreCompact"),
        Hook("SubagentStart"),
        Hook("SubagentStop"),
        Hook("Stop"),
    ),
    files={"user": ".copilot/hooks/amnesiad.json", "project": ".github/hooks/amnesiad.json"},
    mcp={"project": Mcp(".vscode/mcp.json", "servers", typed=True)},
    # Where it is depends on the platform and on the profile in use.
    mcp_by_hand={
        "user": Mcp("mcp.json, which VS Code's command 'MCP: Open User Configuration' opens", "servers", True)
    },
    grouped=False,
)

OPENHANDS: Final = Agent(
    name="openhands",
    title="OpenHands",
    hooks=(
        Hook("SessionStart", "*"),
        Hook("UserPromptSubmit", "*"),
        Hook("PreToolUse", "*"),
        Hook("PostToolUse", "*"),
        Hook("Stop", "*"),
        Hook("SessionEnd", "*"),
    ),
    files={"user": ".openhands/hooks.json", "project": ".openhands/hooks.json"},
    mcp={"user": Mcp(".openhands/mcp.json", "mcpServers")},
    mcp_by_hand={"project": Mcp("~/.openhands/mcp.json", "mcpServers")},
)

AGENTS: Final[Mapping[str, Agent]] = {
    agent.name: agent for agent in (CLAUDE_CODE, CODEX, CURSOR, GEMINI, VSCODE, OPENHANDS)
}
