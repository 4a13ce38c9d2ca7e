"""A fleet of real processes for each test that kills some of them."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support import Fleet


@pytest.fixture
async def fleet() -> AsyncIterator[Fleet]:
    """A fleet of the test's own, with nothing in it yet; all of it is gone afterwards."""
    # Not pytest's own directory: its paths can be longer than a socket's may be.
    with tempfile.TemporaryDirectory(prefix="amnesia-chaos-") as directory:
        async with Fleet(Path(directory)) as found:
            yield found
