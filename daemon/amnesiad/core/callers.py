"""Who is calling, what that caller owns, what it may see and what it may end: the one place for all of it.

Owners are ids made from the caller's session, agent and team. An unidentified child is refused, never widened to the
workspace; a fresh agent sees and writes nothing. The specification's sections 5 (who may), 7 (visibility) and 9
(scopes).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, Literal

import msgspec

from amnesiad.core.errors import Forbidden, Invalid, Refused
from amnesiad.core.events import HUMAN, Provenance, Scope
from amnesiad.core.notes import Note
from amnesiad.core.policy import Policy

AgentKind = Literal["main", "subagent", "continuable", "workflow", "teammate", "fresh"]
Role = Literal["agent", "human"]

CHILD_KINDS: Final = frozenset({"subagent", "continuable", "workflow"})
POLICY_RULE: Final = "policy-role"
OWN_SETTINGS: Final = frozenset(
    {
        "default_ttl",
        "default_kind",
        "default_curve",
        "max_item_bytes",
        "promote_after_accesses",
        "promoted_ttl",
        "renewal_gain",
        "renewal_bonus",
        "injection_renews",
        "tie_width",
    }
)
"""Settings that an agent may change beside a human's notes: they shape what is written or renewed from now on, and the
order of equals. Every other one, and so every one that is yet to come, may end, hide or erase a note that is there."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The identity a request declares. Ids are opaque tokens, checked at the door (``intake.check_id``)."""

    role: Role = "agent"
    agent_kind: AgentKind = "main"
    session: str | None = None
    agent: str | None = None
    team: str | None = None
    on_behalf: bool = False

    @property
    def actor(self) -> str:
        """How the log names this caller: ``human`` or ``agent:ID``."""
        if self.role == "human":
            return HUMAN
        return f"agent:{self.agent or self.session or self.team or 'unnamed'}"

    @property
    def author(self) -> str | None:
        """Who wrote a note, for its bare facts."""
        return self.agent or self.session

    @property
    def context(self) -> str | None:
        """The one context window behind this caller, to which notes are shown; ``None`` for a human, a fresh agent, and
        whoever does not say which it is. A child's is its own, and so is each teammate's."""
        if self.role == "human" or self.agent_kind == "fresh":
            return None
        home = self.session or self.team
        if self.agent_kind == "main":
            return self.session
        if home and self.agent:
            return f"{home}/{self.agent}"
        return None if self.child else self.session

    @property
    def child(self) -> bool:
        """Whether this caller is a subagent, continuable or workflow agent of some session."""
        return self.agent_kind in CHILD_KINDS

    @property
    def owner(self) -> str | None:
        """The owner id that is this caller's own; ``None`` for a fresh or anonymous one. As ``owners``."""
        return next(iter(self.owners), None)

    @property
    def owners(self) -> tuple[str, ...]:
        """Every owner id this caller answers for, its own first; empty for a fresh or anonymous caller."""
        if self.agent_kind == "fresh":
            return ()
        if self.child:
            return (child_owner(self),)
        own = [] if self.agent_kind == "teammate" else [self.session]
        return tuple(dict.fromkeys(owner for owner in (*own, self.team) if owner))


def child_owner(caller: Caller) -> str:
    """The owner id ``session/agent`` of a child. Raises ``Refused`` when either part is missing."""
    if not caller.session or not caller.agent:
        missing = "session" if not caller.session else "agent"
        raise Refused(
            f"a {caller.agent_kind} must say who it is: caller.{missing} is missing",
            rule="unidentified-child",
            field=f"caller.{missing}",
            hint="send caller.session and caller.agent; a child is never widened to the workspace",
        )
    return f"{caller.session}/{caller.agent}"


def address(caller: Caller, scope: Scope | None, owner: str | None) -> tuple[Scope, str | None]:
    """The scope and owner a new note of this caller gets. ``scope`` and ``owner`` are what the request asked for.

    Raises ``Refused`` for a fresh agent, an unidentified child, a scope the caller has no owner for, or somebody
    else's owner id (role human may name any).
    """
    if caller.agent_kind == "fresh":
        raise Refused("a fresh agent keeps no memory", rule="fresh", hint="write as another agent kind")
    if caller.child:
        chosen: Scope = scope or "session"
        mine: str | None = child_owner(caller)
        if chosen != "session":
            raise Refused(
                f"a {caller.agent_kind} writes session notes, not {chosen} notes",
                rule="child-scope",
                field="scope",
                hint="write it with scope session, then promote it to the workspace",
            )
    elif caller.agent_kind == "teammate":
        chosen = scope or "team"
        mine = caller.team
        if chosen == "session":
            # A team's id is its lead's session: a session note of a teammate would be one of the lead's own.
            raise Refused(
                "a teammate writes team notes, which all members share, not session notes",
                rule="teammate-scope",
                field="scope",
                hint="write it with scope team",
            )
    else:
        chosen = scope or "workspace"
        mine = caller.team if chosen == "team" else caller.session
    if chosen == "workspace":
        if owner is not None:
            raise Invalid(
                "a workspace note has no owner", field="owner", hint="drop owner, or use scope session or team"
            )
        return "workspace", None
    if owner is not None and owner != mine:
        if caller.role != "human":
            raise Forbidden(f"{caller.actor} may not write for the owner {owner!r}", field="owner")
        mine = owner
    if mine is None:
        part = "team" if chosen == "team" else "session"
        raise Refused(
            f"a {chosen} note needs an owner, and caller.{part} is missing",
            rule="unidentified-owner",
            field=f"caller.{part}",
            hint=f"send caller.{part}, or write with scope workspace",
        )
    return chosen, mine


def visible(note: Note, caller: Caller, policy: Policy) -> bool:
    """Whether this caller may see the note at all. Every verb asks here and nowhere else.

    A human sees everything in the workspace. Main sees the workspace, its own session and its team; a child its own
    notes and, by ``child_sees``, the workspace's directives; a teammate its team's and the directives; fresh nothing.
    Raises ``Refused`` for an unidentified child, whatever the note.
    """
    if caller.agent_kind == "fresh":
        return False
    if caller.role == "human":
        return True
    own = child_owner(caller) if caller.child else caller.session
    # The scope is asked beside the owner: a team's id is its lead's session, so the lead's own notes and those it
    # shares carry the same owner, and the owner alone would show a member the lead's session.
    if note.scope == "session":
        return note.owner == own and own is not None and caller.agent_kind != "teammate"
    if note.scope == "team":
        return not caller.child and note.owner in caller.owners
    if caller.agent_kind == "main":
        return True
    return note.kind == "directive" and (caller.agent_kind == "teammate" or policy.child_sees == "directives")


def check_authority(note: Note, caller: Caller, verb: str, reason: str | None) -> None:
    """May this caller end or change the note? Raises ``Forbidden``; the note's words are not in the message."""
    if caller.role == "human":
        return
    if note.provenance == "human":
        raise Forbidden(
            f"note {note.id} is a human's: an agent may not {verb} it",
            rule="provenance",
            hint="ask the user to do it, or remember a note of your own beside it",
        )
    if note.provenance == "user-stated" and not (caller.on_behalf and reason):
        raise Forbidden(
            f"note {note.id} states what the user said: an agent may {verb} it only on the user's behalf, with a "
            "reason",
            rule="provenance",
            hint='send caller.on_behalf "user" and a reason',
        )


def governs(caller: Caller) -> bool:
    """Whether this caller may look at workspaces, owners and parked events as a whole: a human and a main agent may."""
    return caller.role == "human" or caller.agent_kind == "main"


def check_governor(caller: Caller, what: str, rule: str) -> None:
    """May this caller change what belongs to all: policy, workspaces, parked events? Raises ``Forbidden``."""
    if not governs(caller):
        raise Forbidden(
            f"a {caller.agent_kind} agent may not {what}", rule=rule, hint="leave it to the main agent, or to the user"
        )


def check_policy(caller: Caller, settings: Collection[str], held: Iterable[Provenance]) -> None:
    """May this caller change these settings of a workspace that holds notes of these provenances? Raises ``Forbidden``.

    What an agent may not end note by note it may not have ended by a rule either.
    """
    check_governor(caller, "change the policy", POLICY_RULE)
    reaching = [name for name in settings if name not in OWN_SETTINGS]
    if caller.role == "human" or not reaching:
        return
    guarded = set(held) & ({"human"} if caller.on_behalf else {"human", "user-stated"})
    if guarded:
        raise Forbidden(
            f"{reaching[0]} reaches notes that are there, and some are {' or '.join(sorted(guarded))}: "
            "an agent may not change it",
            rule=POLICY_RULE,
            field=reaching[0],
            hint="ask the user to do it" if "human" in guarded else 'send caller.on_behalf "user"',
        )
