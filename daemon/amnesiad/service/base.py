"""What every verb stands on: finding a workspace, addressing a note, and the work after an answer.

Nothing of a note is decided or written here; the one loop that writes is ``writing``'s.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol
from weakref import WeakValueDictionary

import structlog

from amnesiad import wire
from amnesiad.core import intake
from amnesiad.core.callers import Caller, check_governor, child_owner, governs, visible
from amnesiad.core.errors import Ambiguous, AmnesiaError, NotFound, Refused, StoreFull
from amnesiad.core.notes import Note
from amnesiad.errors import StoreUnavailable
from amnesiad.logs import exception_chain
from amnesiad.secretscan import RULES_FOLDER, SecretScan
from amnesiad.service.meaning import Meaning
from amnesiad.service.writing.change import Change
from amnesiad.settings import Settings
from amnesiad.store import vault, workspaces
from amnesiad.store.clock import StoreClock
from amnesiad.store.connect import Store
from amnesiad.store.keyring import Keyring
from amnesiad.store.log import at_or_past
from amnesiad.store.owners import touch_owners
from amnesiad.tokens import counter_for
from amnesiad.workspace import Recent, Workspace

SIGN_OF_LIFE_MS: Final = 60_000
"""An owner's lease is refreshed at most this often; leases are hours long."""
NAME_CHECK_MS: Final = 2_000
"""How long another daemon's rename of a workspace may go unnoticed here."""
MAX_BACKGROUND: Final = 256
"""After-work under way at once; beyond it a renewal or a sign of life is dropped, as a conflict would drop it."""
MAX_COUNTED: Final = 1024
"""Workspaces whose refusals are counted, those refused in last: names are what callers make of them."""

logger = structlog.get_logger()


class Jobs(Protocol):
    """How the service asks for work to be done elsewhere; ids and numbers only."""

    async def scrub(self) -> None:
        """Have erased words rewritten out of the data files, soon."""

    async def end_owner(self, ws: str, owner: str) -> None:
        """Close an owner, with all below it, and have what they hold erased. Raises ``NotFound`` for a dropped
        workspace."""

    async def refile(self, ws: str) -> None:
        """Have what follows from a policy made anew after its change, soon: the due times, and what tombs keep."""

    async def run(self, name: str, *args: str) -> dict[str, Any]:
        """Have a pass run now and wait for its figures. Raises ``Deadline`` when no worker answers in time."""

    async def worker_status(self) -> wire.WorkerStatus:
        """Whether a worker lives, and how long the oldest waiting job has waited."""

    def due(self, ws: str, at: int) -> None:
        """A note falls due at ``at`` (epoch ms): let the timer know."""


class Base:
    """State shared by all verbs. One event loop."""

    def __init__(self, redis: Store, keyring: Keyring, settings: Settings, clock: StoreClock, jobs: Jobs) -> None:
        self.redis = redis
        self.keyring = keyring
        self.settings = settings
        self.clock = clock
        self.jobs = jobs
        self.secrets = SecretScan(settings.state_dir / RULES_FOLDER)
        self.meaning = Meaning(settings.embedder)
        self._refusals: Recent[Counter[str]] = Recent(MAX_COUNTED)
        self._workspaces: dict[str, Workspace] = {}
        # A lock lives while somebody waits for it, so that asking for names that do not exist leaves nothing behind.
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._background: set[asyncio.Task[None]] = set()
        self._dropped = 0

    async def start(self) -> None:
        """Do ahead what would make the first request slow: load the vocabulary that tokens are counted with, and the
        embedder."""
        await asyncio.to_thread(counter_for(self.settings.policy).tokens, "warm")
        await self.meaning.start(lambda: self.loaded)

    async def stop(self) -> None:
        """Finish the after-work under way; nothing new must be asked any more."""
        await self.quiesce()
        await self.meaning.stop()

    # -- workspaces ----------------------------------------------------------------------------------------------

    async def open(self, name: str, *, create: bool) -> Workspace | None:
        """The projection of a workspace, loaded; ``None`` if there is no such workspace and none is to be made."""
        known = self._workspaces.get(name)
        if known is not None and not await self._renamed(known):
            return known
        lock = self._opening.setdefault(name, asyncio.Lock())
        async with lock:
            if (known := self._workspaces.get(name)) is not None:
                return known
            workspace = await self._loaded(name, create=create)
            if workspace is None:
                return None
            workspace.used_at = workspace.found_at = self.clock.now_ms()
            self._workspaces[name] = workspace
            self.meaning.look()
            return workspace

    async def _loaded(self, name: str, *, create: bool) -> Workspace | None:
        """A projection of what the name means now; one that is dropped while it is being read is looked up anew.

        Raises ``NotFound`` for a workspace that has a name and no policy cell: no drop leaves that behind.
        """
        gone = ""
        while ws := await (workspaces.find_or_create if create else workspaces.find)(self.redis, name):
            workspace = Workspace(name, ws, self.redis, self.keyring, self.settings.policy)
            workspace.vectors = self.meaning.vectors()
            try:
                await workspace.load()
            except NotFound:
                if ws == gone:
                    raise
                gone = ws
                continue
            return workspace
        return None

    async def _renamed(self, workspace: Workspace) -> bool:
        """Whether the name has come to mean another workspace, or none; looked up now and then, not each time."""
        now = workspace.used_at = self.clock.now_ms()
        if now - workspace.found_at < NAME_CHECK_MS:
            return False
        workspace.found_at = now
        try:
            renamed = await workspaces.find(self.redis, workspace.name) != workspace.ws
        except StoreUnavailable:
            return False
        if renamed:
            self.close(workspace.name)
        return renamed

    def close(self, name: str) -> None:
        """Drop a projection; the next use loads it again."""
        self._workspaces.pop(name, None)

    @property
    def loaded(self) -> Iterable[Workspace]:
        """The workspaces this process holds a projection of."""
        return list(self._workspaces.values())

    async def reading(self, request: wire.Request) -> tuple[Workspace | None, bool]:
        """The workspace for a read, caught up to the log's end, and whether the answer is degraded (store away).

        Whoever looks is alive: its lease is refreshed like that of one who writes.
        """
        try:
            workspace = await self.caught_up(request.workspace)
            if workspace is not None:
                self.alive(workspace, request.caller.to_core(), self.clock.now_ms())
            return workspace, False
        except StoreUnavailable:
            workspace = self._workspaces.get(request.workspace)
            if workspace is None or (request.after is not None and not at_or_past(workspace.position, request.after)):
                raise  # what was asked for is not known here, and an answer without it would not be one
            return workspace, True

    async def existing(self, request: wire.Request) -> Workspace:
        """The workspace for a read that makes no sense without one. Raises ``NotFound``."""
        workspace, _ = await self.reading(request)
        if workspace is None:
            raise NotFound("there is no such workspace", field="workspace", hint="amnesia workspaces lists them")
        return workspace

    async def caught_up(self, name: str) -> Workspace | None:
        """The workspace at its log's end; ``None`` if there is none. One that was dropped meanwhile is looked up
        anew."""
        workspace = await self.open(name, create=False)
        if workspace is None:
            return None
        try:
            await self.follow(workspace)
        except NotFound:
            self.close(name)
            return await self.open(name, create=False)
        return workspace

    async def follow(self, workspace: Workspace) -> bool:
        """Bring a projection to the log's end. Raises ``NotFound`` when the workspace was dropped meanwhile."""
        return await workspace.catch_up()

    # -- addressing ----------------------------------------------------------------------------------------------

    async def address(self, workspace: Workspace, caller: Caller, text: str, field: str = "id") -> str:
        """The one note that an id or prefix means to this caller. Raises ``NotFound``, ``Ambiguous`` with choices,
        or ``Refused`` for an unidentified child.

        A prefix counts against every id ever issued, forgotten ones included; what the caller may not see is not
        found, just as if it had never been.
        """
        prefix = intake.check_note_address(text, field)
        if caller.child:
            # Whoever does not say which child it is learns nothing, not even that there is no such note.
            child_owner(caller)
        found = await workspace.matching_ids(prefix)
        seen = await self._seen(workspace, caller, found)
        if not seen:
            raise NotFound(f"there is no note {prefix}", field=field, hint="amnesia list shows what there is")
        if len(found) > 1:
            raise Ambiguous(
                f"{field} {prefix} could be more than one note",
                field=field,
                hint="give more characters",
                choices=tuple(seen[:10]),
            )
        return seen[0]

    async def _seen(self, workspace: Workspace, caller: Caller, ids: Sequence[str]) -> list[str]:
        """Those of these ids that were issued and that this caller may see, in their order, forgotten ones included.

        One whose note cannot be read is seen, so that it can be reported, by those who see a workspace as a whole.
        """
        known = workspace.notes
        gone = [id_ for id_ in ids if id_ not in known]
        stands = dict(zip(gone, await vault.find_many(self.redis, workspace.keys, gone), strict=True))

        def sees(note_id: str) -> bool:
            if note_id in known:
                return visible(known[note_id], caller, workspace.policy)
            match stands[note_id].place:
                case vault.Head(note=note) | vault.Grave(tomb=vault.Tomb(note=note)):
                    return visible(note, caller, workspace.policy)
                case vault.Unreadable():
                    return governs(caller)
            return False

        return [note_id for note_id in ids if sees(note_id)]

    def addressed(self, workspace: Workspace, caller: Caller, note_id: str, change: Change) -> Note:
        """The settled note behind a full id, if this caller may see it. Raises ``NotFound``."""
        note = change.settled(note_id)
        if not visible(note, caller, workspace.policy):
            raise NotFound(f"there is no note {note_id}", field="id")
        return note

    # -- signs of life and refusals -------------------------------------------------------------------------------

    def alive(self, workspace: Workspace, caller: Caller, now: int) -> None:
        """After the answer: refresh the lease of the caller's owner, where it is open and the refresh is due."""
        if owner := self.sign_of_life(workspace, caller, now):
            self.background(touch_owners(self.redis, workspace.keys, {owner: now}))

    def sign_of_life(self, workspace: Workspace, caller: Caller, now: int) -> str:
        """The caller's owner id if its lease is due to be refreshed, else ``""``; so for an unidentified child."""
        known = caller.session and caller.agent if caller.child else caller.session or caller.team
        owner = caller.owner if known else None
        if owner is None or now - workspace.signs.get(owner, 0) < SIGN_OF_LIFE_MS:
            return ""
        workspace.signs[owner] = now
        return owner

    def require_governor(self, name: str, caller: Caller, what: str, rule: str) -> None:
        """``check_governor``, its refusal counted for the workspace of that name."""
        with self.counting_refusals(name):
            check_governor(caller, what, rule)

    @contextmanager
    def counting_refusals(self, name: str) -> Iterator[None]:
        """Count, for the status of the workspace of that name, what is refused inside, by its rule."""
        try:
            yield
        except AmnesiaError as error:
            if isinstance(error, Refused | StoreFull) or error.code == "forbidden":
                self._refusals[name] = known = self._refusals.get(name, Counter())
                known[error.rule or error.code] += 1
            raise

    def refusals(self, name: str) -> dict[str, int]:
        """How often each rule has said no in the workspace of that name since this process began."""
        return dict(self._refusals.get(name, ()))

    # -- after the answer ----------------------------------------------------------------------------------------

    def background(self, work: Coroutine[Any, Any, Any], *, droppable: bool = True) -> None:
        """Run something after the answer has left. A failure is logged, never raised.

        Beyond ``MAX_BACKGROUND`` it is dropped, counted for the log, unless somebody relies on it.
        """
        if droppable and len(self._background) >= MAX_BACKGROUND:
            self._dropped += 1
            work.close()
            return

        async def run() -> None:
            try:
                await work
            except AmnesiaError as error:
                logger.warning("background work failed", error=type(error).__name__, code=error.code)
            except Exception as error:
                logger.error("background work broke", exception=exception_chain(error))

        task = asyncio.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._work_ended)

    def _work_ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if self._dropped and not self._background:
            logger.warning("background work dropped", count=self._dropped, limit=MAX_BACKGROUND)
            self._dropped = 0

    def scrub_soon(self) -> None:
        """Ask, after the answer, for erased words to be rewritten out of the data files. Never dropped."""
        self.background(self.jobs.scrub(), droppable=False)

    async def quiesce(self) -> None:
        """Wait until the after-work under way is done; for shutdown and for tests."""
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)
