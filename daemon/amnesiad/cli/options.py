"""The arguments and options that several commands share, each written down once, and the reading of a trigger.

Values are passed on as they were typed: the daemon alone knows what a kind, a duration or a tag may be, and its
refusals name the field. What is read here is only what the wire has no text form for.
"""

from __future__ import annotations

import shlex
from typing import Annotated, Any, Final

import typer

from amnesiad.errors import Invalid

NoteId = Annotated[str, typer.Argument(metavar="ID", help="A note id, or a prefix of 4 or more that is unique.")]
NoteIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Note ids, or unique prefixes of 4 or more.")]
Reason = Annotated[str, typer.Argument(metavar="REASON", help="Why, in one sentence.")]
OptionalReason = Annotated[
    str | None, typer.Option("--reason", metavar="TEXT", help="Why; needed to act on the user's behalf.")
]

Kind = Annotated[
    str | None,
    typer.Option(
        "--kind",
        "-k",
        metavar="KIND",
        help="directive, operational, task, gotcha, finding, reference, decision (records); "
        "preference, fact, episode, task-context (perishables).",
    ),
]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", "-k", metavar="KIND", help="Only this kind; may be repeated.")
]
Tags = Annotated[list[str] | None, typer.Option("--tag", "-t", metavar="TAG", help="A tag; may be repeated.")]
Anchors = Annotated[
    list[str] | None,
    typer.Option("--anchor", metavar="PATH", help="A file, relative to the workspace, the note is about; repeatable."),
]
Triggers = Annotated[
    list[str] | None,
    typer.Option(
        "--trigger",
        metavar="RULE",
        help="When to bring the note up, such as 'event=pre-step path=src/*.py'; also command=, words=a,b, "
        "cooldown=1h.",
    ),
]
Ttl = Annotated[
    str | None, typer.Option("--ttl", metavar="DURATION", help="Shelf life, such as 15s, 12h or 7d; none for no end.")
]
ExpiresAt = Annotated[
    str | None, typer.Option("--expires-at", metavar="TIME", help="ISO 8601; a bare date is its first instant in UTC.")
]
Since = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="From this time on: ISO 8601, such as 2030-01-31T09:00Z; a date is UTC."
    ),
]
Until = Annotated[str | None, typer.Option("--until", metavar="TIME", help="Up to this time, like --since.")]
Pin = Annotated[bool, typer.Option("--pin", help="Keep it until it is unpinned; its clock stands.")]
Curve = Annotated[str | None, typer.Option("--curve", metavar="CURVE", help="flat, linear or ebbinghaus.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="A slot: writing it again replaces the note that holds it.")
]
Scope = Annotated[str | None, typer.Option("--scope", metavar="SCOPE", help="workspace, session or team.")]
Owner = Annotated[str | None, typer.Option("--owner", metavar="OWNER", help="A session, session/agent or team id.")]
Provenance = Annotated[
    str | None, typer.Option("--provenance", metavar="WHO", help="human, user-stated, agent or auto.")
]
SourceRef = Annotated[str | None, typer.Option("--source-ref", metavar="REF", help="Where it came from; a pointer.")]
States = Annotated[
    list[str] | None, typer.Option("--state", "-s", metavar="STATE", help="Only this state; may be repeated.")
]
Paths = Annotated[
    list[str] | None, typer.Option("--path", "-p", metavar="PATH", help="A file the step is about; may be repeated.")
]
Limit = Annotated[int | None, typer.Option("--limit", "-n", metavar="COUNT", help="At most this many.")]
Cursor = Annotated[str | None, typer.Option("--cursor", metavar="CURSOR", help="Go on where the last answer stopped.")]
Budget = Annotated[int | None, typer.Option("--budget", "-b", metavar="TOKENS", help="At most this many tokens.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]

_TRIGGER_FIELDS: Final = ("event", "path", "command", "words", "cooldown")


def read_ttl(ttl: str | None) -> dict[str, str | None]:
    """The field ``ttl_ms``, if the option was given: null for ``none``, which is not the same as leaving it out."""
    return {} if ttl is None else {"ttl_ms": None if ttl.strip().lower() == "none" else ttl}


def read_triggers(rules: list[str] | None) -> list[dict[str, Any]] | None:
    """Triggers as the wire has them, from ``event=pre-step path=src/*.py`` and the like.

    Fields are separated by spaces and quoted as in a shell; words by commas. Raises ``Invalid`` naming the part that
    cannot be read.
    """
    return None if rules is None else [_read_trigger(rule) for rule in rules]


def _read_trigger(rule: str) -> dict[str, Any]:
    hint = f"write name=value parts with the names {', '.join(_TRIGGER_FIELDS)}"
    try:
        parts = shlex.split(rule)
    except ValueError:
        raise Invalid("trigger has a quotation mark that is not closed", field="triggers", hint=hint) from None
    trigger: dict[str, Any] = {}
    for part in parts:
        name, equals, value = part.partition("=")
        if not equals or name not in _TRIGGER_FIELDS or not value:
            raise Invalid(f"trigger has a part that is not understood: {part!r}", field="triggers", hint=hint)
        if name in trigger or (name == "cooldown" and "cooldown_ms" in trigger):
            raise Invalid(f"trigger has {name} twice", field="triggers", hint="give --trigger again for another rule")
        if name == "cooldown":
            from amnesiad.core.times import parse_duration

            trigger["cooldown_ms"] = parse_duration(value, field="triggers.cooldown")
        else:
            trigger[name] = value.split(",") if name == "words" else value
    return trigger
