"""How a refusal leaves the daemon: its status, its envelope, and what is logged of a bug.

A bug's log line names types and places in the source, never a message or a local: either may hold a note's words.
"""

from __future__ import annotations

import secrets

import structlog

from amnesiad import wire
from amnesiad.errors import AmnesiaError, Bug
from amnesiad.logs import exception_chain
from amnesiad.wire import STATUS

log = structlog.get_logger("amnesiad.api")


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
