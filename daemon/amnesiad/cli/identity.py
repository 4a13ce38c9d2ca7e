"""For whom the command line speaks: the role it may claim and the workspace it stands in.

Everything here is decided from arguments (the environment, the directory, what is a terminal), so that it can be
tested without either; the one process it starts is ``git rev-parse``. It asks the daemon nothing: a role is a claim,
kept honest by convention, and the daemon alone decides what a role may do.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from amnesiad.errors import Forbidden, Invalid

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

GIT_TIMEOUT_S: Final = 5.0
"""``git rev-parse`` takes milliseconds; on a file system that hangs, waiting longer would not help."""

# A git hook runs with these set, and git would then believe them rather than the directory it stands in.
_GIT_LOCATION: Final = frozenset({"GIT_DIR", "GIT_COMMON_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"})


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


def default_workspace(directory: Path, environ: Mapping[str, str], *, store_is_local: bool = True) -> str:
    """The workspace of a directory: its repository, shared by all worktrees, else the directory itself.

    Raises ``Invalid`` when the store is shared between machines (the same path in two containers is not the same
    workspace), when the path is not UTF-8, or when git does not answer.
    """
    if not store_is_local:
        raise Invalid(
            "the store is on another machine, so the current directory does not name a workspace",
            field="workspace",
            hint="name one with --workspace or AMNESIA_WORKSPACE, the same on every machine that shares it",
        )
    name = str(_repository(directory, environ) or directory.resolve())
    try:
        name.encode()
    except UnicodeEncodeError:
        raise Invalid(
            "the path of this directory is not UTF-8, so it cannot name a workspace",
            field="workspace",
            hint="name one with --workspace",
        ) from None
    return name


def _repository(directory: Path, environ: Mapping[str, str]) -> Path | None:
    """The root of the repository that a directory belongs to, or ``None`` outside of one or without git."""
    import subprocess

    # Asking where the repository is runs none of its hooks, so one that belongs to somebody else (a bind mount, most
    # often) is no danger here, and refusing it would give each of its directories a memory of its own.
    command = ["git", "-c", "safe.directory=*", "rev-parse", "--git-common-dir"]
    clean = {name: value for name, value in environ.items() if name not in _GIT_LOCATION}
    try:
        answer = subprocess.run(command, cwd=directory, env=clean, capture_output=True, timeout=GIT_TIMEOUT_S)
    except FileNotFoundError:
        return None
    except subprocess.TimeoutExpired:
        raise Invalid(
            f"git did not say within {GIT_TIMEOUT_S:g} s which repository this directory belongs to",
            field="workspace",
            hint="name the workspace with --workspace",
        ) from None
    found = answer.stdout.removesuffix(b"\n")
    if answer.returncode != 0 or not found:
        return None
    common = (directory / found.decode("utf-8", "surrogateescape")).resolve()
    # A bare repository and a submodule keep their common directory under another name; it is their identity as it is.
    return common.parent if common.name == ".git" else common
