"""Why a note was *not* returned: the questions that recall, inject and fire ask of it, asked one by one.

Nothing here is a rule of its own: places and budgets come from the very selections that the verbs make, so an
explanation cannot drift from what it explains. Nothing is logged, renewed or counted as shown.
"""

from __future__ import annotations

from typing import Final

import msgspec

from amnesiad import wire
from amnesiad.core import intake, triggers
from amnesiad.core import recall as ranking
from amnesiad.core.callers import Caller, visible
from amnesiad.core.errors import NotFound
from amnesiad.core.notes import Note
from amnesiad.core.times import format_time
from amnesiad.service.injecting import Injecting, may_fire
from amnesiad.service.showing import check_query
from amnesiad.store import vault
from amnesiad.workspace import Workspace

EVERY_FILTER: Final = ("kinds", "tags", "paths", "states", "since", "until")


class Explaining(Injecting):
    """The verb that tells why not."""

    async def why_not(self, request: wire.WhyNotRequest) -> wire.WhyNotAnswer:
        """Every reason why recall, inject and fire, asked with these fields, leave the note out.

        A note that the asker may not see is not found. A human asks about the view of the session, agent or team that
        ``caller`` names, and about everything without one.
        """
        workspace, degraded = await self.reading(request)
        if workspace is None:
            raise NotFound(f"there is no note {request.id}", field="id", hint="amnesia list shows what there is")
        for text in (request.query, request.command):
            check_query(text)
        paths = tuple(intake.check_path(path, f"paths[{n}]") for n, path in enumerate(request.paths))
        asker, now = request.caller.to_core(), self.clock.now_ms()
        note_id = await self.address(workspace, asker, request.id)
        viewer = asker
        if asker.role == "human" and (asker.session or asker.agent or asker.team):
            viewer = msgspec.structs.replace(asker, role="agent")
        await self.meaning.ask(request.query)
        note = workspace.settled(note_id, now)
        reasons: list[wire.Obstacle]
        place, recalled, injected = None, False, False
        if note is None or not note.live:
            reasons = [await self._ended(workspace, note_id, note)]
        elif not visible(note, viewer, workspace.policy):
            reasons = [_obstacle("any", "out-of-scope", _scope_text(note, viewer))]
        else:
            place, reasons = self._not_recalled(workspace, viewer, note, request, paths, now)
            recalled = place is not None and place <= request.limit
            over = self._not_injected(workspace, viewer, note, request, paths, now)
            injected = over is None
            reasons += [over] if over else []
            reasons += await self._not_fired(workspace, viewer, note, request, paths, now)
        return wire.WhyNotAnswer(
            id=note_id,
            recalled=recalled,
            injected=injected,
            place=place,
            reasons=tuple(reasons),
            seq=workspace.position,
            degraded=degraded,
        )

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

    def _not_recalled(
        self,
        workspace: Workspace,
        viewer: Caller,
        note: Note,
        request: wire.WhyNotRequest,
        paths: tuple[str, ...],
        now: int,
    ) -> tuple[int | None, list[wire.Obstacle]]:
        """The note's place in recall's order, and what keeps it out of the answer."""
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
            rule, text = "outranked", f"more than {ranking.POOL_CAP} notes come before it"
            if request.query and not self.found(workspace, viewer, request.query, note.id, now):
                rule, text = "no-shared-word", "no word of the query stands in its text, key, tags or anchors"
                if workspace.vectors is not None:
                    near = "it is not near" if note.id in workspace.vectors else "it is not known yet"
                    text += f", and in meaning {near}"
            return None, [_obstacle("recall", rule, text)]
        if place <= request.limit:
            return place, []
        band = f", in band {ranked[place - 1].band}" if request.query or paths else ""
        text = f"it stands in place {place} of {len(ranked)}{band}, and {request.limit} are returned"
        return place, [_obstacle("recall", "outranked", text)]

    def _not_injected(
        self,
        workspace: Workspace,
        viewer: Caller,
        note: Note,
        request: wire.WhyNotRequest,
        paths: tuple[str, ...],
        now: int,
    ) -> wire.Obstacle | None:
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
        chosen = self._choose(workspace, viewer, step, paths, budget, now)
        if note.id in chosen.ids:
            return None
        cost, left = workspace.cost(note.id), chosen.left.get(note.id)
        if note.state == "stale" and left is None:
            text = f"it is stale ({', '.join(note.causes)}): only a changed file that the step names lets it in"
            return _obstacle("inject", "stale", text)
        if left is not None:
            text = f"its line costs {cost} tokens, {cost - left} more than the {left} of {budget} that were left for it"
            return _obstacle("inject", "over-budget", text)
        text = f"the notes before it fill the budget of {budget} tokens; its line would cost {cost}"
        return _obstacle("inject", "outranked", text)

    async def _not_fired(
        self,
        workspace: Workspace,
        viewer: Caller,
        note: Note,
        request: wire.WhyNotRequest,
        paths: tuple[str, ...],
        now: int,
    ) -> list[wire.Obstacle]:
        if request.event is None:
            return []
        if not workspace.policy.injection_enabled:
            return [_obstacle("fire", "injection-disabled", "the setting injection_enabled is off")]
        occasion = triggers.Occasion(event=request.event, paths=paths, command=request.command, prompt=request.query)
        words = workspace.words[note.id]
        trigger = triggers.matching(words, occasion)
        if trigger is None:
            text = f"none of its {len(words.triggers)} triggers matches" if words.triggers else "it has no trigger"
            return [_obstacle("fire", "no-trigger", text)]
        context = viewer.context or viewer.session
        shown = (await workspace.log.fired(context)).get(note.id) if context else None
        if shown is None or may_fire(shown, trigger.cooldown_ms, "", now):
            return []
        text = f"it was shown to session {context} at {format_time(shown[0])}, and comes once until compaction"
        return [_obstacle("fire", "shown-already", text)]


def _obstacle(verb: str, rule: str, text: str) -> wire.Obstacle:
    return wire.Obstacle(verb=verb, rule=rule, text=text)  # type: ignore[arg-type]


def _scope_text(note: Note, viewer: Caller) -> str:
    whose = f" of {note.owner}" if note.owner else ""
    return f"it is a {note.scope} note{whose}, which {viewer.actor} ({viewer.agent_kind}) does not see"
