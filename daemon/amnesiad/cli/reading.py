"""Reading notes: recall, inject, preview, fire, why-not, list, inspect, history."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Annotated, Any

import typer

from amnesiad.cli import options
from amnesiad.cli.call import Answer, Call, verb
from amnesiad.cli.screen import console_note, note_fields, notes_table, say, sentence, table, when

app = typer.Typer()

MAX_MEANT = 5
"""Owners that are offered for one that does not exist; a session may have hundreds of children."""

Query = Annotated[str | None, typer.Option("--query", "-q", metavar="WORDS", help="What the step is about.")]
Event = Annotated[str | None, typer.Option("--event", metavar="EVENT", help="The lifecycle event the step belongs to.")]


@verb(app)
def recall(
    call: Call,
    query: Annotated[list[str] | None, typer.Argument(metavar="QUERY", help="Words to look for.")] = None,
    kind: options.Kinds = None,
    tag: options.Tags = None,
    path: options.Paths = None,
    owner: options.Owner = None,
    state: options.States = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show why each note stands where it does.")] = False,
    as_text: Annotated[bool, typer.Option("--text", help="Print the text an agent would be given.")] = False,
    peek: Annotated[bool, typer.Option("--peek", help="Look without using: nothing is renewed.")] = False,
) -> None:
    """Find living notes, the most relevant first. A perishable that is found is renewed."""
    answer = call.ask(
        "recall",
        query=" ".join(query) if query else None,
        kinds=kind,
        tags=tag,
        paths=path,
        owner=owner,
        states=state,
        since=since,
        until=until,
        limit=limit,
        explain=explain or None,
        format="text" if as_text else None,
        peek=peek or None,
    )
    call.show(answer, lambda: _print_text(answer) if as_text else _show_recalled(answer, explain=explain))
    if not (answer["notes"] or answer.get("degraded") or call.as_json):
        for said in _unknown_values(call, tag or [], owner):
            console_note(said)


def _unknown_values(call: Call, tags: list[str], owner: str | None) -> Iterator[str]:
    """What of the filters nobody has ever heard of: a misspelt tag or owner finds nothing, and looks like no memory."""
    for tag in tags:
        if not call.ask("list", tags=[tag], limit=1)["notes"]:
            yield f"no living note has the tag {sentence(tag)}"
    if owner is None:
        return
    known = [str(row["owner"]) for row in call.ask("owners")["rows"]]
    if owner not in known:
        meant = [one for one in known if one.startswith(owner) or one.endswith(f"/{owner}")]
        meant = meant or get_close_matches(owner, known)
        hint = f"; did you mean {' or '.join(sorted(meant)[:MAX_MEANT])}?" if meant else "; amnesia owners lists them"
        yield f"there is no owner {sentence(owner)}{hint}"


def _show_recalled(answer: Answer, *, explain: bool) -> None:
    if answer["notes"]:
        notes_table(answer["notes"], explain=explain)
        for place, note in enumerate(answer["notes"] if explain else (), 1):
            say(f"{note['id']}  place {place}: {_standing(note['explanation'])}")
    else:
        console_note("nothing living matches")
    for deterrent in answer.get("deterrents") or ():
        say(sentence(deterrent["text"]))
    _warn_if_degraded(answer)


BEHIND = {
    "band": "less relevant than the one before",
    "stale": "as relevant as the one before, but stale",
    "pinned": "the one before is pinned",
    "trust": "less trusted than the one before",
    "rank": "older, by its kind's half-life, than the one before",
    "created_at": "written before the one before",
    "id": "equal to the one before but for its id",
}
"""What ``decided_by`` of an explanation means."""


def _standing(why: dict[str, Any]) -> str:
    figures = f"trust {why['trust']:.2f}, rank {why['rank']:.3f}"
    if "semantic" in why:
        figures = f"by words {why['lexical']:.2f}, by meaning {why['semantic']:.2f}, {figures}"
    if why["decided_by"] == "first":
        return f"nothing stands before it ({figures})"
    return f"{BEHIND[why['decided_by']]} ({figures})"


@verb(app)
def inject(
    call: Call,
    budget: options.Budget = None,
    query: Query = None,
    path: options.Paths = None,
    event: Event = None,
) -> None:
    """Print what enters an agent's context now. A perishable that the step matched is renewed."""
    _print_injection(call, "inject", budget, query, path, event)


@verb(app)
def preview(
    call: Call,
    budget: options.Budget = None,
    query: Query = None,
    path: options.Paths = None,
    event: Event = None,
) -> None:
    """Print what inject would. Nothing is renewed and nothing counts as shown."""
    _print_injection(call, "preview", budget, query, path, event)


def _print_injection(
    call: Call, name: str, budget: int | None, query: str | None, paths: list[str] | None, event: str | None
) -> None:
    answer = call.ask(name, budget_tokens=budget, query=query, paths=paths, event=event)
    call.show(answer, lambda: _print_text(answer))


@verb(app)
def fire(
    call: Call,
    event: Annotated[str, typer.Argument(metavar="EVENT", help="What is happening, such as pre-step.")],
    path: options.Paths = None,
    command: Annotated[
        str | None, typer.Option("--command", metavar="COMMAND", help="The command about to run.")
    ] = None,
    prompt: Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="What the user asked for.")] = None,
    turn: Annotated[
        str | None, typer.Option("--turn", metavar="ID", help="The turn's id: each note comes once in a turn.")
    ] = None,
) -> None:
    """Print the notes whose triggers this step sets off. Each comes once."""
    answer = call.ask("fire", event=event, paths=path, command=command, prompt=prompt, turn=turn)
    call.show(answer, lambda: _print_text(answer))


@verb(app, "why-not")
def why_not(
    call: Call,
    note_id: options.NoteId,
    query: Query = None,
    path: options.Paths = None,
    event: Event = None,
    command: Annotated[
        str | None, typer.Option("--command", metavar="COMMAND", help="The command about to run.")
    ] = None,
    kind: options.Kinds = None,
    tag: options.Tags = None,
    state: options.States = None,
    since: options.Since = None,
    until: options.Until = None,
    limit: options.Limit = None,
    budget: options.Budget = None,
) -> None:
    """Tell why a note is not recalled, injected or fired. With --as human, --session says in whose view."""
    answer = call.ask(
        "why-not",
        id=note_id,
        query=query,
        paths=path,
        event=event,
        command=command,
        kinds=kind,
        tags=tag,
        states=state,
        since=since,
        until=until,
        limit=limit,
        budget_tokens=budget,
    )
    call.show(answer, lambda: _show_obstacles(answer))


def _show_obstacles(answer: Answer) -> None:
    for one in answer["reasons"]:
        say(f"{'' if one['verb'] == 'any' else one['verb'] + ': '}{one['text']} ({one['rule']})")
    if answer["recalled"]:
        say(f"recall returns it, in place {answer['place']}")
    if answer["injected"]:
        say("inject shows it")
    _warn_if_degraded(answer)


def _print_text(answer: Answer) -> None:
    text = answer.get("text") or ""
    if text:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
    else:
        console_note("nothing to show")
    _warn_if_degraded(answer)


@verb(app, "list")
def list_notes(
    call: Call,
    kind: options.Kinds = None,
    tag: options.Tags = None,
    scope: options.Scope = None,
    owner: options.Owner = None,
    state: options.States = None,
    limit: options.Limit = None,
    cursor: options.Cursor = None,
) -> None:
    """List notes in any state, ended ones too."""
    answer = call.ask(
        "list",
        kinds=kind,
        tags=tag,
        scope=scope,
        owner=owner,
        states=state,
        limit=limit,
        cursor=cursor,
        with_content=True,
    )
    call.show(answer, lambda: _show_list(answer))


def _show_list(answer: Answer) -> None:
    if answer["notes"]:
        notes_table(answer["notes"])
    else:
        console_note("no notes")
    _offer_more(answer)
    _warn_if_degraded(answer)


@verb(app)
def inspect(
    call: Call,
    note_id: options.NoteId,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="As it stood at this time.")] = None,
    render: Annotated[bool, typer.Option("--render", help="Only the line an agent would be given.")] = False,
) -> None:
    """Show everything known about one note."""
    answer = call.ask("inspect", id=note_id, at=at)
    call.show(answer, lambda: _print_text(answer) if render else note_fields(answer["note"], answer["history_length"]))


@verb(app)
def history(call: Call, note_id: options.NoteId, limit: options.Limit = None, cursor: options.Cursor = None) -> None:
    """Show every event of a note, from its first to its last."""
    answer = call.ask("history", id=note_id, limit=limit, cursor=cursor)
    call.show(answer, lambda: _show_history(answer))


def _show_history(answer: Answer) -> None:
    rows = (
        (
            when(event["at"]),
            event["type"],
            event.get("from") or "-",
            event["to"],
            event["actor"] + (" for the user" if event.get("on_behalf") else ""),
            ": ".join(part for part in _why(event) if part),
        )
        for event in answer["events"]
    )
    table(("AT", "EVENT", "FROM", "TO", "BY", "REASON"), rows)
    _offer_more(answer)


def _why(event: dict[str, Any]) -> tuple[str | None, str | None]:
    """Code and words of the reason; of a result from another store, which store and what became of the item."""
    if event["type"] == "mirrored":
        return event["facts"]["target"], event["facts"]["result"]
    return event.get("reason"), event.get("reason_text")


def _offer_more(answer: Answer) -> None:
    if answer.get("cursor"):
        console_note(f"more with --cursor {answer['cursor']}")


def _warn_if_degraded(answer: Answer) -> None:
    if answer.get("degraded"):
        console_note("the store is away: this is what the daemon knew last")
