"""Logs of the long-running processes: one JSON object a line on standard error. Never a note's words.

An exception is told by its type and the places it passed, here and wherever else one is told of: its message may quote
a value, and a value may be a note's.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from pathlib import Path
from typing import Any, Final

import structlog

_QUIET: Final = ("asyncio", "rq.job", "rq.queue", "rq.worker", "uvicorn")
"""Libraries that are heard from a warning on; at debug they say everything."""

MAX_PLACES: Final = 12
"""Innermost frames told of each exception: where it was raised is among them, and what led there is mostly the same."""
MAX_CAUSES: Final = 8
"""Exceptions told of one chain; what began it is rarely further away, and a chain may be a circle."""


def exception_chain(error: BaseException) -> list[str]:
    """Types and source places of an exception and its causes, outermost first; no messages, no values."""
    found: list[str] = []
    step: BaseException | None = error
    while step is not None and len(found) < MAX_CAUSES:
        frames = traceback.extract_tb(step.__traceback__)[-MAX_PLACES:]
        places = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
        found.append(f"{type(step).__qualname__} at {' > '.join(places)}")
        step = step.__cause__ or step.__context__
    return found


def log_loop_fault(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what failed on an event loop and was told to nobody; for ``loop.set_exception_handler``.

    asyncio's own handler quotes the exception, and the arguments of the call that raised it.
    """
    task, error = context.get("task") or context.get("future"), context.get("exception")
    structlog.get_logger().error(
        "something failed on the event loop",
        task=getattr(task.get_coro(), "__qualname__", None) if isinstance(task, asyncio.Task) else None,
        exception=None if error is None else exception_chain(error),
    )


def _log_uncaught(what: str, error: BaseException | None) -> None:
    structlog.get_logger().error(what, exception=None if error is None else exception_chain(error))


def _render_exception(_logger: Any, _method: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Replace ``exc_info`` by ``exception``, its ``exception_chain``."""
    info = fields.pop("exc_info", None)
    error = info if isinstance(info, BaseException) else sys.exc_info()[1] if info is True else info and info[1]
    if error:
        fields["exception"] = exception_chain(error)
    return fields


def configure_logging(level: str, process: str) -> None:
    """Send structlog, the standard library's logging and what nobody catches through one renderer.

    ``process`` is in every line. An event loop asks for ``log_loop_fault`` by itself.
    """
    number = logging.getLevelNamesMapping()[level.upper()]

    def name_process(_logger: Any, _method: str, fields: dict[str, Any]) -> dict[str, Any]:
        fields["process"] = process
        return fields

    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        name_process,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _render_exception,
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
    sys.excepthook = lambda _type, error, _places: _log_uncaught("the process failed", error)
    threading.excepthook = lambda args: _log_uncaught("a thread failed", args.exc_value)
    sys.unraisablehook = lambda args: _log_uncaught("something failed where it could not be raised", args.exc_value)
