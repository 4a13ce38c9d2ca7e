"""What all adapters stand on: ids that fit the log, batches within bounds, and one sentence where a library is
missing."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import re
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integrations.scripted import PATIENCE_S

from amnesiad.core.intake import MAX_QUERY_CHARS, check_id
from amnesiad.integrations import link
from amnesiad.integrations.link import Link, token

ROOT: Final = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("module", "library"),
    [
        ("langgraph", "langgraph.store.base"),
        ("langchain", "langchain.agents.middleware.types"),
        ("openai_agents", "agents"),
        ("pydantic_ai", "pydantic_ai"),
    ],
)
def test_a_missing_library(module: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error is one sentence with the command that helps, and names an extra that exists."""
    name = f"amnesiad.integrations.{module}"
    importlib.import_module(name)
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ImportError, match="this adapter needs") as refusal:
        importlib.import_module(name)
    extra = re.search(r"pip install 'amnesiad\[(.+)\]'$", str(refusal.value))
    assert extra is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert extra[1] in project["optional-dependencies"]


@given(st.text())
def test_any_id_becomes_one_that_fits_the_log(text: str) -> None:
    """Whatever a framework calls a thread, what is sent is a token; what is one already stays, and none meet."""
    made = token(text)
    assert check_id(made, "session") == made
    assert token(made) == made
    assert made == text or re.fullmatch(r"x[0-9a-f]{32}", made)


@given(
    st.lists(st.integers(0, 3 * link.MAX_BATCH_BYTES // 2).map(lambda size: ("x", {"content": "a" * size})), max_size=4)
)
def test_batches_are_bounded(asks: list[tuple[str, dict[str, Any]]]) -> None:
    """All requests go, in order, in parts that the daemon takes; one too large by itself goes alone, to be refused."""
    parts = list(link._parts(asks))
    assert [(request["verb"], request["body"]) for part in parts for request in part] == asks
    assert all(len(part) == 1 or len(json.dumps(part)) <= link.MAX_BATCH_BYTES + 4 * len(part) for part in parts)


async def test_a_link_that_comes_back_says_so_by_saying_nothing(
    daemon: str, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C44: a daemon that is away is told of once in a row, and again only when it was back in between."""
    path = place / "c.sock"
    async with Link(path, workspace="desk", timeout_s=PATIENCE_S) as way:
        for _ in range(3):
            assert await way.ablock("tea", None, {}) == ""
            await way.areport("turn-end", {})
        path.symlink_to(daemon)
        assert await way.ablock("tea", None, {}) == ""
        path.unlink()
        await way.aclose()
        assert await way.ablock("tea", None, {}) == ""
    assert [record.getMessage() for record in caplog.records] == ["an agent goes on without memory: unreachable"] * 2


@pytest.mark.parametrize(
    "prompt", ["x " * 100_000 + "tea", "tea \x00", "tea \ud83d", "", " ", "\0", "🍵" * 5000 + "tea", "tea" + " " * 9999]
)
async def test_any_prompt_is_looked_up(prompt: str, daemon: str, caplog: pytest.LogCaptureFixture) -> None:
    """V25: whatever people paste is no reason to be without memory; a long prompt is looked up by its end."""
    async with Link(daemon, workspace="desk", timeout_s=PATIENCE_S) as way:
        await way.aask("remember", {"content": "the tea is cold", "kind": "finding"})
        assert "the tea is cold" in await way.ablock(prompt, 100, {"session": "s1"})
    assert caplog.records == []
    assert len(link.query_of(prompt) or "") <= MAX_QUERY_CHARS


@pytest.mark.filterwarnings("ignore:unclosed")
async def test_loops_that_end_leave_nothing_open(daemon: str) -> None:
    """C43: a program that starts a loop for each run, and closes nothing, holds no more connections at the end."""
    way = Link(daemon, workspace="desk", timeout_s=PATIENCE_S)
    open_files = Path("/dev/fd")

    def program() -> int:
        counts = []
        for _ in range(12):
            asyncio.run(way.areport("heartbeat", {"session": "s1"}))
            gc.collect()
            counts.append(len(list(open_files.iterdir())))
        return counts[-1] - counts[1]

    with ThreadPoolExecutor(1) as threads:
        assert await asyncio.get_running_loop().run_in_executor(threads, program) < 4
    way.close()
    gc.collect()
