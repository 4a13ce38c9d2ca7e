"""The first jobs of a fresh daemon, which load RQ while others are already asked for."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import importlib.abc, importlib.machinery, sys, threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast
from amnesiad.bridge.jobs import Jobs

half, second_ended = threading.Event(), threading.Event()

class Slow(importlib.abc.MetaPathFinder):
    '''Has the module with RQ's prefix be there, and nothing in it, until the second thread is done with it or waits.'''
    def find_spec(self, name, path, target=None):
        if name != "rq.defaults":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (half.set(), second_ended.wait(0.5), execute(module))
        return spec

sys.meta_path.insert(0, Slow())
jobs = Jobs(cast(Any, None), "redis://127.0.0.1:1")

def second():
    assert half.wait(30), "nobody loads RQ"
    try:
        return jobs._rq()
    finally:
        second_ended.set()

with ThreadPoolExecutor(2) as threads:
    queues = [asked.result() for asked in (threads.submit(jobs._rq), threads.submit(second))]
assert queues[0] is not None and queues[1] is queues[0]
"""


def test_threads_that_come_while_rq_is_loaded_wait_for_it() -> None:
    """The first policy change of a fresh daemon was a failure on our side when its timer was just loading RQ."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=50)
    assert ran.returncode == 0, ran.stderr
