"""Hypothesis strategies for the core: policies, callers, notes, events, and sequences of commands with a way to run
them.

``run`` is the smallest possible shell: it settles, decides, and appends what the decision returned. No test of the core
needs more of one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from amnesiad.core import clocks, decisions, events
from amnesiad.core.callers import AgentKind, Caller
from amnesiad.core.errors import CallerError
from amnesiad.core.events import AnyNoteEvent, Created, Event
from amnesiad.core.kinds import DAY_MS, REGIMES, Curve, load_kinds
from amnesiad.core.notes import Anchor, Note, Trigger, Words, apply, fold
from amnesiad.core.policy import Policy, validate

KINDS: Final = load_kinds(tomllib.loads((resources.files("amnesiad") / "kinds.toml").read_text()))
DEFAULTS: Final = Policy(kinds=KINDS)
T0: Final = 1_900_000_000_000
"""When the notes of these tests are born, epoch milliseconds."""
OLD: Final = 200 * 365 * DAY_MS
"""An age that no lease and no retention outlives."""

HUMAN: Final = Caller(role="human")
AGENT: Final = Caller(session="s1", agent="a1")


def examples(count: int) -> settings:
    """So many examples, however slow the machine is at that moment: these tests are about values, not about time."""
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


kind_names = st.sampled_from(list(REGIMES))
curves: st.SearchStrategy[Curve] = st.sampled_from(get_args(Curve))
durations = st.one_of(
    st.integers(1, 1000),
    st.integers(1, 400).map(lambda days: days * DAY_MS),
    st.integers(1, decisions.MAX_TTL_MS),
)
record_ttls: st.SearchStrategy[Literal["off", "by-kind"] | int] = st.one_of(
    st.just("off"), st.just("by-kind"), durations
)
gaps = st.one_of(st.integers(0, 1000), st.integers(0, 60 * DAY_MS), st.integers(0, 400).map(lambda days: days * DAY_MS))
tokens = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:@#+=-]{0,11}", fullmatch=True)
note_ids = st.text("0123456789abcdefghjkmnpqrstvwxyz", min_size=10, max_size=10)
texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=20)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Policies that an operator could set: every setting the clocks and decisions look at varies within its range."""
    stale = draw(st.floats(0.01, 0.99))
    return validate(
        Policy(
            kinds=KINDS,
            default_ttl=draw(st.none() | durations),
            default_curve=draw(curves),
            ebbinghaus_k=draw(st.floats(0.001, 100)),
            stale_strength=stale,
            forgotten_strength=draw(st.floats(0, stale, exclude_max=True)),
            renewal_gain=draw(st.floats(1, 10)),
            renewal_bonus=draw(st.floats(0, 1)),
            auto_expire=draw(st.booleans() | st.just(True)),
            record_ttl=draw(record_ttls),
            audit_retention=draw(durations),
            ended_retention=draw(st.none() | durations),
            promote_after_accesses=draw(st.integers(0, 3)),
            promoted_ttl=draw(durations),
            child_sees=draw(st.sampled_from(["directives", "own"])),
        )
    )


@st.composite
def callers(draw: st.DrawFn) -> Caller:
    """Callers of every role and kind, identified or not, from a small world in which ids collide."""
    ids = st.none() | st.sampled_from(["s1", "s2", "a1", "t1"])
    return Caller(
        role=draw(st.sampled_from(["agent", "human"])),
        agent_kind=draw(st.sampled_from(get_args(AgentKind))),
        session=draw(ids),
        agent=draw(ids),
        team=draw(ids),
        on_behalf=draw(st.booleans()),
    )


@st.composite
def words(draw: st.DrawFn) -> Words:
    """Any words a note may have."""
    triggers = st.builds(
        Trigger,
        event=st.none() | tokens,
        path=st.none() | texts,
        command=st.none() | texts,
        words=st.lists(texts, max_size=2).map(tuple),
        cooldown_ms=st.none() | st.integers(0, 1000),
    )
    return Words(
        content=draw(texts),
        key=draw(st.none() | texts),
        tags=tuple(draw(st.lists(texts, max_size=3))),
        anchors=tuple(draw(st.lists(st.builds(Anchor, path=texts, sha256=st.none() | tokens), max_size=2))),
        triggers=tuple(draw(st.lists(triggers, max_size=2))),
        reasons=draw(st.dictionaries(st.integers(1, 99).map(str), texts, max_size=2)),
    )


def born(kind: str = "fact", at: int = T0, **facts: Any) -> Note:
    """A note just created; ``facts`` are fields of the event ``created``."""
    facts = {"provenance": "agent", "size": 10, **facts}
    return fold([Created(note="n000000001", version=1, at=at, actor="agent:a1", kind=kind, **facts)])  # type: ignore[arg-type]


@st.composite
def newborns(draw: st.DrawFn, policy: Policy | None = None) -> Note:
    """Notes just created, of every kind; with a policy, with the TTL and curve that it gives them."""
    kind = draw(kind_names)
    scope = draw(st.sampled_from(["workspace", "session", "team"]))
    perishable = REGIMES[kind] == "perishable"
    own = st.none() | durations
    if policy is not None and perishable:
        own = own | st.just(policy.default_ttl)
    return born(
        kind,
        provenance=draw(st.sampled_from(decisions.PROVENANCE_STEPS)),
        size=draw(st.integers(1, 2048)),
        scope=scope,
        owner=None if scope == "workspace" else draw(st.sampled_from(["s1", "s2", "s1/a1", "s2/a1", "t1"])),
        ttl_ms=None if kind == "directive" else draw(own),
        curve=draw(curves) if perishable else draw(st.just("flat") | curves),
        pinned=draw(st.sampled_from([False, False, False, True])),
        base=draw(st.just(1.0) | st.floats(0.01, 1)),
    )


@st.composite
def any_events(draw: st.DrawFn) -> Event:
    """Any event of the union, each field within its type, whether or not it could follow anything."""
    cls = draw(st.sampled_from([*get_args(events.AnyNoteEvent), events.PolicyChanged, events.Scrubbed]))
    return draw(st.from_type(cls).filter(_storable))  # type: ignore[no-any-return]


def _storable(event: Event) -> bool:
    """JSON has no infinities, and the store's integers have 64 bits."""
    numbers = [value for value in msgspec.structs.astuple(event) if isinstance(value, int | float)]
    return all(-(2.0**63) < number < 2.0**63 for number in numbers)


class Command(NamedTuple):
    """``gap_ms`` after the one before, ``caller`` issues ``verb``. ``passes`` are the instants of the gap, in
    thousandths of it, at which a pass may run."""

    gap_ms: int
    verb: str
    caller: Caller
    passes: tuple[int, ...] = ()


VERBS: Final = (
    "pin", "unpin", "renew", "flag", "drift", "revoke", "reinstate", "supersede", "done", "promote", "provenance",
    "edit", "restate", "lengthen", "shorten", "graduate", "forget", "dispose", "restore",
)  # fmt: skip
OTHER: Final = born("decision")
"""A live note that may take the place of another."""


@st.composite
def commands(draw: st.DrawFn, max_size: int = 8) -> list[Command]:
    """Sequences of commands over years; most by people, since they may do most."""
    who = st.sampled_from([HUMAN, HUMAN, AGENT, Caller(session="s1", on_behalf=True)])
    often = st.sampled_from(VERBS) | st.sampled_from(("renew", "renew", "reinstate", "pin", "unpin", "flag"))
    passes = st.lists(st.integers(0, 999), max_size=3).map(lambda at: tuple(sorted(at)))
    return draw(st.lists(st.builds(Command, gaps, often, who, passes), max_size=max_size))


def decide(note: Note, verb: str, caller: Caller, policy: Policy, now: int) -> list[AnyNoteEvent]:
    """What the decision called ``verb`` returns for a settled note; raises what it raises."""
    before, after = Words(content="x"), Words(content="x", tags=("t",))
    table: dict[str, Callable[[], list[AnyNoteEvent]]] = {
        "pin": lambda: decisions.pin(note, caller, now, reason="r"),
        "unpin": lambda: decisions.unpin(note, caller, now, reason="r"),
        "renew": lambda: decisions.renew(note, caller, policy, now),
        "flag": lambda: decisions.flag(note, caller, now, cause="distrusted", reason="r"),
        "drift": lambda: decisions.flag(note, None, now, cause="anchor"),
        "revoke": lambda: decisions.revoke(note, caller, now, reason="r"),
        "reinstate": lambda: decisions.reinstate(note, caller, now, reason="r", size=11),
        "supersede": lambda: decisions.supersede(note, OTHER, caller, now, reason="r", successor=lambda _: None),
        "done": lambda: decisions.done(note, caller, now, reason="r"),
        "promote": lambda: decisions.promote(note, caller, now, to="workspace", reason="r"),
        "provenance": lambda: decisions.promote(note, caller, now, to="human", reason="r"),
        "edit": lambda: decisions.edit(note, caller, now, before=before, after=after, reason="r"),
        "restate": lambda: decisions.restate(note, caller, policy, now),
        "lengthen": lambda: decisions.edit(
            note, caller, now, before=before, after=before, ttl_ms=2 * (note.ttl_ms or DAY_MS), reason="r"
        ),
        "shorten": lambda: decisions.edit(
            note, caller, now, before=before, after=before, ttl_ms=(note.ttl_ms or DAY_MS) // 2 or None, reason="r"
        ),
        "graduate": lambda: decisions.graduate(note, policy, now, 3),
        "forget": lambda: decisions.forget(note, caller, now, reason="r"),
        "dispose": lambda: decisions.erase(note, now, "agent-disposed"),
        "restore": lambda: decisions.restore(note, caller, now, to="n000000002", kept=True, reason="r"),
    }
    return table[verb]()


def run(note: Note, sequence: Sequence[Command], policy: Policy, *, passes: bool) -> tuple[Note, int, list[str]]:
    """Issue the commands in turn; with ``passes``, time's own events are also recorded in between.

    Returns the note as recorded, the time it is then, and what each command came to: the names of its events, or of
    the rule that refused it.
    """
    now, answers = note.created_at, []
    for command in sequence:
        if passes:
            for share in command.passes:
                for event in clocks.due_events(note, policy, now + command.gap_ms * share // 1000):
                    note = apply(note, event)
        now += command.gap_ms
        settled = clocks.settle(note, policy, now)
        try:
            made = decide(settled, command.verb, command.caller, policy, now)
        except CallerError as refusal:
            answers.append(f"{command.verb}: {refusal.rule or refusal.field}")
            continue
        answers.append(f"{command.verb}: {[events.event_type(event) for event in made]}")
        if made:
            for event in [*clocks.due_events(note, policy, now), *made]:
                note = apply(note, event)
    return note, now, answers


def bare(note: Note) -> Note:
    """The note without its version: all that may depend on when passes ran."""
    return msgspec.structs.replace(note, version=0)
