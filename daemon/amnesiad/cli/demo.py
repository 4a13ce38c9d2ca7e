"""A short play with the real daemon: what ends by itself, what does not, and what each ending leaves behind.

Every line after a ``$`` is a command as it would be typed, run here by the very code that would run it, and what
follows is its real answer. Each claim is checked; one that does not hold makes the demo fail. It runs in a workspace
of its own and drops it at the end, on a running daemon or on a private one in a temporary directory.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from amnesiad.cli.call import Answer, listening
from amnesiad.cli.screen import say
from amnesiad.errors import AmnesiaError, Bug, DaemonUnreachable, Refused

if TYPE_CHECKING:
    from amnesiad.client import Client

SHELF_LIFE_S: Final = 2
"""Of the notes that are to end while one watches."""
PATIENCE_S: Final = 15.0
"""How long something may take that takes a second on an idle machine, before it counts as not happening."""
START_S: Final = 30.0
"""How long a private daemon may take to answer on a busy machine; an idle one takes one or two seconds."""
STOP_S: Final = 10.0
LOOK_EVERY_S: Final = 0.05
LOG_TAIL_LINES: Final = 5


class _Failed(Refused):
    """A claim of the play does not hold."""


class _Stage:
    """Plays commands, prints them with their answers, and checks claims about them."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def play(self, *command: str) -> Answer:
        """Run one command as a user would, and return its (last) answer. Raises ``_Failed`` unless it exits with 0."""
        from amnesiad.cli import main

        say(f"\n$ {shlex.join(('amnesia', *command))}")
        sys.stdout.flush()
        with listening() as answers:
            code = main(command)
        if code != 0:
            raise _Failed(f"amnesia {command[0]} ended with exit code {code}", rule="demo")
        return answers[-1]

    def expect(self, claim: str, holds: bool) -> None:
        """Print a claim that holds; raise ``_Failed`` for one that does not."""
        if not holds:
            raise _Failed(f"not so: {claim}", rule="demo")
        say(f"  ✓ {claim}")

    def until(self, what: str, holds: Callable[[], bool]) -> None:
        """Wait for something that happens without a command."""
        say(f"\n  … {what}")
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise _Failed(f"waited {PATIENCE_S:g} s in vain: {what}", rule="demo")
            time.sleep(LOOK_EVERY_S)

    def expired(self) -> int:
        """How many notes have expired by the clock, whether or not a pass has written it down yet."""
        return int(self.client.call("status", {})["counts"]["expired"])

    def erased(self, note_id: str, **caller: str) -> bool:
        """Whether the audit, as that caller may see it, has the note."""
        body = {"caller": caller} if caller else {}
        return any(entry["id"] == note_id for entry in self.client.call("audit", body)["entries"])

    def happened(self, note_id: str, event: str) -> bool:
        """Whether the log has that event of the note."""
        return any(row["type"] == event for row in self.client.call("history", {"id": note_id})["events"])


def perform(socket: str | None) -> None:
    """Play every act, on the daemon at ``socket`` (or the default one) if it answers. Raises when a claim fails."""
    began = time.monotonic()
    with _daemon(socket) as (address, environment), _environment(environment):
        from amnesiad.client import Client

        for name, value in environment.items():
            say(f"export {name}={shlex.quote(value)}")
        with Client(address, workspace=environment["AMNESIA_WORKSPACE"]) as client:
            stage = _Stage(client)
            try:
                for act in (_shelf_life, _records, _refuted, _subagent):
                    act(stage)
            finally:
                stage.play("workspaces", "drop", environment["AMNESIA_WORKSPACE"], "--yes")
    say(f"\nEvery claim held, in {time.monotonic() - began:.1f} s.")


def _shelf_life(stage: _Stage) -> None:
    say("\n-- A fact that has run out is gone; what replaced it is all that is left")
    old = stage.play("remember", "the verification drink is lapsang", "--ttl", f"{SHELF_LIFE_S}s")
    new = stage.play("remember", "the verification drink is oolong", "--ttl", "10m")
    stage.expect(
        "both are live, and the status tells when the next one ends", stage.play("status")["counts"]["active"] == 2
    )
    stage.until(f"{SHELF_LIFE_S} s pass; nobody calls", lambda: stage.erased(old["id"]))
    found = [note["id"] for note in stage.play("recall", "verification", "drink")["notes"]]
    stage.expect("only oolong is recalled", found == [new["id"]])
    counts = stage.play("status")["counts"]
    stage.expect("1 active, 1 forgotten", (counts["active"], counts["forgotten"]) == (1, 1))
    entry = stage.play("audit")["entries"][0]
    stage.expect(
        "the audit keeps a keyed hash and no words",
        entry["id"] == old["id"] and bool(entry.get("content_hash")) and "lapsang" not in str(entry),
    )


def _records(stage: _Stage) -> None:
    say("\n-- A record expires only where that was asked for, and then it is kept; a directive never expires")
    stage.play("policy", "set", "record_ttl=1s")
    rule = stage.play("remember", "never force-push to main", "--kind", "directive")
    finding = stage.play("remember", "the build needs node 20", "--kind", "finding")
    stage.until("1 s passes, the shelf life just given to every record", lambda: stage.expired() == 1)
    stage.play("settle")
    stage.expect("the finding has expired", stage.happened(finding["id"], "expired"))
    live = {note["id"] for note in stage.play("recall")["notes"]}
    stage.expect("the directive lives, the finding is not recalled", rule["id"] in live and finding["id"] not in live)
    text = stage.play("inspect", finding["id"], "--render")["text"]
    stage.expect("its words are kept, behind a warning", "[EXPIRED]" in text and "node 20" in text)
    stage.play("policy", "reset", "record_ttl")
    stage.play("reinstate", finding["id"])
    live = {note["id"] for note in stage.play("recall", "node")["notes"]}
    stage.expect("reinstated, it is recalled under its old id", finding["id"] in live)


def _refuted(stage: _Stage) -> None:
    say("\n-- What turned out wrong warns whoever is about to believe it again")
    belief = "the flaky test is caused by DNS"
    note = stage.play("remember", belief, "--kind", "finding")
    stage.play("revoke", note["id"], "it fails offline too")
    text = stage.play("inspect", note["id"], "--render")["text"]
    stage.expect("it renders as a warning, with the reason", "[REVOKED]" in text and "it fails offline too" in text)
    again = stage.play("remember", belief, "--kind", "finding")
    stage.expect(
        "remembering it again is warned about", any(warning["kind"] == "revoked" for warning in again["warnings"])
    )


def _subagent(stage: _Stage) -> None:
    say("\n-- What a subagent noted for itself ends with the subagent")
    scout = {"session": "demo", "agent": "scout", "agent_kind": "subagent"}
    child = [word for name, value in scout.items() for word in (f"--{name.replace('_', '-')}", value)]
    stage.play("emit", "subagent-start", *child)
    note = stage.play("remember", "half of src/ is read", *child)
    stage.play("emit", "subagent-end", *child)
    stage.until("the worker unplugs it", lambda: stage.erased(note["id"], **scout))
    ended = {entry["id"]: entry["reason"] for entry in stage.play("audit", *child)["entries"]}
    stage.expect("it is forgotten, for its agent was disposed of", ended.get(note["id"]) == "agent-disposed")


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _daemon(socket: str | None) -> Iterator[tuple[str | None, dict[str, str]]]:
    """The socket of a daemon that answers, a private one if none does, and the variables that lead to it."""
    from amnesiad.client import Client

    variables = {"AMNESIA_WORKSPACE": f"demo-{secrets.token_hex(4)}"}
    if socket is not None:
        variables["AMNESIA_SOCKET"] = socket
    try:
        with Client(socket) as client:
            client.call("workspaces", {})
    except DaemonUnreachable:
        pass
    else:
        say("# on the daemon that is running here")
        yield socket, variables
        return
    say("# no daemon is running here, so this starts one of its own and stops it at the end")
    with tempfile.TemporaryDirectory(prefix="amnesia-demo-") as directory, _private_daemon(Path(directory)) as private:
        yield private, {**variables, "AMNESIA_SOCKET": private}


@contextlib.contextmanager
def _private_daemon(directory: Path) -> Iterator[str]:
    """``amnesia up`` with its state in ``directory`` and none of the user's settings."""
    socket, log, config = directory / "amnesia.sock", directory / "up.log", directory / "amnesia.toml"
    config.touch()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AMNESIA_")}
    environ |= {
        "AMNESIA_CONFIG": str(config),
        "AMNESIA_STATE_DIR": str(directory / "state"),
        "AMNESIA_SOCKET": str(socket),
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "amnesiad.cli", "up"],
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C is for the demo, which then stops the daemon in order.
            start_new_session=True,
        )
    try:
        _wait_for(process, str(socket), log)
        yield str(socket)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for(process: subprocess.Popen[bytes], socket: str, log: Path) -> None:
    from amnesiad.client import Client

    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with Client(socket) as client:
                client.call("workspaces", {})
        except AmnesiaError:
            time.sleep(LOOK_EVERY_S)
        else:
            return
    tail = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    raise Bug("the demo's own daemon did not start: " + " | ".join(tail), hint='see whether "amnesia up" starts')
