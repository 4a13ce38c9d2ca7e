"""What ``amnesia doctor`` finds wrong, and what it says to do about it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.daemon.canned import STATUS, Canned

from amnesiad.cli import main


class TestDoctor:
    """What is wrong, and what to do."""

    @pytest.fixture(autouse=True)
    def healthy(self, canned: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An installation with nothing wrong; each test breaks one thing. No agent of this machine's is looked at."""
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        canned.answers["status"] = STATUS
        canned.path.chmod(0o600)
        state = tmp_path / "state"
        state.mkdir(mode=0o700)
        key = state / "install.key"
        key.write_bytes(b"k" * 32)
        key.chmod(0o600)
        return state

    def checks(self, capsys: pytest.CaptureFixture[str], code: int) -> dict[str, tuple[bool, str, str]]:
        """Run it and return each check's verdict, what was found and the remedy."""
        assert main(["doctor", "--json"]) == code
        answer = json.loads(capsys.readouterr().out)
        assert answer["ok"] is (code == 0)
        return {check["name"]: (check["ok"], check["found"], check["remedy"]) for check in answer["checks"]}

    def test_nothing_wrong(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A healthy installation passes every check and exits with 0."""
        checks = self.checks(capsys, 0)
        assert list(checks) == [
            "versions", "settings", "state directory", "install key", "socket", "workspace", "daemon", "store", "worker",
            "hooks", "service",
        ]  # fmt: skip
        assert main(["doctor"]) == 0
        assert "nothing is wrong" in capsys.readouterr().out

    def test_no_daemon(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Without a daemon it says so, and how to start one."""
        monkeypatch.setenv("AMNESIA_SOCKET", str(tmp_path / "nobody.sock"))
        checks = self.checks(capsys, 1)
        assert "amnesia up" in checks["socket"][2]
        assert "amnesia up" in checks["daemon"][2]

    def test_an_old_daemon(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """After an upgrade, the daemon that still runs the old version is found out."""
        canned.version = "0.0.1"
        assert self.checks(capsys, 1)["daemon"][2] == "restart the daemon"

    def test_an_embedder_that_is_not_there(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """A daemon that cannot search by meaning as it was told to is found out, with what it lacks."""
        trouble = "embedder is use, but not all of it is installed: pip install it"
        canned.answers["status"] = STATUS | {
            "store": STATUS["store"] | {"embedder": "use", "embedder_trouble": trouble}
        }
        checks = self.checks(capsys, 1)
        assert checks["embedder"][:2] == (False, trouble)
        assert checks["store"][0]
        assert trouble not in checks["store"][1]

    def test_a_shared_store_without_a_workspace(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With a store on another machine the missing name of the workspace is what is wrong, not the daemon."""
        monkeypatch.delenv("AMNESIA_WORKSPACE")
        monkeypatch.setenv("AMNESIA_REDIS_URL", "redis://192.0.2.1:6379/0")
        checks = self.checks(capsys, 1)
        assert (checks["workspace"][0], checks["daemon"][0]) == (False, True)

    def test_others_may_look_in(self, capsys: pytest.CaptureFixture[str], healthy: Path) -> None:
        """Files that others may read are named with the command that mends them."""
        healthy.chmod(0o755)
        (healthy / "install.key").chmod(0o644)
        checks = self.checks(capsys, 1)
        assert checks["state directory"][2] == f"chmod 0700 {healthy}"
        assert checks["install key"][2] == f"chmod 0600 {healthy / 'install.key'}"

    def test_a_key_that_is_none(self, capsys: pytest.CaptureFixture[str], healthy: Path) -> None:
        """A damaged install key is found before a start fails on it."""
        (healthy / "install.key").write_bytes(b"short")
        assert "5 bytes" in self.checks(capsys, 1)["install key"][1]

    def test_a_key_that_is_gone(self, capsys: pytest.CaptureFixture[str], healthy: Path) -> None:
        """A store whose install key was not restored with it is told from one that has yet to begin."""
        (healthy / "install.key").unlink()
        assert "the first start makes it" in self.checks(capsys, 0)["install key"][1]
        (healthy / "store").mkdir()
        assert "from a backup" in self.checks(capsys, 1)["install key"][2]

    def test_a_file_where_the_socket_should_be(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """C41: a regular file at the socket's path is named as what it is."""
        path = tmp_path / "file.sock"
        path.touch(0o600)
        monkeypatch.setenv("AMNESIA_SOCKET", str(path))
        assert "not a socket" in self.checks(capsys, 1)["socket"][1]

    def test_no_worker(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """A fleet without a worker is told that nothing gets unplugged."""
        canned.answers["status"] = {**STATUS, "worker": {"alive": False, "lag_ms": None}}
        assert "amnesia worker" in self.checks(capsys, 1)["worker"][2]

    def test_a_worker_far_behind(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """A worker that cannot keep erasure's promise is wrong even though it is alive."""
        canned.answers["status"] = {**STATUS, "worker": {"alive": True, "lag_ms": 90_000}}
        assert "90 s" in self.checks(capsys, 1)["worker"][1]

    def test_the_store_is_away(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """A daemon without its store answers, and says so."""
        canned.answers["status"] = {**STATUS, "degraded": True}
        assert self.checks(capsys, 1)["store"][0] is False

    def test_a_store_of_ones_own_is_looked_at(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """With no daemon to ask, a configured store is tried directly, and its password is not shown."""
        monkeypatch.setenv("AMNESIA_SOCKET", str(tmp_path / "nobody.sock"))
        monkeypatch.setenv("AMNESIA_REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
        checks = self.checks(capsys, 1)
        assert checks["store"][0] is False
        assert "hunter2" not in str(checks)

    def test_a_wrong_setting(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """V11: a setting that stops the start is named, with the rest of the checks that make sense without it."""
        monkeypatch.setenv("AMNESIA_TIE_WIDTH", "nan")
        assert "tie_width" in self.checks(capsys, 1)["settings"][1]
