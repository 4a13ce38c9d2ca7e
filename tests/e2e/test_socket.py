"""What comes through the socket: many at once, in pieces, over two daemons, into two workspaces that stay apart."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import Counter
from http.client import HTTPResponse
from io import BytesIO
from typing import Any

import pytest
from tests.support import wait_until

from amnesiad import AsyncClient, wire
from amnesiad.core.kinds import DAY_MS

YEAR_MS = 365 * DAY_MS


@pytest.fixture
def workspace() -> str:
    """The name of a workspace that no other test knows."""
    return f"socket-{secrets.token_hex(4)}"


def http(verb: str, body: dict[str, Any] | bytes) -> bytes:
    """One request as it goes over the wire."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return b"POST /v1/%s HTTP/1.1\r\nhost: amnesiad\r\ncontent-length: %d\r\n\r\n%s" % (verb.encode(), len(data), data)


async def answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """Status and body of the next answer on a kept connection, read by the standard library's parser."""
    head = await reader.readuntil(b"\r\n\r\n")
    response = HTTPResponse(_Canned(head))  # type: ignore[arg-type]
    response.begin()
    return response.status, json.loads(await reader.readexactly(int(response.headers["content-length"])))


class _Canned(BytesIO):
    """A socket, as far as ``HTTPResponse`` needs one."""

    def makefile(self, _mode: str) -> BytesIO:
        return self


async def listed(client: AsyncClient, **wanted: Any) -> dict[str, str]:
    """Every note of a list, page by page: id and content."""
    found: dict[str, str] = {}
    cursor: str | None = None
    while True:
        page = await client.list_notes(with_content=True, limit=1000, cursor=cursor, **wanted)
        found |= {note.id: note.content or "" for note in page.notes}
        if (cursor := page.cursor) is None:
            return found


class TestManyAtOnce:
    """C01, C02: concurrency on one socket, and on two."""

    async def test_fifty_on_one_connection(self, daemon: str, workspace: str) -> None:
        """C01: 50 remembers sent in one go over one connection are 50 notes, answered in their order."""
        reader, writer = await asyncio.open_unix_connection(daemon)
        bodies = [{"workspace": workspace, "content": f"pipelined {number}", "kind": "finding"} for number in range(50)]
        writer.write(b"".join(http("remember", body) for body in bodies))
        answers = [await answer(reader) for _ in bodies]
        writer.close()
        await writer.wait_closed()
        assert {status for status, _ in answers} == {200}
        async with AsyncClient(daemon, workspace=workspace) as client:
            notes = await listed(client)
        assert [notes[told["id"]] for _, told in answers] == [body["content"] for body in bodies]
        assert len(notes) == 50

    async def test_fifty_connections(self, daemon: str, workspace: str) -> None:
        """C01: 50 clients that connect and write at the same moment make 50 distinct notes."""
        clients = [AsyncClient(daemon, workspace=workspace) for _ in range(50)]
        writes = [client.remember(f"connection {number}", kind="finding") for number, client in enumerate(clients)]
        answers = await asyncio.gather(*writes)
        notes = await listed(clients[0])
        for client in clients:
            await client.aclose()
        assert {told.id for told in answers} == set(notes)
        assert len(notes) == 50
        assert all(told.created for told in answers)

    async def test_two_daemons(self, daemon: str, second: str, workspace: str) -> None:
        """C02: two daemons take 20 writes each at once; both list 40 notes, and the log holds 40 created events."""
        async with (
            AsyncClient(daemon, workspace=workspace) as here,
            AsyncClient(second, workspace=workspace) as there,
        ):
            writes = [
                client.remember(f"{name} {number}", kind="finding")
                for number in range(20)
                for name, client in (("here", here), ("there", there))
            ]
            ids = {told.id for told in await asyncio.gather(*writes)}
            assert set(await listed(here)) == set(await listed(there)) == ids
            assert len(ids) == 40
            lines = [line async for line in there.export()]
        events = Counter(event["type"] for line in lines if line["line"] == "note" for event in line["events"])
        assert events == {"created": 40}


class TestPieces:
    """C03: how requests are cut up is no concern of whoever sends them."""

    async def test_a_request_in_three_pieces(self, daemon: str, workspace: str) -> None:
        """C03: one request split over three sends, in the head and in the body, is answered."""
        reader, writer = await asyncio.open_unix_connection(daemon)
        raw = http("remember", {"workspace": workspace, "content": "in three pieces: 配置", "kind": "finding"})
        told_early = asyncio.ensure_future(answer(reader))
        for piece in (raw[:20], raw[20:-15], raw[-15:]):
            # The daemon has read what came so far once it has answered somebody else, and waits for the rest.
            await _health(daemon)
            assert not told_early.done()
            writer.write(piece)
        status, told = await told_early
        writer.close()
        await writer.wait_closed()
        assert status == 200
        async with AsyncClient(daemon, workspace=workspace) as client:
            assert await listed(client) == {told["id"]: "in three pieces: 配置"}

    async def test_two_requests_in_one_send(self, daemon: str, workspace: str) -> None:
        """C03: two requests that arrive together are both answered, in order."""
        reader, writer = await asyncio.open_unix_connection(daemon)
        first, second = {"content": "the first", "kind": "finding"}, {"query": "first"}
        named = {"workspace": workspace}
        writer.write(http("remember", named | first) + http("recall", named | second))
        (_, written), (_, recalled) = await answer(reader), await answer(reader)
        writer.close()
        await writer.wait_closed()
        assert [note["id"] for note in recalled["notes"]] == [written["id"]]

    async def test_a_file_without_its_last_line_break(self, daemon: str, workspace: str) -> None:
        """C03: an import whose body ends without a line break loses nothing."""
        async with AsyncClient(daemon, workspace=workspace) as client:
            await client.remember("one", kind="finding")
            await client.remember("two", kind="finding")
            lines = [json.dumps(line) async for line in client.export()]
        reader, writer = await asyncio.open_unix_connection(daemon)
        writer.write(http(f"import?workspace={workspace}-copy&role=human", "\n".join(lines).encode()))
        status, told = await answer(reader)
        writer.close()
        await writer.wait_closed()
        assert (status, told["imported"], told.get("problems", [])) == (200, 2, [])


async def _health(path: str) -> None:
    """Have the daemon answer one request of another connection."""
    assert (await _whole(path, b"GET /healthz HTTP/1.1\r\nhost: amnesiad\r\n\r\n")).startswith(b"HTTP/1.1 200")


class TestWorkspaces:
    """C16, C19, C25: each workspace is a world of its own."""

    async def test_forgetting_all_of_one(self, daemon: str, workspace: str) -> None:
        """C16: two workspaces with 2500 notes each; all of the one is forgotten, the other keeps every note."""
        other = f"{workspace}-other"
        async with AsyncClient(daemon, workspace=workspace) as mine, AsyncClient(daemon, workspace=other) as theirs:

            async def fill(client: AsyncClient, name: str) -> None:
                for page in range(5):
                    bodies = [{"content": f"{name} {page} {number}", "kind": "finding"} for number in range(500)]
                    told = await client.batch([("remember", body) for body in bodies])
                    assert all(one["created"] for one in told.answers)

            await asyncio.gather(fill(mine, "mine"), fill(theirs, "theirs"))
            answer = await mine.forget(all=True, confirm=True)
            assert answer.forgotten == 2500
            assert await listed(mine) == {}
            assert len(await listed(theirs)) == 2500
            counts = (await mine.status()).counts, (await theirs.status()).counts
            assert [(one.active, one.forgotten) for one in counts] == [(0, 2500), (2500, 0)]
            assert (await mine.verify()).problems == ()

    async def test_importing_what_is_long_over(self, daemon: str, workspace: str) -> None:
        """C19: a perishable dated two years ago with a TTL of 30 days is over the moment it arrives, and audited."""
        async with AsyncClient(daemon, workspace=workspace, role="human") as source:
            await source.remember("the cafeteria closes at two", ttl_ms="30d")
            lines = [line async for line in source.export()]
        for line in lines:
            for event in line.get("events", ()):
                event["at"] -= 2 * YEAR_MS
        async with AsyncClient(daemon, workspace=f"{workspace}-copy", role="human") as client:
            told = await client.import_notes([json.dumps(line).encode() for line in lines])
            assert (told.imported, told.problems) == (1, ())
            assert (await client.recall("cafeteria")).notes == ()
            assert (await client.status()).counts.forgotten == 1
            await wait_until(lambda: _audited(client))
            (entry,) = (await client.audit()).entries
            assert (entry.reason, bool(entry.content_hash)) == ("expired", True)

    async def test_no_verb_crosses_over(self, daemon: str, workspace: str) -> None:
        """C25: whatever verb is asked of one workspace, by whomever, no word of another one's secret comes out."""
        secret = f"sesame{secrets.token_hex(6)}"
        other = f"{workspace}-other"
        async with AsyncClient(daemon, workspace=workspace, role="human") as owner:
            note = await owner.remember(
                f"the word is {secret}",
                kind="finding",
                key=f"key-{secret}",
                tags=[secret],
                anchors=[f"src/{secret}.py"],
                triggers=[{"event": "tool", "words": [secret]}, {"event": "tool"}],
                source_ref=secret,
            )
            gone = await owner.remember(f"{secret} was revoked", kind="finding")
            await owner.revoke(gone.id, f"because of {secret}")
            await owner.recall(secret)
            shown = await owner.inject(2000, query=secret)
            assert secret in shown.text, "the scan below would find nothing that could be found"
            (row, *_) = (await owner.ledger()).rows
        bodies: dict[str, list[dict[str, Any]]] = {
            "remember": [{"content": "the word is something"}],
            "recall": [{}, {"query": "word revoked", "explain": True, "format": "text"}, {"paths": ["src"]}],
            "inject": [{"query": "word", "paths": ["src"]}],
            "preview": [{"query": "word"}],
            "fire": [{"event": "tool", "prompt": "word"}],
            "list": [{"states": ["active", "stale", "expired", "revoked", "superseded", "forgotten"]}],
            "forget": [{"id": note.id}, {"all": True, "dry_run": True}, {"query": "word", "dry_run": True}],
            "supersede": [{"id": note.id, "content": "another word"}, {"id": note.id, "by": gone.id}],
            "promote": [{"id": note.id, "to": "workspace"}],
            "edit": [{"id": note.id, "tags": ["mine"]}],
            "ledger": [{}, {"entry": row.id}],
            "policy": [{}],
            "events": [{"event": "turn-end"}],
            "batch": [{"requests": [{"verb": "recall", "body": {}}, {"verb": "inspect", "body": {"id": note.id}}]}],
            "owners": [{}],
            "dead": [{}],
            "workspaces": [{}],
            "audit": [{}],
            "status": [{}],
            **{
                verb: [{"id": note.id}, {"id": note.id[:4]}]
                for verb in ("inspect", "why-not", "history", "exposure", "reinstate", "pin")
            },
            "mirror": [{"id": note.id, "target": "mem0", "result": "deleted"}],
            **{verb: [{"id": note.id}] for verb in ("unpin", "renew", "done", "restore", "undo")},
            **{verb: [{"id": gone.id, "reason": "mine"}] for verb in ("revoke", "flag")},
            **{verb: [{}] for verb in ("settle", "scrub", "verify", "rebuild", "check", "export")},
            "import": [{}],
        }
        assert set(bodies) == set(wire.VERBS), "each verb is asked"
        callers: list[dict[str, str]] = [{"role": "human"}, {"session": "s"}]
        for caller in callers:
            for verb, several in bodies.items():
                # Passes run in the worker, which knows no callers; once is enough, and takes its time.
                for body in several if caller is callers[0] or verb not in ("settle", "scrub", "check") else []:
                    full = {"workspace": other, "caller": caller, **body}
                    if verb == "events":
                        del full["caller"]
                    raw = http(f"import?workspace={other}", b"") if verb == "import" else http(verb, full)
                    told = await _whole(daemon, raw)
                    assert secret.encode() not in told, (verb, body, caller)
                    assert not told.startswith(b"HTTP/1.1 5"), (verb, told)
        async with AsyncClient(daemon, workspace=workspace, role="human") as owner:
            untouched = (await owner.inspect(note.id)).note
        assert (untouched.state, untouched.pinned, untouched.tags) == ("active", False, (secret,))


async def _audited(client: AsyncClient) -> bool:
    return bool((await client.audit()).entries)


async def _whole(path: str, request: bytes) -> bytes:
    """Everything that is answered to one request on a connection of its own."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request.replace(b"host: amnesiad\r\n", b"host: amnesiad\r\nconnection: close\r\n", 1))
    told = await reader.read()
    writer.close()
    await writer.wait_closed()
    return told
