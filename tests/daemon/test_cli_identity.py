"""Whom the command line speaks for: roles by terminal and environment, workspaces by real repositories."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from amnesiad.cli.identity import agent_marker, decide_role, default_workspace
from amnesiad.errors import Forbidden, Invalid

ENVIRON: Mapping[str, str] = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "t",
    "GIT_AUTHOR_EMAIL": "t@example.org",
    "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org",
}


def git(directory: Path, *arguments: str) -> None:
    """Run git as a person without any configuration would."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", *arguments], cwd=directory, env=ENVIRON, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with one commit."""
    path = tmp_path / "project"
    git(path, "init")
    git(path, "commit", "--allow-empty", "--message", "first")
    return path


class TestRole:
    """Human is a claim that must at least look true."""

    def test_human_on_a_terminal(self) -> None:
        """Somebody who types in a terminal of their own is human."""
        assert decide_role(None, {}, terminal=True) == "human"

    def test_agent_off_a_terminal(self) -> None:
        """A pipe or a script is an agent, whatever the environment says."""
        assert decide_role(None, {}, terminal=False) == "agent"

    @pytest.mark.parametrize(
        "marker",
        ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "CODEX_THREAD_ID", "AMNESIA_AGENT", "GEMINI_CLI"],
    )
    def test_agent_by_its_marker(self, marker: str) -> None:
        """V07: an agent that was given a terminal is still an agent, and cannot claim otherwise."""
        assert decide_role(None, {marker: "1"}, terminal=True) == "agent"
        with pytest.raises(Forbidden, match=marker):
            decide_role("human", {marker: "1"}, terminal=True)

    def test_a_users_own_variables_are_no_markers(self) -> None:
        """A person who configured an agent in the shell's profile is not taken for one."""
        assert agent_marker({"CODEX_HOME": "/home/u/.codex", "CLAUDECODE": "", "PATH": "/bin"}) is None

    def test_human_is_refused_off_a_terminal(self) -> None:
        """V07: a script cannot make itself human with an option."""
        with pytest.raises(Forbidden, match="terminal"):
            decide_role("human", {}, terminal=False)

    def test_naming_an_agent_speaks_for_it(self) -> None:
        """A person who names an agent speaks as that agent, unless they say they do not."""
        assert decide_role(None, {}, terminal=True, named_agent=True) == "agent"
        assert decide_role("human", {}, terminal=True, named_agent=True) == "human"

    def test_an_agent_may_always_be_an_agent(self) -> None:
        """Claiming less than one could is allowed everywhere."""
        assert decide_role("agent", {}, terminal=True) == "agent"


class TestWorkspace:
    """A repository is one workspace, from wherever in it one asks."""

    def test_a_repository_and_its_directories(self, repository: Path) -> None:
        """Every directory of a repository, and its .git directory, is the same workspace."""
        deep = repository / "src" / "deep"
        deep.mkdir(parents=True)
        for directory in (repository, deep, repository / ".git"):
            assert default_workspace(directory, ENVIRON) == str(repository.resolve())

    def test_worktrees_share(self, repository: Path, tmp_path: Path) -> None:
        """Agents in several worktrees of one repository share its memory."""
        git(repository, "worktree", "add", str(tmp_path / "elsewhere"))
        inside = tmp_path / "elsewhere" / "src"
        inside.mkdir()
        assert default_workspace(inside, ENVIRON) == str(repository.resolve())

    def test_worktrees_of_a_bare_repository_share(self, repository: Path, tmp_path: Path) -> None:
        """Where no directory is the main one, the bare repository itself names the workspace."""
        bare = tmp_path / "bare.git"
        git(tmp_path, "clone", "--bare", str(repository), str(bare))
        git(bare, "worktree", "add", str(tmp_path / "a"))
        git(bare, "worktree", "add", "--detach", str(tmp_path / "b"))
        assert default_workspace(tmp_path / "a", ENVIRON) == default_workspace(tmp_path / "b", ENVIRON) == str(bare)

    def test_two_repositories_do_not_share(self, repository: Path) -> None:
        """A repository inside another one's directory has a memory of its own."""
        inner = repository / "vendor" / "inner"
        git(inner, "init")
        assert default_workspace(inner, ENVIRON) == str(inner.resolve())

    def test_no_repository(self, tmp_path: Path) -> None:
        """Outside of a repository the directory itself is the workspace, by its real name."""
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        assert default_workspace(tmp_path / "link", ENVIRON) == str((tmp_path / "real").resolve())

    def test_no_git(self, repository: Path, tmp_path: Path) -> None:
        """Without git on the machine the directory itself is the workspace."""
        assert default_workspace(repository, {"PATH": str(tmp_path)}) == str(repository.resolve())

    def test_a_hook_of_another_repository(self, repository: Path, tmp_path: Path) -> None:
        """The variables git sets for its hooks do not turn one repository into another."""
        git(tmp_path / "other", "init")
        environ = {**ENVIRON, "GIT_DIR": str(tmp_path / "other" / ".git")}
        assert default_workspace(repository, environ) == str(repository.resolve())

    def test_a_name_with_spaces_and_accents(self, tmp_path: Path) -> None:
        """C24: any name a directory can have names a workspace."""
        path = tmp_path / "配置 été\nzwei"
        git(path, "init")
        assert default_workspace(path, ENVIRON) == str(path.resolve())

    def test_a_name_that_is_no_text(self, tmp_path: Path) -> None:
        """A path that is not UTF-8 could not be sent, so the user is asked for a name instead."""
        path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
        path.mkdir()
        with pytest.raises(Invalid, match="UTF-8"):
            default_workspace(path, ENVIRON)

    def test_a_shared_store_needs_a_name(self, repository: Path) -> None:
        """The same path on two machines is not the same workspace, so with a shared store one must be named."""
        with pytest.raises(Invalid, match="another machine") as refusal:
            default_workspace(repository, ENVIRON, store_is_local=False)
        assert "--workspace" in refusal.value.hint
