"""What the long-running processes log, and what they never do."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

SCRIPT = """
import logging
import structlog
from amnesiad.logs import configure_logging

configure_logging("info", "daemon")
try:
    try:
        {}["the words of a note"]
    except KeyError as error:
        raise ValueError("quoting the words of a note") from error
except ValueError:
    logging.getLogger("rq.worker").error("a job broke", exc_info=True)
    structlog.get_logger().exception("it broke", ws="abc")
"""


def test_an_exception_is_logged_without_its_message() -> None:
    """A message may quote a value, so only types and places are logged; one JSON object a line."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=30, check=True)
    assert "the words" not in done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines] == ["a job broke", "it broke"]
    for line in lines:
        assert line["exception"] == "KeyError > ValueError"
        assert line["places"][-1].endswith("<module>")
        assert line["process"] == "daemon"
    assert lines[1]["ws"] == "abc"
    assert logging.getLevelName(logging.ERROR).lower() == lines[0]["level"]
