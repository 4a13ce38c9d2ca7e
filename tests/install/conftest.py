"""A home of the test's own for what ``amnesia install`` writes."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home directory, in which the test also stands; nothing of this machine's agents is seen."""
    place = tmp_path / "home"
    place.mkdir()
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "AMNESIA_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("AMNESIA_SOCKET", "/run/a.sock")
    monkeypatch.chdir(place)
    return place
