"""Recall: live notes by relevance, then trust and rank, with the revoked ones that match as deterrents.

The order is ``core.recall``'s and the scores are ``search``'s; here they meet the projection. With the store away a
recall answers from the projection, marked degraded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import islice
from operator import itemgetter
from typing import Any, Final

import msgspec

from amnesiad import wire
from amnesiad.core import intake, render
from amnesiad.core import recall as ranking
from amnesiad.core.callers import Caller
from amnesiad.core.notes import Note
from amnesiad.core.pathindex import words_of_mention
from amnesiad.projection import Class, Use
from amnesiad.search import Asked, Fusion, Layer, by_relevance, by_worth, content_words
from amnesiad.service.reading.answers import view_fields
from amnesiad.service.reading.ledger import Shown
from amnesiad.service.reading.scoring import asked
from amnesiad.service.reading.showing import Selected, Showing
from amnesiad.workspace import Workspace

MAX_DETERRENTS: Final = 3
"""Revoked notes a recall warns with at most; ``max_deterrents`` may say fewer."""


class Recalling(Showing):
    """The verb that finds notes, and the candidates that injection asks it for."""

    async def recall(self, request: wire.RecallRequest) -> wire.RecallAnswer:
        """Live notes by relevance, then trust and rank; with revoked ones that match as deterrents. Renews what it
        returns, unless it only peeks."""
        intake.check_query(request.query, "query")
        workspace = await self.reader(request)
        if workspace is None:
            return _nothing_recalled(request)
        caller = request.caller.to_core()
        wanted = ranking.Filter(
            kinds=frozenset(request.kinds),
            tags=request.tags,
            paths=intake.check_paths(request.paths),
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
            owner=caller.owner,
            ids=tuple((note.id, self._version(workspace, note), 0) for note in used),
            deterrents=tuple((note.id, self._version(workspace, note)) for note in warned),
            seen=workspace.position,
        )
        answer = wire.RecallAnswer(notes=notes, deterrents=deterrents, text=text, seq=workspace.position)
        return Selected(answer, used, tuple(warned), msgspec.json.encode(entry) if used or warned else b"")

    def ranked(
        self, workspace: Workspace, caller: Caller, query: str | None, wanted: ranking.Filter, limit: int, now: int
    ) -> list[ranking.Candidate]:
        """The first notes, up to the limit, in recall's order of those that pass the filters."""
        if query:
            return self.by_query(workspace, caller, query, wanted, limit, now)
        if wanted.paths:
            return self.by_path(workspace, caller, wanted, now)[:limit]
        chosen = by_worth(workspace.live, asked(workspace, caller, wanted, now, banded=False), limit)
        candidates = self.candidates(workspace, caller, wanted, now, chosen)
        return ranking.order_without_query(candidates, workspace.policy, now)[:limit]

    def by_path(
        self, workspace: Workspace, caller: Caller, wanted: ranking.Filter, now: int
    ) -> list[ranking.Candidate]:
        """All that pass the filters, among them paths, by how closely they have to do with one of these."""
        candidates = self.candidates(workspace, caller, wanted, now, list(workspace.concerning(wanted.paths)))
        return ranking.order_by_path(candidates, wanted.paths, workspace.policy, now)

    def candidates(
        self, workspace: Workspace, caller: Caller, wanted: ranking.Filter, now: int, ids: Iterable[str]
    ) -> Iterator[ranking.Candidate]:
        """Those of these notes that the caller may see and that pass the filters."""
        for note in workspace.visible_live(caller, now, ids):
            words = workspace.words[note.id]
            if wanted.matches(note, words, note.state):
                yield ranking.Candidate(note, words)

    def by_query(
        self, workspace: Workspace, caller: Caller, query: str, wanted: ranking.Filter, limit: int, now: int
    ) -> list[ranking.Candidate]:
        """The first notes, up to the limit, by relevance in whole bands. Filters come before the limit."""
        policy, live = workspace.policy, workspace.live
        question = asked(workspace, caller, wanted, now, banded=True)
        fusion = self.fusion(workspace, query, question)
        layers = self.layers(workspace, query, question, fusion)
        tie_width = max(policy.tie_width, ranking.MIN_TIE_WIDTH)
        scores = dict(by_relevance(live, layers, question, limit, tie_width=tie_width, cap=ranking.POOL_CAP))
        pool = [
            msgspec.structs.replace(one, score=scores[one.note.id], parts=fusion and fusion.parts(one.note.id))
            for one in self.candidates(workspace, caller, wanted, now, scores)
        ]
        return ranking.order_by_relevance(pool, policy, now, limit)

    def found(self, workspace: Workspace, caller: Caller, query: str, note_id: str, now: int) -> bool:
        """Whether the query finds this note at all, by words or by meaning, wherever it then stands."""
        question = asked(workspace, caller, ranking.Filter(), now, banded=True)
        layers = self.layers(workspace, query, question, self.fusion(workspace, query, question))
        slot = workspace.live.slots([note_id])[0]
        return any(slot in layer.slots for layer in layers)

    def layers(self, workspace: Workspace, query: str, question: Asked, fusion: Fusion | None) -> Iterator[Layer]:
        """What the query finds: by its content words and by meaning, or by words alone where there is no ``fusion``."""
        return workspace.live.layers(content_words(query), question.among) if fusion is None else fusion.layers()

    def fusion(self, workspace: Workspace, query: str, question: Asked) -> Fusion | None:
        """Relevance by words and by meaning; ``None`` where there is no model, and words alone count."""
        vector = self.meaning.asked(query)
        if workspace.vectors is None or vector is None:
            return None
        return Fusion(
            workspace.live,
            content_words(query),
            question.among,
            workspace.vectors,
            vector,
            lambda note_id: question.look(note_id) is not None,
        )

    def deterrents(
        self,
        workspace: Workspace,
        caller: Caller,
        query: str | None,
        wanted: ranking.Filter,
        now: int,
        most: int,
    ) -> list[Note]:
        """Revoked notes that match the query and the filters (states aside), the most relevant first; without a query
        those closest to the paths, of these the latest revoked."""
        if not workspace.revoked or not (query or wanted.paths):
            return []
        narrowed = msgspec.structs.replace(wanted, states=frozenset())
        about = _revoked_about(workspace, wanted.paths) if wanted.paths else workspace.revoked.keys()
        ids: Iterable[str] = about
        if query:
            scored = workspace.ended.score(content_words(query), workspace.audience(caller), classes=_revoked)
            ids = (note_id for note_id, _ in scored if note_id in about)
        found = (
            note
            for note in workspace.visible_ended(caller, now, ids)
            if note.state == "revoked" and narrowed.matches(note, workspace.words[note.id], note.state)
        )
        if query:
            return list(islice(found, most))
        by_path = [
            (ranking.path_grade(workspace.words[note.id], wanted.paths), note.state_at, note.id, note) for note in found
        ]
        return [note for *_, note in sorted(by_path, key=itemgetter(0, 1, 2), reverse=True)[:most]]


def _revoked_about(workspace: Workspace, paths: Sequence[str]) -> Set[str]:
    """The revoked notes that may have to do with one of the paths; too many rather than too few."""
    # An anchor is indexed beside the content, and so are the words of a mention; triggers are not, and few have one.
    found = {note_id for note_id in workspace.revoked if workspace.words[note_id].triggers}
    for path in paths:
        words = words_of_mention(path)
        if words is None:
            return workspace.revoked.keys()
        found |= workspace.ended.contains_all_words(words) & workspace.revoked.keys()
    return found


def _revoked(class_: Class) -> bool:
    _, _, _, state = class_
    return state == "revoked"


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
        trusted, rank, created_at, _ = ranking.worth(one.note, workspace.policy, now)
        fields["explanation"] = {
            "relevance": round(one.score, 4),
            **_parts(one.parts),
            "band": one.band,
            "trust": trusted,
            "rank": rank,
            "created_at": created_at,
            "pinned": one.note.pinned,
            "decided_by": "first"
            if before is None
            else ranking.decided_by(before, one, workspace.policy, now, banded=bool(request.query or request.paths)),
        }
    return wire.RecalledNote(**fields, stale=one.stale)


def _parts(parts: ranking.Parts | None) -> dict[str, float]:
    return {} if parts is None else {"lexical": round(parts.words, 4), "semantic": round(parts.meaning, 4)}
