"""Search by meaning, off the write path: notes are embedded in the background, queries just before they are asked.

A note is found by words as soon as its write is acknowledged, and by meaning a moment later. One thread holds the
model; a task of the daemon brings it the notes that wait, a few at a time so that no query waits long behind them, and
files their vectors beside the vault, where another daemon or the next start finds them. Whatever fails here, from a
package that is not installed to a store that is away, costs the search by meaning and nothing else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Final, Literal, TypeVar

import msgspec
import structlog

from amnesiad import embedding
from amnesiad.core.errors import AmnesiaError
from amnesiad.core.notes import decode_words
from amnesiad.search import Vectors
from amnesiad.settings import Embedder
from amnesiad.store import vectors as stored
from amnesiad.tasks import end
from amnesiad.workspace import Workspace

BATCH: Final = 16
"""Notes read from the store at once. When a workspace is loaded most have their vector there already; where they do
not, a fresh note waits until so many are embedded."""
PAUSE_S: Final = 1.0
"""After a failure, before the next try."""
QUERY_S: Final = 1.0
"""Past this a query is answered by words alone: a machine that busy has no use for more work."""
QUERIES: Final = 64
"""Vectors of queries that are remembered, so that an answer made anew does not embed its query anew."""

A = TypeVar("A")
R = TypeVar("R")
State = Literal["off", "ready", "missing", "broken"]

logger = structlog.get_logger()


class Meaning:
    """What a service knows of meaning: nothing until ``start`` has loaded the model, and again after ``stop``."""

    def __init__(self, name: Embedder) -> None:
        self.name = name
        self.state: State = "off"
        self._encoder: embedding.Encoder | None = None
        self._thread: ThreadPoolExecutor | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._queries: OrderedDict[bytes, embedding.Vector] = OrderedDict()

    @property
    def trouble(self) -> str:
        """Why the configured model is not used, in a sentence; ``""`` where it is, or none is configured."""
        if self.name != "none" and self.state == "missing":
            lacking = " ".join(embedding.missing(self.name))
            return f"embedder is {self.name}, but not all of {embedding.EXTRA} is installed: pip install {lacking}"
        if self.state == "broken":
            return f"embedder is {self.name}, but it cannot be loaded; the daemon's log says why"
        return ""

    def figures(self, workspace: Workspace | None) -> dict[str, str | int]:
        """For status: the model, what is wrong with it, and how far the workspace is embedded. Empty without one."""
        if self.name == "none":
            return {}
        told: dict[str, str | int] = {"embedder": self.name}
        if self.trouble:
            told["embedder_trouble"] = self.trouble
        if workspace is not None and workspace.vectors is not None:
            told |= {"vectors": len(workspace.vectors), "vectors_waiting": workspace.vectors.waiting}
        return told

    async def start(self, loaded: Callable[[], Iterable[Workspace]]) -> None:
        """Load the model and begin to embed what waits in the workspaces that ``loaded`` tells. Never raises."""
        if self.name == "none" or self._thread is not None:
            return
        if embedding.missing(self.name):
            self.state = "missing"
            logger.warning("search goes by words alone", reason=self.trouble)
            return
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="embedder")
        try:
            self._encoder = await self._in_thread(embedding.load, self.name)
        except Exception as error:
            self.state = "broken"
            logger.exception("search goes by words alone", reason=self.trouble, error=type(error).__name__)
            return
        self.state = "ready"
        self._task = asyncio.create_task(self._run(loaded), name="embedder")

    async def stop(self) -> None:
        """End the task and the thread; what waits is embedded after the next start."""
        task, self._task = self._task, None
        if task is not None:
            await end(task)
        thread, self._thread = self._thread, None
        if thread is not None:
            await asyncio.to_thread(thread.shutdown)
        self._encoder = None
        self.state = "off"

    def vectors(self) -> Vectors | None:
        """What a workspace keeps its vectors in; ``None`` where nothing will ever fill it."""
        if self._encoder is None:
            return None
        model = self._encoder.model
        return Vectors(model.dimensions, model.floor, model.close, self._wake.set)

    def look(self) -> None:
        """Notes may be waiting that nobody has been told of: those of a workspace that came to be loaded just now."""
        self._wake.set()

    # -- queries -------------------------------------------------------------------------------------------------

    async def ask(self, query: str | None) -> None:
        """Embed a query, so that ``asked`` knows it. Never raises; a query that takes too long is left to words."""
        if not query or self._encoder is None or self.asked(query) is not None:
            return
        try:
            async with asyncio.timeout(QUERY_S):
                vector = await self._in_thread(self._encoder.query, query)
        except Exception as error:
            logger.warning("a query was answered by words alone", error=type(error).__name__)
            return
        self._queries[_digest(query)] = vector
        if len(self._queries) > QUERIES:
            self._queries.popitem(last=False)

    def asked(self, query: str) -> embedding.Vector | None:
        """The vector of a query that was embedded lately."""
        if self._encoder is None:
            return None
        key = _digest(query)
        if key in self._queries:
            self._queries.move_to_end(key)
        return self._queries.get(key)

    # -- notes ---------------------------------------------------------------------------------------------------

    async def _run(self, loaded: Callable[[], Iterable[Workspace]]) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while waiting := [one for one in loaded() if one.vectors is not None and one.vectors.waiting]:
                for workspace in waiting:
                    await self._embed_some(workspace)

    async def _embed_some(self, workspace: Workspace) -> None:
        vectors = workspace.vectors
        if vectors is None:
            return
        ids = vectors.take(BATCH)
        try:
            await self._embed(workspace, vectors, ids)
        except AmnesiaError as error:
            logger.warning("vectors must wait", ws=workspace.ws, error=type(error).__name__)
            for id_ in ids:
                if id_ in workspace.live and id_ not in vectors:
                    vectors.expect(id_)
            await asyncio.sleep(PAUSE_S)
        except Exception as error:
            # Tried again it would break again, and keep the notes of all other workspaces waiting.
            logger.error("notes stay without vectors", ws=workspace.ws, count=len(ids), error=type(error).__name__)

    async def _embed(self, workspace: Workspace, vectors: Vectors, ids: Sequence[str]) -> None:
        encoder = self._encoder
        if encoder is None:
            return
        model = encoder.model
        kept = await stored.read(workspace.redis, workspace.keys, model.id, model.dimensions, ids)
        fresh: list[tuple[str, bytes, str]] = []
        for id_, (raw, vector) in kept.items():
            if (content := _content(raw)) is None:
                continue
            if vector is None:
                fresh.append((id_, raw, content))
            else:
                _take_in(workspace, vectors, id_, content, vector)
        for at in range(0, len(fresh), model.chunk):
            chunk = fresh[at : at + model.chunk]
            try:
                rows = await self._in_thread(encoder.notes, [content for _, _, content in chunk])
            except Exception as error:
                logger.error(
                    "notes stay without vectors", ws=workspace.ws, count=len(chunk), error=type(error).__name__
                )
                continue
            filed = [(id_, raw, row) for (id_, raw, _), row in zip(chunk, rows, strict=True)]
            await stored.file(workspace.redis, workspace.keys, model.id, filed)
            for (id_, _, content), row in zip(chunk, rows, strict=True):
                _take_in(workspace, vectors, id_, content, row)

    async def _in_thread(self, work: Callable[[A], R], argument: A) -> R:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, argument)


def _take_in(workspace: Workspace, vectors: Vectors, id_: str, content: str, vector: embedding.Vector) -> None:
    """Give a note its vector, unless it has ended or has other words by now: then it waits again, or never will."""
    if workspace.vectors is vectors and id_ in workspace.live and workspace.words[id_].content == content:
        vectors.put(id_, vector)


def _content(raw: bytes) -> str | None:
    try:
        return decode_words(raw).content
    except msgspec.MsgspecError:
        return None


def _digest(query: str) -> bytes:
    """What a query is remembered by: it may repeat a note's words, and those must not outlive the note."""
    return blake2b(query.encode("utf-8", "replace"), digest_size=16).digest()
