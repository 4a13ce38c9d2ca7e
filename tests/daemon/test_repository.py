"""Which workspace a directory belongs to, by real repositories, and how a daemon remembers it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from amnesiad.errors import Invalid
from amnesiad.repository import Place, default_workspace, find_place
from amnesiad.service.hooks import whereabouts
from amnesiad.service.hooks.whereabouts import Whereabouts

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


class TestPlace:
    """Where an agent works, and what its files' paths may start at."""

    def test_a_worktree_shares_the_workspace_and_has_a_root_of_its_own(self, repository: Path, tmp_path: Path) -> None:
        """A file of a worktree is named relative to the worktree, and one of the main tree relative to that."""
        git(repository, "worktree", "add", str(tmp_path / "tree"))
        inside = tmp_path / "tree" / "src"
        inside.mkdir()
        place = find_place(inside, ENVIRON)
        assert place.workspace == str(repository.resolve())
        assert place.roots == (str((tmp_path / "tree").resolve()), str(repository.resolve()))

    def test_a_link_is_a_root_beside_what_it_leads_to(self, repository: Path, tmp_path: Path) -> None:
        """An agent that was started by way of a link names its files by way of it."""
        (tmp_path / "link").symlink_to(repository)
        place = find_place(tmp_path / "link", ENVIRON)
        assert place.roots == (str(tmp_path / "link"), str(repository.resolve()))

    def test_a_link_into_the_middle_of_a_tree_leads_to_its_root_alone(self, repository: Path, tmp_path: Path) -> None:
        """What lies above the link is no tree of ours: with it as a root every file beside it would be one of ours."""
        (repository / "src").mkdir(exist_ok=True)
        (tmp_path / "deep").mkdir()
        (tmp_path / "deep/link").symlink_to(repository / "src")
        assert find_place(tmp_path / "deep/link", ENVIRON) == (str(repository), (str(repository),))

    def test_a_directory_that_is_gone_belongs_where_what_is_above_it_does(self, repository: Path) -> None:
        """A session that removed its folder, or stands in a file by mistake, ends in the workspace it began in."""
        (repository / "file").write_text("x")
        for gone in (repository / "a" / "b", repository / "file"):
            assert find_place(gone, ENVIRON) == (str(repository.resolve()), (str(repository.resolve()),))

    def test_a_git_that_hangs_stands_in_the_way_of_no_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Naming the workspace is what its refusal advises."""
        (tmp_path / "git").write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / "git").chmod(0o755)
        monkeypatch.setattr("amnesiad.repository.GIT_TIMEOUT_S", 0.1)
        environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        monkeypatch.setenv("PATH", environ["PATH"])
        with pytest.raises(Invalid, match="git did not say"):
            find_place(tmp_path, environ)
        here = str(tmp_path.resolve())
        assert find_place(tmp_path, environ, named="shared") == ("shared", tuple(dict.fromkeys([str(tmp_path), here])))

    def test_outside_of_a_repository_the_directory_is_its_root(self, tmp_path: Path) -> None:
        """A directory that no longer is there is one as well: nothing else can be said of it."""
        gone = tmp_path.resolve() / "gone"
        assert find_place(gone, ENVIRON) == (str(gone), (str(gone),))

    def test_a_name_overrules_the_directory(self, repository: Path) -> None:
        """Who names the workspace still has the paths of its files understood, also with a store elsewhere."""
        place = find_place(repository, ENVIRON, named="shared", store_is_local=False)
        assert place == ("shared", (str(repository.resolve()),))


class TestWhereabouts:
    """The daemon asks once for many."""

    async def test_it_is_asked_once_and_remembered_for_a_while(
        self, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Forty agents that start in one directory cost one look at it, and what changes there is soon noticed."""
        seconds = [0.0]
        asked: list[str] = []

        def counted(directory: Path, *args: Any, **options: Any) -> Place:
            asked.append(str(directory))
            return find_place(directory, *args, **options)

        monkeypatch.setattr("amnesiad.service.hooks.whereabouts.find_place", counted)
        places = Whereabouts(ENVIRON, store_is_local=True, monotonic=lambda: seconds[0])
        (tmp_path / "later").mkdir()
        outside = await places.of(str(tmp_path / "later"))
        together = await asyncio.gather(*(places.of(str(repository)) for _ in range(40)))
        assert {place.workspace for place in together} == {default_workspace(repository, ENVIRON)}
        assert asked == [str(tmp_path / "later"), str(repository)]
        git(tmp_path, "init")
        assert await places.of(str(tmp_path / "later")) == outside
        seconds[0] += whereabouts.KEEP_S + 1
        assert (await places.of(str(tmp_path / "later"))).workspace == default_workspace(tmp_path, ENVIRON)

    async def test_a_worktree_that_was_removed_stays_what_it_was(self, repository: Path, tmp_path: Path) -> None:
        """Its session ends after it is gone, and must end in the workspace where its notes are."""
        seconds = [0.0]
        git(repository, "commit", "--allow-empty", "-m", "x")
        git(repository, "worktree", "add", str(tmp_path / "tree"))
        places = Whereabouts(ENVIRON, store_is_local=True, monotonic=lambda: seconds[0])
        place = await places.of(str(tmp_path / "tree"))
        git(repository, "worktree", "remove", str(tmp_path / "tree"))
        seconds[0] += whereabouts.KEEP_S + 1
        assert await places.of(str(tmp_path / "tree")) == place

    async def test_a_refusal_is_not_remembered(self, repository: Path) -> None:
        """With a store elsewhere a directory names nothing, each time anew; a name is taken."""
        places = Whereabouts(ENVIRON, store_is_local=False)
        for _ in range(2):
            with pytest.raises(Invalid, match="another machine"):
                await places.of(str(repository))
        assert (await places.of(str(repository), "shared")).workspace == "shared"

    async def test_it_forgets_the_oldest(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The number of directories that are remembered is bounded."""
        monkeypatch.setattr(whereabouts, "MAX_KEPT", 2)
        places = Whereabouts(ENVIRON, store_is_local=True)
        for name in "abc":
            await places.of(str(tmp_path / name))
        assert len(places._found) == 2
