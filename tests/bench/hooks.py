"""An agent's hook as the agent pays for it: a whole process, from its start to its end, beside bare curl in the same
run."""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from asyncio import create_subprocess_exec
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.agents.payloads import payload
from tests.bench.daemon import text, up
from tests.bench.figures import Figure

import amnesiad
from amnesiad import AsyncClient

NOTES = 10_000
BATCH = 1_000
CALLS = 100
"""Of each kind; enough for a 95th percentile that five outliers make."""
WORKSPACE = "bench"
HOOK = Path(amnesiad.__file__).with_name("shims") / "hook.py"


async def figures() -> list[Figure]:
    """Hooks of a session in a workspace of ten thousand notes, and hooks where nothing listens."""
    async with up() as environ:
        socket = environ["AMNESIA_SOCKET"]
        async with AsyncClient(socket, workspace=WORKSPACE) as client:
            for start in range(0, NOTES, BATCH):
                items = [
                    ("remember", {"content": _note(number), "kind": "finding"})
                    for number in range(start, start + BATCH)
                ]
                await client.batch(items)
        hooks = _curl(socket, f"/v1/hooks/claude-code?workspace={WORKSPACE}")
        prompts = await _milliseconds(hooks, _prompt)
        edits = await _milliseconds(hooks, _edit)
        bare = await _milliseconds(_curl(socket, "/healthz"), lambda _: b"")
        shim = await _milliseconds([*_shim(socket), "--workspace", WORKSPACE], lambda number: _prompt(CALLS + number))
    with tempfile.TemporaryDirectory() as folder:
        away = str(Path(folder, "nobody.sock"))
        curl_away = await _milliseconds(_curl(away, "/v1/hooks/claude-code"), _prompt)
        shim_away = await _milliseconds(_shim(away), _prompt)
    rows = [
        ("prompt hook by curl", prompts, "curl of /healthz", bare),
        ("pre-edit hook by curl", edits, "curl of /healthz", bare),
        ("prompt hook by python -I -S", shim, "prompt hook by curl", prompts),
        ("hook by curl, no daemon", curl_away, "curl of /healthz", bare),
        ("hook by python -I -S, no daemon", shim_away, "curl of /healthz", bare),
    ]
    return [
        Figure(f"{what}, p{share}", _percentile(ours, share), than, _percentile(theirs, share), "ms")
        for what, ours, than, theirs in rows
        for share in (50, 95)
    ]


def _note(number: int) -> str:
    return f"module {number % 500} of service {number % 37}: {text(number)}"


def _prompt(number: int) -> bytes:
    asked = f"why does module {number % 500} fail in the nightly build of service {number % 37}?"
    return json.dumps(payload("claude-code", "UserPromptSubmit", prompt=asked, prompt_id=f"p{number}")).encode()


def _edit(number: int) -> bytes:
    return json.dumps(payload("claude-code", "PreToolUse", tool_use_id=f"t{number}")).encode()


def _curl(socket: str, target: str) -> list[str]:
    data = [] if target == "/healthz" else ["--data-binary", "@-"]
    return ["curl", "-qsf", "--max-time", "1", "--unix-socket", socket, *data, f"http://amnesiad{target}"]


def _shim(socket: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(HOOK), "claude-code", "--socket", socket]


async def _milliseconds(command: Sequence[str], body: Callable[[int], bytes], calls: int = CALLS) -> list[float]:
    """How long each of so many runs of the command takes, one after another."""
    taken = []
    for number in range(calls):
        given = body(number)
        started = time.perf_counter()
        process = await create_subprocess_exec(*command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
        await process.communicate(given)
        taken.append((time.perf_counter() - started) * 1000)
    return taken


def _percentile(taken: list[float], share: int) -> float:
    return statistics.quantiles(taken, n=100)[share - 1]
