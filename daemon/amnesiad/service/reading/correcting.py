"""What a context must be told: that a note which it was shown has since been revoked or superseded. Once.

The store records what each context was shown, in the step that logs it (``store.contexts``). The projection counts
what is taken back as it hears of it (``Workspace.retracted_since``), and a context is asked only for that: so an
injection costs a lookup in memory while nothing was taken back, and one small read of the store where something was,
however many notes and ledger entries there are. The first injection into a context here reads all that it was shown.

What stands here of a context is a cache of the store's marks; an answer that goes by an old one is held up by the
witness, which marks what is told in the step that lets it out. So all daemons together tell each correction once. A
telling whose outcome stayed unknown, because the store's reply was lost, was not told: the daemon remembers which, and
tells it again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from amnesiad.core import render
from amnesiad.core.callers import Caller, visible
from amnesiad.core.events import Created, Expired, Reinstated, Revoked, Superseded
from amnesiad.core.notes import Note, Words
from amnesiad.store import vault
from amnesiad.store.contexts import Correction, Telling, marks_of, shown_at, told_by
from amnesiad.workspace import RETRACTED, Workspace

MAX_CORRECTIONS: Final = 10
"""Corrections in one answer; those beyond come with the next. Whoever takes back hundreds of notes at once must not
fill every budget with that alone."""
MAX_CONTEXTS: Final = 4096
"""Contexts of a workspace that are remembered here; any other is read anew."""
MAX_LOST: Final = 1024
"""Tellings of unknown outcome that are remembered; in a storm of lost replies the oldest count as told."""
MAX_WALKED: Final = 50
"""Forgotten notes whose latest events one look reads, to see whether they had been taken back; the others' are read by
the looks that follow."""
MAX_EVENTS: Final = 8
"""Of each, read backwards: what took it back stands right before what forgot it, or little lies in between."""
MOVES: Final = (Created, Superseded, Revoked, Expired, Reinstated)
"""Events that say in which state a note was, before it was forgotten."""


class _Known(NamedTuple):
    """A note that was taken back: as it stands, and its words, ``None`` where they are erased."""

    note: Note
    words: Words | None


class _Context:
    """What this daemon knows of one context: how far it was asked, and what it has yet to be told (id → mark)."""

    __slots__ = ("graves", "upto", "waiting")

    def __init__(self) -> None:
        self.upto = -1
        self.waiting: dict[str, str] = {}
        self.graves: dict[str, Note] = {}
        """Of those waiting, the notes that have been forgotten since, as their tombs have them."""


class _Contexts:
    """The contexts of one workspace, the latest used last, and its tellings of unknown outcome."""

    def __init__(self) -> None:
        self.known: OrderedDict[str, _Context] = OrderedDict()
        self.lost: OrderedDict[str, None] = OrderedDict()

    def of(self, name: str) -> _Context:
        found = self.known.setdefault(name, _Context())
        self.known.move_to_end(name)
        while len(self.known) > MAX_CONTEXTS:
            self.known.popitem(last=False)
        return found

    def lose(self, op: str) -> None:
        self.lost[op] = None
        while len(self.lost) > MAX_LOST:
            self.lost.popitem(last=False)


_contexts: Final[WeakKeyDictionary[Workspace, _Contexts]] = WeakKeyDictionary()


class Corrections:
    """The corrections that one answer owes its context. ``look``, ``choose``, have it witnessed, then ``told``."""

    def __init__(self, context: str, keep_ms: int) -> None:
        self.telling = Telling(context, keep_ms)
        self._chosen: dict[str, Note] = {}

    async def look(self, workspace: Workspace) -> None:
        """Ask the store for what was taken back since this context was last asked for. Raises ``StoreUnavailable``."""
        known = self._known(workspace)
        upto, news = workspace.retractions, workspace.retracted_since(known.upto)
        if news is None:
            found = await marks_of(workspace.redis, workspace.keys, self.telling.context)
        else:
            found = await marks_of(workspace.redis, workspace.keys, self.telling.context, news)
        self._wait_for(workspace, known, found)
        gone = [id_ for id_ in known.waiting if id_ not in workspace.notes and id_ not in known.graves]
        if gone:
            await self._dig(workspace, known, gone)
        known.upto = max(known.upto, upto)

    def choose(self, workspace: Workspace, caller: Caller) -> list[tuple[str, str]]:
        """The notes to be told of, with their lines; the oldest news first."""
        known = self._known(workspace)
        found: list[_Known] = []
        for id_ in list(known.waiting):
            note = workspace.notes.get(id_) or known.graves.get(id_)
            if note is None:
                continue
            if note.live:
                # Reinstated: it stands again, and another end of it would be news of its own.
                del known.waiting[id_]
            elif visible(note, caller, workspace.policy):
                found.append(_Known(note, workspace.words.get(id_)))
        found.sort(key=lambda one: (one.note.state_at, one.note.id))
        self._chosen = {one.note.id: one.note for one in found[:MAX_CORRECTIONS]}
        return [
            (note.id, render.correction(note, words, shown_at(known.waiting[note.id])))
            for note, words in found[:MAX_CORRECTIONS]
        ]

    @property
    def successors(self) -> list[str]:
        """What took the place of the superseded notes among the chosen."""
        return [note.superseded_by for note in self._chosen.values() if note.superseded_by is not None]

    def settle_on(self, workspace: Workspace, ids: Iterable[str]) -> tuple[tuple[str, int, int], ...]:
        """Of the chosen, these are told (the others did not fit). Returns id, version and time of showing of each."""
        known = self._known(workspace)
        told = [(self._chosen[id_], known.waiting[id_]) for id_ in ids]
        self.telling.corrections = [
            Correction(note.id, None if note.state == "forgotten" else note.version, mark) for note, mark in told
        ]
        return tuple((note.id, note.version, shown_at(mark)) for note, mark in told)

    def told(self, workspace: Workspace) -> None:
        """The answer stands and its corrections are marked."""
        known = self._known(workspace)
        for one in self.telling.corrections:
            known.waiting.pop(one.note, None)
            known.graves.pop(one.note, None)

    def told_elsewhere(self, workspace: Workspace, marks: dict[str, str]) -> None:
        """These were corrected or shown again meanwhile: take in what stands there now."""
        known = self._known(workspace)
        for id_ in marks:
            known.waiting.pop(id_, None)
        self._wait_for(workspace, known, marks)

    @contextmanager
    def in_doubt(self, workspace: Workspace) -> Iterator[None]:
        """Around the marking: where it ends early, nobody knows whether the marks were made, and the answer did not
        leave."""
        try:
            yield
        except BaseException:
            if self.telling.corrections:
                _of(workspace).lose(self.telling.op)
            raise

    def _known(self, workspace: Workspace) -> _Context:
        return _of(workspace).of(self.telling.context)

    def _wait_for(self, workspace: Workspace, known: _Context, marks: dict[str, str]) -> None:
        """Of these notes, those that were taken back and of which the context was not told."""
        lost = _of(workspace).lost
        for id_, mark in marks.items():
            if (op := told_by(mark)) and op not in lost:
                continue
            note = workspace.notes.get(id_)
            if note is None or note.state in RETRACTED:
                known.waiting[id_] = mark

    async def _dig(self, workspace: Workspace, known: _Context, ids: Sequence[str]) -> None:
        """Keep those of the notes without a head that were taken back before they were forgotten; time ends the
        rest."""
        walked = 0
        for id_, grave in zip(ids, await vault.tombs(workspace.redis, workspace.keys, ids), strict=True):
            if grave is not None and grave.tomb.note.state_reason != "expired":
                if walked == MAX_WALKED:
                    continue
                walked += 1
                history = await workspace.log.history(grave.seq, MAX_EVENTS)
                ends = (one.event for one in history if isinstance(one.event, MOVES))
                if isinstance(next(ends, None), Revoked | Superseded):
                    known.graves[id_] = grave.tomb.note
                    continue
            known.waiting.pop(id_, None)


def _of(workspace: Workspace) -> _Contexts:
    return _contexts.setdefault(workspace, _Contexts())
