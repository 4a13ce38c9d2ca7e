"""What the command line tells about the fleet: who was shown a note, and events that nobody could handle."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest
from redis import Redis
from tests.e2e.conftest import Up
from tests.support import wait_until

from amnesiad import AsyncClient
from amnesiad.cli import main
from amnesiad.store.keys import LIFECYCLE
from amnesiad.store.location import data_dir


@pytest.fixture
def named(up: Up, monkeypatch: pytest.MonkeyPatch) -> str:
    """A workspace of the test's own, named by the environment."""
    name = f"f-{secrets.token_hex(2)}"
    for variable in ("AMNESIA_SESSION", "AMNESIA_AGENT", "AMNESIA_TEAM"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AMNESIA_SOCKET", up.socket)
    monkeypatch.setenv("AMNESIA_WORKSPACE", name)
    return name


async def test_exposure(up: Up, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table names who was shown the note, how and what they wrote since; --json is the answer unchanged."""
    async with AsyncClient(up.socket, workspace=named, session="s-reader") as client:
        note = await client.remember("the port is 8080", kind="finding")
        await client.inject(500)
        later = await client.remember("so I configured 8080", kind="finding")
        assert main(["exposure", note.id]) == 0
        said = capsys.readouterr().out
        assert "s-reader" in said
        assert "inject 1" in said
        assert later.id in said
        assert main(["exposure", note.id, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"][0]["wrote"] == [later.id]
        assert (await client.exposure(note.id)).rows[0].kinds == {"inject": 1}
        assert main(["exposure", later.id]) == 0
        assert "nobody was shown" in "".join(capsys.readouterr())
        assert main(["exposure", "zzzz"]) == 1


async def test_parked_events(up: Up, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """C39: what nobody can handle is listed with what can be read of it, shown as it came, retried and dropped; status
    says that there is some."""
    store = Redis(unix_socket_path=str(data_dir(up.log.parent / "state") / "store.sock"))
    raw = json.dumps({"event": "no-such-event", "workspace": named})
    store.xadd(LIFECYCLE, {"e": raw})
    async with AsyncClient(up.socket, workspace=named) as client:

        async def rows() -> list[Any]:
            return [row for row in (await client.dead()).rows if row.workspace == named]

        await wait_until(rows)
        (row,) = await rows()
        assert (row.event, row.raw) == ("no-such-event", None)
        assert main(["dead", "show", row.id]) == 0
        assert raw in capsys.readouterr().out
        assert main(["dead", "show", row.id, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"][0]["raw"] == raw
        lifecycle = (await client.status()).lifecycle
        assert lifecycle is not None
        assert lifecycle.parked > 0
        assert main(["status"]) == 0
        assert "could not be handled" in capsys.readouterr().out
        assert main(["dead", "retry", row.id]) == 0

        async def parked_again() -> bool:
            return [one.id for one in await rows()] not in ([], [row.id])

        await wait_until(parked_again)
        (again,) = await rows()
        assert main(["dead", "drop", again.id]) == 0
        assert await rows() == []
        assert main(["dead", "show", again.id]) == 1
        assert main(["dead", "show"]) == 2
    store.close()
