"""A counter clerk behind the real door: the smallest service that can be asked over a real socket, and raw HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from amnesiad import wire
from amnesiad.errors import AmnesiaError
from amnesiad.service.hooks.hooking import HungUp

WORDS = "the launch code is 0000"


class Clerk:
    """Keeps texts in a list. ``fault`` is raised by ``inspect``; ``gate`` holds ``recall`` back while it is closed;
    ``left`` counts hooks that hung up while they waited."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.by_request: dict[str, wire.RememberAnswer] = {}
        self.fault: Exception = AmnesiaError("no fault was set")
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self.left = 0
        self.lines: list[bytes] = []
        self.feed_closed = asyncio.Event()
        self.export_fault: Exception | None = None
        self.seen: list[Any] = []

    async def remember(self, request: wire.RememberRequest) -> wire.RememberAnswer:
        self.seen.append(request)
        if request.request_id in self.by_request:
            return self.by_request[request.request_id]
        note_id = f"{len(self.texts):0>10}"
        self.texts[note_id] = request.content
        answer = wire.RememberAnswer(
            seq=f"{len(self.texts)}-0", id=note_id, created=True, ttl_ms=None, expires_at=None, stale_at=None,
            superseded=(), warnings=(),
        )  # fmt: skip
        if request.request_id is not None:
            self.by_request[request.request_id] = answer
        return answer

    async def recall(self, request: wire.RecallRequest) -> wire.RecallAnswer:
        self.seen.append(request)
        self.waiting += 1
        try:
            await self.gate.wait()
        finally:
            self.waiting -= 1
        return wire.RecallAnswer(seq="1-0", notes=(), deterrents=(), text=request.query)

    async def inspect(self, request: wire.InspectRequest) -> wire.InspectAnswer:
        self.seen.append(request)
        raise self.fault

    async def policy(self, request: wire.PolicyRequest) -> wire.PolicyAnswer:
        self.seen.append(request)
        return wire.PolicyAnswer(seq="1-0", values={})

    async def events(self, request: wire.EventsRequest) -> wire.EventsAnswer:
        self.seen.append(request)
        return wire.EventsAnswer(accepted=len(request.events), ids=tuple(str(event.id) for event in request.events))

    async def batch(self, request: wire.BatchRequest) -> wire.BatchAnswer:
        answers: list[object] = []
        for item in request.requests:
            try:
                answers.append(await self.remember(wire.decode_item(request, wire.read_item(item))))
            except AmnesiaError as refusal:
                answers.append(wire.error_answer(refusal))
        return wire.BatchAnswer(answers=tuple(answers))

    async def hooks(self, request: wire.HooksRequest, *, hung_up: HungUp) -> dict[str, Any]:
        if request.payload.get("prompt") == "wait":
            await hung_up()
            self.left += 1
        return {"agent": request.agent_name, "workspace": request.workspace, **request.payload}

    async def export(self, request: wire.ExportRequest) -> AsyncIterator[bytes]:
        if request.workspace == "/nowhere":
            raise self.fault
        for note_id, text in self.texts.items():
            yield json.dumps({"id": note_id, "content": text}).encode()
        if self.export_fault is not None:
            raise self.export_fault

    async def import_notes(self, request: wire.ImportRequest, lines: AsyncIterator[bytes]) -> wire.ImportAnswer:
        self.seen.append(request)
        async for line in lines:
            self.lines.append(line)
        return wire.ImportAnswer(lines=len(self.lines), imported=len(self.lines), skipped=0)

    async def feed(self, request: wire.FeedRequest) -> AsyncIterator[wire.FeedItem]:
        self.seen.append(request)
        try:
            yield wire.FeedItem(seq="1-0", type="written", data={"id": "0000000000", "text": "a\nb"})
            yield wire.FeedItem(seq="2-0", type="forgotten", data={"id": "0000000000"})
            await asyncio.Event().wait()
        finally:
            self.feed_closed.set()


class Reply(NamedTuple):
    """One HTTP answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)["error"]
        return found


class Wire:
    """A raw connection, for tests that must say exactly what is sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, path: Path) -> Wire:
        return cls(*await asyncio.open_unix_connection(path))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def reply(self, *, head_only: bool = False) -> Reply:
        """The next answer with a Content-Length."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        length = 0 if head_only else int(headers["content-length"])
        return Reply(int(head[0].split()[1]), headers, await self.reader.readexactly(length))

    async def ask(self, target: str, body: bytes = b"", *, method: str = "POST", headers: str = "") -> Reply:
        await self.send(request(target, body, method=method, headers=headers))
        return await self.reply(head_only=method == "HEAD")

    async def closed(self) -> bool:
        """Whether the other end hangs up without saying more."""
        try:
            return await self.reader.read() == b""
        except ConnectionResetError:
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except ConnectionError:
            return


def request(target: str, body: bytes = b"", *, method: str = "POST", headers: str = "") -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def remember(content: str, **fields: Any) -> bytes:
    return request("/v1/remember", json.dumps({"workspace": "/src/app", "content": content, **fields}).encode())


async def still_answers(path: Path) -> bool:
    connection = await Wire.to(path)
    try:
        return (await connection.ask("/healthz", method="GET")).status == 200
    finally:
        await connection.close()
