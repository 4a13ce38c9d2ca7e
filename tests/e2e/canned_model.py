"""A model on loopback that says what a test scripts, in the words of Anthropic's API, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Block = dict[str, Any]
Script = Callable[[dict[str, Any]], Block]
"""The request → the one block of the answer, made by ``say`` or ``use``."""


def say(text: str) -> Block:
    """An answer in words, which ends the turn."""
    return {"type": "text", "text": text}


def use(call: str, tool: str, **given: Any) -> Block:
    """An answer that calls a tool, with the call's id."""
    return {"type": "tool_use", "id": call, "name": tool, "input": given}


def texts(request: dict[str, Any]) -> str:
    """Everything that the model is shown in a request, its instructions aside."""
    return json.dumps(request["messages"], ensure_ascii=False)


def answered(request: dict[str, Any]) -> int:
    """How many calls of tools the conversation holds the results of."""
    return texts(request).count('"type": "tool_result"')


class CannedModel:
    """Serves the script while it is entered. ``asked`` are the requests, oldest first."""

    def __init__(self, script: Script) -> None:
        self.asked: list[dict[str, Any]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler(script))
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _handler(self, script: Script) -> type[BaseHTTPRequestHandler]:
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Nobody reads it."""

            def do_GET(self) -> None:
                self._answer(b"{}", "application/json")

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if not self.path.startswith("/v1/messages") or "count_tokens" in self.path:
                    self._answer(b'{"input_tokens": 1}', "application/json")
                    return
                request = json.loads(body)
                asked.append(request)
                whole = _message(request["model"], script(request))
                if request.get("stream"):
                    self._answer(_stream(whole), "text/event-stream")
                else:
                    self._answer(json.dumps(whole).encode(), "application/json")

            def _answer(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        return Handler


def _message(model: str, block: Block) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }


def _stream(whole: dict[str, Any]) -> bytes:
    """The message as the events of a stream: its block opens empty and comes in one piece."""
    (block,) = whole["content"]
    opened: Block
    delta: Block
    if block["type"] == "text":
        opened, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": block["text"]}
    else:
        opened = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": opened},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events).encode()
