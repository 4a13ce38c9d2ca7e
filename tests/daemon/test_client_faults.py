"""Both clients against daemons that are away, silent, hang up, or are none."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest
from tests.daemon.asking import Connect, Faulty, ok
from tests.daemon.door import Clerk, Wire
from tests.support import wait_until

from amnesiad import AsyncClient, errors
from amnesiad.api.app import App
from amnesiad.api.serve import ApiServer, serve
from amnesiad.client.identity import unreachable
from amnesiad.limits import SUN_PATH_BYTES

pytestmark = pytest.mark.usefixtures("nobody")


async def test_no_daemon_is_noticed_at_once(place: Path, connect: Connect) -> None:
    """C44: with nothing there, a file, or a dead socket, a client fails fast and says what it found."""
    ask = await connect(place / "a.sock")
    began = time.monotonic()
    with pytest.raises(errors.DaemonUnreachable, match="there is no socket") as refusal:
        await ask("status")
    assert "amnesia up" in refusal.value.hint
    (place / "a.sock").touch()
    with pytest.raises(errors.DaemonUnreachable, match="is not a socket"):
        await ask("status")
    (place / "a.sock").unlink()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place / "a.sock"))
    with pytest.raises(errors.DaemonUnreachable, match="nothing answers"):
        await ask("status")
    assert time.monotonic() - began < 1


def test_a_socket_that_goes_away_meanwhile_is_no_file_in_the_way(place: Path) -> None:
    """A daemon that stops refuses first and then takes its socket along: nobody is told to move it away."""
    assert unreachable(str(place / "a.sock"), ConnectionRefusedError()).message.startswith("nothing answers")


async def test_a_path_no_socket_can_have_is_told_of(connect: Connect) -> None:
    """A path beyond the platform's limit is refused with the limit; nothing could ever listen there."""
    ask = await connect(Path("/tmp") / ("x" * 200))  # noqa: S108
    with pytest.raises(errors.DaemonUnreachable, match=f"205 bytes, the limit is {SUN_PATH_BYTES}") as refusal:
        await ask("status")
    assert refusal.value.field == "socket"


async def test_a_client_outlives_a_restart_of_its_daemon(clerk: Clerk, place: Path, connect: Connect) -> None:
    """The kept connection of a stopped daemon is replaced without an error."""
    ask = await connect(place / "a.sock")
    for _ in range(3):
        running = await serve(App(clerk), place / "a.sock")
        await ask("remember", "still here")
        await running.stop()
    assert len(clerk.texts) == 3


@pytest.mark.parametrize("broken", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"], ids=["dropped", "cut"])
@pytest.mark.parametrize("verb", ["remember", "recall", "batch", "events"])
async def test_a_broken_connection_costs_one_repeat(verb: str, broken: bytes, place: Path, connect: Connect) -> None:
    """A request whose answer is lost is sent once more, and is the same request to the last byte."""
    faulty = Faulty(broken)
    async with await asyncio.start_unix_server(faulty, place / "f.sock"):
        ask = await connect(place / "f.sock")
        await ask("call", verb, {"requests": [{"verb": "remember", "body": {}}]} if verb == "batch" else {})
    assert len(faulty.bodies) == 2
    assert faulty.bodies[0] == faulty.bodies[1]
    if verb != "recall":
        assert b'id":"' in faulty.bodies[0]


async def test_a_second_broken_connection_is_an_error(place: Path, connect: Connect) -> None:
    """A daemon that keeps hanging up is reported, not asked for ever."""
    faulty = Faulty(b"", b"", b"")
    async with await asyncio.start_unix_server(faulty, place / "f.sock"):
        ask = await connect(place / "f.sock")
        with pytest.raises(errors.DaemonUnreachable, match="hung up"):
            await ask("call", "status", {})
    assert len(faulty.bodies) == 2


async def test_a_hook_is_never_sent_twice(place: Path, connect: Connect) -> None:
    """A hook payload carries nothing to recognise a repeat by, so a lost answer is an error."""
    faulty = Faulty(b"", b"")
    async with await asyncio.start_unix_server(faulty, place / "f.sock"):
        ask = await connect(place / "f.sock")
        with pytest.raises(errors.DaemonUnreachable):
            await ask("hook", "codex", {"cwd": "/x"})
    assert len(faulty.bodies) == 1


@pytest.mark.parametrize("reply", [b"HTTP/1.1 502 Bad\r\ncontent-length: 4\r\n\r\nnope", b'HTTP/1.1 500 X\r\ncontent-length: 26\r\n\r\n{"error": {"code": "new"} }'])  # fmt: skip
async def test_an_answer_that_is_no_envelope_is_a_bug(reply: bytes, place: Path, connect: Connect) -> None:
    """Whatever else listens there, the caller gets one of our errors."""
    async with await asyncio.start_unix_server(Faulty(reply), place / "f.sock"):
        ask = await connect(place / "f.sock")
        with pytest.raises(errors.Bug, match=r"status 50\d"):
            await ask("call", "status", {})


async def test_what_does_not_speak_http_is_unreachable(place: Path, connect: Connect) -> None:
    """A stranger at the socket's path is reported as no daemon of ours."""
    garbage = b"220 smtp ready\r\n"
    async with await asyncio.start_unix_server(Faulty(garbage, garbage), place / "f.sock"):
        ask = await connect(place / "f.sock")
        with pytest.raises(errors.DaemonUnreachable):
            await ask("call", "status", {})


async def test_a_silent_daemon_meets_the_timeout(place: Path, connect: Connect) -> None:
    """A daemon that does not answer costs the timeout, and the next request gets its own answer."""
    faulty = Faulty(None, ok(b'{"seq": "2-0"}'))
    async with await asyncio.start_unix_server(faulty, place / "f.sock"):
        ask = await connect(place / "f.sock", timeout_s=0.2)
        with pytest.raises(errors.Deadline, match=r"0\.2 s"):
            await ask("call", "status", {})
        assert await ask("call", "status", {}) == {"seq": "2-0"}
        faulty.release.set()


async def test_a_write_repeated_over_a_lost_answer_lands_once(clerk: Clerk, place: Path, connect: Connect) -> None:
    """The daemon did the write, the answer was lost: the repeat gets the first answer and nothing is written twice."""
    running = await serve(App(clerk), place / "a.sock")
    lost = 0

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal lost
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length:")[1].split()[0])
            behind = await Wire.to(place / "a.sock")
            await behind.send(head + await reader.readexactly(length))
            reply = await behind.reply()
            await behind.close()
            if lost:
                writer.write(ok(reply.body))
            lost += 1
        finally:
            writer.close()

    async with await asyncio.start_unix_server(relay, place / "r.sock"):
        ask = await connect(place / "r.sock")
        answer = await ask("remember", "once")
    await running.stop()
    assert lost == 2
    assert list(clerk.texts) == [answer.id]


async def test_a_cancelled_call_leaves_the_next_its_own_answer(server: ApiServer, clerk: Clerk) -> None:
    """The late answer to an abandoned request is never taken for another's."""
    async with AsyncClient(server.socket_path, workspace="/src/app") as client:
        await client.recall("first")
        clerk.gate.clear()
        call = asyncio.ensure_future(client.recall("abandoned"))
        await wait_until(lambda: clerk.waiting)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        clerk.gate.set()
        assert (await client.recall("second")).text == "second"
