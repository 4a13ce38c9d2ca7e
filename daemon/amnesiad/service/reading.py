"""Reading: recall, inject, preview, fire, and the ledger that says what was shown to whom.

Every answer is checked against the store before it leaves: one call logs what is shown and makes sure that it still
stands. If a note moved or the log has grown, the projection catches up and the selection is made again; so an ended
note is never returned, also when another daemon ended it. With the store away recall answers from the projection,
marked degraded; inject and fire refuse, since what enters a context must be on record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from amnesiad import wire
from amnesiad.core import clocks, decisions, intake, render, triggers
from amnesiad.core import inject as selection
from amnesiad.core import recall as ranking
from amnesiad.core.callers import Caller
from amnesiad.core.errors import Invalid, NotFound
from amnesiad.core.events import AnyNoteEvent
from amnesiad.core.notes import Note
from amnesiad.core.times import MINUTE_MS
from amnesiad.errors import StoreUnavailable
from amnesiad.search import fused
from amnesiad.service.answers import view, view_fields
from amnesiad.service.change import Change
from amnesiad.service.ledger import Ledger, Shown
from amnesiad.store.log import Once, at_or_past
from amnesiad.tokens import counter_for
from amnesiad.workspace import Use, Workspace

READ_ATTEMPTS: Final = 3
"""Selections that insist on the log's very end; those after them insist only that nothing they show has moved."""
PATIENT_ATTEMPTS: Final = 12
"""Selections after those: under a storm of writes somebody may well touch one of ten notes a few times in a row."""
MAX_QUERY_CHARS: Final = 8192
"""A query is a question, not a document."""
MAX_DETERRENTS: Final = 3
"""Revoked notes a recall warns with at most; ``max_deterrents`` may say fewer."""
TURN_KEEP_MS: Final = 10 * MINUTE_MS
"""How long a turn of an agent without a session is remembered. It must be short: nothing tells two such agents apart."""

MAX_MATCHED: Final = 50
"""Notes that count as matched by a step's query; past that a query says nothing about any of them."""
MATCH_SHARE: Final = 0.25
"""Of the best relevance, what a note must reach to count as matched, and so be renewed by being injected."""

T = TypeVar("T")


class Selected(NamedTuple, Generic[T]):
    """A selection that may be shown: the answer, the notes in it that count as used, and those only shown."""

    answer: T
    used: tuple[Note, ...]
    shown: tuple[Note, ...]
    entry: bytes


class Reading(Ledger):
    """The verbs that bring notes into a context."""

    async def recall(self, request: wire.RecallRequest) -> wire.RecallAnswer:
        """Live notes by relevance, then trust and rank; with revoked ones that match as deterrents. Renews what it
        returns."""
        workspace = await self._reader(request)
        if workspace is None:
            return _nothing_recalled(request)
        caller = request.caller.to_core()
        check_query(request.query)
        wanted = ranking.Filter(
            kinds=frozenset(request.kinds),
            tags=request.tags,
            paths=tuple(intake.check_path(path, f"paths[{n}]") for n, path in enumerate(request.paths)),
            owner=request.owner,
            states=frozenset(request.states),
            since=request.since,
            until=request.until,
        )

        await self.meaning.ask(request.query)

        def select(workspace: Workspace, now: int) -> Selected[wire.RecallAnswer]:
            return self._recall(workspace, caller, request, wanted, now)

        shown = await self._shown(workspace, request, select)
        if shown is None:
            return _nothing_recalled(request)
        answer, used, degraded = shown
        if not degraded:
            self._renew(request.workspace, caller, used)
        return msgspec.structs.replace(answer, degraded=degraded)

    def _recall(
        self, workspace: Workspace, caller: Caller, request: wire.RecallRequest, wanted: ranking.Filter, now: int
    ) -> Selected[wire.RecallAnswer]:
        policy = workspace.policy
        ranked = self.ranked(workspace, caller, request.query, wanted, request.limit, now)
        chosen = ranked[: request.limit]
        most = min(MAX_DETERRENTS, policy.max_deterrents)
        warned = self._deterrents(workspace, caller, request.query, wanted, now, most)
        notes = tuple(
            _recalled(workspace, one, request, now, before=chosen[n - 1] if n else None) for n, one in enumerate(chosen)
        )
        deterrents = tuple(
            wire.Deterrent(id=note.id, text=render.deterrent(note, workspace.words[note.id])) for note in warned
        )
        text = None
        if request.format == "text":
            lines = [render.memory_line(one.note, one.words, policy, now) for one in chosen]
            text = "\n".join([*lines, *(deterrent.text for deterrent in deterrents)])
        used = tuple(one.note for one in chosen)
        entry = Shown(
            at=now,
            kind="recall",
            actor=caller.actor,
            session=caller.session,
            owner=next(iter(caller.owners), None),
            ids=tuple((note.id, note.version, 0) for note in used),
            deterrents=tuple((note.id, note.version) for note in warned),
            seen=workspace.position,
        )
        answer = wire.RecallAnswer(notes=notes, deterrents=deterrents, text=text, seq=workspace.position)
        return Selected(answer, used, tuple(warned), msgspec.json.encode(entry) if used or warned else b"")

    def ranked(
        self, workspace: Workspace, caller: Caller, query: str | None, wanted: ranking.Filter, limit: int, now: int
    ) -> list[ranking.Candidate]:
        """Recall's order of the notes that pass the filters; with a query, of the first up to the limit."""
        if query:
            return self._by_query(workspace, caller, query, wanted, limit, now, cut=True)
        candidates = self._candidates(workspace, caller, wanted, now)
        if wanted.paths:
            return ranking.order_by_path(candidates, wanted.paths, workspace.policy, now)
        return ranking.order_without_query(candidates, workspace.policy, now)

    def _candidates(
        self, workspace: Workspace, caller: Caller, wanted: ranking.Filter, now: int
    ) -> Iterable[ranking.Candidate]:
        ids = list(workspace.concerning(wanted.paths)) if wanted.paths else None
        for note in workspace.visible_live(caller, now, ids):
            words = workspace.words[note.id]
            if wanted.matches(note, words, note.state):
                yield ranking.Candidate(note, words)

    def _by_query(
        self,
        workspace: Workspace,
        caller: Caller,
        query: str,
        wanted: ranking.Filter,
        limit: int,
        now: int,
        *,
        cut: bool = False,
    ) -> list[ranking.Candidate]:
        """Candidates by relevance, in whole bands that cover the limit; with ``cut`` only the first of them, up to it.
        Filters come before the limit."""
        tie_width, live_note, all_words = workspace.policy.tie_width, workspace.live_note, workspace.words
        narrowed = wanted != ranking.Filter()
        pool: list[ranking.Candidate] = []
        last_band, last_score = 0, 0.0
        for note_id, score in self._by_relevance(workspace, caller, query, wanted, now):
            if len(pool) >= limit:
                if len(pool) == limit:
                    last_band = ranking.band(pool[-1].score, pool[0].score, tie_width)
                if len(pool) == ranking.POOL_CAP:
                    break
                if score != last_score and ranking.band(score, pool[0].score, tie_width) > last_band:
                    break
                last_score = score
            note = live_note(note_id, caller, now)
            if note is None:
                continue
            words = all_words[note_id]
            if not narrowed or wanted.matches(note, words, note.state):
                pool.append(ranking.Candidate(note, words, score))
        return ranking.order_by_relevance(pool, workspace.policy, now, limit if cut else None)

    def _by_relevance(
        self, workspace: Workspace, caller: Caller, query: str, wanted: ranking.Filter, now: int
    ) -> Iterator[tuple[str, float]]:
        """Live notes by relevance to the query, to be filtered still: by words, and by meaning where there is a model."""
        scored = workspace.live.score(query, workspace.audience(caller))
        vector = self.meaning.asked(query)
        if workspace.vectors is None or vector is None:
            return scored

        def admit(note_id: str) -> bool:
            note = workspace.live_note(note_id, caller, now)
            return note is not None and wanted.matches(note, workspace.words[note_id], note.state)

        return fused(scored, workspace.vectors, vector, admit)

    def _deterrents(
        self,
        workspace: Workspace,
        caller: Caller,
        query: str | None,
        wanted: ranking.Filter,
        now: int,
        most: int,
    ) -> list[Note]:
        """Revoked notes that match the query and the filters (states aside), best first; of no query, by the paths."""
        if not len(workspace.ended) or not (query or wanted.paths):
            return []
        narrowed = msgspec.structs.replace(wanted, states=frozenset())
        ids: Iterable[str] = tuple(workspace.revoked)
        if query:
            ids = (note_id for note_id, _ in workspace.ended.score(query, workspace.audience(caller)))
        found = (
            note
            for note in workspace.visible_ended(caller, now, ids)
            if note.state == "revoked" and narrowed.matches(note, workspace.words[note.id], note.state)
        )
        if query:
            return list(islice(found, most))
        by_path = [(ranking.path_grade(workspace.words[note.id], wanted.paths), note.state_at, note) for note in found]
        return [note for _, _, note in sorted(by_path, key=itemgetter(0, 1), reverse=True)[:most]]

    # -- into a context ------------------------------------------------------------------------------------------

    async def inject(self, request: wire.InjectRequest) -> wire.InjectAnswer:
        """The block of notes that enters a context now, within the budget. Logged before it is returned."""
        workspace = await self._reader(request)
        if workspace is None:
            return _empty_block(self._budget(None, request), None)
        caller = request.caller.to_core()
        check_query(request.query)
        paths = tuple(intake.check_path(path, f"paths[{n}]") for n, path in enumerate(request.paths))

        await self.meaning.ask(request.query)

        def select(workspace: Workspace, now: int) -> Selected[tuple[wire.InjectAnswer, tuple[str, ...]]]:
            budget = self._budget(workspace, request)
            if not workspace.policy.injection_enabled:
                return Selected((_empty_block(budget, workspace), ()), (), (), b"")
            chosen = self._choose(workspace, caller, request, paths, budget, now)
            entry = _block_entry("inject", workspace, caller, chosen, now)
            used = tuple(note for note in (workspace.settled(id_, now) for id_ in chosen.ids) if note is not None)
            warned = tuple(workspace.notes[id_] for id_ in chosen.deterrents)
            return Selected((_block_answer(chosen, workspace), chosen.matched), used, warned, entry)

        shown = await self._shown(workspace, request, select, strict=True)
        if shown is None:
            return _empty_block(self._budget(None, request), None)
        (answer, matched), used, _ = shown
        policy = workspace.policy
        workspace.last_injection = (len(answer.ids), answer.tokens, self.clock.now_ms())
        if policy.injection_renews != "never":
            renewed = [note for note in used if policy.injection_renews == "always" or note.id in matched]
            self._renew(request.workspace, caller, renewed)
        return answer

    async def preview(self, request: wire.InjectRequest) -> wire.InjectAnswer:
        """What inject would return now: nothing is logged, renewed or counted as a use."""
        workspace, degraded = await self.reading(request)
        budget = self._budget(workspace, request)
        if workspace is None or not workspace.policy.injection_enabled:
            return _empty_block(budget, workspace)
        check_query(request.query)
        paths = tuple(intake.check_path(path, f"paths[{n}]") for n, path in enumerate(request.paths))
        await self.meaning.ask(request.query)
        chosen = self._choose(workspace, request.caller.to_core(), request, paths, budget, self.clock.now_ms())
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
    ) -> selection.Selection:
        step = self._step(workspace, caller, request, paths, now)
        return self._fill(workspace, caller, workspace.active(caller, now), step, budget, now)

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
        self, workspace: Workspace, caller: Caller, request: wire.InjectRequest, paths: tuple[str, ...], now: int
    ) -> selection.Step:
        """What the step itself asked for: notes of its paths and triggers, and those its query is about."""
        policy = workspace.policy
        matched: dict[str, None] = {}
        on_path: list[str] = []
        if paths:
            wanted = ranking.Filter(paths=paths)
            ranked = ranking.order_by_path(self._candidates(workspace, caller, wanted, now), paths, policy, now)
            on_path = [one.note.id for one in ranked]
            matched.update(dict.fromkeys(on_path))
        if request.event is not None:
            occasion = triggers.Occasion(event=request.event, paths=paths, prompt=request.query)
            matched.update((note.id, None) for note, _ in workspace.triggered_by(occasion, caller, now))
        deterrents: Sequence[Note] = ()
        if request.query:
            ranked = self._by_query(workspace, caller, request.query, ranking.Filter(), MAX_MATCHED, now)
            best = max((one.score for one in ranked), default=0.0)
            close = [one.note.id for one in ranked if one.score >= MATCH_SHARE * best]
            matched = dict.fromkeys([*close[:MAX_MATCHED], *matched])
        if request.query or paths:
            deterrents = self._warned(workspace, caller, request.query, paths, now)
        return selection.Step(matched=tuple(matched), on_path=frozenset(on_path), deterrents=deterrents)

    def _warned(
        self, workspace: Workspace, caller: Caller, query: str | None, paths: tuple[str, ...], now: int
    ) -> list[Note]:
        most = workspace.policy.max_deterrents
        found: dict[str, Note] = {}
        if paths:
            on_path = self._deterrents(workspace, caller, None, ranking.Filter(paths=paths), now, most)
            found = {note.id: note for note in on_path}
        if query:
            for note in self._deterrents(workspace, caller, query, ranking.Filter(), now, most):
                found.setdefault(note.id, note)
        return list(found.values())[:most]

    async def fire(self, request: wire.FireRequest) -> wire.FireAnswer:
        """Notes whose triggers the occasion matches, each once per session until compaction (or past its cooldown)."""
        workspace = await self._reader(request)
        if workspace is None:
            return wire.FireAnswer(notes=(), text="", tokens=0, seq="0-0")
        caller = request.caller.to_core()
        paths = tuple(intake.check_path(path, f"paths[{n}]") for n, path in enumerate(request.paths))
        check_query(request.prompt)
        check_query(request.command)
        occasion = triggers.Occasion(event=request.event, paths=paths, command=request.command, prompt=request.prompt)
        turn = request.turn or ""
        once: Once | None = None
        if caller.session:
            once = await workspace.log.once(caller.session, turn, self.settings.session_lease)
        elif turn:
            once = await workspace.log.once(f"{caller.actor} {turn}", turn, TURN_KEEP_MS)

        def select(workspace: Workspace, now: int) -> Selected[wire.FireAnswer]:
            if not workspace.policy.injection_enabled:
                return Selected(wire.FireAnswer(notes=(), text="", tokens=0, seq=workspace.position), (), (), b"")
            hit = [
                note
                for note, trigger in workspace.triggered_by(occasion, caller, now)
                if may_fire(None if once is None else once.shown(note.id), trigger.cooldown_ms, turn, now)
            ]
            ranked = ranking.order_without_query(
                (ranking.Candidate(note, workspace.words[note.id]) for note in hit), workspace.policy, now
            )
            ids = tuple(one.note.id for one in ranked)
            step = selection.Step(matched=ids, on_path=frozenset(ids))
            pool = selection.Listed(hit, workspace.policy, workspace.last_access, now)
            chosen = self._fill(workspace, caller, pool, step, workspace.policy.max_injected_tokens, now)
            used = tuple(note for note in (workspace.settled(id_, now) for id_ in chosen.ids) if note is not None)
            answer = wire.FireAnswer(
                notes=tuple(view(workspace, note, now) for note in used),
                text=chosen.text,
                tokens=chosen.tokens,
                seq=workspace.position,
            )
            entry = _block_entry("fire", workspace, caller, chosen, now) if used else b""
            return Selected(answer, used, (), entry)

        shown = await self._shown(workspace, request, select, strict=True, once=once)
        if shown is None:
            return wire.FireAnswer(notes=(), text="", tokens=0, seq="0-0")
        answer, used, _ = shown
        if used and workspace.policy.injection_renews != "never":
            self._renew(request.workspace, caller, used)
        return answer

    # -- what stands between a selection and its answer ----------------------------------------------------------

    async def _reader(self, request: wire.Request) -> Workspace | None:
        workspace = await self.open(request.workspace, create=False)
        if workspace is not None:
            await self.guard_reader(request)
        if workspace is not None and request.after is not None and not at_or_past(workspace.position, request.after):
            return await self.caught_up(request.workspace)
        return workspace

    async def _shown(
        self,
        workspace: Workspace,
        request: wire.Request,
        select: Callable[[Workspace, int], Selected[T]],
        *,
        strict: bool = False,
        once: Once | None = None,
    ) -> tuple[T, tuple[Note, ...], bool] | None:
        """Select, log and check, until what is shown stands. Returns the answer, the notes used, and ``degraded``;
        ``None`` when the workspace turns out to have been dropped.

        ``strict`` raises ``StoreUnavailable`` instead of answering degraded. ``once`` is what ``select`` leaves out
        because it was shown before; what it shows is marked there.
        """
        caller = request.caller.to_core()
        attempt = 0
        while attempt < READ_ATTEMPTS + PATIENT_ATTEMPTS:
            now = self.clock.now_ms()
            selected = select(workspace, now)
            seen = workspace.position if attempt < READ_ATTEMPTS else ""
            pairs = [(note.id, self._version(workspace, note)) for note in (*selected.used, *selected.shown)]
            try:
                found = await workspace.log.witness(
                    now,
                    pairs,
                    entry=selected.entry,
                    used=len(selected.used),
                    seen=seen,
                    policy=workspace.policy_version,
                    once=once,
                )
                stands = not (found.later_policy or found.moved or found.shown)
                # By the position of the selection: another request may have moved the projection on meanwhile.
                if stands and seen in ("", found.last):
                    workspace.count_use([note.id for note in selected.used], now)
                    self.alive(workspace, caller, now)
                    return selected.answer, selected.used, False
                await self.follow(workspace)
                if found.later_policy:
                    await workspace.reload_policy()
                known = dict(pairs)
                for note_id in found.moved:
                    note = workspace.notes.get(note_id)
                    if note is not None and note.version == known[note_id]:
                        # No event explains it, so its head is damaged. It must not stop everybody's answers.
                        workspace.set_aside(note_id, "head: another version than the log's")
                # What others have shown meanwhile leaves fewer to select: that is no reason to give up.
                attempt += not found.shown
            except StoreUnavailable:
                if strict:
                    raise
                return selected.answer, selected.used, True
            except NotFound:
                self.close(request.workspace)
                reopened = await self.open(request.workspace, create=False)
                if reopened is None:
                    return None
                workspace = reopened
                attempt += 1
        raise StoreUnavailable("notes kept changing while they were read", hint="try again")

    def _version(self, workspace: Workspace, note: Note) -> int:
        """The recorded version behind a settled note: what the store compares."""
        recorded = workspace.notes.get(note.id)
        return note.version if recorded is None else recorded.version

    def _renew(self, name: str, caller: Caller, notes: Sequence[Note]) -> None:
        """After the answer: renew the perishables that were used, and graduate those used often enough."""
        perishable = [note.id for note in notes if note.regime == "perishable"]
        if perishable:
            self.background(self._renew_now(name, caller, perishable))

    async def _renew_now(self, name: str, caller: Caller, ids: Sequence[str]) -> None:
        workspace = await self.open(name, create=False)
        if workspace is None:
            return
        now = self.clock.now_ms()
        for note_id in ids:
            change = Change(workspace, now)
            if note_id not in workspace.notes:
                continue
            note = change.settled(note_id)
            if not note.live:
                continue
            events: list[AnyNoteEvent] = list(decisions.renew(note, caller, workspace.policy, now))
            note = change.add(note_id, events)
            change.add(
                note_id, decisions.graduate(note, workspace.policy, now, workspace.use.get(note_id, Use()).times)
            )
            unit = change.finish()
            if unit is None:
                continue
            outcome = await workspace.log.commit(unit)
            if outcome.status in ("ok", "own"):
                workspace.absorb(outcome, change.results)
                if (due := workspace.due.get(note_id)) is not None:
                    self.jobs.due(workspace.ws, due)


def _nothing_recalled(request: wire.RecallRequest) -> wire.RecallAnswer:
    return wire.RecallAnswer(notes=(), deterrents=(), seq="0-0", text="" if request.format == "text" else None)


def may_fire(shown: tuple[int, str] | None, cooldown_ms: int | None, turn: str, now: int) -> bool:
    """Never twice in one turn; again in a later one only where the trigger has a cooldown that is over."""
    if shown is None:
        return True
    at, in_turn = shown
    return cooldown_ms is not None and now - at >= cooldown_ms and not (turn and turn == in_turn)


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
        seq=workspace.position,
    )


def _block_entry(kind: str, workspace: Workspace, caller: Caller, chosen: selection.Selection, now: int) -> bytes:
    entry = Shown(
        at=now,
        kind=kind,
        actor=caller.actor,
        session=caller.session,
        owner=next(iter(caller.owners), None),
        ids=tuple((id_, workspace.notes[id_].version, workspace.cost(id_)) for id_ in chosen.ids),
        tokens=chosen.tokens,
        budget=chosen.budget_tokens,
        deterrents=tuple((id_, workspace.notes[id_].version) for id_ in chosen.deterrents),
        seen=workspace.position,
    )
    return msgspec.json.encode(entry) if chosen.ids or chosen.deterrents else b""


def check_query(query: str | None) -> None:
    """Raises ``Invalid`` for a query that is too long to be one."""
    if query is not None and len(query) > MAX_QUERY_CHARS:
        raise Invalid(f"query has {len(query)} characters, the limit is {MAX_QUERY_CHARS}", field="query")


def _recalled(
    workspace: Workspace,
    one: ranking.Candidate,
    request: wire.RecallRequest,
    now: int,
    before: ranking.Candidate | None,
) -> wire.RecalledNote:
    fields: dict[str, Any] = view_fields(
        one.note,
        one.words,
        workspace.policy,
        workspace.use.get(one.note.id, Use()),
        workspace.name,
        now,
    )
    if request.query:
        fields["relevance"] = round(one.score, 4)
    if request.query or request.paths:
        fields["band"] = one.band
    if request.explain:
        fields["explanation"] = {
            "relevance": round(one.score, 4),
            "band": one.band,
            "trust": ranking.trust(one.note.provenance, workspace.policy),
            "rank": clocks.rank(one.note, workspace.policy, now),
            "created_at": one.note.created_at,
            "pinned": one.note.pinned,
            "decided_by": "first"
            if before is None
            else ranking.decided_by(before, one, workspace.policy, now, banded=bool(request.query or request.paths)),
        }
    return wire.RecalledNote(**fields, stale=one.stale)
