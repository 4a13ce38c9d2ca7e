"""The JavaScript client: its tests run under two versions of Node against a real daemon, its types under the
compiler."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests import node_wire
from tests.node_tools import NODE_DIR, PATIENCE_S, machine_node, patient, run_node, run_node_tests, tool

from amnesiad import places
from amnesiad.client import identity

pytestmark = patient


@pytest.fixture(params=["machine", "npm"])
def node(request: pytest.FixtureRequest) -> str:
    """Node as the machine has it, and a newer one."""
    return machine_node() if request.param == "machine" else tool("node")


def test_the_client_keeps_its_promises_against_a_daemon(node: str, daemon: str) -> None:
    """Every promise of the client holds under this Node: see ``client.test.mjs``."""
    run_node_tests(node, "client.test.mjs", SOCKET=daemon, SCRATCH=str(Path(daemon).parent))


def test_a_program_ends_although_it_did_not_close_its_client(node: str, daemon: str) -> None:
    """A connection that is idle keeps no process alive, and everything is found in the environment."""
    program = """
        import { Client } from "../../daemon/amnesiad/bundles/node/amnesiad.mjs";
        const memory = new Client();
        await memory.remember({ content: "said in passing", scope: "session" });
        console.log((await memory.list({ with_content: true })).notes[0].owner);
    """
    environ = {"AMNESIA_SOCKET": daemon, "AMNESIA_WORKSPACE": f"passing-{Path(node).name}", "AMNESIA_SESSION": "s9"}
    assert run_node(node, "--input-type=module", "--eval", program, **environ) == "s9\n"


def test_a_feed_that_keeps_no_process_alive_does_not_while_it_begins_either(node: str, tmp_path: Path) -> None:
    """Also in front of a daemon that takes the connection and says nothing a program ends at once."""
    program = """
        import { createServer } from "node:net";
        import { Client } from "../../daemon/amnesiad/bundles/node/amnesiad.mjs";
        const [path] = process.argv.slice(1);
        const server = createServer((socket) => { socket.unref(); server.unref(); begun = Date.now(); }).listen(path);
        let begun = 0;
        process.on("exit", () => console.log(begun > 0 && Date.now() - begun < 20_000));
        await new Client({ socket: path, workspace: "w" }).feed({ unref: true }).next();
    """
    ended = subprocess.run(
        [node, "--input-type=module", "--eval", program, str(tmp_path / "s")],
        cwd=NODE_DIR, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ended.stdout == "true\n", ended.stderr


def test_the_types_hold_what_the_client_does_and_what_programs_may_write() -> None:
    """``tsc --strict`` passes over the client itself, its declarations, and a program that uses both well and badly."""
    checked = subprocess.run(
        [tool("tsc"), "--project", str(NODE_DIR)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("name", node_wire.BLOCKS)
def test_what_is_made_of_the_wire_is_up_to_date(name: str) -> None:
    """The client's types and lists are those of the daemon's own tables, so that neither can drift."""
    text = (node_wire.CLIENT_DIR / name).read_text(encoding="utf-8")
    assert text == node_wire.renewed(name), "run: python -m tests.node_wire"


def test_both_clients_look_for_the_daemon_in_the_same_place(tmp_path: Path) -> None:
    """Whatever environment and configuration say, the JavaScript client finds the socket that the Python one finds."""
    home = tmp_path / "home"
    runtime = tmp_path / "run"
    config = home / ".config" / "amnesia" / "amnesia.toml"
    for directory in (runtime, config.parent):
        directory.mkdir(parents=True)
    other = tmp_path / "other.toml"
    other.write_text("# ours\nsocket = '~/sockets/a.sock'  # here\n[table]\nsocket = \"no\"\n")
    config.write_text('default_ttl = "14d"\nstate_dir = "/srv/amnesia"\n')
    bare = {"HOME": str(home), "PATH": os.environ["PATH"]}
    found = "import { daemonSocket } from '../../daemon/amnesiad/bundles/node/amnesiad.mjs';" + (
        "for (const environ of JSON.parse(process.argv[1])) console.log(daemonSocket(environ));"
    )
    cases: list[dict[str, str]] = [
        bare,
        bare | {"XDG_CONFIG_HOME": "/nowhere"},
        bare | {"XDG_CONFIG_HOME": "relative"},
        bare | {"XDG_CONFIG_HOME": "/nowhere", "XDG_STATE_HOME": "/var/state"},
        bare | {"XDG_RUNTIME_DIR": str(runtime)},
        bare | {"XDG_RUNTIME_DIR": str(tmp_path / "none")},
        bare | {"AMNESIA_STATE_DIR": "/srv/there"},
        bare | {"AMNESIA_STATE_DIR": "/srv/there", "XDG_RUNTIME_DIR": str(runtime)},
        bare | {"AMNESIA_SOCKET": " /srv/given.sock "},
        bare | {"AMNESIA_SOCKET": "~no-such-user/given.sock"},
        bare | {"AMNESIA_CONFIG": "~no-such-user/other.toml"},
        bare | {"AMNESIA_CONFIG": str(other)},
    ]
    told = run_node(machine_node(), "--input-type=module", "--eval", found, json.dumps(cases)).splitlines()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        assert told == [places.configured_socket(environ) for environ in cases]
        given = [environ for environ in cases if "AMNESIA_SOCKET" in environ]
        assert [identity.daemon_socket(environ) for environ in given] == [
            places.configured_socket(one) for one in given
        ]


def test_both_clients_repeat_the_same_writes() -> None:
    """What a client may repeat is the same in both languages."""
    told = run_node(machine_node(), "--input-type=module", "--eval", _WRITES).split()
    assert set(told) == identity.WRITES


_WRITES = "import { WRITES } from '../../daemon/amnesiad/bundles/node/amnesiad.mjs'; console.log(WRITES.join(' '));"
