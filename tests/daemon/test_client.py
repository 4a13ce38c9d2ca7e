"""Both clients against the real door: what they send, what they return, and for whom they speak."""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
from pathlib import Path

import pytest
from tests.daemon.asking import Connect
from tests.daemon.door import Clerk
from tests.support import wait_until

import amnesiad
from amnesiad import AsyncClient, Client, errors, wire
from amnesiad.api.serve import ApiServer
from amnesiad.client import identity, verbs
from amnesiad.client.aio import POOL_SIZE
from amnesiad.client.verb import Verb
from amnesiad.limits import MAX_REQUEST_BYTES

pytestmark = pytest.mark.usefixtures("nobody")


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


async def test_many_concurrent_calls_share_a_bounded_pool(server: ApiServer, clerk: Clerk) -> None:
    """C01: a hundred calls at once all succeed over a few connections."""
    clerk.gate.clear()
    async with AsyncClient(server.socket_path, workspace="/src/app") as client:
        calls = [asyncio.ensure_future(client.recall(str(number))) for number in range(100)]
        await wait_until(lambda: clerk.waiting == POOL_SIZE)
        clerk.gate.set()
        assert [answer.text for answer in await asyncio.gather(*calls)] == [str(number) for number in range(100)]


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
    offered = {one.name: one for one in vars(verbs).values() if isinstance(one, Verb)}
    assert set(offered) | {"import", "export"} == set(wire.VERBS)
    for verb, one in offered.items():
        spec = wire.VERBS[verb]
        method = getattr(kind, spec.method)
        assert method.__doc__
        if verb in ("events", "batch"):
            continue
        fields = set(spec.request.__struct_fields__) - {"workspace", "caller"}
        if spec.write:
            fields.discard("after")
        assert set(inspect.signature(one.signature).parameters) == fields, verb
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


@pytest.mark.parametrize("written", ["~/a.sock", "$PLACE/a.sock", "a.sock", "/no/where/a.sock", "~nobody-here/a.sock"])
def test_a_socket_is_read_alike_wherever_it_is_written(
    place: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """Given to a client, or to all by the environment: home, variables and relative paths mean what the daemon takes
    them for. What leads nowhere is kept as it is, so that the error shows it."""
    from amnesiad.settings import load_settings

    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("PLACE", str(place))
    monkeypatch.chdir(place)
    environ = {"AMNESIA_SOCKET": written, "XDG_STATE_HOME": str(place)}
    found = written if written.startswith("~nobody") else str(load_settings(environ=environ).socket)
    assert found in (f"{place}/a.sock", written)
    assert identity.daemon_socket(environ) == found
    who = identity.Identity(
        written, workspace="w", session=None, agent=None, team=None, agent_kind=None, role=None, on_behalf=None
    )
    assert who.socket == found


def test_the_package_offers_its_clients_and_nothing_unknown() -> None:
    """from amnesiad import Client, AsyncClient; a misspelling is an AttributeError."""
    assert amnesiad.Client is Client
    assert amnesiad.AsyncClient is AsyncClient
    with pytest.raises(AttributeError):
        amnesiad.client.Clinet  # noqa: B018 - the look-up is the test
    with pytest.raises(AttributeError):
        amnesiad.Clinet  # noqa: B018


def test_a_prepared_request_is_plain_json() -> None:
    """Ids that the caller gave are kept, those it left out are made."""
    who = identity.Identity(
        "/x.sock", workspace="/x", session=None, agent=None, team=None, agent_kind=None, role=None, on_behalf=None
    )
    made = json.loads(who.prepare("remember", {"content": "c"}).data)
    assert set(made) == {"content", "workspace", "request_id"}
    kept = json.loads(who.prepare("remember", {"content": "c", "request_id": "mine", "workspace": "/y"}).data)
    assert (kept["request_id"], kept["workspace"]) == ("mine", "/y")
