"""What whoever installs is told afterwards: what was done, and what is left to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from amnesiad.cli import connecting, main

EXTRA = "the tools need the extra mcp"


def test_what_was_done_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A diff shows what would be; one line says that it was, and on the way back too."""
    (home / ".claude").mkdir()
    (home / ".claude/settings.json").write_text('{"model": "opus"}')
    assert main(["install", "claude-code", "--yes"]) == 0
    assert "done: 1 file changed, 1 file created\n" in capsys.readouterr().err
    assert main(["install", "claude-code", "--yes"]) == 0
    assert "done" not in capsys.readouterr().err
    assert main(["install", "claude-code", "--undo", "--yes"]) == 0
    assert "done: 1 file changed, 1 file removed\n" in capsys.readouterr().err


def test_a_plugin_says_how_it_is_tried(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder alone does nothing."""
    assert main(["install", "claude-code", "--plugin", str(home / "plugin"), "--yes"]) == 0
    assert f"claude --plugin-dir {home / 'plugin'}" in capsys.readouterr().err


@pytest.mark.parametrize("there", [True, False])
def test_tools_without_their_library_are_told_of(
    there: bool, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent would show a server that failed, and nobody would know why."""
    monkeypatch.setattr(connecting, "find_spec", lambda _: object() if there else None)
    assert main(["install", "cursor", "--yes"]) == 0
    assert (EXTRA in capsys.readouterr().err) is not there
    assert (home / ".cursor/mcp.json").exists()


def test_a_folder_is_told_by_its_files(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody reads thousands of lines before saying yes; one that somebody has edited is shown as a diff all the
    same."""
    assert main(["install", "dsh", "--dry-run"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert f"create {home / 'dsh-amnesia/index.mjs'}" in shown
    assert all(line.startswith("create ") for line in shown)
    assert main(["install", "dsh", "--yes"]) == 0
    (home / "dsh-amnesia/README.md").write_text("mine\n")
    capsys.readouterr()
    assert main(["install", "dsh", "--dry-run"]) == 0
    assert "-mine\n" in capsys.readouterr().out


@pytest.mark.parametrize("folder", [["dsh"], ["claude-code", "--plugin", "there"]])
def test_print_changes_nothing(folder: list[str], home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where it has nothing to print it says so, whatever else was agreed to."""
    assert main(["install", *folder, "--print", "--yes"]) == 2
    assert "--dry-run" in capsys.readouterr().err
    assert not list(home.iterdir())
