"""Recall: live notes by relevance, then trust and rank, with the revoked ones that match as deterrents.

The order is ``core.recall``'s and the scores are ``search``'s; here they meet the projection. With the store away a
recall answers from the projection, marked degraded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Any, Final

import msgspec

from amnesiad import wire
from amnesiad.core import clocks, intake, render
from amnesiad.core import recall as ranking
from amnesiad.core.callers import Caller
from amnesiad.core.notes import Note
from amnesiad.search import by_relevance, by_worth, fused
from amnesiad.service.answers import view_fields
from amnesiad.service.ledger import Shown
from amnesiad.service.showing import Selected, Showing, check_query
from amnesiad.service.weighing import asked, weighable
from amnesiad.workspace import Use, Workspace

MAX_DETERRENTS: Final = 3
"""Revoked notes a recall warns with at most; ``max_deterrents`` may say fewer."""


class Recalling(Showing):
    """The verb that finds notes, and the candidates that injection asks it for."""

    async def recall(self, request: wire.RecallRequest) -> wire.RecallAnswer:
        """Live notes by relevance, then trust and rank; with revoked ones that match as deterrents. Renews what it
        returns, unless it only peeks."""
        workspace = await self.reader(request)
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

        shown = await self.show(workspace, request, select)
        if shown is None:
            return _nothing_recalled(request)
        answer, used, degraded = shown
        if not (degraded or request.peek):
            self.renew_used(request.workspace, caller, used)
        return msgspec.structs.replace(answer, degraded=degraded)

    def _recall(
        self, workspace: Workspace, caller: Caller, request: wire.RecallRequest, wanted: ranking.Filter, now: int
    ) -> Selected[wire.RecallAnswer]:
        policy = workspace.policy
        chosen = self.ranked(workspace, caller, request.query, wanted, request.limit, now)
        most = min(MAX_DETERRENTS, policy.max_deterrents)
        warned = self.deterrents(workspace, caller, request.query, wanted, now, most)
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
        """The first notes, up to the limit, in recall's order of those that pass the filters."""
        policy = workspace.policy
        if query:
            return self.by_query(workspace, caller, query, wanted, limit, now)
        if wanted.paths:
            candidates = self.candidates(workspace, caller, wanted, now)
            return ranking.order_by_path(candidates, wanted.paths, policy, now)[:limit]
        ids: Iterable[str] | None = None
        if weighable(wanted):
            ids = by_worth(workspace.live, asked(workspace, caller, wanted, now, banded=False), limit)
        candidates = self.candidates(workspace, caller, wanted, now, ids)
        return ranking.order_without_query(candidates, policy, now)[:limit]

    def candidates(
        self,
        workspace: Workspace,
        caller: Caller,
        wanted: ranking.Filter,
        now: int,
        ids: Iterable[str] | None = None,
    ) -> Iterator[ranking.Candidate]:
        """Those of these notes, or of all, that the caller may see and that pass the filters."""
        if ids is None and wanted.paths:
            ids = workspace.concerning(wanted.paths)
        for note in workspace.visible_live(caller, now, None if ids is None else list(ids)):
            words = workspace.words[note.id]
            if wanted.matches(note, words, note.state):
                yield ranking.Candidate(note, words)

    def by_query(
        self, workspace: Workspace, caller: Caller, query: str, wanted: ranking.Filter, limit: int, now: int
    ) -> list[ranking.Candidate]:
        """The first notes, up to the limit, by relevance in whole bands. Filters come before the limit."""
        vector = self.meaning.asked(query)
        if weighable(wanted) and (workspace.vectors is None or vector is None):
            question = asked(workspace, caller, wanted, now, banded=True)
            tie_width = max(workspace.policy.tie_width, ranking.MIN_TIE_WIDTH)
            scored = by_relevance(workspace.live, query, question, limit, tie_width=tie_width, cap=ranking.POOL_CAP)
            pool = list(self._admitted(workspace, caller, wanted, now, scored))
        else:
            found = self._by_relevance(workspace, caller, query, wanted, now)
            pool = _whole_bands(
                self._admitted(workspace, caller, wanted, now, found), limit, workspace.policy.tie_width
            )
        return ranking.order_by_relevance(pool, workspace.policy, now, limit)

    def _admitted(
        self,
        workspace: Workspace,
        caller: Caller,
        wanted: ranking.Filter,
        now: int,
        scored: Iterable[tuple[str, float]],
    ) -> Iterator[ranking.Candidate]:
        narrowed = wanted != ranking.Filter()
        for note_id, score in scored:
            note = workspace.live_note(note_id, caller, now)
            if note is None:
                continue
            words = workspace.words[note_id]
            if not narrowed or wanted.matches(note, words, note.state):
                yield ranking.Candidate(note, words, score)

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

    def deterrents(
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


def _whole_bands(found: Iterable[ranking.Candidate], limit: int, tie_width: float) -> list[ranking.Candidate]:
    """The whole bands that cover the limit of what is found, best first; it is read no further. At most ``POOL_CAP``."""
    pool: list[ranking.Candidate] = []
    last_band, last_score = 0, 0.0
    for one in found:
        if len(pool) == ranking.POOL_CAP:
            break
        if len(pool) >= limit:
            if len(pool) == limit:
                last_band = ranking.band(pool[-1].score, pool[0].score, tie_width)
            if one.score != last_score and ranking.band(one.score, pool[0].score, tie_width) > last_band:
                break
            last_score = one.score
        pool.append(one)
    return pool


def _nothing_recalled(request: wire.RecallRequest) -> wire.RecallAnswer:
    return wire.RecallAnswer(notes=(), deterrents=(), seq="0-0", text="" if request.format == "text" else None)


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
