"""``amnesia install`` on the command line: shown first, asked for, done, undone; and what doctor says afterwards."""

from __future__ import annotations

import io
import json
import os
import tomllib
from pathlib import Path

import pytest

from amnesiad.cli import dialog, main
from amnesiad.install import checks
from amnesiad.install.checks import Check
from amnesiad.install.settings import Places


class TestInstall:
    """The dialog."""

    def test_the_change_is_shown_before_it_is_made(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """As a diff, and with --dry-run nothing follows."""
        assert main(["install", "claude-code", "--dry-run"]) == 0
        shown = capsys.readouterr().out
        assert f"+++ {home}/.claude/settings.json" in shown
        assert '+    "SessionStart": [' in shown
        assert not list(home.iterdir())

    def test_without_a_terminal_it_wants_a_yes(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """Nothing is changed that nobody agreed to."""
        assert main(["install", "claude-code"]) == 2
        assert "--yes" in capsys.readouterr().err
        assert not list(home.iterdir())

    @pytest.mark.parametrize(("typed", "made"), [("y\n", True), ("n\n", False), ("\n", False)])
    def test_on_a_terminal_it_asks(
        self, typed: str, made: bool, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A plain return is a no, and after one nothing is left to tell."""
        monkeypatch.setattr(dialog, "on_terminal", lambda: True)
        monkeypatch.setattr("typer.confirm", lambda _: typed == "y\n")
        assert main(["install", "codex"]) == 0
        assert (home / ".codex/hooks.json").exists() is made
        assert ("open /hooks" in capsys.readouterr().err) is made

    def test_an_end_of_input_changes_nothing(
        self, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Ctrl-D at the question: said on a line of its own."""
        monkeypatch.setattr(dialog, "on_terminal", lambda: True)
        monkeypatch.setattr("sys.stdin", io.StringIO(""))
        assert main(["install", "codex"]) == 130
        assert capsys.readouterr().err.endswith("\nnothing changed\n")
        assert not list(home.iterdir())

    @pytest.mark.parametrize(
        ("agent", "scope", "file", "key"),
        [("vscode", "user", "mcp.json", "servers"), ("openhands", "project", "~/.openhands/mcp.json", "mcpServers")],
    )
    def test_a_server_added_by_hand_has_its_file(
        self, agent: str, scope: str, file: str, key: str, home: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Where we edit nothing, the file is named, and what belongs into it has that file's own shape."""
        assert home.is_dir()
        assert main(["install", agent, "--scope", scope, "--yes"]) == 0
        told = capsys.readouterr().err.partition("add our MCP server yourself:\n\n")[2]
        assert told.startswith(f"// {file}")
        entry, _ = json.JSONDecoder().raw_decode(told[told.index("{") :])
        assert list(entry) == [key]
        assert ("type" in entry[key]["amnesiad"]) is (agent == "vscode")

    def test_install_and_undo(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """There and back, and each only once."""
        assert main(["install", "claude-code", "--yes", "--statusline"]) == 0
        capsys.readouterr()
        assert main(["install", "claude-code", "--yes", "--statusline"]) == 0
        assert capsys.readouterr().out == "Claude Code is connected already\n"
        assert main(["install", "claude-code", "--undo", "--yes", "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["made"]
        assert {change["to"] for change in answer["changes"]} == {"remove"}
        assert [path for path in home.rglob("*") if path.is_file()] == []
        assert main(["install", "claude-code", "--undo", "--yes"]) == 0
        assert "nothing of ours" in capsys.readouterr().out

    def test_another_status_line_is_told_of(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """It stays, and whoever asked for ours learns why it is not there."""
        (home / ".claude").mkdir()
        (home / ".claude/settings.json").write_text('{"statusLine": {"type": "command", "command": "mine"}}')
        assert main(["install", "claude-code", "--yes", "--statusline"]) == 0
        assert "another status line" in capsys.readouterr().err

    def test_print_writes_nothing(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """What to add by hand, with the file each part belongs into; for Codex its configuration as TOML."""
        assert main(["install", "codex", "--print", "--workspace", "w"]) == 0
        printed = capsys.readouterr().out
        assert f"// {home}/.codex/hooks.json" in printed
        table = tomllib.loads(printed[printed.index("# ~/.codex/config.toml") :])["mcp_servers"]["amnesiad"]
        assert table["args"][-2:] == ["--socket", "/run/a.sock"]
        assert table["env"] == {"AMNESIA_WORKSPACE": "w"}
        assert not list(home.iterdir())

    @pytest.mark.parametrize("target", ["claude-code", "service"])
    def test_print_for_programs(self, target: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """One JSON object: what belongs into which file."""
        assert main(["install", target, "--print", "--json"]) == 0
        files = json.loads(capsys.readouterr().out)["files"]
        assert all(path.startswith(f"{home}/") for path in files)
        assert "/run/a.sock" in json.dumps(files)
        assert not list(home.iterdir())

    def test_a_broken_file_is_named(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """And nothing is half done: the other file is not written either."""
        (home / ".claude").mkdir()
        (home / ".claude/settings.json").write_text("{ // mine\n}")
        assert main(["install", "claude-code", "--yes"]) == 2
        assert "comments" in capsys.readouterr().err
        assert not (home / ".claude.json").exists()

    @pytest.mark.parametrize(
        "arguments",
        [
            ["emacs"], ["claude-code", "--scope", "world"], ["claude-code", "--command", "wget"], ["codex", "--statusline"],
            ["codex", "--plugin", "x"], ["claude-code", "--to", "x"], ["codex", "--workspace", "a\nb"],
            ["codex", "--workspace", "\udcff"],
        ],
    )  # fmt: skip
    @pytest.mark.usefixtures("home")
    def test_wrong_usage(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        """Exit 2 and what may be said instead."""
        assert main(["install", *arguments]) == 2
        assert capsys.readouterr().err.startswith("error: ")

    @pytest.mark.parametrize("command", [["install", "codex"], ["install", "dsh"], ["skill", "install"]])
    def test_nowhere_to_put_it(
        self, command: list[str], home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A user without a home, or a directory that was removed under the shell's feet."""
        gone = home / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        assert main([*command, "--yes"]) == 2
        assert "directory is gone" in capsys.readouterr().err
        monkeypatch.chdir(home)
        monkeypatch.delenv("HOME")
        monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)
        assert main([*command, "--yes"]) == 2
        assert "no home" in capsys.readouterr().err

    def test_dsh_is_a_folder(self, home: Path) -> None:
        """Complete, without links, and gone after undo but for what somebody added."""
        assert main(["install", "dsh", "--to", "there", "--yes"]) == 0
        folder = home / "there"
        assert {"package.json", "index.mjs", "amnesiad.mjs"} <= {path.name for path in folder.iterdir()}
        assert not any(path.is_symlink() for path in folder.rglob("*"))
        (folder / "own.txt").write_text("x")
        assert main(["install", "dsh", "--to", "there", "--undo", "--yes"]) == 0
        assert [path.name for path in folder.rglob("*")] == ["own.txt"]

    @pytest.mark.usefixtures("home")
    @pytest.mark.parametrize("name", ["hook", "mcp", "statusline"])
    def test_the_shims_have_a_help(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        """Asked for help, they are commands like any other."""
        assert main([name, "--help"]) == 0
        assert f"Usage: amnesia {name}" in capsys.readouterr().out


class TestDoctor:
    """What is wrong with the connections."""

    def look(self, home: Path, socket: str = "/run/a.sock") -> dict[str, list[Check]]:
        found: dict[str, list[Check]] = {}
        for check in checks.examine(Places(home, home / "src", os.environ), socket, "linux"):
            found.setdefault(check.name, []).append(check)
        return found

    def test_nothing_is_connected(self, home: Path) -> None:
        """No defect, but how to connect an agent is said."""
        found = self.look(home)
        assert found["hooks"][0].ok
        assert "amnesia install" in found["hooks"][0].found
        assert found["service"][0].ok

    def test_all_is_well(self, home: Path) -> None:
        """Each connected agent has a line."""
        main(["install", "claude-code", "--yes"])
        main(["install", "cursor", "--yes"])
        found = self.look(home)
        assert [check.ok for checks in found.values() for check in checks] == [True] * 3
        assert "reboot" in found["service"][0].found

    def test_another_socket(self, home: Path) -> None:
        """Hooks fail open, so nothing else would tell that they lead nowhere."""
        main(["install", "gemini", "--yes"])
        (check,) = self.look(home, "/run/b.sock")["hooks of Gemini CLI"]
        assert not check.ok
        assert "/run/a.sock" in check.found
        assert check.remedy == "run: amnesia install gemini"

    def test_an_installation_that_moved(self, home: Path) -> None:
        """A Python that the lines name and that is gone."""
        main(["install", "claude-code", "--yes"])
        path = home / ".claude/settings.json"
        path.write_text(path.read_text().replace("/shims/hook.py", "/shims/../gone/amnesiad/shims/hook.py"))
        (check,) = self.look(home)["hooks of Claude Code"]
        assert not check.ok
        assert "not there" in check.found

    def test_events_that_are_missing(self, home: Path) -> None:
        """After an upgrade that wants more of them."""
        main(["install", "claude-code", "--yes"])
        path = home / ".claude/settings.json"
        value = json.loads(path.read_text())
        del value["hooks"]["Stop"]
        path.write_text(json.dumps(value))
        (check,) = self.look(home)["hooks of Claude Code"]
        assert (check.ok, "Stop" in check.found) == (False, True)

    def test_hooks_that_are_switched_off(self, home: Path) -> None:
        """All is in its place, and nothing of it runs."""
        main(["install", "claude-code", "--yes"])
        path = home / ".claude/settings.json"
        path.write_text(json.dumps({"disableAllHooks": True, **json.loads(path.read_text())}))
        (check,) = self.look(home)["hooks of Claude Code"]
        assert (check.ok, "disableAllHooks" in check.found) == (False, True)

    def test_two_files(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Everything would be sent twice."""
        (home / "src").mkdir()
        main(["install", "claude-code", "--yes"])
        monkeypatch.chdir(home / "src")
        main(["install", "claude-code", "--scope", "project", "--yes"])
        *each, both = self.look(home)["hooks of Claude Code"]
        assert [check.ok for check in each] == [True, True]
        assert not both.ok
        assert "--undo --scope project" in both.remedy

    def test_without_curl(self, home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Said, and no defect: the hooks run Python then."""
        main(["install", "claude-code", "--yes"])
        monkeypatch.setenv("PATH", str(tmp_path))
        (check,) = self.look(home)["hooks of Claude Code"]
        assert check.ok
        assert "no curl" in check.found

    def test_a_service_that_is_not_enabled(self, home: Path) -> None:
        """It would not come back after a reboot."""
        unit = home / ".config/systemd/user/amnesia.service"
        unit.parent.mkdir(parents=True)
        unit.write_text("[Unit]\n")
        assert not self.look(home)["service"][0].ok
        wants = unit.parent / "default.target.wants"
        wants.mkdir()
        (wants / unit.name).symlink_to(unit)
        assert self.look(home)["service"][0].ok
