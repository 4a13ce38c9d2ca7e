"""Watching over a workspace: status, audit, policy, and the passes that settle, check, prove and scrub it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from amnesiad.cli import options
from amnesiad.cli.call import Answer, Call, verb
from amnesiad.cli.screen import SHORT_HASH, console_note, fields, remaining, safe, say, sentence, table, when
from amnesiad.errors import Invalid

app = typer.Typer()

STATE_ORDER = ("active", "stale", "expired", "revoked", "superseded", "forgotten")


@verb(app)
def status(call: Call) -> None:
    """Show what lives, what ends next, and how the store is."""
    answer = call.ask("status")
    call.show(answer, lambda: _show_status(call, answer))


def _show_status(call: Call, answer: Answer) -> None:
    counts = answer["counts"]
    next_at = answer.get("next_expiry_at")
    injection = answer.get("injection")
    fields(
        (
            ("workspace", safe(call.workspace)),
            ("notes", "  ".join(f"{counts[state]} {state}" for state in STATE_ORDER if state in counts)),
            ("tokens", answer.get("tokens")),
            ("next expiry", f"{when(next_at)} (in {remaining(next_at)})" if next_at is not None else None),
            ("injected", _injection(injection) if injection else None),
            ("refused", "  ".join(f"{safe(rule)} {number}" for rule, number in (answer.get("refusals") or {}).items())),
            ("worker", _worker(answer.get("worker") or {})),
            ("events", _events(answer.get("lifecycle") or {})),
            ("store", _store(answer.get("store") or {})),
        )
    )
    for row in answer.get("recent") or ():
        say(f"  ended {row['id']} {row['reason']} {when(row['at'])}")
    if answer.get("degraded"):
        console_note("the store is away: this is what the daemon knew last")


def _injection(injection: Mapping[str, Any]) -> str:
    return f"{injection['count']} notes, {injection['tokens']} tokens at {when(injection['at'])}"


def _worker(worker: Mapping[str, Any]) -> str:
    if not worker.get("alive"):
        return "not running: nothing is unplugged or scrubbed until one is"
    from amnesiad.core.times import format_duration

    lag_ms = worker.get("lag_ms")
    return "alive" if lag_ms is None else f"alive, {format_duration(int(lag_ms))} behind"


def _events(lifecycle: Mapping[str, Any]) -> str | None:
    """Nothing, as long as every event is handled as it comes."""
    from amnesiad.core.times import format_duration

    said = []
    if lifecycle.get("waiting"):
        behind = f", {format_duration(int(lifecycle['lag_ms']))} behind" if lifecycle.get("lag_ms") is not None else ""
        said.append(f"{lifecycle['waiting']} waiting{behind}")
    if lifecycle.get("parked"):
        said.append(f"{lifecycle['parked']} could not be handled: amnesia dead")
    return "; ".join(said) or None


def _store(store: Mapping[str, Any]) -> str:
    # Scalar by scalar, so that a field added later shows without a change here.
    return "  ".join(f"{safe(name)} {safe(value)}" for name, value in store.items())


@verb(app)
def audit(
    call: Call,
    limit: options.Limit = None,
    since: options.Since = None,
) -> None:
    """Show what was forgotten, why and by whom. The words are gone; a keyed hash is left."""
    answer = call.ask("audit", limit=limit, since=since)
    call.show(answer, lambda: _show_audit(answer))


def _show_audit(answer: Answer) -> None:
    if not answer["entries"]:
        console_note("nothing was forgotten")
        return
    rows = (
        (
            when(entry["at"]),
            entry["id"],
            entry["kind"],
            entry["reason"],
            entry["actor"],
            _yes(entry.get("restorable", False)),
            (entry.get("content_hash") or "purged")[:SHORT_HASH],
        )
        for entry in answer["entries"]
    )
    table(("AT", "ID", "KIND", "REASON", "BY", "KEPT", "HASH"), rows)


@verb(app)
def ledger(
    call: Call,
    entry: Annotated[str | None, typer.Argument(metavar="ENTRY", help="One entry, its text rebuilt.")] = None,
    limit: options.Limit = None,
) -> None:
    """Show what entered which context, or rebuild one entry's text."""
    answer = call.ask("ledger", limit=limit, entry=entry, session=call.session)
    call.show(answer, lambda: _show_ledger(answer))


def _show_ledger(answer: Answer) -> None:
    if not answer["rows"]:
        console_note("nothing was shown yet")
        return
    rows = (
        (row["id"], when(row["at"]), row["kind"], row["actor"], str(row["tokens"]), " ".join(row["ids"]))
        for row in answer["rows"]
    )
    table(("ENTRY", "AT", "KIND", "TO", "TOKENS", "NOTES"), rows)
    for row in answer["rows"]:
        for line in (row.get("text") or "").splitlines():
            say(line)


@verb(app)
def exposure(call: Call, note_id: options.NoteId, limit: options.Limit = None) -> None:
    """Show who was shown a note, and what they wrote since."""
    answer = call.ask("exposure", id=note_id, limit=limit)
    call.show(answer, lambda: _show_exposure(answer))


def _show_exposure(answer: Answer) -> None:
    if not answer["rows"]:
        console_note(f"nobody was shown {answer['id']}")
    else:
        rows = (
            (
                row["actor"] + (f" ({row['session']})" if row.get("session") else ""),
                str(row["times"]),
                " ".join(f"{kind} {count}" for kind, count in row["kinds"].items()),
                when(row["first_at"]),
                when(row["last_at"]),
                " ".join(str(version) for version in row["versions"]),
                " ".join(row["wrote"]) + (" …" if row["wrote_count"] > len(row["wrote"]) else ""),
            )
            for row in answer["rows"]
        )
        table(("TO", "TIMES", "HOW", "FIRST", "LAST", "VERSIONS", "WROTE SINCE"), rows)
        if answer["total"] > len(answer["rows"]):
            console_note(f"{answer['total'] - len(answer['rows'])} more: --limit {answer['total']}")
    if answer["cut"]:
        console_note(f"looked no further back than {when(answer['since'])}; the ledger goes on")


@verb(app)
def policy(
    call: Call,
    action: Annotated[str, typer.Argument(metavar="show|set|reset", help="What to do.")] = "show",
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME[=VALUE]", help="Settings to set (name=value), reset or show (name)."),
    ] = None,
) -> None:
    """Show, set and reset the workspace's settings. Those that are not live are read when the daemon starts."""
    named = settings or []
    if action == "show":
        answer = call.ask("policy")
    elif action == "set":
        answer = call.ask("policy", set=_assignments(named))
    elif action == "reset":
        if not named:
            raise Invalid(
                "policy reset needs the names of settings", field="reset", hint="amnesia policy reset record_ttl"
            )
        answer = call.ask("policy", reset=named)
    else:
        raise Invalid(
            f"policy knows show, set and reset, not {action!r}",
            field="action",
            hint="amnesia policy set default_ttl=7d",
        )
    wanted = {part.partition("=")[0] for part in named}
    if action == "show" and (strange := sorted(wanted - answer["values"].keys())):
        from amnesiad.core.rules import suggestion

        hint = suggestion(strange[0], answer["values"]) or "amnesia policy shows all"
        raise Invalid(f"{strange[0]!r} is not a setting", field="show", hint=hint)
    call.show(answer, lambda: _show_policy(answer, wanted, looking=action == "show"))


def _assignments(parts: list[str]) -> dict[str, str]:
    pairs = [part.partition("=") for part in parts]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise Invalid(f"{name!r} is not name=value", field="set", hint="amnesia policy set default_ttl=7d")
    names = [name for name, _, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise Invalid(f"{name} is given twice", field="set", hint="give each setting one value")
    if not pairs:
        raise Invalid("policy set needs name=value", field="set", hint="amnesia policy set default_ttl=7d")
    return {name: value for name, _, value in pairs}


def _show_policy(answer: Answer, wanted: set[str], *, looking: bool) -> None:
    rows = [
        # The daemon sends values as people write them (30d, none); JSON's booleans are the exception.
        (name, str(row["value"]).lower() if isinstance(row["value"], bool) else row["value"], row["origin"], row)
        for name, row in answer["values"].items()
        if not wanted or name in wanted
    ]
    if looking:
        table(("SETTING", "VALUE", "FROM", "LIVE"), ((*shown, _yes(row.get("live", True))) for *shown, row in rows))
    else:
        table(("SETTING", "VALUE", "FROM"), (shown for *shown, _ in rows))


def _yes(value: bool) -> str:
    return "yes" if value else "no"


@verb(app)
def settle(call: Call) -> None:
    """Apply every transition that is due now."""
    _run_pass(call, "settle")


@verb(app)
def check(
    call: Call,
    path: Annotated[
        list[str] | None, typer.Option("--path", "-p", metavar="PATH", help="Only this file; may be repeated.")
    ] = None,
) -> None:
    """Compare anchored files with what they were. Notes about changed ones turn stale."""
    _run_pass(call, "check", paths=path)


@verb(app)
def verify(call: Call) -> None:
    """Prove that the notes are what the log says. Exit 1 if they are not."""
    _run_pass(call, "verify")


@verb(app)
def rebuild(call: Call) -> None:
    """Make all that is derived anew, from log and words."""
    _run_pass(call, "rebuild")


@verb(app)
def scrub(call: Call) -> None:
    """Have erased words leave the store's files now."""
    _run_pass(call, "scrub")


def _run_pass(call: Call, name: str, **options: Any) -> None:
    answer = call.ask(name, **options)
    call.show(answer, lambda: _show_figures(name, answer))
    if answer.get("problems"):
        raise typer.Exit(1)


def _show_figures(name: str, answer: Answer) -> None:
    problems = answer.get("problems") or ()
    well = "nothing wrong" if name == "verify" else "done"
    say(f"{name}: {f'{len(problems)} wrong' if problems else well}")
    fields((f"  {figure.replace('_', ' ')}", value) for figure, value in answer["figures"].items())
    for problem in problems:
        say(f"problem: {sentence(problem)}")
    if problems and name == "verify":
        console_note("what is derived can be made anew from log and words: amnesia rebuild")
