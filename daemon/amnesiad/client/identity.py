"""For whom a client speaks and where its daemon is; how a request is completed, and how an answer is read.

No I/O but a look at the environment and, for the default socket, at the file system. Only the standard library, so
that a hook starts fast.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from amnesiad import places
from amnesiad.errors import (
    Ambiguous,
    AmnesiaError,
    Bug,
    Busy,
    Conflict,
    DaemonUnreachable,
    Deadline,
    Forbidden,
    Invalid,
    NotFound,
    Refused,
    StoreFull,
    StoreUnavailable,
    TooLarge,
)
from amnesiad.limits import MAX_REQUEST_BYTES, SUN_PATH_BYTES

Body = Mapping[str, Any]

DEFAULT_TIMEOUT_S: Final = 35.0
"""A little longer than the daemon's own deadline, so that its answer about that still arrives."""
FEED_SILENCE_S: Final = 45.0
"""A feed says something every 15 s; three times that is no delay but a daemon that is gone."""
ATTEMPTS: Final = 2
"""One request and one repeat: a second broken connection in a row is no accident."""

READ_BYTES: Final = 64 * 1024
"""What is read of a stream at a time; the kernel's buffer of a Unix socket is not much larger."""

WRITES: Final = frozenset(
    {
        "dead", "done", "edit", "flag", "forget", "mirror", "owners", "pin", "policy", "promote", "reinstate",
        "remember", "renew", "restore", "revoke", "supersede", "undo", "unpin", "workspaces",
    }
)  # fmt: skip
"""The verbs that take a ``request_id``; ``wire.VERBS`` says the same, and a test holds the two together."""
NO_WORKSPACE: Final = frozenset({"dead", "events", "workspaces"})
"""Verbs that may be asked without one."""
_ONCE: Final = frozenset({"import", "hooks"})
"""Never repeated: nothing in the request tells the daemon that it is the same one."""

_BY_CODE: Final[Mapping[str, type[AmnesiaError]]] = {
    kind.code: kind
    for kind in (
        Ambiguous, Bug, Busy, Conflict, Deadline, Forbidden, Invalid, NotFound, Refused, StoreFull, StoreUnavailable,
        TooLarge,
    )
}  # fmt: skip


class Prepared(NamedTuple):
    """A request ready to send, and whether sending it twice is safe."""

    data: bytes
    repeatable: bool


class Identity:
    """The socket, workspace and caller of one client; every argument defaults to its ``AMNESIA_*`` variable."""

    def __init__(
        self,
        socket: Path | str | None = None,
        *,
        workspace: str | None = None,
        session: str | None = None,
        agent: str | None = None,
        team: str | None = None,
        agent_kind: str | None = None,
        role: str | None = None,
        on_behalf: str | None = None,
    ) -> None:
        self.socket = places.named_socket(str(socket)) if socket is not None else daemon_socket(os.environ)
        self.workspace = workspace or os.environ.get("AMNESIA_WORKSPACE") or None
        given = {
            "session": session or os.environ.get("AMNESIA_SESSION"),
            "agent": agent or os.environ.get("AMNESIA_AGENT"),
            "team": team or os.environ.get("AMNESIA_TEAM"),
            "agent_kind": agent_kind or os.environ.get("AMNESIA_AGENT_KIND"),
            "role": role,
            "on_behalf": on_behalf,
        }
        self.caller = {name: value for name, value in given.items() if value}

    def prepare(self, verb: str, body: Body) -> Prepared:
        """The request's bytes, with workspace, caller and request ids filled in where the body has none.

        Raises ``Invalid`` without a workspace, and ``TooLarge`` for what the daemon would not take.
        """
        if verb == "events":
            full = self._events(body)
        else:
            full = self._addressed(verb, body)
            if verb == "batch":
                full["requests"] = [_with_ids(item) for item in body.get("requests") or ()]
        data = json.dumps(full, separators=(",", ":")).encode()
        if len(data) > MAX_REQUEST_BYTES:
            raise TooLarge(
                f"the request has {len(data)} bytes, the limit is {MAX_REQUEST_BYTES}",
                field="body",
                hint="send several requests, or a stream to import",
            )
        return Prepared(data, verb not in _ONCE)

    def query(self, fields: Body) -> dict[str, str]:
        """The query string's fields of a request whose body is a stream."""
        named = {"workspace": self.workspace, **self.caller, **fields}
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in named.items()
            if value is not None
        }

    def _addressed(self, verb: str, body: Body) -> dict[str, Any]:
        full = dict(body)
        if "workspace" not in full:
            if self.workspace is not None:
                full["workspace"] = self.workspace
            elif verb not in NO_WORKSPACE:
                raise Invalid(
                    "no workspace is named", field="workspace", hint="pass workspace=… or set AMNESIA_WORKSPACE"
                )
        if self.caller:
            full.setdefault("caller", self.caller)
        if verb in WRITES and full.get("request_id") is None:
            full["request_id"] = uuid.uuid4().hex
        return full

    def _events(self, body: Body) -> dict[str, Any]:
        """Each event gets an id, by which a repeat is recognized, and the workspace; a single one the caller too."""
        if "events" in body:
            # What is no object is left as it is: the daemon says what is wrong with it.
            several = [self._event(event) if isinstance(event, Mapping) else event for event in body["events"]]
            return {**body, "events": several}
        about = {name: value for name, value in self.caller.items() if name not in ("role", "on_behalf")}
        return self._event({**about, **body})

    def _event(self, event: Body) -> dict[str, Any]:
        filled: dict[str, Any] = {"id": uuid.uuid4().hex, **event}
        if self.workspace is not None:
            filled.setdefault("workspace", self.workspace)
        return filled


def _with_ids(item: Any) -> Any:
    if not isinstance(item, Mapping) or not isinstance(item.get("body", {}), Mapping):
        return item
    body = dict(item.get("body", {}))
    if item.get("verb") in WRITES and body.get("request_id") is None:
        body["request_id"] = uuid.uuid4().hex
    return {**item, "body": body}


def daemon_socket(environ: Mapping[str, str]) -> str:
    """Where the daemon of this user listens: ``AMNESIA_SOCKET``, else as its settings say.

    Raises ``ConfigError`` where there is a configuration file and it is wrong.
    """
    if given := environ.get("AMNESIA_SOCKET", "").strip():
        return places.named_socket(given)
    if environ.get("AMNESIA_STATE_DIR", "").strip() or places.config_file(environ) is not None:
        from amnesiad.settings import load_settings  # slow, and needed only here

        return str(load_settings(environ=environ).socket)
    return str(places.default_socket(environ, lambda: places.default_state_dir(environ)))


def unreachable(path: str, failure: OSError) -> DaemonUnreachable:
    """The error for a socket that cannot be connected to, with what to do about it."""
    if len(os.fsencode(path)) > SUN_PATH_BYTES:
        return DaemonUnreachable(
            f"the socket path {path} has {len(os.fsencode(path))} bytes, the limit is {SUN_PATH_BYTES}",
            field="socket",
            hint="set AMNESIA_SOCKET or socket to a shorter path, here and for the daemon",
        )
    if isinstance(failure, PermissionError):
        return DaemonUnreachable(f"the socket {path} belongs to another user", hint="run amnesia up as yourself")
    # A daemon that stops takes its socket away: what is gone by now was no other file.
    if isinstance(failure, ConnectionRefusedError) and not Path(path).is_socket() and Path(path).exists():
        return DaemonUnreachable(f"{path} is not a socket", hint="move it away, then start the daemon with: amnesia up")
    reason = "there is no socket" if isinstance(failure, FileNotFoundError) else "nothing answers"
    return DaemonUnreachable(f"{reason} at {path}", hint="start the daemon with: amnesia up")


def hung_up(path: str) -> DaemonUnreachable:
    """The error for a connection that broke before the answer was complete."""
    return DaemonUnreachable(
        f"the daemon at {path} hung up before it answered", hint="it may have been stopped; see its log"
    )


def no_answer(timeout_s: float) -> Deadline:
    """The error for a daemon that is connected but silent."""
    return Deadline(f"the daemon did not answer within {timeout_s:g} s", hint="it may be stuck; see amnesia doctor")


def raise_refusal(status: int, raw: bytes) -> NoReturn:
    """Raise the error an envelope stands for; an answer that is no envelope becomes a ``Bug``."""
    try:
        error = json.loads(raw)["error"]
        kind = _BY_CODE[error["code"]]
        message = str(error["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Bug(f"the daemon answered with status {status} and no error object", hint="see its log") from None
    raise kind(
        message,
        hint=str(error.get("hint", "")),
        field=error.get("field"),
        rule=error.get("rule"),
        choices=tuple(error.get("choices", ())),
    )
