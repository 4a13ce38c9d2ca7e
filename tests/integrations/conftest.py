"""A daemon's service behind a real socket, with a clock that a test can move: what every adapter is tested against."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.daemon.conftest import clock, service
from tests.integrations.stores import amnesia, asynchronous, ours

from amnesiad.api.app import App
from amnesiad.api.serve import serve
from amnesiad.secretscan import RULES_FOLDER, SecretScan
from amnesiad.service import Service
from amnesiad.settings import load_settings
from amnesiad.tokens import count_o200k

__all__ = ["amnesia", "asynchronous", "clock", "ours", "service"]


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test speaks for whoever runs it, and no framework calls home."""
    for name in ("SOCKET", "WORKSPACE", "SESSION", "AGENT", "TEAM", "AGENT_KIND", "CONFIG", "STATE_DIR"):
        monkeypatch.delenv(f"AMNESIA_{name}", raising=False)
    monkeypatch.setenv("LANGSMITH_TRACING", "false")
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
    monkeypatch.setenv("MEM0_TELEMETRY", "False")


@pytest.fixture
def place() -> Iterator[Path]:
    """A short private directory: the test's own may be too long for a socket."""
    with TemporaryDirectory(prefix="amn") as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def detector() -> SecretScan:
    """The secret guard's engine, made ready once: most items look as if they could hold a key."""
    made = SecretScan(load_settings(environ={}).state_dir / RULES_FOLDER)
    asyncio.run(made.load())
    count_o200k("")  # likewise: the first injection would wait for the vocabulary
    return made


@pytest.fixture
async def daemon(service: Service, place: Path, detector: SecretScan) -> AsyncIterator[str]:
    """The socket of a daemon that serves ``service``."""
    service.secrets = detector
    running = await serve(App(service), place / "a.sock")
    yield str(place / "a.sock")
    await running.stop()
    await service.stop()
