"""Requests and answers of any length for the asyncio client: export, import and the feed, each on its own
connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

import httptools

from amnesiad import wire
from amnesiad.client.identity import READ_BYTES, hung_up, no_answer, raise_refusal, unreachable
from amnesiad.client.told import Told
from amnesiad.errors import TooLarge
from amnesiad.limits import MAX_LINE_BYTES

Upload = Iterable[bytes] | AsyncIterator[bytes]


def request_head(target: str, method: str = "POST") -> bytes:
    """Request line and fixed headers, without the empty line that ends them."""
    return f"{method} {target} HTTP/1.1\r\nhost: amnesiad\r\ncontent-type: application/json\r\n".encode()


class _Answer:
    """What the parser has seen of an answer so far."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.complete = False
        self.body = bytearray()

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


@asynccontextmanager
async def streamed(
    path: str, target: str, upload: bytes | Upload | None, timeout_s: float, silence_s: float | None = None
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Send a request and give the lines of its answer as they come.

    ``timeout_s`` bounds each wait for the daemon: to read on, for the answer's status, and for more of its lines,
    unless ``silence_s`` grants those more. ``upload`` is a body, lines to send in chunks, or ``None`` for a GET. Raises
    what the daemon refuses with.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(path)
    except OSError as failure:
        raise unreachable(path, failure) from failure
    answer = _Answer()
    lines = _lines(path, reader, answer, timeout_s if silence_s is None else silence_s)
    try:
        try:
            await _converse(reader, writer, answer, target, upload, timeout_s)
        except TimeoutError:
            raise no_answer(timeout_s) from None
        except (ConnectionError, httptools.HttpParserError) as failure:
            raise hung_up(path) from failure
        if answer.status != 200:
            raise_refusal(answer.status, b"".join([line async for line in lines]))
        yield lines
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def _converse(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    answer: _Answer,
    target: str,
    upload: bytes | Upload | None,
    timeout_s: float,
) -> None:
    """Send while listening: a refusal may come in the middle of an upload, and then ends it."""
    sending = asyncio.ensure_future(_send(writer, target, upload, timeout_s))
    listening = asyncio.ensure_future(_read_status(reader, answer))
    try:
        await asyncio.wait({sending, listening}, return_when=asyncio.FIRST_COMPLETED)
        if not listening.done():
            with suppress(ConnectionError):  # the other end has stopped listening: what it said is still to be read
                sending.result()
            async with asyncio.timeout(timeout_s):
                await listening
        listening.result()
    finally:
        sending.cancel()
        listening.cancel()
        await asyncio.gather(sending, listening, return_exceptions=True)


async def _send(writer: asyncio.StreamWriter, target: str, upload: bytes | Upload | None, timeout_s: float) -> None:
    if upload is None:
        writer.write(request_head(target, "GET") + b"\r\n")
    elif isinstance(upload, bytes):
        writer.write(b"%scontent-length: %d\r\n\r\n%s" % (request_head(target), len(upload), upload))
    else:
        writer.write(request_head(target) + b"transfer-encoding: chunked\r\n\r\n")
        async for line in _each(upload):
            whole = line if line.endswith(b"\n") else line + b"\n"
            writer.write(b"%x\r\n%s\r\n" % (len(whole), whole))
            async with asyncio.timeout(timeout_s):
                await writer.drain()
        writer.write(b"0\r\n\r\n")
    async with asyncio.timeout(timeout_s):
        await writer.drain()


async def _each(lines: Upload) -> AsyncIterator[bytes]:
    if isinstance(lines, AsyncIterator):
        async for line in lines:
            yield line
    else:
        for line in lines:
            yield line


async def _read_status(reader: asyncio.StreamReader, answer: _Answer) -> None:
    while not answer.status:
        await _feed(reader, answer)


async def _feed(reader: asyncio.StreamReader, answer: _Answer) -> None:
    data = await reader.read(READ_BYTES)
    if not data:
        raise ConnectionResetError
    answer.parser.feed_data(data)


async def _lines(path: str, reader: asyncio.StreamReader, answer: _Answer, silence_s: float) -> AsyncIterator[bytes]:
    """Lines without their ends, empty ones included; a stream that stops before its end raises, and so does a silent
    one."""
    while True:
        *complete, rest = answer.body.split(b"\n")
        answer.body = bytearray(rest)
        for line in complete:
            yield bytes(line)
        if answer.complete:
            if rest:
                yield bytes(rest)
            return
        if len(rest) > MAX_LINE_BYTES:
            raise TooLarge(f"a line of the answer exceeds {MAX_LINE_BYTES} bytes", field="line")
        try:
            async with asyncio.timeout(silence_s):
                await _feed(reader, answer)
        except TimeoutError:
            raise no_answer(silence_s) from None
        except (ConnectionError, httptools.HttpParserError) as failure:
            raise hung_up(path) from failure


async def feed_items(lines: AsyncIterator[bytes]) -> AsyncIterator[wire.FeedItem]:
    """The items in the lines of a feed, as they come."""
    told = Told()
    async for line in lines:
        if (item := told.take(line)) is not None:
            yield item
