"""How a refusal leaves the daemon: its status, its envelope, and what is logged of a bug.

A bug's log line names types and places in the source, never a message or a local: either may hold a note's words.
"""

from __future__ import annotations

import secrets
import traceback
from pathlib import Path
from typing import Final

import structlog

from amnesiad import wire
from amnesiad.errors import AmnesiaError, Bug
from amnesiad.wire import STATUS

log = structlog.get_logger("amnesiad.api")

MAX_PLACES: Final = 12
"""Innermost frames logged of each exception: enough to find a bug, too few to flood the log."""


def answerable(error: Exception, where: str) -> AmnesiaError:
    """The error as a caller may see it. One that is no refusal of ours is logged under an id and becomes that id."""
    if isinstance(error, AmnesiaError) and error.code in STATUS and not isinstance(error, Bug):
        return error
    bug_id = secrets.token_hex(4)
    log.error("bug", id=bug_id, where=where, exception=exception_chain(error))
    return Bug("amnesiad failed on its side", hint=f"look for {bug_id} in the daemon's log")


def refusal(error: AmnesiaError) -> tuple[int, bytes]:
    """Status and JSON envelope of an error that ``answerable`` has passed."""
    return STATUS[error.code], wire.encode(wire.error_answer(error))


def exception_chain(error: BaseException) -> list[str]:
    """Types and source places of an exception and its causes, outermost first; no messages, no values."""
    found: list[str] = []
    seen: set[int] = set()
    step: BaseException | None = error
    while step is not None and id(step) not in seen:
        seen.add(id(step))
        frames = traceback.extract_tb(step.__traceback__)[-MAX_PLACES:]
        places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        found.append(f"{type(step).__qualname__} at {' > '.join(places)}")
        step = step.__cause__ or step.__context__
    return found
