"""What was shown to whom: the ledger, read back. Any injection can be rebuilt from it and the log.

The ledger holds ids, versions, order and costs; content never changes under an id, so the words are in the vault until
they are erased. A note erased since is shown as its id and hash, as the audit has it. Tags, which only a warning shows,
are those of now.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final, NamedTuple, cast

import msgspec

from amnesiad import wire
from amnesiad.core import clocks, render
from amnesiad.core.callers import Caller
from amnesiad.core.errors import NotFound
from amnesiad.core.events import AnyNoteEvent, PolicyChanged
from amnesiad.core.notes import Note, fold
from amnesiad.core.policy import Policy, apply_overrides
from amnesiad.service.base import Base
from amnesiad.store import vault
from amnesiad.store.log import at_or_past
from amnesiad.workspace import Workspace

MAX_SCANNED: Final = 5000
"""Ledger entries looked at for one answer."""
PAGE: Final = 500
"""Ledger entries per read: a megabyte or two, and some milliseconds during which nobody else is answered."""


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """One ledger entry: who was shown which versions, and what it cost. No words, no query."""

    at: int
    kind: str
    actor: str
    ids: tuple[tuple[str, int, int], ...]
    """Note id, version, tokens; in the order shown."""
    session: str | None = None
    owner: str | None = None
    tokens: int = 0
    budget: int = 0
    deterrents: tuple[tuple[str, int], ...] = ()
    corrections: tuple[tuple[str, int, int], ...] = ()
    """Note id, version, and when (epoch ms) the note had been shown; in the order told, before the notes."""
    seen: str = ""
    """How far into the log the selection had seen."""


class _Then(NamedTuple):
    """A note as it stood when it was shown, and where it stands now."""

    note: Note
    tomb: vault.Tomb | None


class Ledger(Base):
    """The verb that reads the ledger."""

    async def ledger(self, request: wire.LedgerRequest) -> wire.LedgerAnswer:
        """Recalls and injections, newest first; with ``entry`` one of them with its text rebuilt.

        A caller sees what was shown to itself; role human sees everything.
        """
        workspace, degraded = await self.reading(request)
        if workspace is None:
            return wire.LedgerAnswer(rows=(), seq="0-0")
        caller = request.caller.to_core()
        rows: list[wire.LedgerRow] = []
        if request.entry is not None:
            rows = [await self._rebuilt(workspace, caller, request.entry)]
        else:
            looked = 0
            async for seq, raw in self._entries(workspace):
                looked += 1
                shown = read_shown(raw)
                if shown is not None and concerns(shown, caller) and request.session in (None, shown.session):
                    rows.append(_row(seq, shown))
                if len(rows) == request.limit or looked == MAX_SCANNED:
                    break
        return wire.LedgerAnswer(rows=tuple(rows), seq=workspace.position, degraded=degraded)

    async def _entries(self, workspace: Workspace) -> AsyncIterator[tuple[str, bytes]]:
        """All entries with their stream ids, the latest first, read as far as they are asked for; others are answered
        in between."""
        before = "+"
        while page := await workspace.witness.entries(PAGE, before=before):
            for entry in page:
                yield entry
            before = f"({page[-1][0]}"
            await asyncio.sleep(0)

    async def _rebuilt(self, workspace: Workspace, caller: Caller, seq: str) -> wire.LedgerRow:
        found = [raw for at, raw in await workspace.witness.entries(1, before=seq) if at == seq]
        shown = read_shown(found[0]) if found else None
        if shown is None or not concerns(shown, caller):
            raise NotFound(f"there is no ledger entry {seq}", field="entry", hint="amnesia ledger lists them")
        policy = await self._policy_then(workspace, shown.seen)
        lines = []
        for note_id, version, at in shown.corrections:
            then = await self._then(workspace, note_id, version)
            note, words = (then.note, workspace.words.get(note_id)) if then.tomb is None else (then.tomb.note, None)
            lines.append(render.correction(note, words, at))
        for note_id, version, _ in shown.ids:
            then = await self._then(workspace, note_id, version)
            lines.append(self._line(workspace, then, policy, shown.at))
        for note_id, version in shown.deterrents:
            then = await self._then(workspace, note_id, version)
            words = None if then.tomb is not None else workspace.words.get(note_id)
            hash_ = None if then.tomb is None else then.tomb.content_hash
            note = then.note if words is not None or then.tomb is None else then.tomb.note
            lines.append(render.deterrent(note, words, content_hash=hash_))
        block = render.block(lines, shown.tokens, shown.budget) if shown.kind != "recall" else "\n".join(lines)
        return msgspec.structs.replace(_row(seq, shown), text=block)

    def _line(self, workspace: Workspace, then: _Then, policy: Policy, at: int) -> str:
        words = workspace.words.get(then.note.id)
        if then.tomb is not None or words is None:
            gone = then.note if then.tomb is None else then.tomb.note
            return render.forgotten_line(gone, None if then.tomb is None else then.tomb.content_hash)
        return render.memory_line(clocks.settle(then.note, policy, at), words, policy, at)

    async def _then(self, workspace: Workspace, note_id: str, version: int) -> _Then:
        """A note folded to the version that was shown."""
        found = await vault.find(self.redis, workspace.keys, note_id)
        if found is None or isinstance(found, vault.Unreadable):
            raise NotFound(f"note {note_id} cannot be read", field="entry", hint="amnesia verify tells more")
        events = [
            event
            for entry in reversed(await workspace.log.history(found.seq))
            if (event := cast(AnyNoteEvent, entry.event)).version <= version
        ]
        return _Then(fold(events), found.tomb if isinstance(found, vault.Grave) else None)

    async def _policy_then(self, workspace: Workspace, seen: str) -> Policy:
        """The workspace's policy as its changes in the log up to ``seen`` had made it."""
        if not workspace.policy_version or not seen:
            return workspace.policy
        overrides: dict[str, object] = {}
        async for entry in workspace.log.entries():
            if not at_or_past(seen, entry.seq):
                break
            if isinstance(entry.event, PolicyChanged):
                overrides.pop(entry.event.name, None)
                if not entry.event.reset:
                    overrides[entry.event.name] = entry.event.new
        return apply_overrides(workspace.base, overrides)


def read_shown(raw: bytes) -> Shown | None:
    """A ledger entry; ``None`` for what is none of ours, which must not hide the others."""
    try:
        return msgspec.json.decode(raw, type=Shown)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def concerns(shown: Shown, caller: Caller) -> bool:
    """A human may look at everything; an agent at what was shown to itself, and not at what was to its children, whose
    notes it does not see; a fresh one at nothing."""
    if caller.agent_kind == "fresh":
        return False
    if caller.role == "human":
        return True
    if caller.session is None:
        return shown.session is None and shown.actor == caller.actor
    return shown.session == caller.session and shown.owner in (caller.owners or (None,))


def _row(seq: str, shown: Shown) -> wire.LedgerRow:
    return wire.LedgerRow(
        id=seq,
        at=shown.at,
        kind=shown.kind,  # type: ignore[arg-type]
        actor=shown.actor,
        ids=tuple(id_ for id_, _, _ in shown.ids),
        versions=tuple(version for _, version, _ in shown.ids),
        tokens=shown.tokens,
        deterrents=tuple(id_ for id_, _ in shown.deterrents),
        corrections=tuple(id_ for id_, _, _ in shown.corrections),
        session=shown.session,
        budget_tokens=shown.budget or None,
    )
