"""Letting notes govern the items of other stores: when a note ends, so does the item that it mirrors.

::

    note = await memory.remember("…", source_ref=mirror_ref({"mem0": item_id}))
    async with Governor({"mem0": Mem0Items(engine)}, workspace="/src/app", place=Path("governor.seq")) as governor:
        await governor.run()

A note points at its items in ``source_ref``, a bare fact that outlives its words. A governor follows the feed and
compares, for each note that moved, how it stands with what is last known of its items: an item of a note that lives is
shown, one of a note that ended is hidden (deleted, where its store cannot hide), and one of a forgotten note is
deleted. The result goes into the note's history. It looks at how a note stands and not at what the event said, so an
event told twice, or late, does nothing twice; and it records after it has acted, so a crash in between repeats the
deletion and loses none.

An item belongs to one note, or to a note and its successors: an item that the living successor points at too is kept.
Notes that the governor's caller may not see it does not govern.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

from amnesiad.client import AsyncClient
from amnesiad.core.events import MirrorResult
from amnesiad.core.mirrors import mirror_ref, mirrors_of
from amnesiad.errors import AmnesiaError, Forbidden, Invalid, NotFound, Refused

if TYPE_CHECKING:
    from amnesiad.wire import FeedItem, NoteView

__all__ = ["Governor", "Items", "LangGraphItems", "Mem0Items", "mirror_ref"]

ATTEMPTS: Final = 4
"""Tries of one deletion: with the pauses below some seconds, through which a busy store can come back."""
FIRST_PAUSE_S: Final = 0.2
GROWTH: Final = 4.0
"""Each pause is so many times as long as the one before."""
LONGEST_PAUSE_S: Final = 30.0
"""Between two looks for a daemon that is away."""
MAX_SUCCESSORS: Final = 100
"""Successors that are followed to see whether an item is still theirs."""
SAVED_EVERY: Final = 256
"""Items of the feed that pass unsaved at most, where none concerned a mirror: to read them again costs little."""
PAGE: Final = 500

_MATTERS: Final = frozenset({"written", "expired", "superseded", "revoked", "forgotten", "reinstated"})
_LIVE: Final = frozenset({"active", "stale"})
_GONE: Final = frozenset({"deleted", "absent"})

_logger: Final = logging.getLogger(__name__)


class Items(Protocol):
    """Another store: anything that deletes by id, blocking or not. ``hide`` and ``show`` are used where it has both.

    ``False`` or a ``LookupError`` says that there is no such item. Whatever else is raised is tried again.
    """

    def delete(self, id: str, /) -> Any:  # noqa: A002
        """Remove the item for good."""


class LangGraphItems:
    """The items of a LangGraph store. An item's id is ``reference(namespace, key)``."""

    def __init__(self, store: Any) -> None:
        self._store = store

    @staticmethod
    def reference(namespace: tuple[str, ...], key: str) -> str:
        """The id of an item: ``a.b/key``. Raises ``Invalid`` where no id that fits a pointer could name it."""
        if not namespace or any("/" in label or "." in label for label in namespace):
            raise Invalid("a label holds a slash or a period, so no pointer can name the item", field="namespace")
        return f"{'.'.join(namespace)}/{key}"

    async def delete(self, id: str, /) -> bool:  # noqa: A002
        """Remove the item; false where there is none."""
        labels, _, key = id.partition("/")
        namespace = tuple(labels.split("."))
        if await self._store.aget(namespace, key, refresh_ttl=False) is None:
            return False
        await self._store.adelete(namespace, key)
        return True


class Mem0Items:
    """The memories of a mem0 ``Memory``. An item's id is the memory's."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def delete(self, id: str, /) -> bool:  # noqa: A002
        """Remove the memory; false where there is none."""
        if self._memory.get(id) is None:
            return False
        self._memory.delete(id)
        return True


class Governor:
    """Follows one workspace and brings the items of ``targets`` (name in ``source_ref``: store) in line with its notes.

    ``place`` is a file that keeps how far the feed was followed; without one, or without the file, everything from the
    beginning is looked at, and what was done before is not done again. ``attempts`` and ``first_pause_s`` bound the
    tries of one deletion. It calls as ``agent``, who sees the notes of the workspace; with role ``human`` it sees those
    of sessions too.
    """

    def __init__(
        self,
        targets: Mapping[str, Items],
        socket: Path | str | None = None,
        *,
        workspace: str | None = None,
        place: Path | None = None,
        attempts: int = ATTEMPTS,
        first_pause_s: float = FIRST_PAUSE_S,
        agent: str | None = "governor",
        role: str | None = None,
    ) -> None:
        for name in targets:
            mirror_ref({name: "1"})  # raises for a name that no pointer can hold
        self._targets = dict(targets)
        self._client = AsyncClient(socket, workspace=workspace, agent=agent, role=role)
        self._place = place
        self._attempts = attempts
        self._first_pause_s = first_pause_s
        self.seq = "0-0"
        """How far the feed was followed."""
        if place is not None and place.exists():
            self.seq = place.read_text().strip() or self.seq
        self._unsaved = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._save()
        await self._client.aclose()

    async def run(self) -> None:
        """Follow the feed until cancelled. A daemon or store that is away is waited for; nothing is missed meanwhile.

        Raises ``Invalid``, ``Forbidden`` or ``Refused`` where no waiting would help: this caller may not follow.
        """
        pause_s = self._first_pause_s
        while True:
            try:
                async with aclosing(cast(AsyncGenerator["FeedItem"], self._client.feed(after=self.seq))) as items:
                    async for item in items:
                        await self._take(item)
                        pause_s = self._first_pause_s
            except AmnesiaError as error:
                if isinstance(error, Invalid | Forbidden | Refused):
                    raise
                _logger.debug("the feed is away: %s", error.code)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * GROWTH, LONGEST_PAUSE_S)

    async def sweep(self) -> int:
        """Look at every note that ended, whatever was followed: tries again what failed. Returns how many results are
        new."""
        cursor: str | None = None
        new = 0
        while True:
            page = await self._client.list_notes(
                states=("expired", "superseded", "revoked", "forgotten"), limit=PAGE, cursor=cursor
            )
            for note in page.notes:
                new += await self._govern(note)
            if (cursor := page.cursor) is None:
                return new

    async def govern(self, note_id: str) -> int:
        """Bring the items of one note in line with it. Returns how many results are new."""
        return await self._govern((await self._client.inspect(note_id)).note)

    async def _take(self, item: FeedItem) -> None:
        if item.type in _MATTERS:
            try:
                moved = await self.govern(item.data["id"])
            except NotFound:  # not this caller's to see, or its workspace was dropped
                moved = 0
            self._unsaved += SAVED_EVERY * (moved > 0)
        self.seq = item.seq
        self._unsaved += 1
        if self._unsaved >= SAVED_EVERY:
            self._save()

    def _save(self) -> None:
        self._unsaved = 0
        if self._place is not None:
            fresh = self._place.with_name(f"{self._place.name}.new")
            fresh.write_text(self.seq)
            os.replace(fresh, self._place)  # noqa: PTH105 - in one step, whatever stands there

    # -- one note -----------------------------------------------------------------------------------------------------

    async def _govern(self, note: NoteView) -> int:
        mirrors = mirrors_of(note.source_ref)
        ours = [(name, item) for name, item in mirrors.items() if name in self._targets]
        return sum(await asyncio.gather(*(self._bring(note, name, item) for name, item in ours)))

    async def _bring(self, note: NoteView, name: str, item: str) -> bool:
        result = await self._result(note, name, item)
        return result is not None and (await self._client.mirror(note.id, name, result)).changed

    async def _result(self, note: NoteView, name: str, item: str) -> MirrorResult | None:
        """What became of the item just now; ``None`` where it stands as it should."""
        target, known = self._targets[name], note.mirrored.get(name)
        hides = hasattr(target, "hide") and hasattr(target, "show")
        if note.state in _LIVE:
            if known == "deleted":
                return "absent"
            back = known in ("hidden", "failed") or (known is None and note.restored_from is not None)
            return await self._do(name, "show", item, "shown") if hides and back else None
        if known in _GONE or (known == "hidden" and note.state != "forgotten"):
            return None
        if await self._lives_on(note, name, item):
            return "kept"
        if hides and note.state != "forgotten":
            return await self._do(name, "hide", item, "hidden")
        return await self._do(name, "delete", item, "deleted")

    async def _lives_on(self, note: NoteView, name: str, item: str) -> bool:
        """Whether a living successor points at the same item."""
        for _ in range(MAX_SUCCESSORS):
            if note.superseded_by is None:
                return False
            note = (await self._client.inspect(note.superseded_by)).note
            if note.state in _LIVE:
                return mirrors_of(note.source_ref).get(name) == item
        return False

    async def _do(self, name: str, verb: str, item: str, done: MirrorResult) -> MirrorResult:
        method = getattr(self._targets[name], verb)
        for attempt in range(self._attempts):
            if attempt:
                await asyncio.sleep(self._first_pause_s * GROWTH ** (attempt - 1))
            try:
                return "absent" if await _called(method, item) is False else done
            except LookupError:
                return "absent"
            except Exception as error:
                # Another store may raise anything at all; its words may quote an item, so only the type is told.
                _logger.info("%s did not %s an item: %s", name, verb, type(error).__name__)
        _logger.warning("%s did not %s an item in %d attempts", name, verb, self._attempts)
        return "failed"


async def _called(method: Callable[[str], Any], item: str) -> Any:
    """The method's outcome; one that blocks runs in a thread."""
    if inspect.iscoroutinefunction(method):
        return await method(item)
    outcome = await asyncio.to_thread(method, item)
    return await outcome if isinstance(outcome, Awaitable) else outcome
