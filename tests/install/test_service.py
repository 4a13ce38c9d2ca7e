"""The service: a unit that systemd takes, a plist that launchd would, and the commands that put them to work."""

from __future__ import annotations

import asyncio
import os
import plistlib
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support import Fleet, wait_until

from amnesiad.cli import main
from amnesiad.daemon.notify import watchdog_s
from amnesiad.install import service

ROOT = Path(__file__).parents[2]
ODD = {"AMNESIA_STATE_DIR": '/home/x y/100% "$UNSET"', "AMNESIA_REDIS_URL": "redis://:secret@h/0"}


def verify(unit: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """What systemd itself says of a unit."""
    environ = os.environ | {"XDG_RUNTIME_DIR": str(unit.parent)}
    tool = shutil.which("systemd-analyze")
    assert tool is not None
    return subprocess.run([tool, *options, "verify", unit], env=environ, capture_output=True, text=True)


needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not on this machine")


class TestUnit:
    """A user's own service on Linux."""

    @needs_systemd
    def test_systemd_takes_it(self, tmp_path: Path) -> None:
        """Without a word, also with values that have to be quoted."""
        unit = tmp_path / "amnesia.service"
        unit.write_text(service.service(ODD, "linux").text)
        said = verify(unit, "--user")
        assert (said.returncode, said.stderr) == (0, "")

    @needs_systemd
    def test_systemd_takes_the_one_for_a_machine(self, tmp_path: Path) -> None:
        """The file in deploy/, with a program that is here."""
        text = (ROOT / "deploy/amnesia.service").read_text()
        assert "ExecStart=/usr/local/bin/amnesia up\n" in text
        unit = tmp_path / "amnesia.service"
        unit.write_text(text.replace("/usr/local/bin/amnesia", sys.executable))
        assert "\nRuntimeDirectoryPreserve=yes\n" in text
        said = verify(unit)
        assert (said.returncode, said.stderr) == (0, "")

    def test_it_carries_paths_and_no_secrets(self) -> None:
        """A password in an address stays out of a file that lies about; the settings that stay out are named."""
        text = service.service(ODD, "linux").text
        assert '"AMNESIA_STATE_DIR=/home/x y/100%% \\"$UNSET\\""' in text
        assert "secret" not in text
        assert service.unseen(ODD) == ["AMNESIA_REDIS_URL"]

    @needs_systemd
    def test_a_program_with_a_dollar_in_its_path(self, tmp_path: Path) -> None:
        """It is one word to systemd, and the sign stands for itself."""
        program = tmp_path / "a $b 100%" / "python"
        program.parent.mkdir()
        program.symlink_to(sys.executable)
        unit = tmp_path / "amnesia.service"
        unit.write_text(service.service({}, "linux", str(program)).text)
        said = verify(unit, "--user")
        assert (said.returncode, said.stderr) == (0, "")

    def test_paths_are_whole(self, home: Path) -> None:
        """What starts at the home or at this directory is said in full: the service starts elsewhere."""
        text = service.service({"AMNESIA_STATE_DIR": "~/s", "AMNESIA_CONFIG": "a.toml"}, "linux").text
        assert f"AMNESIA_STATE_DIR={home}/s" in text
        assert f"AMNESIA_CONFIG={home}/a.toml" in text

    def test_it_runs_what_is_installed_here(self, tmp_path: Path) -> None:
        """The program of the unit is this Python, and it starts."""
        line = re.search(r"^ExecStart=(.+) up$", service.service({}, "linux").text, re.MULTILINE)
        assert line is not None
        said = subprocess.run([*line[1].split(), "--version"], cwd=tmp_path, capture_output=True, text=True)
        assert said.stdout.startswith("amnesia ")


def test_the_plist_is_one(tmp_path: Path) -> None:
    """launchd's own format, for macOS, tested anywhere."""
    made = service.service({"HOME": str(tmp_path), **ODD}, "darwin")
    value = plistlib.loads(made.text.encode())
    assert made.path.match("Library/LaunchAgents/amnesiad.plist")
    assert value["ProgramArguments"] == [sys.executable, "-I", "-m", "amnesiad.entry", "up"]
    assert value["EnvironmentVariables"] == {"AMNESIA_STATE_DIR": ODD["AMNESIA_STATE_DIR"]}
    assert (value["RunAtLoad"], value["KeepAlive"], value["Umask"]) == (True, True, 0o077)
    assert made.start[0][:2] == ("launchctl", "bootstrap")


class TestCommand:
    """``amnesia install service``."""

    @pytest.fixture
    def control(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A service manager that writes down what it is told; it fails while a file ``broken`` stands beside it."""
        tool, said = tmp_path / "bin/systemctl", tmp_path / "said"
        tool.parent.mkdir()
        tool.write_text(f'#!/bin/sh\necho "$@" >>{said}\n[ ! -e {tmp_path}/broken ]\n')
        tool.chmod(0o755)
        said.touch()
        monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
        monkeypatch.setattr(sys, "platform", "linux")
        return said

    def test_there_and_back(self, home: Path, control: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """The unit is written and enabled; undo disables it and takes it away."""
        unit = home / ".config/systemd/user/amnesia.service"
        assert main(["install", "service", "--yes"]) == 0
        assert "AMNESIA_SOCKET=/run/a.sock" in unit.read_text()
        assert control.read_text().splitlines() == ["--user daemon-reload", "--user enable --now amnesia.service"]
        capsys.readouterr()
        assert main(["install", "service", "--yes"]) == 0
        assert "up to date" in capsys.readouterr().out
        assert main(["install", "service", "--undo", "--yes"]) == 0
        assert not unit.exists()
        assert control.read_text().splitlines()[2:] == ["--user disable --now amnesia.service", "--user daemon-reload"]

    def test_a_manager_that_refuses(self, home: Path, control: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """In a container, say: what is left to do is told."""
        control.with_name("broken").touch()
        assert main(["install", "service", "--yes"]) == 1
        assert "systemctl --user daemon-reload && systemctl --user enable --now" in capsys.readouterr().err
        unit = home / ".config/systemd/user/amnesia.service"
        link = service.enabled_by(unit)
        link.parent.mkdir()
        link.symlink_to(unit)
        assert main(["install", "service", "--undo", "--yes"]) == 1
        said = capsys.readouterr().err
        assert "may still run" in said
        assert "systemctl --user daemon-reload" in said
        assert not unit.exists()
        assert not link.is_symlink()

    @pytest.mark.usefixtures("control")
    def test_beside_a_daemon_that_runs(
        self, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two do not run at one socket: whoever started one by hand is told to end it, and it keeps its socket till
        then."""
        monkeypatch.setenv("AMNESIA_SOCKET", str(home / "s"))
        with socket.socket(socket.AF_UNIX) as other:
            other.bind(str(home / "s"))
            other.listen()
            assert main(["install", "service", "--yes"]) == 0
        assert "a daemon runs already" in capsys.readouterr().err
        assert "RuntimeDirectoryPreserve=yes" in (home / ".config/systemd/user/amnesia.service").read_text()
        assert main(["install", "service", "--undo", "--yes"]) == 0
        assert main(["install", "service", "--yes"]) == 0
        assert "a daemon runs already" not in capsys.readouterr().err

    def test_print_and_dry_run_touch_nothing(self, home: Path, control: Path) -> None:
        """Neither the file nor the manager."""
        assert main(["install", "service", "--print"]) == 0
        assert main(["install", "service", "--dry-run"]) == 0
        assert not list(home.iterdir())
        assert control.read_text() == ""


def test_the_watchdog_is_fed_twice_in_its_time() -> None:
    """Only where systemd asks for it, and asks this process."""
    assert watchdog_s({}) is None
    assert watchdog_s({"WATCHDOG_USEC": "x"}) is None
    assert watchdog_s({"WATCHDOG_USEC": "60000000"}) == 30
    assert watchdog_s({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": str(os.getpid())}) == 30
    assert watchdog_s({"WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}) is None


async def test_the_daemon_gives_signs_of_life(tmp_path_factory: pytest.TempPathFactory) -> None:
    """As under systemd: ready, then one sign after another, then stopping."""
    home = tmp_path_factory.mktemp("w")
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(home / "notify"))
        manager.setblocking(False)
        listening = asyncio.create_task(_listen(manager, heard))
        async with Fleet(home) as fleet:
            process = await fleet.up(NOTIFY_SOCKET=str(home / "notify"), WATCHDOG_USEC="100000")
            await wait_until(lambda: heard.count(b"WATCHDOG=1") >= 3)
            assert await process.stop() == 0
        listening.cancel()
    assert heard.count(b"READY=1") == 1
    assert heard.count(b"STOPPING=1") == 1


async def _listen(manager: socket.socket, heard: list[bytes]) -> Any:
    while True:
        heard.append(await asyncio.get_running_loop().sock_recv(manager, 100))
