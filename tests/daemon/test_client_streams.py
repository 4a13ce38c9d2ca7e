"""Both clients at what has no length: exports, imports and the feed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.asking import Connect
from tests.daemon.door import Clerk
from tests.support import wait_until

from amnesiad import AsyncClient, Client, errors, wire
from amnesiad.api.serve import ApiServer

pytestmark = pytest.mark.usefixtures("nobody")


async def test_an_import_and_an_export(server: ApiServer, connect: Connect, clerk: Clerk) -> None:
    """C03: lines go in with or without their ends, and come out as objects."""
    ask = await connect(server.socket_path)
    answer = await ask("import_notes", [b'{"a": 1}\n', b'{"a": 2}'])
    assert (answer.lines, clerk.lines) == (2, [b'{"a": 1}', b'{"a": 2}'])
    clerk.texts = {str(number): "x" * 1000 for number in range(500)}

    def blocking() -> list[dict[str, Any]]:
        with Client(server.socket_path, workspace="/src/app") as client:
            return list(client.export())

    async with AsyncClient(server.socket_path, workspace="/src/app") as client:
        assert [row["id"] async for row in client.export()] == list(clerk.texts)
    assert len(await asyncio.to_thread(blocking)) == 500


async def test_an_export_that_breaks_is_an_error(server: ApiServer, clerk: Clerk) -> None:
    """Half an export never looks like a whole one."""
    clerk.texts = {"a": "x"}
    clerk.export_fault = ValueError()

    def blocking() -> list[dict[str, Any]]:
        with Client(server.socket_path, workspace="/src/app") as client:
            return list(client.export())

    with pytest.raises(errors.DaemonUnreachable):
        await asyncio.to_thread(blocking)
    async with AsyncClient(server.socket_path, workspace="/src/app") as client:
        with pytest.raises(errors.DaemonUnreachable):
            [row async for row in client.export()]
    clerk.fault = errors.NotFound("no such workspace")
    async with AsyncClient(server.socket_path, workspace="/nowhere") as client:
        with pytest.raises(errors.NotFound):
            [row async for row in client.export()]


async def test_an_import_refused_early_says_why(server: ApiServer, connect: Connect) -> None:
    """An upload the daemon stops in the middle ends with the daemon's reason."""
    ask = await connect(server.socket_path, agent_kind="nonsense")
    with pytest.raises(errors.Invalid) as refusal:
        await ask("import_notes", (b"x" * 1000 for _ in range(20_000)))
    assert refusal.value.field == "caller.agent_kind"


async def test_the_feed_gives_items(server: ApiServer, clerk: Clerk) -> None:
    """Transitions arrive as items with their stream ids; leaving the loop closes the feed."""
    async with AsyncClient(server.socket_path, workspace="/src/app") as client:
        feed = client.feed(after="5-0")
        items = [await anext(feed), await anext(feed)]
        await feed.aclose()  # type: ignore[attr-defined]  # an async generator
    assert [(item.seq, item.type) for item in items] == [("1-0", "written"), ("2-0", "forgotten")]
    assert items[0].data["text"] == "a\nb"
    assert clerk.seen[0].after == "5-0"
    await wait_until(clerk.feed_closed.is_set)


async def test_the_feed_gives_items_to_blocking_code_too(server: ApiServer, clerk: Clerk) -> None:
    """One after another, each waited for, beside other requests of the client; closing the iterator closes the feed."""

    def read(client: Client) -> list[wire.FeedItem]:
        feed = client.feed(after="5-0")
        items = [next(feed), next(feed)]
        client.remember("meanwhile")
        feed.close()  # type: ignore[attr-defined]  # a generator
        return items

    with Client(server.socket_path, workspace="/src/app", timeout_s=5) as client:
        items = await asyncio.to_thread(read, client)
    assert [(item.seq, item.type) for item in items] == [("1-0", "written"), ("2-0", "forgotten")]
    assert items[0].data["text"] == "a\nb"
    assert clerk.seen[0].after == "5-0"
    await wait_until(clerk.feed_closed.is_set)


async def test_a_feed_that_is_refused_says_why_to_blocking_code_too(server: ApiServer) -> None:
    """The refusal is the daemon's own, and no empty feed."""
    with Client(server.socket_path, agent_kind="nonsense") as client, pytest.raises(errors.Invalid) as refusal:
        await asyncio.to_thread(list, client.feed())
    assert refusal.value.field == "caller.agent_kind"


@pytest.mark.parametrize("verb", ["export", "feed"])
@pytest.mark.parametrize("kind", [Client, AsyncClient])
async def test_a_stream_that_falls_silent_meets_the_timeout(
    kind: type[Client | AsyncClient], verb: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A daemon that hangs in the middle of its answer costs the timeout, and nobody waits for ever."""
    for module in ("aio", "blocking"):
        monkeypatch.setattr(f"amnesiad.client.{module}.FEED_SILENCE_S", 0.1)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
        await reader.read()  # until the client hangs up
        await reader.read()
        writer.close()

    async with await asyncio.start_unix_server(silent, place / "s.sock"):
        client = kind(place / "s.sock", workspace="/src/app", timeout_s=0.2)
        lines = getattr(client, verb)()
        if isinstance(client, Client):
            with pytest.raises(errors.Deadline, match=r"0\.2 s"):
                await asyncio.to_thread(list, lines)
        else:
            with pytest.raises(errors.Deadline, match=r"0\.2 s"):
                [line async for line in lines]
