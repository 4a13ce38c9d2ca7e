"""Writing notes and keeping them alive: remember, supersede, edit, promote, pin, unpin, renew, done, mirror."""

from __future__ import annotations

from typing import Annotated

import typer

from amnesiad.cli import options
from amnesiad.cli.call import Answer, Call, text_or_stdin, verb
from amnesiad.cli.screen import lifetime, say, sentence
from amnesiad.errors import Invalid

app = typer.Typer()

Content = Annotated[str, typer.Argument(metavar="CONTENT", help="What to remember; - reads it from standard input.")]
Supersedes = Annotated[str | None, typer.Option("--supersedes", metavar="ID", help="The note this one replaces.")]


@verb(app)
def remember(
    call: Call,
    content: Content,
    kind: options.Kind = None,
    ttl: options.Ttl = None,
    expires_at: options.ExpiresAt = None,
    key: options.Key = None,
    tag: options.Tags = None,
    anchor: options.Anchors = None,
    trigger: options.Triggers = None,
    pin: options.Pin = False,
    scope: options.Scope = None,
    owner: options.Owner = None,
    curve: options.Curve = None,
    supersedes: Supersedes = None,
    source_ref: options.SourceRef = None,
    provenance: options.Provenance = None,
) -> None:
    """Remember one statement. Its kind gives it its shelf life, unless you say another."""
    answer = call.ask(
        "remember",
        options.read_ttl(ttl),
        content=text_or_stdin(content, "content"),
        kind=kind,
        expires_at=expires_at,
        key=key,
        tags=tag,
        anchors=anchor,
        triggers=options.read_triggers(trigger),
        pinned=pin or None,
        scope=scope,
        owner=owner,
        curve=curve,
        supersedes=supersedes,
        source_ref=source_ref,
        provenance=provenance,
    )
    call.show(answer, lambda: _show_remembered(answer, pinned=pin))


def _show_remembered(answer: Answer, *, pinned: bool) -> None:
    verb_words = "remembered" if answer["created"] else "known already:"
    say(f"{verb_words} {answer['id']}, {'pinned' if pinned else lifetime(answer.get('expires_at'))}")
    for old in answer.get("superseded") or ():
        say(f"superseded {old}")
    _show_warnings(answer)


def _show_warnings(answer: Answer) -> None:
    for warning in answer.get("warnings") or ():
        say(f"warning, {warning['kind']} before: {sentence(warning['text'])}")


@verb(app)
def supersede(
    call: Call,
    note_id: options.NoteId,
    content: Annotated[
        str | None, typer.Argument(metavar="CONTENT", help="What holds now; - reads it from standard input.")
    ] = None,
    by: Annotated[str | None, typer.Option("--by", metavar="ID", help="A note that exists and replaces it.")] = None,
    kind: options.Kind = None,
    ttl: options.Ttl = None,
    expires_at: options.ExpiresAt = None,
    key: options.Key = None,
    tag: options.Tags = None,
    anchor: options.Anchors = None,
    trigger: options.Triggers = None,
    pin: options.Pin = False,
    scope: options.Scope = None,
    owner: options.Owner = None,
    curve: options.Curve = None,
    source_ref: options.SourceRef = None,
    provenance: options.Provenance = None,
    reason: options.OptionalReason = None,
) -> None:
    """Replace a note by a new statement or another note. The old one stays, as superseded."""
    answer = call.ask(
        "supersede",
        options.read_ttl(ttl),
        id=note_id,
        by=by,
        content=None if content is None else text_or_stdin(content, "content"),
        kind=kind,
        expires_at=expires_at,
        key=key,
        tags=tag,
        anchors=anchor,
        triggers=options.read_triggers(trigger),
        pinned=pin or None,
        scope=scope,
        owner=owner,
        curve=curve,
        source_ref=source_ref,
        provenance=provenance,
        reason=reason,
    )
    changed = f"{answer['id']} is superseded by {answer['by']}"
    call.show(answer, lambda: _show_superseded(answer, changed))


def _show_superseded(answer: Answer, changed: str) -> None:
    say(_or_unchanged(answer, changed))
    _show_warnings(answer)


@verb(app)
def edit(
    call: Call,
    note_id: options.NoteId,
    tag: options.Tags = None,
    anchor: options.Anchors = None,
    trigger: options.Triggers = None,
    ttl: options.Ttl = None,
    clear: Annotated[
        list[str] | None, typer.Option("--clear", metavar="FIELD", help="Empty tags, anchors or triggers; repeatable.")
    ] = None,
    reason: options.OptionalReason = None,
) -> None:
    """Set a note's tags, anchors, triggers or TTL. What you give replaces what there was. To change what it says,
    supersede it."""
    lists = {"tags": tag, "anchors": anchor, "triggers": options.read_triggers(trigger)}
    for field in clear or ():
        if field not in lists:
            raise Invalid(f"--clear takes {', '.join(lists)}, not {field!r}", field="clear")
        if lists[field]:
            raise Invalid(f"--clear {field} and new {field} at once", field="clear", hint="new ones replace the old")
        lists[field] = []
    answer = call.ask("edit", options.read_ttl(ttl), id=note_id, reason=reason, **lists)
    call.show(answer, lambda: say(_or_unchanged(answer, f"edited {answer['id']}")))


@verb(app)
def promote(
    call: Call,
    note_id: options.NoteId,
    to: Annotated[
        str, typer.Option("--to", metavar="TO", help="workspace, agent, user-stated or human.")
    ] = "workspace",
    reason: options.OptionalReason = None,
) -> None:
    """Lift a note out of its session, or vouch for it."""
    answer = call.ask("promote", id=note_id, to=to, reason=reason)
    call.show(answer, lambda: say(_or_unchanged(answer, f"promoted {answer['id']} to {to}")))


@verb(app)
def pin(call: Call, note_id: options.NoteId, reason: options.OptionalReason = None) -> None:
    """Stop a note's clock. Nothing but you or its owner's end will end it."""
    _touch(call, "pin", note_id, reason, "pinned {}")


@verb(app)
def unpin(call: Call, note_id: options.NoteId, reason: options.OptionalReason = None) -> None:
    """Let a note's clock run again from now."""
    _touch(call, "unpin", note_id, reason, "unpinned {}")


@verb(app)
def renew(call: Call, note_id: options.NoteId, reason: options.OptionalReason = None) -> None:
    """Start a living note's shelf life again."""
    _touch(call, "renew", note_id, reason, "renewed {}")


@verb(app)
def done(call: Call, note_id: options.NoteId, reason: options.OptionalReason = None) -> None:
    """End a task as completed. Its words and history stay."""
    _touch(call, "done", note_id, reason, "{} is done")


@verb(app)
def mirror(
    call: Call,
    note_id: options.NoteId,
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="The other store, as the note's source-ref names it.")
    ],
    result: Annotated[str, typer.Argument(metavar="RESULT", help="shown, hidden, deleted, absent, kept or failed.")],
) -> None:
    """Record what became of a note's item in another store. The note stays as it is."""
    answer = call.ask("mirror", id=note_id, target=target, result=result)
    call.show(answer, lambda: say(_or_unchanged(answer, f"{answer['id']} in {target}: {result}")))


def _touch(call: Call, name: str, note_id: str, reason: str | None, words: str) -> None:
    answer = call.ask(name, id=note_id, reason=reason)
    expires_at = answer.get("expires_at")
    expiry = "" if expires_at is None else f", {lifetime(expires_at)}"
    call.show(answer, lambda: say(_or_unchanged(answer, words.format(answer["id"]) + expiry)))


def _or_unchanged(answer: Answer, changed: str) -> str:
    return changed if answer["changed"] else f"nothing to change: {answer['id']} is so already"
