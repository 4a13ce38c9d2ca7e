"""A place for a stand-in of the daemon."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a daemon would listen, in a path that is short enough."""
    return tmp_path_factory.mktemp("h") / "a.sock"
