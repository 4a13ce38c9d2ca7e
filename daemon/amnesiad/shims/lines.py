"""Standard input and output line by line, for a shim that serves its client for as long as there is one.

A line that comes in is bounded. Whoever reads or writes ends with the parent: the end of the pipe usually tells, but
somebody else may hold it open. What a line says is not looked at here.
"""

from __future__ import annotations

import os
import select
import threading
from typing import Final, NamedTuple

from amnesiad.limits import MAX_REQUEST_BYTES

LOOK_S: Final = 2.0
"""How often is looked whether the parent is still there; its end of the pipe usually tells at once."""
MAX_LINE_BYTES: Final = MAX_REQUEST_BYTES
"""A message: what the daemon takes as a request. A longer line is not kept, and is answered with an error."""
EDGE_BYTES: Final = 4096
"""Of a line that is too long, what is kept of its beginning and of its end: there its id stands."""
_READ_BYTES: Final = 64 * 1024


class Line(NamedTuple):
    """One line of input; ``whole`` is false where only the edges of it were kept."""

    data: bytes
    whole: bool


def end_without(parent: int) -> None:
    """End at once where the parent is no longer who it was: somebody else may hold its ends of the pipes open."""
    if os.getppid() != parent:
        os._exit(0)


class Reader:
    """Standard input, line by line. Gives up waiting when the parent is no longer who it was."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._rest = bytearray()
        self._cut: bytes | None = None
        self._ended = False

    def line(self) -> Line | None:
        """The next line that is not blank; ``None`` once there is none to come."""
        while True:
            end = self._rest.find(b"\n")
            if end < 0 and not self._ended:
                self._shorten()
                self._read()
                continue
            if end < 0 and not self._rest:
                return None
            data = bytes(self._rest[: end if end >= 0 else len(self._rest)])
            del self._rest[: end + 1 if end >= 0 else len(self._rest)]
            cut, self._cut = self._cut, None
            if cut is not None or len(data) > MAX_LINE_BYTES:
                return Line((cut or data[:EDGE_BYTES]) + data[-EDGE_BYTES:], whole=False)
            if data.strip():
                return Line(data, whole=True)

    def _shorten(self) -> None:
        """Of a line that is too long already, keep the edges."""
        if len(self._rest) > MAX_LINE_BYTES or (self._cut is not None and len(self._rest) > EDGE_BYTES):
            if self._cut is None:
                self._cut = bytes(self._rest[:EDGE_BYTES])
            del self._rest[:-EDGE_BYTES]

    def _read(self) -> None:
        try:
            while not select.select([0], [], [], LOOK_S)[0]:
                end_without(self._parent)
            data = os.read(0, _READ_BYTES)
        except BlockingIOError:
            return
        except OSError:  # closed from the beginning, or a terminal that is gone
            data = b""
        self._rest += data
        self._ended = not data


class Writer:
    """Standard output, a whole line at a time, whichever thread writes it."""

    def __init__(self, parent: int) -> None:
        self._parent = parent
        self._writing = threading.Lock()

    def write(self, line: bytes) -> None:
        """Waits for a client that does not read, as long as the parent lives."""
        left = memoryview(line + b"\n")
        with self._writing:
            while left:
                try:
                    while not select.select([], [1], [], LOOK_S)[1]:
                        end_without(self._parent)
                    # No more at a time: what a pipe takes without blocking once it is ready.
                    left = left[os.write(1, left[: select.PIPE_BUF]) :]
                except BlockingIOError:
                    continue
                except OSError:  # nobody reads any more
                    os._exit(0)
