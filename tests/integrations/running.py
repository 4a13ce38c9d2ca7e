"""Running what stands in ``examples/`` as a user would, against a daemon of the test's own."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

EXAMPLES: Final = Path(__file__).parents[2] / "examples"


async def run_example(name: str, socket: str, *arguments: str) -> str:
    """What an example prints. Fails the test when it does not end well."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("AMNESIA_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        *arguments,
        env={**kept, "AMNESIA_SOCKET": socket, "AMNESIA_WORKSPACE": "example"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()
