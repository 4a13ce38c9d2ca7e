"""Why a note was *not* returned: the questions that recall, inject and fire ask of it, asked one by one.

Nothing here is a rule of its own: places and budgets come from the very selections that the verbs make, so an
explanation cannot drift from what it explains. Nothing is logged, renewed or counted as shown.
"""

from __future__ import annotations

import contextlib
from typing import Final, NamedTuple

import msgspec

from amnesiad import wire
from amnesiad.core import inject as selection
from amnesiad.core import intake, triggers
from amnesiad.core import recall as ranking
from amnesiad.core.callers import Caller, visible
from amnesiad.core.errors import NotFound
from amnesiad.core.notes import Note
from amnesiad.core.times import format_time
from amnesiad.errors import StoreUnavailable
from amnesiad.service.reading.correcting import Corrections
from amnesiad.service.reading.injecting import Injecting
from amnesiad.store import vault
from amnesiad.workspace import Workspace

EVERY_FILTER: Final = ("kinds", "tags", "paths", "states", "since", "until")


class _Question(NamedTuple):
    """What is asked, and all of the store that an answer needs: nothing may change while the verbs' selections are
    made."""

    workspace: Workspace
    viewer: Caller
    request: wire.WhyNotRequest
    paths: tuple[str, ...]
    now: int
    owed: Corrections | None
    fired: dict[str, tuple[int, str]]


class Explaining(Injecting):
    """The verb that tells why not."""

    async def why_not(self, request: wire.WhyNotRequest) -> wire.WhyNotAnswer:
        """Every reason why recall, inject and fire, asked with these fields, leave the note out.

        A note that the asker may not see is not found. A human asks about the view of the session, agent or team that
        ``caller`` names, and about everything without one.
        """
        intake.check_query(request.query, "query")
        intake.check_query(request.command, "command")
        workspace, degraded = await self.reading(request)
        if workspace is None:
            raise NotFound(f"there is no note {request.id}", field="id", hint="amnesia list shows what there is")
        asker = request.caller.to_core()
        note_id = await self.address(workspace, asker, request.id)
        asked = await self._asked(workspace, asker, request)
        note = workspace.settled(note_id, asked.now)
        reasons: list[wire.Obstacle | None]
        place, recalled, injected = None, False, False
        if note is None or not note.live:
            reasons = [await self._ended(workspace, note_id, note)]
        elif not visible(note, asked.viewer, workspace.policy):
            reasons = [_obstacle("any", "out-of-scope", _scope_text(note, asked.viewer))]
        else:
            place, unrecalled = self._not_recalled(asked, note)
            recalled = place is not None and place <= request.limit
            over = self._not_injected(asked, note)
            injected = over is None
            reasons = [*unrecalled, over, self._not_fired(asked, note)]
        return wire.WhyNotAnswer(
            id=note_id,
            recalled=recalled,
            injected=injected,
            place=place,
            reasons=tuple(one for one in reasons if one is not None),
            seq=workspace.position,
            degraded=degraded,
        )

    async def _asked(self, workspace: Workspace, asker: Caller, request: wire.WhyNotRequest) -> _Question:
        paths = intake.check_paths(request.paths)
        viewer = asker
        if asker.role == "human" and (asker.session or asker.agent or asker.team):
            viewer = msgspec.structs.replace(asker, role="agent")
        await self.meaning.ask(request.query)
        owed = self._owed(viewer)
        if owed is not None:
            with contextlib.suppress(StoreUnavailable):
                await owed.look(workspace)
        fired = {}
        if request.event is not None and viewer.context is not None:
            fired = await workspace.witness.fired(viewer.context)
        return _Question(workspace, viewer, request, paths, self.clock.now_ms(), owed, fired)

    async def _ended(self, workspace: Workspace, note_id: str, note: Note | None) -> wire.Obstacle:
        if note_id in workspace.unreadable:
            return _obstacle("any", "unreadable", "it cannot be read; amnesia verify tells more")
        if note is None:
            found = await vault.find(self.redis, workspace.keys, note_id)
            if not isinstance(found, vault.Grave):
                raise NotFound(f"there is no note {note_id}", field="id", hint="amnesia list shows what there is")
            note = found.tomb.note
        why = f" ({note.state_reason})" if note.state_reason else ""
        return _obstacle("any", "ended", f"it is {note.state} since {format_time(note.state_at)}{why}")

    def _not_recalled(self, asked: _Question, note: Note) -> tuple[int | None, list[wire.Obstacle]]:
        """The note's place in recall's order, and what keeps it out of the answer."""
        workspace, viewer, request, paths, now, _, _ = asked
        wanted = ranking.Filter(
            kinds=frozenset(request.kinds),
            tags=request.tags,
            paths=paths,
            states=frozenset(request.states),
            since=request.since,
            until=request.until,
        )
        words = workspace.words[note.id]
        reasons = []
        for name in EVERY_FILTER:
            alone = ranking.Filter(**{name: getattr(wanted, name)})
            if not alone.matches(note, words, note.state):
                reasons.append(_obstacle("recall", "filtered", f"the filter {name} leaves it out"))
        if reasons:
            return None, reasons
        ranked = self.ranked(workspace, viewer, request.query, wanted, ranking.POOL_CAP, now)
        place = next((n for n, one in enumerate(ranked, 1) if one.note.id == note.id), None)
        if place is None:
            return None, [self._not_ranked(asked, note)]
        if place <= request.limit:
            return place, []
        band = f", in band {ranked[place - 1].band}" if request.query or paths else ""
        text = f"it stands in place {place} of {len(ranked)}{band}, and {request.limit} are returned"
        return place, [_obstacle("recall", "outranked", text)]

    def _not_ranked(self, asked: _Question, note: Note) -> wire.Obstacle:
        workspace, query = asked.workspace, asked.request.query
        if not query or self.found(workspace, asked.viewer, query, note.id, asked.now):
            return _obstacle("recall", "outranked", f"more than {ranking.POOL_CAP} notes come before it")
        text = "no word of the query that says something stands in its text, key, tags or anchors"
        if workspace.vectors is not None:
            near = "it is not near" if note.id in workspace.vectors else "it is not known yet"
            text += f", and in meaning {near}"
        return _obstacle("recall", "no-shared-word", text)

    def _not_injected(self, asked: _Question, note: Note) -> wire.Obstacle | None:
        workspace, request = asked.workspace, asked.request
        if not workspace.policy.injection_enabled:
            return _obstacle("inject", "injection-disabled", "the setting injection_enabled is off")
        step = wire.InjectRequest(
            workspace=request.workspace,
            query=request.query,
            paths=request.paths,
            event=request.event,
            budget_tokens=request.budget_tokens,
        )
        budget = self._budget(workspace, step)
        chosen = self._choose(workspace, asked.viewer, step, asked.paths, budget, asked.now, asked.owed)
        return _left_out("inject", workspace, note, chosen)

    def _not_fired(self, asked: _Question, note: Note) -> wire.Obstacle | None:
        workspace, viewer, request, paths, now, owed, fired = asked
        if request.event is None:
            return None
        if not workspace.policy.injection_enabled:
            return _obstacle("fire", "injection-disabled", "the setting injection_enabled is off")
        occasion = triggers.Occasion(event=request.event, paths=paths, command=request.command, prompt=request.query)
        words = workspace.words[note.id]
        trigger = triggers.matching(words, occasion)
        if trigger is None:
            text = f"none of its {len(words.triggers)} triggers matches" if words.triggers else "it has no trigger"
            return _obstacle("fire", "no-trigger", text)
        shown = fired.get(note.id)
        if shown is not None and not triggers.may_fire(shown, trigger.cooldown_ms, "", now):
            at = format_time(shown[0])
            text = f"it was shown to session {viewer.context} at {at}, and comes once until compaction"
            return _obstacle("fire", "shown-already", text)
        chosen = self._fired(workspace, viewer, occasion, fired.get, "", owed, now)
        return _left_out("fire", workspace, note, chosen)


def _left_out(verb: str, workspace: Workspace, note: Note, chosen: selection.Selection) -> wire.Obstacle | None:
    """Why the selection holds no line of this live note; ``None`` where it does."""
    if note.id in chosen.ids:
        return None
    cost, left, budget = workspace.cost(note.id), chosen.left.get(note.id), chosen.budget_tokens
    if left is not None and left < 0:
        text = f"its line costs {cost} tokens and the block's frame {budget - left}, {cost - left} more than {budget}"
        return _obstacle(verb, "over-budget", text)
    if left is not None:
        text = f"its line costs {cost} tokens, {cost - left} more than the {left} of {budget} that were left for it"
        return _obstacle(verb, "over-budget", text)
    if note.state == "stale":
        causes = ", ".join(note.causes)
        text = f"it is stale ({causes}): only a changed file that the step names lets a stale note in"
        return _obstacle(verb, "stale", text)
    text = f"the notes before it fill the budget of {budget} tokens; its line would cost {cost}"
    return _obstacle(verb, "outranked", text)


def _obstacle(verb: str, rule: str, text: str) -> wire.Obstacle:
    return wire.Obstacle(verb=verb, rule=rule, text=text)  # type: ignore[arg-type]


def _scope_text(note: Note, viewer: Caller) -> str:
    whose = f" of {note.owner}" if note.owner else ""
    return f"it is a {note.scope} note{whose}, which {viewer.actor} ({viewer.agent_kind}) does not see"
