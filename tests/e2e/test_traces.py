"""What is forgotten leaves no trace: every file, log, key and export is searched for the words of notes that ended."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from tests.support import Fleet, dump, wait_until

from amnesiad import AsyncClient
from amnesiad.store.queue import PREFIX

FIELDS = ("content", "key", "tag", "anchor", "path", "command", "word", "reason")
CHILD = {"session": "s", "agent": "a", "agent_kind": "subagent"}


class Marks:
    """Random words, each in one field of one note; what is found of them says which field of which note leaks."""

    def __init__(self) -> None:
        self.words: dict[str, str] = {}

    def new(self, place: str) -> str:
        """A word that occurs nowhere else, for that place."""
        word = self.words[place] = f"qz{secrets.token_hex(8)}"
        return word

    async def note(self, client: AsyncClient, name: str, **given: Any) -> str:
        """A note with a word of its own in every field that can hold words, but for its reasons; its id."""
        mark = {field: self.new(f"{name}.{field}") for field in FIELDS}
        answer = await client.remember(
            f"{name} {mark['content']} says so",
            key=mark["key"],
            tags=[mark["tag"]],
            anchors=[f"src/{mark['anchor']}.py"],
            triggers=[
                {"event": "tool", "path": f"{mark['path']}/**", "command": f"{mark['command']} *"},
                {"words": [mark["word"]]},
            ],
            **given,
        )
        assert answer.created
        return answer.id

    def found_in(self, raw: bytes, *names: str) -> set[str]:
        """The places whose word occurs, of the notes that are named."""
        return {
            place for place, word in self.words.items() if place.partition(".")[0] in names and word.encode() in raw
        }


async def everything(redis: Redis) -> bytes:
    """The whole keyspace and all that the server keeps beside it, as bytes."""
    client: Any = redis
    # A job's payload is packed; its arguments are read as RQ reads them.
    jobs = [await client.hget(key, "data") async for key in redis.scan_iter(match=f"{PREFIX}:job:*")]
    logs = [await client.execute_command("SLOWLOG", "GET", "-1"), await client.execute_command("LATENCY", "LATEST")]
    return repr([await dump(redis), [_unpacked(data) for data in jobs if data], logs]).encode()


def _unpacked(data: bytes) -> bytes:
    import zlib

    try:
        return zlib.decompress(data)
    except zlib.error:
        return data


def files(home: Path) -> bytes:
    """Every file below a directory: the store's, the logs, whatever else is there."""
    return b"\0".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


async def exported(client: AsyncClient) -> bytes:
    """The whole export of a human, who sees everything."""
    return b"\n".join([json.dumps(line, ensure_ascii=False).encode() async for line in client.export()])


async def test_no_trace_of_what_ended(fleet: Fleet) -> None:
    """Notes with random words in every field are forgotten, evicted, expired and unplugged, and asked for by random
    queries: after the rewrite no word is in any file of the state directory, any log, any key of the store or any
    job, or in an export. The words of a note that lives are found by the same search."""
    up = await fleet.up(AMNESIA_LOG_LEVEL="debug")
    human, child, redis, marks = fleet.client(role="human"), fleet.client(**CHILD), fleet.redis(), Marks()
    gone: dict[str, str] = {}

    async def ask_about(name: str) -> None:
        """Ask in every way that takes words; a query is nobody's note, so it must be nowhere at all."""
        query = f"{marks.new('query.' + name)} {name}"
        await human.recall(query, explain=True, format="text")
        await human.inject(300, query=query, paths=[f"src/{marks.new('query.path' + name)}"])
        await human.fire("tool", prompt=query, command=marks.new("query.command" + name), paths=[query.split()[0]])
        await human.forget(query=query, dry_run=True)
        await human.recall(marks.words[f"{name}.content"])
        await human.fire("tool", prompt=marks.words[f"{name}.word"])
        await human.inject(1000, query=marks.words[f"{name}.content"])
        await human.forget(query=marks.words[f"{name}.content"], dry_run=True)

    alive = await marks.note(human, "living", kind="finding")
    await human.flag(alive, marks.new("living.reason"))

    gone["forgotten"] = await marks.note(human, "forgotten", kind="finding")
    await ask_about("forgotten")
    await human.flag(gone["forgotten"], f"because {marks.words['forgotten.reason']}")
    await human.edit(gone["forgotten"], tags=[marks.new("forgotten.newtag")], reason=marks.new("forgotten.edit"))
    replaced = await human.supersede(gone["forgotten"], f"instead {marks.new('forgotten.successor')}")
    await human.revoke(replaced.by, marks.new("forgotten.revoke"))
    again = await human.remember(f"instead {marks.words['forgotten.successor']}", kind="finding")
    assert again.warnings, "a warning that quotes the note is among the answers kept for repeated requests"
    await human.forget(ids=[gone["forgotten"], replaced.by, again.id], reason=marks.new("forgotten.last"))

    gone["expired"] = await marks.note(human, "expired", ttl_ms=2000, request_id="once")
    await ask_about("expired")
    await human.edit(gone["expired"], ttl_ms=1)

    gone["unplugged"] = await marks.note(child, "unplugged")
    await ask_about("unplugged")
    await child.events("subagent-end")

    async def codes() -> dict[str, str]:
        return {entry.id: entry.reason for entry in (await human.audit()).entries}

    async def all_gone() -> bool:
        return set(gone.values()) <= set(await codes())

    await wait_until(all_gone)
    gone["evicted"] = await marks.note(human, "evicted", ttl_ms="1h")
    await ask_about("evicted")
    held = (await human.status()).store["perishable_bytes"]
    assert isinstance(held, int)
    await human.policy({"max_store_bytes": held + 100})
    await human.remember("x" * 200, ttl_ms="2h")
    await wait_until(all_gone)

    reasons = await codes()
    assert {name: reasons[note_id] for name, note_id in gone.items()} == {
        "forgotten": "manual",
        "expired": "expired",
        "unplugged": "agent-disposed",
        "evicted": "evicted",
    }
    assert up.code is None

    async def scrubbed() -> bool:
        return (await human.status()).store["unscrubbed"] == 0

    await human.scrub()
    await wait_until(scrubbed)
    disk, keyspace, export = files(fleet.home), await everything(redis), await exported(human)
    found = {
        where: marks.found_in(raw, *gone, "query")
        for where, raw in (("disk", disk), ("keyspace", keyspace), ("export", export))
    }
    assert found == {"disk": set(), "keyspace": set(), "export": set()}
    living = {f"living.{field}" for field in FIELDS}
    for where, raw in (("disk", disk), ("keyspace", keyspace), ("export", export)):
        assert marks.found_in(raw, "living") == living, where
    assert marks.found_in(up.said.encode(), *gone, "query", "living") == set()

    # Stopping writes logs and files for the last time.
    assert await up.stop() == 0
    assert marks.found_in(files(fleet.home), *gone, "query") == set()
