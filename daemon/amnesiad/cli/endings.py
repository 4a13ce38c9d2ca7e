"""Ending notes and taking an end back: forget, revoke, flag, reinstate, undo, restore."""

from __future__ import annotations

from typing import Annotated, Any, Final

import typer

from amnesiad.cli import options
from amnesiad.cli.call import Answer, Call, on_terminal, verb
from amnesiad.cli.screen import say, sentence, table
from amnesiad.errors import Invalid

app = typer.Typer()

ADDRESSES_LIMIT: Final = 1000
"""The most ids one request may list."""
IDS_SHOWN: Final = 5
"""How many ids of forgotten notes a person is shown; ``--json`` has them all."""


@verb(app)
def forget(
    call: Call,
    ids: options.NoteIds = None,
    query: Annotated[
        str | None, typer.Option("--query", "-q", metavar="WORDS", help="Notes in which every word occurs.")
    ] = None,
    tag: options.Tags = None,
    kind: options.Kinds = None,
    scope: options.Scope = None,
    owner: options.Owner = None,
    everything: Annotated[bool, typer.Option("--all", help="Every note of the workspace, living or ended.")] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="Why; kept with the audit, not in the log.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would go.")] = False,
    yes: options.Yes = False,
) -> None:
    """Erase notes for good. Their words leave the store; a hash stays in the audit."""
    selected: dict[str, Any] = {
        "id": ids[0] if ids and len(ids) == 1 else None,
        "ids": ids if ids and len(ids) > 1 else None,
        "query": query,
        "tags": tag,
        "kinds": kind,
        "scope": scope,
        "owner": owner,
        "all": everything or None,
    }
    if not any(selected.values()):
        raise Invalid(
            "say what to forget", field="id", hint="give ids, --query, --tag, --kind, --scope, --owner or --all"
        )
    if dry_run or (on_terminal() and not yes and not call.as_json):
        preview = call.ask("forget", dry_run=True, **selected)
        call.show(preview, lambda: _show_doomed(preview))
        if dry_run or not preview["ids"]:
            return
        if not call.confirm("Erase for good?"):
            say("nothing was forgotten")
            raise typer.Exit(1)
        yes = True
        if len(preview["ids"]) <= ADDRESSES_LIMIT:
            # What was shown is what goes; a note written while the question stood was not agreed to.
            selected = {"ids": preview["ids"]}
    answer = call.ask("forget", reason=reason, confirm=yes or None, **selected)
    call.show(answer, lambda: _show_forgotten(answer))


def _show_doomed(preview: Answer) -> None:
    say(sentence(preview["summary"]))
    shown = preview.get("would") or []
    if shown:
        table(("ID", "KIND", "STATE", "NOTE"), ((n["id"], n["kind"], n["state"], n["content"]) for n in shown))
    if len(preview["ids"]) > len(shown):
        say(f"and {len(preview['ids']) - len(shown)} more")


def _show_forgotten(answer: Answer) -> None:
    listed = answer["ids"][:IDS_SHOWN]
    more = len(answer["ids"]) - len(listed)
    names = ", ".join(listed) + (f" and {more} more" if more else "")
    say(sentence(answer["summary"]) + (f" ({names})" if names else ""))


@verb(app)
def revoke(call: Call, note_id: options.NoteId, reason: options.Reason) -> None:
    """Declare a note wrong. It is not recalled again, and warns whoever is about to believe it anew."""
    _end(call, "revoke", note_id, reason)


@verb(app)
def flag(call: Call, note_id: options.NoteId, reason: options.Reason) -> None:
    """Mark a note as doubtful. It stays, as stale, until somebody reinstates or ends it."""
    _end(call, "flag", note_id, reason)


def _end(call: Call, name: str, note_id: str, reason: str) -> None:
    answer = call.ask(name, id=note_id, reason=reason)
    call.show(answer, lambda: say(_state_now(answer)))


@verb(app)
def reinstate(call: Call, note_id: options.NoteId, reason: options.OptionalReason = None) -> None:
    """Bring an ended or stale note back to life. It keeps its id; a forgotten one is beyond this."""
    answer = call.ask("reinstate", id=note_id, reason=reason)
    call.show(answer, lambda: say(_state_now(answer)))


@verb(app)
def undo(call: Call, note_id: options.NoteId, reason: options.OptionalReason = None) -> None:
    """Take back a note's last transition, by one more event. What was erased stays erased."""
    answer = call.ask("undo", id=note_id, reason=reason)
    undone = f"undid {answer.get('undone') or 'the last transition'}: " if answer["changed"] else ""
    call.show(answer, lambda: say(undone + _state_now(answer)))


@verb(app)
def restore(call: Call, note_id: options.NoteId, reason: options.OptionalReason = None) -> None:
    """Bring a forgotten note back as a new one. Works where copies are kept (the setting restorable)."""
    answer = call.ask("restore", id=note_id, reason=reason)
    call.show(answer, lambda: say(f"restored {answer['restored_from']} as {answer['id']}"))


def _state_now(answer: Answer) -> str:
    note_id, state = answer["id"], answer["state"]
    return f"{note_id} is {state}" if answer["changed"] else f"nothing to change: {note_id} is {state} already"
