"""The Claude Code plugin: the folder in the package, and the copy that names everything by its full path."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from amnesiad import __version__
from amnesiad.cli import main
from amnesiad.install import commands, folders
from amnesiad.install.settings import Wanted
from amnesiad.install.table import CLAUDE_CODE

WANTED = Wanted("/run/a.sock")


def validate(folder: Path, home: Path) -> subprocess.CompletedProcess[str]:
    """What Claude Code itself says of a plugin, offline; its program comes with the agent SDK."""
    spec = find_spec("claude_agent_sdk")
    assert spec is not None
    assert spec.origin is not None
    program = Path(spec.origin).parent / "_bundled" / "claude"
    environ = {"HOME": str(home), "PATH": os.environ["PATH"], "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
    command = [str(program), "plugin", "validate", "--strict", str(folder)]
    return subprocess.run(command, env=environ, cwd=home, capture_output=True, text=True, timeout=50)


@pytest.mark.parametrize("kind", ["packaged", "copied"])
def test_claude_code_takes_it(kind: str, tmp_path: Path, home: Path) -> None:
    """Without a warning: the manifest, every hook, the server and the skill."""
    plugin = tmp_path / "amnesiad"
    if kind == "packaged":  # with its link to the skill followed, as in an installed package
        shutil.copytree(Path(str(folders.bundle("claude-code"))), plugin)
    else:
        assert main(["install", "claude-code", "--plugin", str(plugin), "--yes"]) == 0
    said = validate(plugin, home)
    assert said.returncode == 0, said.stdout
    for part in ("hooks: SessionStart", "mcpServers: amnesiad", "skills: amnesiad:amnesia"):
        assert part in said.stdout


def test_the_packaged_hooks_are_those_of_the_table() -> None:
    """One table for settings and plugin; to mend the file, write ``folders.portable_hooks()`` into it."""
    files = dict(folders.contents(folders.bundle("claude-code")))
    assert files["hooks/hooks.json"] == folders.portable_hooks()
    assert list(json.loads(files["hooks/hooks.json"])["hooks"]) == [hook.event for hook in CLAUDE_CODE.hooks]


def test_the_manifest_knows_this_version() -> None:
    """A plugin is only fetched anew when its version changes."""
    files = dict(folders.contents(folders.bundle("claude-code")))
    assert json.loads(files[".claude-plugin/plugin.json"])["version"] == __version__


def test_a_copy_names_everything_by_its_full_path() -> None:
    """No ``amnesia`` on the path is needed, and no script."""
    files = folders.plugin(WANTED)
    assert "hooks/hook.sh" not in files
    lines = [
        group["hooks"][0]["command"]
        for groups in json.loads(files["hooks/hooks.json"])["hooks"].values()
        for group in groups
    ]
    assert {commands.socket_of(line) for line in lines} == {"/run/a.sock"}
    server = json.loads(files[".mcp.json"])["mcpServers"]["amnesiad"]
    assert Path(server["command"]).is_absolute()


def test_a_copy_is_made_once_and_taken_away_again(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second run changes nothing; undo leaves what somebody added."""
    target = home / "plugins/amnesiad"
    assert main(["install", "claude-code", "--plugin", str(target), "--yes"]) == 0
    capsys.readouterr()
    assert main(["install", "claude-code", "--plugin", str(target), "--yes"]) == 0
    assert "up to date" in capsys.readouterr().out
    assert main(["install", "claude-code", "--plugin", str(target), "--undo", "--yes"]) == 0
    assert not target.exists()
    assert target.parent.exists()
