"""Logs of the long-running processes: one JSON object a line on standard error. Never a note's words.

An exception is logged by its type and the places it passed, innermost last: its message may quote a value, and a value
may be a note's.
"""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path
from typing import Any, Final

import structlog

_QUIET: Final = ("asyncio", "rq.job", "rq.queue", "rq.worker", "uvicorn")
"""Libraries that are heard from a warning on; at debug they say everything."""


MAX_PLACES: Final = 12
"""Of an exception's way: where it was raised is at the end, and what led there is the same each time."""


def _exception_places(_logger: Any, _method: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Replace ``exc_info`` by ``exception`` (types, cause first) and ``places`` (``file:line function``)."""
    info = fields.pop("exc_info", None)
    if not info:
        return fields
    error = info if isinstance(info, BaseException) else sys.exc_info()[1] if info is True else info[1]
    if error is None:
        return fields
    frames = traceback.extract_tb(error.__traceback__)[-MAX_PLACES:]
    types: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(types) < MAX_PLACES:
        types.insert(0, type(cause).__name__)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    fields["exception"] = " > ".join(types)
    fields["places"] = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
    return fields


def configure_logging(level: str, process: str) -> None:
    """Send structlog and the standard library's logging through one renderer. ``process`` is in every line."""
    number = logging.getLevelNamesMapping()[level.upper()]

    def name_process(_logger: Any, _method: str, fields: dict[str, Any]) -> dict[str, Any]:
        fields["process"] = process
        return fields

    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        name_process,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _exception_places,
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
            foreign_pre_chain=shared,
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(number, logging.WARNING) if number > logging.DEBUG else number)
