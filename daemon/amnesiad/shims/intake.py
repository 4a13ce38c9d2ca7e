"""What an agent hands a shim on standard input: read to its end, within a limit and a deadline.

An agent that forgets to close the pipe, or a terminal where nobody types, must not hold a shim up.
"""

from __future__ import annotations

import os
import select
import time
from typing import Final

from amnesiad.limits import MAX_REQUEST_BYTES

_READ_BYTES: Final = 64 * 1024
_STDIN: Final = 0


def read_input(deadline: float) -> bytes:
    """Standard input up to its end. ``deadline`` is on the monotonic clock, in seconds.

    Raises ``TimeoutError`` where the end does not come in time, and ``ValueError`` past ``MAX_REQUEST_BYTES``, which the
    daemon would refuse.
    """
    parts: list[bytes] = []
    total = 0
    while True:
        ready, _, _ = select.select([_STDIN], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError("standard input did not end in time")
        data = os.read(_STDIN, _READ_BYTES)
        if not data:
            return b"".join(parts)
        parts.append(data)
        total += len(data)
        if total > MAX_REQUEST_BYTES:
            raise ValueError(f"standard input exceeds {MAX_REQUEST_BYTES} bytes")


def write_output(data: bytes) -> None:
    """All of it to standard output, at once and unbuffered, so that nothing is left to fail at the exit."""
    while data:
        data = data[os.write(1, data) :]
