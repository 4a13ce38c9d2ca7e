"""Into a context: inject, its preview, and fire.

What enters a context must be on record, so with the store away inject and fire refuse; a hook then injects nothing.
The choice under the budget is ``core.inject``'s.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from amnesiad import wire
from amnesiad.core import inject as selection
from amnesiad.core import intake, triggers
from amnesiad.core import recall as ranking
from amnesiad.core.callers import Caller
from amnesiad.core.notes import Note
from amnesiad.core.times import MINUTE_MS
from amnesiad.errors import StoreUnavailable
from amnesiad.service.reading.answers import view
from amnesiad.service.reading.correcting import Corrections
from amnesiad.service.reading.ledger import Shown
from amnesiad.service.reading.listening import Listener, News
from amnesiad.service.reading.recalling import Recalling
from amnesiad.service.reading.showing import Selected
from amnesiad.store.witness import Once
from amnesiad.tokens import counter_for
from amnesiad.workspace import Workspace

TURN_KEEP_MS: Final = 10 * MINUTE_MS
"""How long a turn of an agent without a session is remembered. It must be short: nothing tells two such agents
apart."""
MAX_MATCHED: Final = 50
"""Notes that count as matched by a step's query; past that a query says nothing about any of them."""


class Injecting(Recalling):
    """The verbs that bring notes into a context."""

    async def inject(self, request: wire.InjectRequest, *, listener: Listener | None = None) -> wire.InjectAnswer:
        """The block of notes that enters a context now, within the budget. Logged before it is returned.

        A ``listener`` is told only what is news to it, and that is marked as shown in the same step.
        """
        intake.check_query(request.query, "query")
        workspace = await self.reader(request)
        if workspace is None:
            return _empty_block(self._budget(None, request), None)
        caller = request.caller.to_core()
        paths = intake.check_paths(request.paths)

        await self.meaning.ask(request.query)
        owed = self._owed(caller)

        def select(workspace: Workspace, now: int) -> Selected[tuple[wire.InjectAnswer, tuple[str, ...]]]:
            budget = self._budget(workspace, request)
            if not workspace.policy.injection_enabled:
                return Selected((_empty_block(budget, workspace), ()), (), (), b"")
            chosen = self._choose(workspace, caller, request, paths, budget, now, owed, listener)
            entry = _block_entry("inject", workspace, caller, chosen, now, owed)
            used = tuple(note for note in (workspace.settled(id_, now) for id_ in chosen.ids) if note is not None)
            warned = tuple(workspace.notes[id_] for id_ in chosen.deterrents)
            return Selected((_block_answer(chosen, workspace), chosen.matched), used, warned, entry)

        once = None if listener is None else listener.once
        shown = await self.show(workspace, request, select, strict=True, once=once, corrections=owed)
        if shown is None:
            return _empty_block(self._budget(None, request), None)
        (answer, matched), used, _ = shown
        policy = workspace.policy
        workspace.last_injection = (len(answer.ids), answer.tokens, self.clock.now_ms())
        if policy.injection_renews != "never":
            renewed = [note for note in used if policy.injection_renews == "always" or note.id in matched]
            self.renew_used(request.workspace, caller, renewed)
        return answer

    async def preview(self, request: wire.InjectRequest) -> wire.InjectAnswer:
        """What inject would return now: nothing is logged, renewed or counted as a use."""
        intake.check_query(request.query, "query")
        workspace, degraded = await self.reading(request)
        budget = self._budget(workspace, request)
        if workspace is None or not workspace.policy.injection_enabled:
            return _empty_block(budget, workspace)
        paths = intake.check_paths(request.paths)
        await self.meaning.ask(request.query)
        caller = request.caller.to_core()
        owed = self._owed(caller)
        if owed is not None:
            with contextlib.suppress(StoreUnavailable):
                await owed.look(workspace)
        chosen = self._choose(workspace, caller, request, paths, budget, self.clock.now_ms(), owed)
        return msgspec.structs.replace(_block_answer(chosen, workspace), degraded=degraded)

    def _budget(self, workspace: Workspace | None, request: wire.InjectRequest) -> int:
        policy = self.settings.policy if workspace is None else workspace.policy
        wanted = request.budget_tokens
        return policy.max_injected_tokens if wanted is None else min(wanted, policy.max_injected_tokens)

    def _choose(
        self,
        workspace: Workspace,
        caller: Caller,
        request: wire.InjectRequest,
        paths: tuple[str, ...],
        budget: int,
        now: int,
        owed: Corrections | None = None,
        listener: Listener | None = None,
    ) -> selection.Selection:
        step = self._step(workspace, caller, request, paths, now, listener)
        if owed is not None:
            step = _corrected(step, owed, workspace, caller, listener)
        pool: selection.Pool = workspace.active(caller, now)
        if listener is None:
            return self._fill(workspace, caller, pool, step, budget, now)
        if listener.whole:
            pool = News(pool, listener)
        else:
            matched = list(workspace.visible_live(caller, now, step.matched))
            pool = selection.Listed(matched, workspace.policy, workspace.last_access, now)
        return listener.fitting(lambda tokens: self._fill(workspace, caller, pool, step, tokens, now), budget)

    def _owed(self, caller: Caller) -> Corrections | None:
        """What the caller's context may have to be told; nothing where nobody knows which context it is."""
        return None if caller.context is None else Corrections(caller.context, self.context_kept(caller))

    def _fill(
        self,
        workspace: Workspace,
        caller: Caller,
        pool: selection.Pool,
        step: selection.Step,
        budget: int,
        now: int,
    ) -> selection.Selection:
        return selection.select(
            pool,
            lambda note_id: workspace.live_note(note_id, caller, now),
            workspace.words,
            step,
            cost=workspace.cost,
            units=workspace.units,
            last_access=workspace.last_access,
            counter=counter_for(workspace.policy),
            budget_tokens=budget,
            policy=workspace.policy,
            now=now,
        )

    def _step(
        self,
        workspace: Workspace,
        caller: Caller,
        request: wire.InjectRequest,
        paths: tuple[str, ...],
        now: int,
        listener: Listener | None = None,
    ) -> selection.Step:
        """What the step itself asked for: notes of its paths and triggers, and those its query is about."""
        matched: dict[str, None] = {}
        again: set[str] = set()
        on_path: list[str] = []
        if paths:
            on_path = [one.note.id for one in self.by_path(workspace, caller, ranking.Filter(paths=paths), now)]
            matched.update(dict.fromkeys(on_path))
        if request.event is not None:
            command = None if listener is None else listener.command
            occasion = triggers.Occasion(event=request.event, paths=paths, command=command, prompt=request.query)
            hit = list(workspace.triggered_by(occasion, caller, now))
            matched.update((note.id, None) for note, _ in hit)
            if listener is not None:
                again.update(note.id for note, why in hit if listener.is_news(note, why.cooldown_ms, now=now))
        deterrents: Sequence[Note] = ()
        if request.query:
            ranked = self.by_query(workspace, caller, request.query, ranking.Filter(), MAX_MATCHED, now)
            matched = dict.fromkeys([*(one.note.id for one in ranking.matched(ranked)), *matched])
        if request.query or paths:
            deterrents = self._warned(workspace, caller, request.query, paths, now)
        if listener is not None:
            if listener.whole:
                matched.update(dict.fromkeys(self._open_tasks(workspace, caller, now)))
            live = workspace.visible_live(caller, now, list(matched))
            matched = {note.id: None for note in live if note.id in again or listener.is_news(note)}
            deterrents = [note for note in deterrents if listener.is_news(note)]
        return selection.Step(matched=tuple(matched), on_path=frozenset(on_path), deterrents=deterrents)

    def _open_tasks(self, workspace: Workspace, caller: Caller, now: int) -> list[str]:
        """What is left to do, in the order of a list without a query."""
        ids = [note.id for note in workspace.notes.values() if note.kind == "task" and note.live]
        found = (ranking.Candidate(note, workspace.words[note.id]) for note in workspace.visible_live(caller, now, ids))
        return [one.note.id for one in ranking.order_without_query(found, workspace.policy, now)][:MAX_MATCHED]

    def _warned(
        self, workspace: Workspace, caller: Caller, query: str | None, paths: tuple[str, ...], now: int
    ) -> list[Note]:
        most = workspace.policy.max_deterrents
        found: dict[str, Note] = {}
        if paths:
            on_path = self.deterrents(workspace, caller, None, ranking.Filter(paths=paths), now, most)
            found = {note.id: note for note in on_path}
        if query:
            for note in self.deterrents(workspace, caller, query, ranking.Filter(), now, most):
                found.setdefault(note.id, note)
        return list(found.values())[:most]

    async def fire(self, request: wire.FireRequest) -> wire.FireAnswer:
        """Notes whose triggers the occasion matches, each once per context until compaction (or past its cooldown).

        Corrections come along with notes: most occasions match none, and an empty answer must stay cheap.
        """
        intake.check_query(request.prompt, "prompt")
        intake.check_query(request.command, "command")
        workspace = await self.reader(request)
        if workspace is None:
            return wire.FireAnswer(notes=(), text="", tokens=0, seq="0-0")
        caller = request.caller.to_core()
        paths = intake.check_paths(request.paths)
        occasion = triggers.Occasion(event=request.event, paths=paths, command=request.command, prompt=request.prompt)
        turn = request.turn or ""
        once: Once | None = None
        if caller.context is not None:
            once = await workspace.witness.once(caller.context, turn, self.context_kept(caller))
        elif turn:
            once = await workspace.witness.once(f"{caller.actor} {turn}", turn, TURN_KEEP_MS)

        owed = self._owed(caller)

        def select(workspace: Workspace, now: int) -> Selected[wire.FireAnswer]:
            if not workspace.policy.injection_enabled:
                return Selected(wire.FireAnswer(notes=(), text="", tokens=0, seq=workspace.position), (), (), b"")
            chosen = self._fired(
                workspace, caller, occasion, lambda id_: None if once is None else once.shown(id_), turn, owed, now
            )
            used = tuple(note for note in (workspace.settled(id_, now) for id_ in chosen.ids) if note is not None)
            answer = wire.FireAnswer(
                notes=tuple(view(workspace, note, now) for note in used),
                text=chosen.text,
                tokens=chosen.tokens,
                corrections=chosen.corrections,
                seq=workspace.position,
            )
            entry = _block_entry("fire", workspace, caller, chosen, now, owed)
            return Selected(answer, used, (), entry)

        shown = await self.show(workspace, request, select, strict=True, once=once, corrections=owed)
        if shown is None:
            return wire.FireAnswer(notes=(), text="", tokens=0, seq="0-0")
        answer, used, _ = shown
        if used and workspace.policy.injection_renews != "never":
            self.renew_used(request.workspace, caller, used)
        return answer

    def _fired(
        self,
        workspace: Workspace,
        caller: Caller,
        occasion: triggers.Occasion,
        shown: Callable[[str], tuple[int, str] | None],
        turn: str,
        owed: Corrections | None,
        now: int,
    ) -> selection.Selection:
        """What the occasion brings. ``shown(id)`` is when and in which turn the context was shown the note already."""
        hit = [
            note
            for note, trigger in workspace.triggered_by(occasion, caller, now)
            if triggers.may_fire(shown(note.id), trigger.cooldown_ms, turn, now)
        ]
        candidates = (ranking.Candidate(note, workspace.words[note.id]) for note in hit)
        ids = tuple(one.note.id for one in ranking.order_without_query(candidates, workspace.policy, now))
        step = selection.Step(matched=ids, on_path=frozenset(ids))
        if owed is not None and ids:
            step = _corrected(step, owed, workspace, caller)
        pool = selection.Listed(hit, workspace.policy, workspace.last_access, now)
        return self._fill(workspace, caller, pool, step, workspace.policy.max_injected_tokens, now)


def _corrected(
    step: selection.Step,
    owed: Corrections,
    workspace: Workspace,
    caller: Caller,
    listener: Listener | None = None,
) -> selection.Step:
    """The step with what the caller's context must be told, and with what took the place of it, where that is news."""
    lines = owed.choose(workspace, caller)
    if not lines:
        return step
    successors = owed.successors
    if listener is not None:
        successors = [id_ for id_ in successors if (note := workspace.notes.get(id_)) and listener.is_news(note)]
    return msgspec.structs.replace(step, corrections=lines, successors=successors)


def _empty_block(budget: int, workspace: Workspace | None) -> wire.InjectAnswer:
    return wire.InjectAnswer(
        text="",
        ids=(),
        tokens=0,
        budget_tokens=budget,
        omitted=wire.Omitted(count=0, ids=()),
        deterrents=(),
        seq="0-0" if workspace is None else workspace.position,
    )


def _block_answer(chosen: selection.Selection, workspace: Workspace) -> wire.InjectAnswer:
    return wire.InjectAnswer(
        text=chosen.text,
        ids=chosen.ids,
        tokens=chosen.tokens,
        budget_tokens=chosen.budget_tokens,
        omitted=wire.Omitted(count=chosen.omitted_count, ids=chosen.omitted_ids),
        deterrents=chosen.deterrents,
        corrections=chosen.corrections,
        seq=workspace.position,
    )


def _block_entry(
    kind: str, workspace: Workspace, caller: Caller, chosen: selection.Selection, now: int, owed: Corrections | None
) -> bytes:
    """The ledger's entry of a block, empty for an empty one; the corrections in it are those that will be marked."""
    corrections = () if owed is None else owed.settle_on(workspace, chosen.corrections)
    entry = Shown(
        at=now,
        kind=kind,
        actor=caller.actor,
        session=caller.session,
        owner=caller.owner,
        ids=tuple((id_, workspace.notes[id_].version, workspace.cost(id_)) for id_ in chosen.ids),
        tokens=chosen.tokens,
        budget=chosen.budget_tokens,
        deterrents=tuple((id_, workspace.notes[id_].version) for id_ in chosen.deterrents),
        corrections=corrections,
        seen=workspace.position,
    )
    return msgspec.json.encode(entry) if chosen.text else b""
