"""What the long-running processes log, and what they never do."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from typing import Any

import pytest

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

UNCAUGHT = """
import asyncio
import gc
import threading
import uvloop
from amnesiad.logs import configure_logging, log_loop_fault

async def fail(words):
    raise ValueError(words)

def break_down(words):
    raise ValueError(words)

class Broken:
    def __del__(self):
        raise ValueError("the words of a note")

async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_fault)
    task = asyncio.create_task(fail("the words of a note"))
    await asyncio.wait([task])
    del task
    gc.collect()
    loop.call_soon(break_down, "the words of a note")
    await asyncio.sleep(0)

configure_logging("info", "worker")
asyncio.Runner(loop_factory=LOOP).run(main())
thread = threading.Thread(target=break_down, args=("the words of a note",))
thread.start()
thread.join()
Broken()
break_down("the words of a note")
"""


def logged(script: str) -> list[dict[str, Any]]:
    """The lines a process that runs the script writes to standard error, none of which may quote a note."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert "the words" not in done.stderr
    return [json.loads(line) for line in done.stderr.splitlines()]


def test_an_exception_is_logged_without_its_message() -> None:
    """A message may quote a value, so only types and places are logged; one JSON object a line."""
    lines = logged(SCRIPT)
    assert [line["event"] for line in lines] == ["a job broke", "it broke"]
    for line in lines:
        assert [told.split(" at ")[0] for told in line["exception"]] == ["ValueError", "KeyError"]
        assert all(told.endswith("<module>") for told in line["exception"])
        assert line["process"] == "daemon"
    assert lines[1]["ws"] == "abc"
    assert logging.getLevelName(logging.ERROR).lower() == lines[0]["level"]


@pytest.mark.parametrize("loop", ["asyncio.new_event_loop", "uvloop.new_event_loop"])
def test_what_nobody_catches_is_logged_without_its_message(loop: str) -> None:
    """A task's exception that nobody asks for, a callback's, a thread's, a finalizer's and the process's own are told
    by type and place: Python's own reports would quote them, and the arguments of the call."""
    lines = logged(UNCAUGHT.replace("LOOP", loop))
    assert [line["event"] for line in lines] == [
        "something failed on the event loop",
        "something failed on the event loop",
        "a thread failed",
        "something failed where it could not be raised",
        "the process failed",
    ]
    assert lines[0]["task"] == "fail"
    for line, place in zip(lines, ("fail", "break_down", "break_down", "__del__", "break_down"), strict=True):
        assert line["exception"][0].startswith("ValueError at ")
        assert line["exception"][0].endswith(place)
