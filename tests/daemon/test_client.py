"""Both clients against the real door, and against daemons that misbehave."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pytest
from tests.daemon.door import Clerk, Wire
from tests.support import wait_until

import amnesiad
from amnesiad import AsyncClient, Client, errors, wire
from amnesiad.api.app import App
from amnesiad.api.serve import ApiServer, serve
from amnesiad.client import identity, verbs
from amnesiad.client.aio import POOL_SIZE
from amnesiad.limits import MAX_REQUEST_BYTES, SUN_PATH_BYTES


@pytest.fixture
def place() -> Iterator[Path]:
    """A short private directory: the test's own may be too long for a socket."""
    with TemporaryDirectory(prefix="amn") as directory:
        yield Path(directory)


@pytest.fixture(autouse=True)
def _nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test speaks for whoever runs it."""
    for name in ("SOCKET", "WORKSPACE", "SESSION", "AGENT", "TEAM", "AGENT_KIND", "CONFIG", "STATE_DIR"):
        monkeypatch.delenv(f"AMNESIA_{name}", raising=False)


@pytest.fixture
async def clerk() -> Clerk:
    return Clerk()


@pytest.fixture
async def server(clerk: Clerk, place: Path) -> AsyncIterator[ApiServer]:
    running = await serve(App(clerk), place / "a.sock")
    yield running
    await running.stop()


class Asker(Protocol):
    """One client, whichever it is, asked by method name and awaited."""

    async def __call__(self, method: str, *args: Any, **kwargs: Any) -> Any: ...


Connect = Callable[..., Awaitable[Asker]]


@pytest.fixture(params=["blocking", "asyncio"])
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Opens clients of either sort, so that every promise is kept by both."""
    opened: list[Client | AsyncClient] = []

    async def open_one(path: Path, workspace: str | None = "/src/app", **options: Any) -> Asker:
        kind = Client if request.param == "blocking" else AsyncClient
        client = kind(path, workspace=workspace, **options)
        opened.append(client)

        async def ask(method: str, *args: Any, **kwargs: Any) -> Any:
            bound = getattr(client, method)
            if isinstance(client, AsyncClient):
                return await bound(*args, **kwargs)
            return await asyncio.to_thread(bound, *args, **kwargs)

        return ask

    yield open_one
    for client in opened:
        if isinstance(client, AsyncClient):
            await client.aclose()
        else:
            client.close()


async def test_a_typed_method_returns_the_wires_answer(server: ApiServer, connect: Connect, clerk: Clerk) -> None:
    """Arguments arrive as the request's fields, and the answer is the struct of the wire."""
    ask = await connect(server.socket_path, session="s1", agent="a1", agent_kind="subagent", on_behalf="user")
    answer = await ask("remember", "the sky is blue", tags=["sky"], ttl_ms="7d", pinned=True)
    assert isinstance(answer, wire.RememberAnswer)
    assert clerk.texts[answer.id] == "the sky is blue"
    seen = clerk.seen[0]
    assert (seen.workspace, seen.tags, seen.ttl_ms, seen.pinned) == ("/src/app", ("sky",), 604_800_000, True)
    assert seen.caller == wire.CallerSpec(session="s1", agent="a1", agent_kind="subagent", on_behalf="user")


async def test_call_returns_plain_values(server: ApiServer, connect: Connect) -> None:
    """Any verb can be asked with a plain object."""
    ask = await connect(server.socket_path)
    assert (await ask("call", "recall", {"query": "q"}))["text"] == "q"


async def test_no_ttl_and_a_null_ttl_are_told_apart(server: ApiServer, connect: Connect, clerk: Clerk) -> None:
    """Leaving ttl_ms out takes the policy's; None asks for a note that never expires."""
    ask = await connect(server.socket_path)
    await ask("remember", "one")
    await ask("remember", "two", ttl_ms=None)
    assert clerk.seen[0].ttl_ms is not None
    assert clerk.seen[1].ttl_ms is None


@pytest.mark.parametrize(
    "fault",
    [
        errors.Forbidden("a note of a human", hint="ask", rule="provenance"),
        errors.Ambiguous("two match", choices=("abcd", "abce"), field="id"),
        errors.NotFound("gone"),
        errors.Conflict("changed"),
        errors.Refused("no", rule="cycle"),
        errors.StoreFull("full"),
        errors.StoreUnavailable("away"),
        errors.Busy("busy"),
        errors.Deadline("late"),
    ],
)
async def test_an_error_arrives_as_it_was_raised(
    fault: errors.AmnesiaError, server: ApiServer, connect: Connect, clerk: Clerk
) -> None:
    """Class, sentence, hint, field, rule and choices survive the wire."""
    clerk.fault = fault
    ask = await connect(server.socket_path)
    with pytest.raises(type(fault)) as refusal:
        await ask("inspect", "abcdefghjk")
    found = refusal.value
    assert (found.message, found.hint, found.field) == (fault.message, fault.hint, fault.field)
    assert (found.rule, found.choices) == (fault.rule, fault.choices)
    assert (await ask("recall", "after")).text == "after"


async def test_a_wrong_argument_is_refused_by_field(server: ApiServer, connect: Connect) -> None:
    """V26: what the daemon refuses names the field, also for values Python lets through."""
    ask = await connect(server.socket_path)
    for arguments, field in (({"limit": -1}, "limit"), ({"since": "soon"}, "since"), ({"tags": ["\ud800"]}, "tags[0]")):
        with pytest.raises(errors.Invalid) as refusal:
            await ask("recall", **arguments)
        assert refusal.value.field == field
    with pytest.raises(errors.Invalid) as refusal:
        await ask("remember", "x", ttl_ms=float("nan"))
    assert refusal.value.field == "ttl_ms"
    with pytest.raises(errors.NotFound) as unknown:
        await ask("call", "rember", {})
    assert unknown.value.hint == "did you mean remember?"


@pytest.mark.parametrize("method", ["remember", "list_notes", "pin", "why_not"])
async def test_a_wrong_keyword_names_the_method(method: str, place: Path, connect: Connect) -> None:
    """Python's own error speaks of what the caller wrote, also where verbs share their arguments."""
    ask = await connect(place)
    with pytest.raises(TypeError, match=rf"^{method}\(\) got an unexpected keyword argument 'zzz'"):
        await ask(method, zzz=1)


async def test_no_daemon_is_noticed_at_once(place: Path, connect: Connect) -> None:
    """C44: with nothing there, or a dead socket, a client fails fast and says what to do."""
    ask = await connect(place / "a.sock")
    began = time.monotonic()
    with pytest.raises(errors.DaemonUnreachable, match="there is no socket") as refusal:
        await ask("status")
    assert "amnesia up" in refusal.value.hint
    (place / "a.sock").touch()
    with pytest.raises(errors.DaemonUnreachable):
        await ask("status")
    assert time.monotonic() - began < 1


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


class Faulty:
    """A daemon that drops connections after reading, answers garbage, or never answers; counts what it was sent."""

    def __init__(self, *replies: bytes | None) -> None:
        self.replies = list(replies)
        self.bodies: list[bytes] = []
        self.release = asyncio.Event()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.lower().split(b"\r\n")
                        if line.startswith(b"content-length")
                    ),
                    0,
                )
                self.bodies.append(await reader.readexactly(length))
                reply = self.replies.pop(0) if self.replies else ok(b'{"seq": "1-0"}')
                if reply is None:
                    await self.release.wait()
                    return
                writer.write(reply)
                if not reply.startswith(b"HTTP/1.1 200 OK\r\n") or not reply.endswith(b"}"):
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


def ok(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


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


async def test_a_request_past_the_limit_is_not_sent(server: ApiServer, connect: Connect, clerk: Clerk) -> None:
    """V25: the client refuses what the daemon would."""
    ask = await connect(server.socket_path)
    with pytest.raises(errors.TooLarge):
        await ask("remember", "x" * MAX_REQUEST_BYTES)
    assert clerk.seen == []


async def test_a_request_without_a_workspace_says_how_to_name_one(server: ApiServer, connect: Connect) -> None:
    """No workspace anywhere is the caller's mistake, told before anything is sent."""
    ask = await connect(server.socket_path, workspace=None)
    with pytest.raises(errors.Invalid) as refusal:
        await ask("status")
    assert "AMNESIA_WORKSPACE" in refusal.value.hint


async def test_the_environment_says_for_whom_a_client_speaks(
    server: ApiServer, connect: Connect, clerk: Clerk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AMNESIA_* fill in what the arguments leave out, and arguments win."""
    for name, value in {
        "WORKSPACE": "/env",
        "SESSION": "s9",
        "TEAM": "t9",
        "AGENT": "a9",
        "AGENT_KIND": "teammate",
    }.items():
        monkeypatch.setenv(f"AMNESIA_{name}", value)
    monkeypatch.setenv("AMNESIA_SOCKET", str(server.socket_path))
    ask = await connect(None, workspace=None, agent="mine")
    await ask("recall")
    seen = clerk.seen[0]
    assert seen.workspace == "/env"
    assert seen.caller == wire.CallerSpec(session="s9", team="t9", agent="mine", agent_kind="teammate")


async def test_a_lifecycle_event_is_about_the_client_and_has_an_id(
    server: ApiServer, connect: Connect, clerk: Clerk
) -> None:
    """C35: every event carries an id, by which a repeat is known; several may be about anyone."""
    ask = await connect(server.socket_path, session="s1", role="agent")
    await ask("events", "turn-end")
    await ask("events", events=[{"event": "session-end", "session": "s2"}, {"event": "heartbeat", "workspace": "/y"}])
    one, two = clerk.seen[0].events[0], clerk.seen[1].events
    assert (one.session, one.workspace) == ("s1", "/src/app")
    assert [(event.session, event.workspace) for event in two] == [("s2", "/src/app"), (None, "/y")]
    assert len({one.id, *(event.id for event in two)} - {None}) == 3


async def test_a_batch_keeps_its_order(server: ApiServer, connect: Connect) -> None:
    """Answers and refusals stand where their requests stood."""
    ask = await connect(server.socket_path)
    answer = await ask("batch", [("remember", {"content": "a"}), ("remember", {}), ("remember", {"content": "b"})])
    assert ["error" in item for item in answer.answers] == [False, True, False]


async def test_a_hook_is_answered_in_the_agents_form(server: ApiServer, connect: Connect) -> None:
    """The payload goes through unchanged."""
    ask = await connect(server.socket_path)
    answer = await ask("hook", "codex", {"cwd": "/x"}, workspace="/src/app")
    assert answer == {"agent": "codex", "workspace": "/src/app", "cwd": "/x"}


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


async def test_many_concurrent_calls_share_a_bounded_pool(server: ApiServer, clerk: Clerk) -> None:
    """C01: a hundred calls at once all succeed over a few connections."""
    clerk.gate.clear()
    async with AsyncClient(server.socket_path, workspace="/src/app") as client:
        calls = [asyncio.ensure_future(client.recall(str(number))) for number in range(100)]
        await wait_until(lambda: clerk.waiting == POOL_SIZE)
        clerk.gate.set()
        assert [answer.text for answer in await asyncio.gather(*calls)] == [str(number) for number in range(100)]


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


async def test_threads_may_share_a_blocking_client(server: ApiServer) -> None:
    """Twenty threads over one client each get their own answers."""
    wrong: list[str] = []
    with Client(server.socket_path, workspace="/src/app") as client:

        def work(name: str) -> None:
            wrong.extend(name for _ in range(10) if client.recall(name).text != name)

        threads = [threading.Thread(target=work, args=(str(number),)) for number in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert wrong == []


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_both_clients_offer_every_verb(kind: type) -> None:
    """Each verb of the wire is a method with the fields of its request, and the bus words are aliases."""
    offered = {call.verb: call for call in vars(verbs).values() if isinstance(call, verbs.Call)}
    assert set(offered) | {"import", "export"} == set(wire.VERBS)
    for verb, call in offered.items():
        spec = wire.VERBS[verb]
        method = getattr(kind, spec.method)
        assert method.__doc__
        if verb in ("events", "batch"):
            continue
        fields = set(spec.request.__struct_fields__) - {"workspace", "caller"}
        if spec.write:
            fields.discard("after")
        assert set(inspect.signature(call.signature).parameters) == fields, verb
    aliases = {"plug": "remember", "unplug": "forget", "plugs": "list_notes", "touch": "renew"}
    for alias, name in aliases.items():
        assert getattr(kind, alias) is getattr(kind, name)


def test_the_client_knows_which_verbs_take_a_request_id() -> None:
    """The client's own list, kept so that it starts fast, is the wire's."""
    assert {verb for verb, spec in wire.VERBS.items() if spec.write} == identity.WRITES


def test_the_socket_is_where_the_settings_put_it(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client finds the daemon's socket as the daemon chose it, with and without a configuration file."""
    from amnesiad.settings import load_settings

    for variable in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "HOME"):
        monkeypatch.delenv(variable, raising=False)
    environ = {"XDG_CONFIG_HOME": str(place / "config"), "XDG_STATE_HOME": str(place / "state")}
    assert identity.daemon_socket(environ) == str(load_settings(environ=environ).socket)
    environ["XDG_RUNTIME_DIR"] = str(place)
    assert identity.daemon_socket(environ) == str(load_settings(environ=environ).socket)
    (place / "config" / "amnesia").mkdir(parents=True)
    (place / "config" / "amnesia" / "amnesia.toml").write_text(f'socket = "{place}/mine.sock"')
    assert identity.daemon_socket(environ) == f"{place}/mine.sock" == str(load_settings(environ=environ).socket)
    assert identity.daemon_socket({**environ, "AMNESIA_SOCKET": "/run/x.sock"}) == "/run/x.sock"


def test_the_package_offers_its_clients_and_nothing_unknown() -> None:
    """from amnesiad import Client, AsyncClient; a misspelling is an AttributeError."""
    assert amnesiad.Client is Client
    assert amnesiad.AsyncClient is AsyncClient
    with pytest.raises(AttributeError):
        amnesiad.client.Clinet  # noqa: B018 - the look-up is the test
    with pytest.raises(AttributeError):
        amnesiad.Clinet  # noqa: B018


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


def test_a_prepared_request_is_plain_json() -> None:
    """Ids that the caller gave are kept, those it left out are made."""
    who = identity.Identity(
        "/x.sock", workspace="/x", session=None, agent=None, team=None, agent_kind=None, role=None, on_behalf=None
    )
    made = json.loads(who.prepare("remember", {"content": "c"}).data)
    assert set(made) == {"content", "workspace", "request_id"}
    kept = json.loads(who.prepare("remember", {"content": "c", "request_id": "mine", "workspace": "/y"}).data)
    assert (kept["request_id"], kept["workspace"]) == ("mine", "/y")
