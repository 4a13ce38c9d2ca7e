"""The fleet around the notes: lifecycle events, owners, events that could not be handled, workspaces."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from amnesiad.cli import options
from amnesiad.cli.call import Answer, Call, on_terminal, standard_input, verb
from amnesiad.cli.screen import console_note, fields, safe, say, table, when
from amnesiad.cli.transfer import chunks, read_lines
from amnesiad.errors import Invalid

app = typer.Typer()


@verb(app)
def emit(
    call: Call,
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT",
            help="session-start, session-end, turn-end, pre-step, subagent-start, subagent-end, workflow-agent-end, "
            "agent-disposed, heartbeat, file-changed or compacted.",
        ),
    ],
    path: options.Paths = None,
    event_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The event's own id: a repeat is dropped.")
    ] = None,
    parent: Annotated[
        str | None, typer.Option("--parent", metavar="ID", help="The agent that started this one.")
    ] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="TIME", help="When it happened, by its producer.")] = None,
    source: Annotated[str | None, typer.Option("--source", metavar="NAME", help="Who reports it.")] = None,
) -> None:
    """Report one lifecycle event of an agent. --session, --agent and --agent-kind say whose."""
    answer = call.ask(
        "events",
        event=event,
        workspace=call.workspace,
        session=call.session,
        agent=call.agent,
        agent_kind=call.agent_kind,
        team=call.team,
        paths=path,
        id=event_id,
        parent=parent,
        at=at,
        source=source,
    )
    call.show(answer, lambda: _show_accepted(answer))


@verb(app)
def events(call: Call) -> None:
    """Report lifecycle events from standard input. One JSON object a line."""
    accepted = 0
    for group in chunks(read_lines(standard_input())):
        answer = call.ask("events", events=[{"workspace": call.workspace, **event} for event in group])
        accepted += answer["accepted"]
        if call.as_json:
            call.show(answer, lambda: None)
    if not call.as_json:
        say(f"accepted {accepted} events")


def _show_accepted(answer: Answer) -> None:
    say(f"accepted as {', '.join(answer['ids'])}")


@verb(app)
def owners(
    call: Call,
    action: Annotated[str, typer.Argument(metavar="list|close", help="What to do.")] = "list",
    owner: Annotated[str | None, typer.Argument(metavar="OWNER", help="The owner to close.")] = None,
) -> None:
    """List the owners of notes, or close one. Closing does what the owner's end event would."""
    if action not in ("list", "close") or (action == "close") != (owner is not None):
        raise Invalid("owners takes list, or close and an owner", field="action", hint="amnesia owners close s1/a1")
    answer = call.ask("owners", close=owner)
    call.show(answer, lambda: _show_owners(answer))


def _show_owners(answer: Answer) -> None:
    if not answer["rows"]:
        console_note("no owners")
        return
    rows = (
        (row["owner"], row.get("agent_kind") or "-", row["state"], row["incarnation"], row["notes"], _seen(row))
        for row in answer["rows"]
    )
    table(("OWNER", "KIND", "STATE", "LIFE", "NOTES", "LAST SEEN"), rows)


def _seen(row: dict[str, Any]) -> str:
    return when(row.get("last_seen_at")) or "-"


@verb(app)
def dead(
    call: Call,
    action: Annotated[str, typer.Argument(metavar="list|show|retry|drop", help="What to do.")] = "list",
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of parked events.")] = None,
    limit: options.Limit = None,
) -> None:
    """List, show, retry or drop events that could not be handled. Exit 1 if an id names none."""
    given = ids or []
    if action not in ("list", "show", "retry", "drop") or (action == "list") != (not given):
        raise Invalid("dead takes list, or show, retry or drop and ids", field="action", hint="amnesia dead retry ID")
    if action == "show" and len(given) != 1:
        raise Invalid("dead show takes one id", field="ids", hint="amnesia dead show ID")
    body: dict[str, Any] = {"show": given[0]} if action == "show" else {action: given}
    answer = call.ask("dead", {} if action == "list" else body, limit=limit)
    call.show(answer, lambda: _show_dead(answer, action))
    if action in ("retry", "drop") and answer.get("changed", 0) < len(set(given)):
        raise typer.Exit(1)


def _show_dead(answer: Answer, action: str) -> None:
    if action == "show":
        for row in answer["rows"]:
            fields((("id", row["id"]), ("parked", when(row["at"])), ("why", safe(row["error"]))))
            say(safe(row.get("raw") or ""))
        return
    if action != "list":
        say(f"{'retried' if action == 'retry' else 'dropped'} {answer.get('changed', 0)}")
    if not answer["rows"]:
        console_note("no parked events")
        return
    rows = (
        (row["id"], when(row["at"]), row.get("event") or "-", row.get("workspace") or "-", row["error"])
        for row in answer["rows"]
    )
    table(("ID", "AT", "EVENT", "WORKSPACE", "ERROR"), rows)


@verb(app)
def workspaces(
    call: Call,
    action: Annotated[str, typer.Argument(metavar="list|rename|drop", help="What to do.")] = "list",
    names: Annotated[list[str] | None, typer.Argument(metavar="NAME", help="rename OLD NEW, or drop NAME.")] = None,
    yes: options.Yes = False,
) -> None:
    """List, rename or drop workspaces. Dropping takes everything in one along."""
    given = names or []
    if (action, len(given)) not in (("list", 0), ("rename", 2), ("drop", 1)):
        raise Invalid(
            "workspaces takes list, rename OLD NEW, or drop NAME",
            field="action",
            hint="amnesia workspaces drop NAME",
        )
    if action == "drop" and not yes and on_terminal() and not call.as_json:
        if not call.confirm(f"Drop the workspace {given[0]} with everything in it for good?"):
            say("nothing was dropped")
            raise typer.Exit(1)
        yes = True
    body: dict[str, Any] = {}
    if action == "rename":
        body = {"rename": given[0], "to": given[1]}
    elif action == "drop":
        body = {"drop": given[0], "confirm": yes}
    answer = call.ask("workspaces", body)
    call.show(answer, lambda: _show_workspaces(answer, action))


def _show_workspaces(answer: Answer, action: str) -> None:
    if action != "list":
        say("renamed" if action == "rename" else "dropped")
        return
    if not answer["rows"]:
        console_note("no workspaces")
        return
    rows = (("-" if row.get("notes") is None else row["notes"], row["name"]) for row in answer["rows"])
    table(("NOTES", "NAME"), rows)
