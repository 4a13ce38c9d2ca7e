"""The command line against the real daemon: the verbs work together, and the demo keeps its word."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support import wait_until

from amnesiad.cli import main


@pytest.fixture
def workspace(daemon: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A workspace of the test's own on the real daemon, named by the environment and dropped afterwards."""
    name = f"cli-{secrets.token_hex(4)}"
    for variable in list(os.environ):
        if variable.startswith("AMNESIA_"):
            monkeypatch.delenv(variable)
    monkeypatch.setenv("AMNESIA_SOCKET", str(daemon))
    monkeypatch.setenv("AMNESIA_WORKSPACE", name)
    yield name
    main(["workspaces", "drop", name, "--yes"])


@pytest.fixture
def ask(workspace: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command with --json and return its exit code and answer."""
    assert workspace

    def run(*arguments: str) -> tuple[int, dict[str, Any]]:
        code = main([*arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


class TestVerbs:
    """What a person does in a day."""

    def test_a_day(self, ask: Any) -> None:
        """A note is written, found, pinned, superseded, revoked, reinstated and forgotten, each told in its history."""
        code, first = ask("remember", "the port is 8080", "--kind", "finding", "--tag", "net", "--key", "port")
        assert code == 0
        note = first["id"]
        assert [n["id"] for n in ask("recall", "port")[1]["notes"]] == [note]
        assert ask("pin", note)[1]["changed"] is True
        assert ask("pin", note[:4])[1]["changed"] is False
        assert ask("unpin", note)[0] == 0
        code, second = ask("supersede", note, "the port is 9090", "--kind", "finding")
        assert code == 0
        assert [n["id"] for n in ask("recall", "port")[1]["notes"]] == [second["by"]]
        assert ask("revoke", second["by"], "it moved again")[1]["state"] == "revoked"
        assert "it moved again" in ask("inspect", second["by"], "--render")[1]["text"]
        assert ask("reinstate", second["by"])[1]["state"] == "active"
        assert ask("forget", second["by"])[1]["forgotten"] == 1
        types = [event["type"] for event in ask("history", second["by"])[1]["events"]]
        assert types == ["created", "revoked", "reinstated", "forgotten"]
        assert ask("verify")[0] == 0

    def test_ambiguous_and_absent(self, ask: Any) -> None:
        """C23: what does not exist is not found, and says so with exit code 1."""
        code, answer = ask("inspect", "zzzzzzzzzz")
        assert (code, answer["error"]["code"]) == (1, "not_found")

    def test_forgetting_everything_needs_a_yes(self, ask: Any) -> None:
        """A script that forgets everything must say --yes; a dry run shows what would go."""
        ask("remember", "one", "--kind", "finding")
        ask("remember", "two", "--kind", "finding")
        assert ask("forget", "--all")[0] == 1
        assert len(ask("forget", "--all", "--dry-run")[1]["would"]) == 2
        assert ask("forget", "--all", "--yes")[1]["forgotten"] == 2

    def test_export_and_import(self, ask: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """C03: what was exported can be imported into another workspace, also without the last line break."""
        ask("remember", "only in the export", "--kind", "finding")
        file = tmp_path / "notes.ndjson"
        assert main(["export", "--output", str(file)]) == 0
        assert file.stat().st_mode & 0o077 == 0
        assert main(["export", "--output", str(file)]) == 2
        file.write_bytes(file.read_bytes().removesuffix(b"\n"))
        other = f"cli-{secrets.token_hex(4)}"
        assert main(["import", str(file), "--workspace", other]) == 0
        capsys.readouterr()
        found = ask("recall", "export", "--workspace", other)[1]["notes"]
        assert [note["content"] for note in found] == ["only in the export"]
        assert main(["workspaces", "drop", other, "--yes"]) == 0

    async def test_a_subagents_end(self, ask: Any) -> None:
        """A subagent's note goes when its end event arrives."""
        child = ("--session", "s1", "--agent", "a1", "--agent-kind", "subagent")
        note = ask("remember", "scratch", *child)[1]["id"]
        assert ask("emit", "subagent-end", *child)[1]["accepted"] == 1
        await wait_until(lambda: any(entry["id"] == note for entry in ask("audit", *child)[1]["entries"]))

    async def test_doctor(self, ask: Any) -> None:
        """The running daemon, its store and its worker pass, the worker once it has come up."""

        def checks() -> dict[str, bool]:
            return {check["name"]: check["ok"] for check in ask("doctor")[1]["checks"]}

        await wait_until(lambda: checks()["worker"])
        found = checks()
        assert all(found[name] for name in ("daemon", "store", "worker", "socket")), found


@pytest.mark.timeout(120)
class TestDemo:
    """The demo checks its own claims; a claim that does not hold makes it fail."""

    def test_on_a_running_daemon(self, workspace: str, capsys: pytest.CaptureFixture[str]) -> None:
        """It plays in a workspace of its own and leaves none behind."""
        assert workspace
        assert main(["demo"]) == 0
        shown = capsys.readouterr().out
        assert "Every claim held" in shown
        assert "[EXPIRED]" in shown
        assert "[REVOKED]" in shown
        main(["workspaces", "--json"])
        rows = json.loads(capsys.readouterr().out)["rows"]
        assert not [row for row in rows if row["name"].startswith("demo-")]

    def test_on_its_own(self, tmp_path: Path) -> None:
        """Without a daemon it starts a private one and stops it again."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("AMNESIA_")}
        environ |= {"TMPDIR": str(tmp_path), "AMNESIA_SOCKET": str(tmp_path / "nobody.sock")}
        command = [sys.executable, "-m", "amnesiad.cli", "demo"]
        result = subprocess.run(command, env=environ, capture_output=True, text=True)
        assert result.returncode == 0, result.stdout + result.stderr
        assert list(tmp_path.iterdir()) == []
