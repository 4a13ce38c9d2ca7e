"""What every verb stands on: finding a workspace, addressing a note, and the one loop that writes.

The loop re-reads, re-decides and retries when a unit conflicts, so that a decision is never written on top of a state
it was not made for. Before it lets a refusal or a no-op out, it makes sure the projection was not merely behind.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec
import structlog

from amnesiad import wire
from amnesiad.core import intake
from amnesiad.core.callers import Caller, child_owner, governs, visible
from amnesiad.core.errors import Ambiguous, AmnesiaError, NotFound, Refused, StoreFull
from amnesiad.core.notes import Note
from amnesiad.errors import Conflict, StoreUnavailable
from amnesiad.secretscan import RULES_FOLDER, SecretScan
from amnesiad.service.change import Change
from amnesiad.service.meaning import Meaning
from amnesiad.settings import Settings
from amnesiad.store import vault, workspaces
from amnesiad.store.clock import StoreClock
from amnesiad.store.connect import Store
from amnesiad.store.keyring import Keyring
from amnesiad.store.log import START, Outcome, Unit, at_or_past
from amnesiad.store.owners import decode_owner, read_owner, touch_owners
from amnesiad.store.workspaces import POLICY_CELL
from amnesiad.tokens import counter_for
from amnesiad.workspace import Workspace

MAX_ATTEMPTS: Final = 24
"""Tries before a write gives up with ``conflict``: each round of contention on a cell lets one writer through."""
QUIET_ATTEMPTS: Final = 3
"""Tries without a pause in between; later ones wait a random moment so that writers stop colliding."""
FULL_ATTEMPTS: Final = 3
"""Times a unit may find the workspace full, its projection brought up to date after each, before it is refused."""
SIGN_OF_LIFE_MS: Final = 60_000
"""An owner's lease is refreshed at most this often; leases are hours long."""
NAME_CHECK_MS: Final = 2_000
"""How long another daemon's rename of a workspace may go unnoticed here."""
MAX_BACKGROUND: Final = 256
"""After-work (renewals) under way at once; beyond it a renewal is dropped, as a conflict would drop it."""

logger = structlog.get_logger()
A = TypeVar("A", bound=msgspec.Struct)
Decide = Callable[[Workspace, Change], A]


class Jobs(Protocol):
    """How the service asks for work to be done elsewhere; ids and numbers only."""

    async def scrub(self) -> None:
        """Have erased words rewritten out of the data files, soon."""

    async def end_owner(self, ws: str, owner: str) -> None:
        """Have an owner ended."""

    async def refile(self, ws: str) -> None:
        """Have due times made anew after a change of policy."""

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
        self.refusals: Counter[str] = Counter()
        self._workspaces: dict[str, Workspace] = {}
        # A lock lives while somebody waits for it, so that asking for names that do not exist leaves nothing behind.
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._background: set[asyncio.Task[None]] = set()

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
            if (workspace := self._workspaces.get(request.workspace)) is None:
                raise
            return workspace, True

    async def caught_up(self, name: str) -> Workspace | None:
        """The workspace at its log's end; ``None`` if there is none. One that was dropped meanwhile is looked up anew."""
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

    # -- writing -------------------------------------------------------------------------------------------------

    async def write(
        self, request: wire.Write, answer_type: type[A], decide: Decide[A], *, owners: Sequence[str] = ()
    ) -> A:
        """Decide, commit, and if somebody was faster re-read and decide again.

        ``decide`` returns the answer with an empty ``seq``; what it collected in the change is written as one unit.
        """
        workspace = cast(Workspace, await self.open(request.workspace, create=True))
        if request.after is not None and not at_or_past(workspace.position, request.after):
            workspace, _ = await self._renewed_view(workspace)
        full, looked = 0, False
        for attempt in range(MAX_ATTEMPTS):
            if attempt > QUIET_ATTEMPTS:
                await asyncio.sleep(random.uniform(0, 0.002 * attempt))  # noqa: S311
            for owner in owners:
                if owner not in workspace.owners:
                    workspace.owners[owner] = await read_owner(self.redis, workspace.keys, owner)
            change = Change(workspace, self.clock.now_ms())
            seen = workspace.position
            try:
                answer = decide(workspace, change)
                evicted = change.make_room()
                unit = change.finish()
            except AmnesiaError as error:
                if attempt == 0:
                    workspace, behind = await self._renewed_view(workspace, seen)
                    if behind:
                        continue
                if (replayed := await self._replayed(workspace, request, answer_type)) is not None:
                    return replayed
                self.refused(error)
                await self._leave_nothing(workspace)
                raise
            if unit is None:
                if not looked:
                    looked = True
                    workspace, behind = await self._renewed_view(workspace, seen)
                    if await self._owners_moved(workspace, owners) or behind:
                        continue
                self.alive(workspace, request.caller.to_core(), change.now)
                return await self.recorded(workspace, request, answer, answer_type)
            if request.request_id is not None:
                unit.request = self._record(workspace, request, answer)
            outcome = await workspace.log.commit(unit)
            if outcome.status in ("ok", "own"):
                workspace.absorb(outcome, change.results)
                workspace.owners.update(change.opened)
                self._after_write(workspace, change, evicted)
                self.alive(workspace, request.caller.to_core(), change.now)
                return msgspec.structs.replace(answer, seq=outcome.seq or workspace.position)
            if outcome.status == "replay":
                return _decode_answer(outcome.current, answer_type)
            if outcome.status == "reused":
                raise _reused(request)
            workspace = await self._after_conflict(workspace, outcome.detail, outcome.current)
            full += outcome.status == "full"
            # Once may mean that somebody else filled it meanwhile: with their notes in view, some can be evicted.
            if full > FULL_ATTEMPTS:
                refusal = _full(outcome)
                self.refused(refusal)
                raise refusal
        raise Conflict("too many writers at once on the same note, slot or text", hint="try again")

    async def _owners_moved(self, workspace: Workspace, owners: Sequence[str]) -> bool:
        """Read these owners anew, for a decision that no unit compares with them; whether one is not as it was known."""
        moved = False
        for owner in owners:
            known = workspace.owners.get(owner)
            workspace.owners[owner] = now = await read_owner(self.redis, workspace.keys, owner)
            moved = moved or now != known
        return moved

    async def _leave_nothing(self, workspace: Workspace) -> None:
        """A refusal changes nothing: a workspace that came to be for this write alone goes again."""
        if workspace.position == START and await workspaces.discard_unused(self.redis, workspace.name, workspace.ws):
            self.close(workspace.name)

    async def _renewed_view(self, workspace: Workspace, seen: str = "") -> tuple[Workspace, bool]:
        """The workspace at its log's end, and whether that is another view than the one of position ``seen``.

        The position is compared, not whether following found anything: somebody else may have followed just before.
        """
        try:
            await self.follow(workspace)
        except NotFound:
            return await self._anew(workspace), True
        return workspace, workspace.position != seen

    async def _anew(self, workspace: Workspace) -> Workspace:
        """What the name of a workspace that was dropped means from now on."""
        if self._workspaces.get(workspace.name) is workspace:
            self.close(workspace.name)
        return cast(Workspace, await self.open(workspace.name, create=True))

    async def _after_conflict(self, workspace: Workspace, detail: str, current: bytes) -> Workspace:
        if detail.startswith("owner:"):
            workspace.owners[detail.removeprefix("owner:")] = decode_owner(current)
        if detail == POLICY_CELL and not current:
            return await self._anew(workspace)
        workspace, _ = await self._renewed_view(workspace)
        if detail.startswith("note:"):
            _check_head(workspace, detail.removeprefix("note:"), current)
        if detail == POLICY_CELL:
            try:
                await workspace.reload_policy()
            except NotFound:
                return await self._anew(workspace)
        return workspace

    def alive(self, workspace: Workspace, caller: Caller, now: int) -> None:
        """After the answer: refresh the lease of the caller's owner, where it is open and the refresh is due."""
        if owner := self.sign_of_life(workspace, caller, now):
            self.background(touch_owners(self.redis, workspace.keys, {owner: now}))

    def sign_of_life(self, workspace: Workspace, caller: Caller, now: int) -> str:
        """The caller's owner id if its lease is due to be refreshed, else ``""``; so for an unidentified child."""
        known = caller.session and caller.agent if caller.child else caller.session or caller.team
        owner = next(iter(caller.owners), None) if known else None
        if owner is None or now - workspace.signs.get(owner, 0) < SIGN_OF_LIFE_MS:
            return ""
        workspace.signs[owner] = now
        return owner

    def _record(self, workspace: Workspace, request: wire.Write, answer: msgspec.Struct) -> tuple[str, str, bytes]:
        stored = answer
        if getattr(answer, "warnings", ()):
            # A warning quotes an ended note; the record of an answer must not outlive that note's erasure.
            stored = msgspec.structs.replace(answer, warnings=())
        key = workspace.keys.request(cast(str, request.request_id))
        return key, self._body_hash(request), msgspec.json.encode(stored)

    def _body_hash(self, request: wire.Write) -> str:
        """What a repeated request must agree in: its body, and its verb, for that of pin and unpin may be the same."""
        return self.keyring.body_hash(type(request).__name__.encode() + msgspec.json.encode(request))

    async def recorded(self, workspace: Workspace, request: wire.Write, answer: A, answer_type: type[A]) -> A:
        """An answer that no single unit carries, kept under the request's id if it has one; ``seq`` filled in.

        If the id was answered before, that answer is returned instead. Raises ``Conflict`` for another body.
        """
        if request.request_id is None:
            return msgspec.structs.replace(answer, seq=getattr(answer, "seq", "") or workspace.position)
        unit = Unit(request=self._record(workspace, request, answer))
        outcome = await workspace.log.commit(unit)
        if outcome.status == "replay":
            return _decode_answer(outcome.current, answer_type)
        if outcome.status == "reused":
            raise _reused(request)
        return msgspec.structs.replace(answer, seq=outcome.seq or workspace.position)

    async def _replayed(self, workspace: Workspace, request: wire.Write, answer_type: type[A]) -> A | None:
        """The answer this very request got before, if it carries an id and was answered in the last 24 hours."""
        if request.request_id is None:
            return None
        stored = await workspace.log.stored_answer(request.request_id)
        if stored is None:
            return None
        body_hash, rest = stored
        if body_hash != self._body_hash(request):
            raise _reused(request)
        return _decode_answer(rest, answer_type)

    def _after_write(self, workspace: Workspace, change: Change, evicted: Sequence[str]) -> None:
        erased = False
        for note, _ in change.results:
            if note.state == "forgotten":
                erased = True
            elif (due := workspace.due.get(note.id)) is not None:
                self.jobs.due(workspace.ws, due)
        if erased:
            self.background(self.jobs.scrub())
        if evicted:
            logger.debug("evicted", ws=workspace.ws, count=len(evicted))

    def refused(self, error: AmnesiaError) -> None:
        """Count a refusal by its rule, for status."""
        if isinstance(error, Refused | StoreFull) or error.code == "forbidden":
            self.refusals[error.rule or error.code] += 1

    # -- after the answer ----------------------------------------------------------------------------------------

    def background(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run something after the answer has left. A failure is logged, never raised; too much at once is dropped."""
        if len(self._background) >= MAX_BACKGROUND:
            work.close()
            return

        async def run() -> None:
            try:
                await work
            except AmnesiaError as error:
                logger.warning("background work failed", error=type(error).__name__, code=error.code)
            except Exception as error:
                logger.error("background work broke", error=type(error).__name__)

        task = asyncio.create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def quiesce(self) -> None:
        """Wait until the after-work under way is done; for shutdown and for tests."""
        while self._background:
            await asyncio.gather(*self._background, return_exceptions=True)


def _check_head(workspace: Workspace, note_id: str, held: bytes) -> None:
    """Raises ``Conflict`` for a note that stands in the store as no event has left it: no repetition would help.

    ``held`` is what a unit met there, and the projection has seen the whole log since.
    """
    note = workspace.notes.get(note_id)
    stamp = held.partition(b"|")[0]
    if note is None or (stamp.isdigit() and int(stamp) <= note.version):
        return
    workspace.set_aside(note_id, "head: not as the log has it")
    raise damaged(workspace, note_id)


def damaged(workspace: Workspace, note_id: str) -> Conflict:
    """The refusal of what cannot be done to a note as long as it cannot be read."""
    return Conflict(
        f"note {note_id} cannot be read: {workspace.unreadable[note_id]}",
        field="id",
        hint="amnesia rebuild mends it from the log; then try again",
    )


def _reused(request: wire.Write) -> Conflict:
    return Conflict(
        f"request_id {request.request_id} was used with another verb or body", field="request_id", hint="use a new one"
    )


def _full(outcome: Outcome) -> StoreFull:
    return StoreFull(
        f"the workspace is full: {outcome.detail} stands at {outcome.current.decode()}",
        rule=f"max_{'store' if outcome.detail.startswith('perishable') else 'record'}_bytes",
        hint="forget something, or raise the limit",
    )


def _decode_answer(raw: bytes, answer_type: type[A]) -> A:
    seq, _, body = raw.partition(b"|")
    answer = msgspec.json.decode(body, type=answer_type)
    return msgspec.structs.replace(answer, seq=seq.decode())
