"""``amnesia mcp``: an MCP server on standard input and output that hands every request to the daemon's tools.

Also started as a bare file, ``python -I -S …/shims/mcp.py``. One line is one JSON-RPC message; each request is one POST
to ``/mcp`` on the daemon's socket, several at a time, each answered within ``DEADLINE_S`` by the daemon's answer or by
an error that says what to do. What is asked for before any call (the handshake, the list of tools) is answered from the
same table of tools when no daemon answers, so that a client that starts first finds the tools, and its calls work as
soon as the daemon is up. It ends with its client: at the end of standard input, at SIGTERM, when nobody reads its
output, when its parent is gone. Nothing is logged, and no rule about notes or tools lives here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from amnesiad.shims.lines import Line

DEADLINE_S: Final = 5.0
"""For a request, from its line to its answer. The daemon itself gives up on a call a little earlier, and says more."""
ENDING_S: Final = DEADLINE_S + 1.0
"""For what is under way at the end of the input: each has its own deadline, which began later, and tells of it then."""
MAX_CALLS: Final = 32
"""Requests under way: more than an agent makes at a time, and few enough for a hundred shims on one daemon."""
STACK_BYTES: Final = 256 * 1024
"""Of a request's thread. Decoding JSON is the deepest thing that runs on it."""

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
UNREACHABLE: Final = -32000
"""JSON-RPC's first code for what a server defines; ``data.code`` says which of our errors it is."""

VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Revisions of MCP that begin with a handshake; the last one is offered to a client that asks for another."""
STATELESS: Final = "2026-07-28"
"""The revision whose requests each say for themselves which revision they follow."""
_META: Final = "io.modelcontextprotocol/"
_NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods whose header ``mcp-name`` repeats a parameter."""
_IDENTITY: Final = ("WORKSPACE", "SESSION", "AGENT", "AGENT_KIND", "TEAM")
"""What the environment (``AMNESIA_…``) may say about the agent that the shim speaks for."""

_HEADER_SAFE: Final = re.compile(r"(?!=\?)[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_ID: Final = rb'"id"\s*:\s*(-?[0-9]{1,15}|"[^"\\\x00-\x1f]{1,256}")'
_ID_FIRST: Final = re.compile(rb"\s*\{[^{\[]{0,512}?" + _ID)
_ID_LAST: Final = re.compile(_ID + rb'[^{}\[\]"]*(?:"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')

Message = dict[str, Any]


class _Fault(Exception):
    """Why a request gets no answer from the daemon: our code, what happened, what to do."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        super().__init__(message)
        self.code, self.message, self.hint = code, message, hint


def main(arguments: Sequence[str]) -> int:
    """Serve until the client is gone, and return 0. Takes ``--socket S``; 2 for any other argument."""
    from amnesiad.shims.lines import Reader, Writer

    socket = _parse(arguments)
    if socket is None:
        sys.stderr.write("amnesia mcp takes no arguments but --socket PATH; agents start it and talk JSON-RPC to it\n")
        return 2
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os._exit(0))
    if os.isatty(0):
        sys.stderr.write("amnesia mcp waits for JSON-RPC, one message a line: agents start it; Ctrl-D ends it\n")
    threading.stack_size(STACK_BYTES)
    parent = os.getppid()
    shim = Shim(socket, _identity(os.environ), Writer(parent).write)
    reader = Reader(parent)
    while (line := reader.line()) is not None:
        shim.take(line)
    shim.finish()
    return 0


def _parse(arguments: Sequence[str]) -> str | None:
    """The socket's path, empty where none is given; ``None`` for wrong usage."""
    match list(arguments):
        case []:
            return ""
        case ["--socket", path] if path:
            return path
        case [word] if word.startswith("--socket=") and len(word) > len("--socket="):
            return word.partition("=")[2]
    return None


def _identity(environ: Mapping[str, str]) -> dict[str, str]:
    """Who the shim speaks for and where it stands, as headers. The daemon finds out which workspace a directory is
    of."""
    told = {name.lower().replace("_", "-"): environ.get(f"AMNESIA_{name}", "").strip() for name in _IDENTITY}
    try:
        told["cwd"] = os.getcwd()  # noqa: PTH109 - pathlib takes longer to import than all of this
    except OSError:  # removed meanwhile
        told["cwd"] = ""
    return {f"x-amnesia-{name}": _quoted(value) for name, value in told.items() if value}


def _quoted(value: str) -> str:
    """Percent-encoded: a header holds no other text than ASCII, and a path may be any bytes."""
    return "".join(
        chr(byte) if 0x21 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in os.fsencode(value)
    )


class Shim:
    """The requests under way. ``take`` and ``finish`` are for one thread; each request has a thread of its own."""

    def __init__(self, socket: str, identity: Mapping[str, str], write: Callable[[bytes], None]) -> None:
        self._socket = socket
        self._identity = identity
        self._write = write
        self._version = ""
        self._change = threading.Condition()
        self._calls: dict[object, object] = {}
        """The id of each request under way, by a mark of its own: a client may use an id twice."""

    def take(self, line: Line) -> None:
        """Begin to answer one line. What needs no answer, or none of the daemon's, is done with at once."""
        if not line.whole:
            from amnesiad.limits import MAX_REQUEST_BYTES

            found = _ID_FIRST.match(line.data) or _ID_LAST.search(line.data)
            why = _Fault("too_large", f"the message exceeds {MAX_REQUEST_BYTES} bytes", "send less at a time")
            self._write(_error(json.loads(found[1]) if found else None, why, INVALID_REQUEST))
            return
        try:
            message = json.loads(line.data)
        except (ValueError, RecursionError):
            why = _Fault("invalid", "this line is not JSON", "send one JSON-RPC message a line, in UTF-8")
            self._write(_error(None, why, PARSE_ERROR))
            return
        if not isinstance(message, dict):
            why = _Fault("invalid", "this is no JSON-RPC request", "send single requests: MCP has no batches")
            self._write(_error(None, why, INVALID_REQUEST))
        elif "id" not in message:
            # The daemon keeps nothing between requests, so there is one notification alone that means something here.
            if message.get("method") == "notifications/cancelled":
                self._cancel(message.get("params"))
        elif not isinstance(message.get("method"), str) or not _is_id(message["id"]):
            if "result" in message or "error" in message:
                return  # an answer, and nothing was asked
            why = _Fault(
                "invalid", "a request has a method, and an id that is text or a whole number", "mend the message"
            )
            self._write(_error(_echoed(message["id"]), why, INVALID_REQUEST))
        elif not isinstance(message.get("params"), dict | None):
            why = _Fault("invalid", "params is no object", "name each parameter, or leave params out")
            self._write(_error(message["id"], why, INVALID_REQUEST))
        else:
            self._begin(message, line.data)

    def finish(self) -> None:
        """Wait for the answers under way, each within its deadline."""
        until = time.monotonic() + ENDING_S
        with self._change:
            while self._calls and (left := until - time.monotonic()) > 0:
                self._change.wait(left)

    def _cancel(self, params: object) -> None:
        wanted = params.get("requestId") if isinstance(params, dict) else None
        with self._change:
            for mark, request_id in list(self._calls.items()):
                if request_id == wanted and not isinstance(wanted, bool):
                    del self._calls[mark]

    def _begin(self, message: Message, data: bytes) -> None:
        mark = object()
        with self._change:
            if full := len(self._calls) >= MAX_CALLS:
                why = _Fault("busy", f"{MAX_CALLS} requests are under way", "wait for their answers, then ask again")
            else:
                self._calls[mark] = message["id"]
        if full:
            self._write(_error(message["id"], why))
        else:
            threading.Thread(target=self._answer, args=(mark, message, data), daemon=True).start()

    def _answer(self, mark: object, message: Message, data: bytes) -> None:
        try:
            answer = self._ask(message, data)
        except _Fault as fault:
            answer = _offline(message) or _error(message["id"], fault)
        except Exception as error:
            # Of an error that is not ours only the kind: a message may quote what was sent.
            why = _Fault("internal", f"amnesia mcp failed: {type(error).__name__}", "please report this line")
            answer = _error(message["id"], why)
        with self._change:
            wanted = mark in self._calls
        if wanted:
            self._write(answer)
        with self._change:
            self._calls.pop(mark, None)
            self._change.notify_all()

    def _ask(self, message: Message, data: bytes) -> bytes:
        """The daemon's answer as one line. Raises ``_Fault`` where it has none."""
        from amnesiad.shims import connect

        path = connect.socket_path(self._socket)
        try:
            with connect.Connection(path) as connection:
                answer = connection.exchange("/mcp", data, headers=self._headers(message), deadline_s=DEADLINE_S)
        except TimeoutError:
            why = f"the daemon did not answer within {DEADLINE_S:g} s"
            raise _Fault("deadline", why, "a write may have landed: look before you repeat it") from None
        except (FileNotFoundError, ConnectionRefusedError, PermissionError):
            why = f"no daemon of this user answers at {path}"
            raise _Fault("unreachable", why, "start it with: amnesia up; then call again") from None
        except (ConnectionError, connect.BadAnswer):
            hint = "a write may have landed: start the daemon with: amnesia up; and look before you repeat it"
            raise _Fault("unreachable", "the daemon went away before it answered", hint) from None
        except OSError as error:
            hint = "set AMNESIA_SOCKET to what amnesia sockname prints"
            raise _Fault("unreachable", f"nothing can be reached at {path}: {error.strerror or error}", hint) from None
        return self._read(message, answer.status, answer.body)

    def _read(self, message: Message, status: int, body: bytes) -> bytes:
        try:
            told = json.loads(body)
        except (ValueError, RecursionError):
            told = None
        error = told.get("error") if isinstance(told, dict) else None
        if not isinstance(told, dict) or "jsonrpc" not in told:
            if (
                isinstance(error, dict) and "code" in error
            ):  # the envelope of what is refused before a tool is looked at
                raise _Fault(str(error["code"]), str(error.get("message", "")), str(error.get("hint", "")))
            raise _Fault("internal", f"the daemon answered with status {status} and no message", "see its log")
        result = told.get("result")
        if message["method"] == "initialize" and isinstance(result, dict):
            self._version = str(result.get("protocolVersion", ""))
        if told.get("id") is None:  # the daemon could not tell whose answer it is, and we can
            return _encoded({**told, "id": message["id"]})
        return body.replace(b"\n", b" ")

    def _headers(self, message: Message) -> list[tuple[str, str]]:
        """What a request says over HTTP beside its body: every revision has its own, made of the message itself."""
        headers = [("accept", "application/json, text/event-stream"), *self._identity.items()]
        method, params = message["method"], message.get("params")
        declared = _declared_version(params)
        if declared:
            headers.append(("mcp-method", _header(method)))
            named = params.get(_NAMED_BY[method]) if isinstance(params, dict) and method in _NAMED_BY else None
            if isinstance(named, str):
                headers.append(("mcp-name", _header(named)))
        if (declared or self._version) and method != "initialize":
            headers.append(("mcp-protocol-version", declared or self._version))
        return headers


def _is_id(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _echoed(value: object) -> object:
    """What is no id, as far as JSON can repeat it: a client that sent a fraction still finds its error."""
    # Of NaN and the infinities Python reads and writes words that are no JSON.
    return value if isinstance(value, str | int) or (isinstance(value, float) and value - value == 0) else None


def _declared_version(params: object) -> str:
    """The revision that a request says it follows, if it says so in a way that a header can repeat."""
    meta = params.get("_meta") if isinstance(params, dict) else None
    version = meta.get(f"{_META}protocolVersion") if isinstance(meta, dict) else None
    return version if isinstance(version, str) and _HEADER_SAFE.fullmatch(version) else ""


def _header(value: str) -> str:
    """A text as MCP writes it into a header: as it is, or in base64 where it is more than plain ASCII."""
    if _HEADER_SAFE.fullmatch(value):
        return value
    from binascii import b2a_base64

    return f"=?base64?{b2a_base64(value.encode('utf-8', 'surrogatepass'), newline=False).decode()}?="


def _encoded(message: Message) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def _error(request_id: object, fault: _Fault, code: int = UNREACHABLE) -> bytes:
    """The error of a request. The hint stands in the message too: that is what agents are shown."""
    told = {"code": code, "message": f"{fault.message} ({fault.hint})" if fault.hint else fault.message}
    data = {"code": fault.code, "hint": fault.hint}
    return _encoded({"jsonrpc": "2.0", "id": request_id, "error": {**told, "data": data}})


def _offline(message: Message) -> bytes | None:
    """The answer while no daemon gives one; ``None`` for what only it can answer."""
    method, params = message["method"], message.get("params")
    declared = _declared_version(params)
    if method not in ("initialize", "ping", "server/discover", "tools/list") or declared not in ("", STATELESS):
        return None
    result: Message = {}
    if method != "ping":
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
        with open(os.path.join(here, "mcp", "tools.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            table = json.load(file)
        about = {"capabilities": {"tools": {"listChanged": False}}, "instructions": table["instructions"]}
        if method == "tools/list":
            result = {"tools": table["tools"]}
        elif method == "server/discover":
            result = {"supportedVersions": [STATELESS], **about}
        else:
            asked = params.get("protocolVersion") if isinstance(params, dict) else None
            from amnesiad import __version__

            server = {"name": "amnesiad", "title": "amnesiad", "version": __version__}
            result = {"protocolVersion": asked if asked in VERSIONS else VERSIONS[-1], "serverInfo": server, **about}
    if declared:
        # Stale at once: when the daemon is back it is asked itself.
        result |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    return _encoded({"jsonrpc": "2.0", "id": message["id"], "result": result})


if __name__ == "__main__":
    # As a bare file, without site-packages: the package is what this file stands in.
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))  # noqa: PTH100, PTH120
    sys.exit(main(sys.argv[1:]))
