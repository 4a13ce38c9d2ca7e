"""Logs of the long-running processes: one JSON object a line on standard error. Never a note's words.

Tracebacks name files, lines and exceptions, never the values of variables.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import structlog

_QUIET: Final = ("asyncio", "rq.job", "rq.queue", "rq.worker", "uvicorn")
"""Libraries that are heard from a warning on; at debug they say everything."""


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
        structlog.processors.format_exc_info,
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
