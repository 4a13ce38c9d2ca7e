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
