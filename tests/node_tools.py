"""Node and what ``make test`` installs from npm beside it, for the tests that need them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

NODE_DIR: Final = Path(__file__).parent / "node"
"""Where ``package.json`` pins the tools. A program started here finds its modules in ``node_modules``."""
MODULES: Final = NODE_DIR / "node_modules"
PATIENCE_S: Final = 150.0
"""Of a whole program; on an idle machine each takes a few seconds. A test that waits for one is marked ``patient``."""
patient: Final = pytest.mark.timeout(2 * PATIENCE_S)


def needed() -> None:
    """Skip the test, or fail it in CI, where the tools of npm have not been set up."""
    if not (MODULES / ".ready").exists():
        missing("the tools of npm are not set up: install Node with npm, then run `make test` once")


def tool(name: str) -> str:
    """The path of a program that npm has installed: ``node`` (22), ``tsc``, ``inspector``, ``conformance``.

    All but ``node`` itself are scripts, to be run by it. Skips the test, or fails it in CI, where they are not set up.
    """
    needed()
    return str(MODULES / ".bin" / name)


def machine_node() -> str:
    """The Node of the machine, which is the oldest one that we support or newer. Skips like ``tool``."""
    needed()
    found = shutil.which("node")
    if found is None:
        missing("there is npm and no node on the machine")
    return str(found)


def run_node(node: str, *argv: str, **environ: str) -> str:
    """What a program says, started in ``NODE_DIR`` by this Node; fails with it when the program does."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("AMNESIA_", "NODE_"))}
    done = subprocess.run(
        [node, *argv], cwd=NODE_DIR, env=inherited | environ, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_node_tests(node: str, name: str, **environ: str) -> None:
    """Run a file of tests for Node. Fails with what it says when a test does, and when one is left out."""
    told = run_node(node, "--test", "--test-timeout=100000", "--test-reporter=spec", name, **environ)
    assert "fail 0" in told, told
    assert "skipped 0" in told, told
    assert "cancelled 0" in told, told


def missing(why: str) -> None:
    """Skip the test with this reason; in CI, fail it."""
    if os.environ.get("CI"):
        pytest.fail(f"{why} (in CI nothing is skipped)")
    pytest.skip(why)
