"""Finding out how things are: doctor says what is wrong here, demo shows what the daemon does when nothing is, and
openapi how to ask it."""

from __future__ import annotations

from typing import Annotated

import typer

from amnesiad.cli.call import Call, print_json, verb

app = typer.Typer()


@verb(app)
def doctor(call: Call) -> None:
    """Say what is wrong and what to do about it. Exit 1 if anything is."""
    from amnesiad.cli.doctor import examine, show

    findings = list(examine(call))
    ok = all(finding.ok for finding in findings)
    call.show({"ok": ok, "checks": [finding._asdict() for finding in findings]}, lambda: show(findings))
    if not ok:
        raise typer.Exit(1)


@app.command()
def demo(
    socket: Annotated[
        str | None, typer.Option("--socket", envvar="AMNESIA_SOCKET", metavar="PATH", help="The daemon's socket.")
    ] = None,
) -> None:
    """Show in ten seconds how notes end. Every claim is checked; nothing is left behind."""
    from amnesiad.cli.demo import perform

    perform(socket)


@app.command()
def openapi() -> None:
    """Print the OpenAPI document of the API. No daemon is needed."""
    from amnesiad.wire.openapi import document

    print_json(document())
