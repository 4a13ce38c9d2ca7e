"""For whom the command line speaks: the role it may claim.

Everything here is decided from arguments (the environment, what is a terminal), so that it can be tested without
either. It asks the daemon nothing: a role is a claim, kept honest by convention, and the daemon alone decides what a
role may do. The workspace that a directory stands for is ``amnesiad.repository``'s to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from amnesiad.errors import Forbidden

Role = Literal["human", "agent"]

AGENT_MARKERS: Final = (
    "AI_AGENT",  # the name several agents have agreed on
    "AMNESIA_AGENT",
    "ANTIGRAVITY_AGENT",
    "AUGMENT_AGENT",
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLINE_ACTIVE",
    "CODEX_*",
    "CURSOR_AGENT",
    "GEMINI_CLI",
    "OPENCODE",
    "OPENHANDS_*",
)
"""Variables that agents set for the commands they run; a trailing ``*`` stands for any ending."""

USER_VARIABLES: Final = frozenset({"CODEX_HOME", "CODEX_API_KEY"})
"""Variables a person exports to configure an agent. They match a marker's pattern but say nothing of who is typing."""


def agent_marker(environ: Mapping[str, str]) -> str | None:
    """The first variable that says an agent is running this command, or ``None``. Empty variables say nothing."""
    for marker in AGENT_MARKERS:
        if not marker.endswith("*"):
            if environ.get(marker):
                return marker
            continue
        for name in sorted(environ):
            if name.startswith(marker[:-1]) and environ[name] and name not in USER_VARIABLES:
                return name
    return None


def decide_role(wanted: Role | None, environ: Mapping[str, str], *, terminal: bool, named_agent: bool = False) -> Role:
    """Human only on a terminal and without an agent's marker; otherwise agent.

    ``terminal`` is whether both input and output are one; ``named_agent`` whether the command names the agent it
    speaks for. Raises ``Forbidden`` if ``human`` was asked for where no human can be typing.
    """
    if wanted == "agent":
        return "agent"
    marker = agent_marker(environ)
    if wanted == "human":
        if not terminal:
            raise Forbidden(
                "--as human is refused: input and output are not both a terminal, so nobody can be seen to type",
                rule="role",
                hint="run it in a terminal, or leave --as out and speak as an agent",
            )
        if marker is not None:
            raise Forbidden(
                f"--as human is refused: {marker} is set, so an agent runs this command",
                rule="role",
                hint="run it in a terminal of your own",
            )
        return "human"
    return "human" if terminal and marker is None and not named_agent else "agent"
