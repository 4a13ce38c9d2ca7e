"""The command line against a daemon that answers what the test says: what is sent, what is shown, how it exits."""

from __future__ import annotations

import io
import json
import os
import pty
import select
import signal
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from tests.support import wait_until

from amnesiad import __version__
from amnesiad.cli import SECTIONS, _name, main
from amnesiad.limits import SUN_PATH_BYTES
from amnesiad.wire import VERBS

SILENT = object()
"""An answer that never comes."""

NOTE: dict[str, Any] = {
    "id": "7f3k2m9qx0",
    "workspace": "w",
    "kind": "fact",
    "regime": "perishable",
    "state": "active",
    "state_at": 1_760_000_000_000,
    "scope": "workspace",
    "tags": ["tea"],
    "anchors": [],
    "triggers": [],
    "provenance": "agent",
    "pinned": False,
    "curve": "ebbinghaus",
    "ttl_ms": None,
    "expires_at": None,
    "stale_at": None,
    "strength": 1.0,
    "rank": 1.0,
    "trust": 0.7,
    "access_count": 0,
    "created_at": 1_760_000_000_000,
    "content": "oolong",
}
REMEMBERED: dict[str, Any] = {
    "id": "7f3k2m9qx0",
    "created": True,
    "ttl_ms": 600_000,
    "expires_at": 4_000_000_000_000,
    "stale_at": None,
    "superseded": [],
    "warnings": [],
    "seq": "1-0",
}
DRY: dict[str, Any] = {
    "forgotten": 0,
    "ids": ["7f3k2m9qx0"],
    "summary": "1 note would be forgotten",
    "scrub": "done",
    "would": [{"id": "7f3k2m9qx0", "kind": "fact", "state": "active", "content": "oolong"}],
    "seq": "1-0",
}
STATUS: dict[str, Any] = {
    "counts": dict.fromkeys(("active", "stale", "expired", "revoked", "superseded", "forgotten"), 0),
    "tokens": 0,
    "recent": [],
    "refusals": {},
    "worker": {"alive": True, "lag_ms": 0},
    "store": {"version": "9.1", "policy": "noeviction"},
    "seq": "1-0",
}


def error(status: int, code: str, **more: Any) -> tuple[int, dict[str, Any]]:
    """A refusal as the daemon sends it."""
    return status, {"error": {"code": code, "message": f"said {code}", "hint": "do otherwise", **more}}


class Canned(socketserver.ThreadingUnixStreamServer):
    """Answers each verb with what ``answers`` has for it, and keeps the requests."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, Any] = {}
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.released = threading.Event()
        self.version = __version__
        super().__init__(str(path), CannedHandler)

    @property
    def body(self) -> dict[str, Any]:
        """The last request's own fields."""
        return {k: v for k, v in self.requests[-1][1].items() if k not in ("workspace", "caller", "request_id")}

    @property
    def caller(self) -> dict[str, Any]:
        """Who the last request says is calling."""
        caller: dict[str, Any] = self.requests[-1][1].get("caller", {})
        return caller


class CannedHandler(BaseHTTPRequestHandler):
    """One request of the test."""

    protocol_version = "HTTP/1.1"
    server: Canned

    def do_GET(self) -> None:
        """The health page."""
        self.reply(200, {"pid": 1, "version": self.server.version})

    def do_POST(self) -> None:
        """Keep the request and give its answer."""
        verb = self.path.removeprefix("/v1/").partition("?")[0]
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests.append((verb, json.loads(raw)))
        answer = self.server.answers[verb]
        if answer is SILENT:
            self.server.released.wait()
            return
        self.reply(*(answer if isinstance(answer, tuple) else (200, answer)))

    def reply(self, status: int, body: dict[str, Any]) -> None:
        """Send one JSON object."""
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def address_string(self) -> str:
        """A Unix socket's peer has no address."""
        return "local"

    def log_message(self, *_: Any) -> None:
        """Keep the test's output to itself."""


@pytest.fixture
def canned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canned]:
    """A daemon of the test's own making, and an environment that leads the command line to it."""
    for name in list(os.environ):
        if name.startswith(("AMNESIA_", "CLAUDE", "CODEX_")):
            monkeypatch.delenv(name)
    server = Canned(tmp_path / "a.sock")
    monkeypatch.setenv("AMNESIA_SOCKET", str(server.path))
    monkeypatch.setenv("AMNESIA_WORKSPACE", "w")
    monkeypatch.setenv("AMNESIA_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()
    server.shutdown()
    thread.join()
    server.server_close()


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Put bytes on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def amnesia(*arguments: str, **options: Any) -> subprocess.Popen[bytes]:
    """The command in a process of its own."""
    return subprocess.Popen([sys.executable, "-m", "amnesiad.cli", *arguments], **options)


class TestSending:
    """What a command asks for."""

    def test_every_verb_has_a_command(self) -> None:
        """Nothing the daemon can do is out of reach of the command line."""
        commands = {
            command.name or command.callback.__name__
            for app in SECTIONS.values()
            for command in app.registered_commands
            if command.callback
        }
        assert set(VERBS) <= commands

    def test_remember_sends_what_was_typed_and_no_more(self, canned: Canned) -> None:
        """Options that were not given are not sent, so that the daemon's defaults hold."""
        canned.answers["remember"] = REMEMBERED
        assert main(["remember", "oolong"]) == 0
        assert canned.body == {"content": "oolong"}
        full = (
            "remember oolong --kind task --ttl 7d --key drink -t a,b -t * --anchor src/a.py --pin --scope session "
            "--owner s1 --curve flat --supersedes abcd --source-ref pr/7 --provenance auto"
        )
        assert main([*full.split(), "--trigger", "event=pre-step words='a b',c cooldown=1h"]) == 0
        assert canned.body == {
            "content": "oolong",
            "kind": "task",
            "ttl_ms": "7d",
            "key": "drink",
            "tags": ["a,b", "*"],
            "anchors": ["src/a.py"],
            "triggers": [{"event": "pre-step", "words": ["a b", "c"], "cooldown_ms": 3_600_000}],
            "pinned": True,
            "scope": "session",
            "owner": "s1",
            "curve": "flat",
            "supersedes": "abcd",
            "source_ref": "pr/7",
            "provenance": "auto",
        }

    def test_no_ttl_is_not_the_default_ttl(self, canned: Canned) -> None:
        """--ttl none asks for a note without an end, which is something else than not saying."""
        canned.answers["remember"] = REMEMBERED
        assert main(["remember", "oolong", "--ttl", "none"]) == 0
        assert canned.body == {"content": "oolong", "ttl_ms": None}

    def test_content_from_standard_input(self, canned: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
        """C03: text on standard input arrives whole, with or without a last line break."""
        canned.answers["remember"] = REMEMBERED
        for data in (b"a\nb \xe9\x85\x8d\n", b"a\nb \xe9\x85\x8d"):
            feed(monkeypatch, data)
            assert main(["remember", "-"]) == 0
            assert canned.body == {"content": "a\nb 配"}

    @pytest.mark.parametrize("data", [b"\xff\xfe", b"x" * (1024 * 1024 + 1)], ids=["not text", "too long"])
    def test_bad_standard_input(self, canned: Canned, monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
        """V25: what could not be a note is refused before anything is sent."""
        feed(monkeypatch, data)
        assert main(["remember", "-"]) == 2
        assert canned.requests == []

    def test_the_caller_is_who_the_options_say(self, canned: Canned) -> None:
        """Session, agent, team and kind reach the daemon; off a terminal the role is agent."""
        canned.answers["pin"] = {"id": "abcd", "changed": True, "state": "active", "seq": "1-0"}
        options = "--session s1 --agent a1 --team t1 --agent-kind subagent --on-behalf user --workspace other"
        assert main(["pin", "abcd", "--reason", "r", *options.split()]) == 0
        assert canned.requests[-1][1]["workspace"] == "other"
        caller = {"role": "agent", **canned.caller}
        assert caller == {
            "role": "agent",
            "session": "s1",
            "agent": "a1",
            "team": "t1",
            "agent_kind": "subagent",
            "on_behalf": "user",
        }
        assert canned.body == {"id": "abcd", "reason": "r"}

    def test_edit_clears_only_what_it_is_told_to(self, canned: Canned) -> None:
        """Leaving tags out keeps them; clearing them sends an empty list."""
        canned.answers["edit"] = {"id": "abcd", "changed": True, "state": "active", "seq": "1-0"}
        assert main(["edit", "abcd", "--clear", "tags", "--anchor", "a.py"]) == 0
        assert canned.body == {"id": "abcd", "tags": [], "anchors": ["a.py"]}

    def test_policy_set_and_reset(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """Settings are sent as they were typed and shown as the daemon writes them for people."""
        canned.answers["policy"] = {
            "values": {"default_ttl": {"value": "7d", "origin": "workspace"}},
            "seq": "1-0",
        }
        assert main(["policy", "set", "default_ttl=7d", "record_ttl=off"]) == 0
        assert canned.body == {"set": {"default_ttl": "7d", "record_ttl": "off"}}
        assert "7d" in capsys.readouterr().out
        assert main(["policy", "reset", "default_ttl"]) == 0
        assert canned.body == {"reset": ["default_ttl"]}
        assert main(["policy"]) == 0
        assert canned.body == {}

    def test_one_lifecycle_event(self, canned: Canned) -> None:
        """An event says of whom it is; nothing else comes along, for the daemon refuses fields it does not know."""
        canned.answers["events"] = {"accepted": 1, "ids": ["5-0"]}
        assert main(["emit", "subagent-end", "--session", "s1", "--agent", "a1", "--agent-kind", "subagent"]) == 0
        sent = canned.requests[-1][1]
        assert sent.pop("id")
        assert sent == {
            "event": "subagent-end",
            "workspace": "w",
            "session": "s1",
            "agent": "a1",
            "agent_kind": "subagent",
        }

    def test_batch_reads_ndjson(
        self, canned: Canned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """C03: requests come one a line, the last needs no line break, and one refusal makes the exit code 1."""
        canned.answers["batch"] = {"answers": [{"id": "abcd"}, error(404, "not_found")[1]]}
        feed(monkeypatch, b'{"verb":"pin","body":{"id":"abcd"}}\n\n{"verb":"done","body":{"id":"efgh"}}')
        assert main(["batch"]) == 1
        assert [item["verb"] for item in canned.body["requests"]] == ["pin", "done"]
        assert "2 done not_found: said not_found" in capsys.readouterr().out

    def test_a_line_that_is_not_json(
        self, canned: Canned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """V26: the refusal names the line."""
        feed(monkeypatch, b'{"verb":"status"}\nnonsense\n')
        assert main(["batch"]) == 2
        assert "line 2" in capsys.readouterr().err
        assert canned.requests == []


class TestShowing:
    """What people and programs see."""

    def test_json_is_the_answer_unchanged(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """A program gets what the daemon said, field by field, also fields this version does not know."""
        answer = {
            "notes": [{**NOTE, "content": "配置 \u001b[2J \u0085"}],
            "deterrents": [],
            "seq": "1-0",
            "later": [1, None],
        }
        canned.answers["recall"] = answer
        assert main(["recall", "tea", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == answer

    def test_a_filter_that_nobody_has_heard_of_is_named(
        self, canned: Canned, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A misspelt tag or owner is told from a memory that holds nothing; one that could be several names them."""
        canned.answers["recall"] = {"notes": [], "deterrents": [], "seq": "1-0"}
        canned.answers["list"] = {"notes": [], "seq": "1-0"}
        canned.answers["owners"] = {"rows": [{"owner": name} for name in ("s2/scout", "s1/scout", "s1")], "seq": "1-0"}
        assert main(["recall", "--tag", "tae", "--owner", "scout"]) == 0
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.splitlines() == [
            "nothing living matches",
            "no living note has the tag tae",
            "there is no owner scout; did you mean s1/scout or s2/scout?",
        ]
        assert main(["recall", "--owner", "s1"]) == 0
        assert capsys.readouterr().err.splitlines() == ["nothing living matches"]
        assert main(["recall", "--tag", "tae", "--json"]) == 0
        assert capsys.readouterr().err == ""

    def test_no_note_can_move_the_cursor(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """A note's control characters are shown, never sent to the terminal, and it cannot forge a second line."""
        evil = {**NOTE, "content": "a\x1b[2Jb\nforged line\r\x07\u202e", "tags": ["t\x1b]0;x"], "key": "k\x9b"}
        canned.answers["list"] = {"notes": [evil], "seq": "1-0"}
        canned.answers["inspect"] = {"note": evil, "history_length": 1, "text": "", "seq": "1-0"}
        assert main(["list"]) == 0
        out = capsys.readouterr().out
        assert len(out.splitlines()) == 2
        assert main(["inspect", "7f3k"]) == 0
        out += capsys.readouterr().out
        assert not set(out) & set("\x1b\r\x07\x9b\u202e")

    def test_a_long_note_stays_one_line_in_a_pipe(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """What grep finds is the whole line."""
        canned.answers["list"] = {"notes": [{**NOTE, "content": "word " * 300 + "end"}], "seq": "1-0"}
        assert main(["list"]) == 0
        assert capsys.readouterr().out.splitlines()[1].endswith("end #tea")

    def test_warnings_are_shown(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """C29: whoever writes down a refuted belief again sees that it was refuted."""
        warning = {"kind": "revoked", "id": "abcd", "text": "[abcd] [REVOKED] port is 8080"}
        canned.answers["remember"] = {**REMEMBERED, "warnings": [warning]}
        assert main(["remember", "port is 8080"]) == 0
        assert "[REVOKED] port is 8080" in capsys.readouterr().out

    @pytest.mark.parametrize("asked", ["flag abcd why", "forget abcd", "restore abcd", "edit abcd --tag t"])
    def test_notices_are_shown(self, canned: Canned, capsys: pytest.CaptureFixture[str], asked: str) -> None:
        """Whoever gives a reason that looks like a secret sees that it does, whatever the verb."""
        changed = {"id": "abcd", "changed": True, "state": "stale", "expires_at": None, "seq": "1-0"}
        forgotten = {"forgotten": 1, "ids": ["abcd"], "summary": "1 note forgotten", "scrub": "done", "seq": "1-0"}
        restored: dict[str, object] = {"id": "efgh", "restored_from": "abcd", "seq": "1-0"}
        answers: dict[str, dict[str, object]] = {
            "flag": changed,
            "edit": changed,
            "forget": forgotten,
            "restore": restored,
        }
        for verb, answer in answers.items():
            canned.answers[verb] = {**answer, "notices": ["this holds what looks like a secret: github-pat"]}
        assert main(asked.split()) == 0
        assert capsys.readouterr().out.count("notice: this holds what looks like a secret: github-pat") == 1

    def test_a_result_from_another_store_is_shown(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """What became of a note's item elsewhere is told when it is recorded, in the history, and of the note itself."""
        event = {
            "seq": "2-0",
            "type": "mirrored",
            "at": 0,
            "actor": "agent:governor",
            "from": "revoked",
            "to": "revoked",
        }
        canned.answers["mirror"] = {"id": "abcd", "changed": True, "state": "revoked", "seq": "2-0"}
        canned.answers["history"] = {
            "events": [{**event, "facts": {"target": "mem0", "result": "deleted"}}], "seq": "2-0",
        }  # fmt: skip
        mirrored = {**NOTE, "source_ref": "mem0:4f2a", "mirrored": {"mem0": "deleted"}}
        canned.answers["inspect"] = {"note": mirrored, "history_length": 2, "text": "", "seq": "2-0"}
        for command, told in (
            ("mirror abcd mem0 deleted", "abcd in mem0: deleted"),
            ("history abcd", "mem0: deleted"),
            ("inspect abcd", "mem0 deleted"),
        ):
            assert main(command.split()) == 0
            assert told in capsys.readouterr().out

    def test_a_failed_proof_is_bad_news(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """verify exits with 1 when the notes are not what the log says, and names what may mend them."""
        canned.answers["verify"] = {"figures": {"notes": 3}, "problems": ["note abcd differs"], "seq": "1-0"}
        assert main(["verify"]) == 1
        told = capsys.readouterr()
        assert "note abcd differs" in told.out
        assert "amnesia rebuild" in told.err
        canned.answers["verify"] = {"figures": {"notes": 3}, "seq": "1-0"}
        assert main(["verify"]) == 0

    def test_an_empty_injection_is_empty(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """Nothing to show costs nothing: standard output stays empty for the hook that reads it."""
        canned.answers["inject"] = {
            "text": "", "ids": [], "tokens": 0, "budget_tokens": 9, "omitted": {"count": 0, "ids": []},
            "deterrents": [], "seq": "1-0",
        }  # fmt: skip
        assert main(["inject", "--budget", "9"]) == 0
        assert capsys.readouterr().out == ""

    def test_help_and_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The help lists every command under its section, and the version is one line."""
        assert main(["--version"]) == 0
        assert capsys.readouterr().out == f"amnesia {__version__}\n"
        assert main(["--help"]) == 0
        shown = capsys.readouterr().out
        assert all(section in shown for section in SECTIONS)
        assert all(f"\n  {verb} " in shown for verb in VERBS)
        assert "...\n" not in shown.partition("Remember:")[2], "a summary is cut off"
        assert main(["pin", "--help"]) == 0
        assert "--workspace" in capsys.readouterr().out

    @pytest.mark.parametrize(
        "command", sorted(_name(each) for app in SECTIONS.values() for each in app.registered_commands)
    )
    def test_help_speaks_of_values_not_of_types(self, command: str, capsys: pytest.CaptureFixture[str]) -> None:
        """An option says what belongs there (KIND, PATH), never how Python would hold it."""
        assert main([command, "--help"]) == 0
        options = capsys.readouterr().out.partition("Options:")[2]
        assert "<" not in options

    @pytest.mark.parametrize("shim", ["hook", "statusline", "mcp"])
    def test_help_of_a_shim_offers_what_it_reads(self, shim: str, capsys: pytest.CaptureFixture[str]) -> None:
        """The programs that agents start read long options only; a short one would be passed over in silence."""
        assert main([shim, "--help"]) == 0
        assert "-w," not in capsys.readouterr().out


class TestExitCodes:
    """0 done, 1 refused, 2 wrong usage, 3 no daemon."""

    @pytest.mark.parametrize(
        ("answer", "code"),
        [
            (error(404, "not_found", field="id"), 1),
            (error(403, "forbidden", rule="provenance"), 1),
            (error(409, "ambiguous", choices=["abcd1", "abcd2"]), 1),
            (error(422, "refused", rule="fresh"), 1),
            (error(503, "store_unavailable"), 1),
            (error(500, "internal"), 1),
            (error(400, "invalid", field="id"), 2),
        ],
        ids=lambda value: value[1]["error"]["code"] if isinstance(value, tuple) else str(value),
    )
    def test_a_refusal(
        self, canned: Canned, capsys: pytest.CaptureFixture[str], answer: tuple[int, dict[str, Any]], code: int
    ) -> None:
        """A refusal is said on standard error with its hint; with --json it is the envelope on standard output."""
        canned.answers["done"] = answer
        assert main(["done", "abcd"]) == code
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.startswith(f"error: said {answer[1]['error']['code']}")
        assert "hint: do otherwise" in said.err
        assert all(choice in said.err for choice in answer[1]["error"].get("choices", ()))
        assert main(["done", "abcd", "--json"]) == code
        said = capsys.readouterr()
        assert json.loads(said.out) == answer[1]
        assert said.err == ""

    @pytest.mark.parametrize(
        "arguments",
        ["recal", "revoke abcd", "list --limit many", "policy set x", "policy dance", "forget", "dead retry"],
    )
    def test_wrong_usage(self, canned: Canned, capsys: pytest.CaptureFixture[str], arguments: str) -> None:
        """V26: what cannot be meant is refused with 2 before anything is sent."""
        assert main(arguments.split()) == 2
        assert capsys.readouterr().err
        assert main([*arguments.split(), "--json"]) == 2
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "invalid"
        assert canned.requests == []

    def test_no_daemon(self, canned: Canned, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        """C44: without a daemon a command ends at once with 3 and says how to start one."""
        nobody = str(tmp_path / "nobody.sock")
        assert main(["status", "--socket", nobody]) == 3
        assert "amnesia up" in capsys.readouterr().err
        assert main(["status", "--socket", nobody, "--json"]) == 3
        assert json.loads(capsys.readouterr().out)["error"]["code"] == "unreachable"
        assert canned.requests == []

    def test_a_wrong_setting(
        self, canned: Canned, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """V11: a start with a wrong setting names it and ends with 2."""
        monkeypatch.setenv("AMNESIA_DEFAULT_TTL", "-1")
        assert main(["up"]) == 2
        assert "default_ttl" in capsys.readouterr().err
        assert canned.requests == []

    def test_a_bug_is_one_line(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """An answer nobody expected gives one line to report, no traceback and none of the note's words."""
        canned.answers["remember"] = {"secret words": 1}
        assert main(["remember", "secret words"]) == 1
        said = capsys.readouterr().err
        assert "KeyError at notes.py" in said
        assert "Traceback" not in said
        assert "secret" not in said

    def test_a_claim_to_be_human_off_a_terminal(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """V07: a script cannot speak as a human."""
        assert main(["status", "--as", "human"]) == 1
        assert "terminal" in capsys.readouterr().err
        assert canned.requests == []


class TestProcess:
    """The command as a process: pipes, signals, terminals, imports."""

    def test_the_reader_of_a_pipe_goes_away(self, canned: Canned) -> None:
        """amnesia list | head ends quietly."""
        canned.answers["list"] = {"notes": [NOTE] * 5000, "seq": "1-0"}
        with amnesia("list", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode != 0

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
    @pytest.mark.parametrize("count", [1, 5000])
    @pytest.mark.parametrize("arguments", [["list"], ["list", "--json"]])
    def test_output_that_finds_no_room(self, canned: Canned, arguments: list[str], count: int) -> None:
        """C45: a full disk is told of as one, once, with exit 1; it is no bug of ours."""
        canned.answers["list"] = {"notes": [NOTE] * count, "seq": "1-0"}
        with Path("/dev/full").open("wb") as full, amnesia(*arguments, stdout=full, stderr=subprocess.PIPE) as process:
            assert process.stderr is not None
            said = process.stderr.read().decode()
        assert process.returncode == 1
        assert said.splitlines()[0] == "error: the output could not be written: No space left on device"
        assert len(said.splitlines()) == 2

    @pytest.mark.parametrize("verb", ["batch", "events", "remember -"])
    def test_what_is_typed_is_waited_for_in_so_many_words(self, canned: Canned, verb: str) -> None:
        """On a terminal a command that reads its input says so."""
        canned.answers |= {"remember": REMEMBERED, "batch": {"answers": []}}
        assert "reading from the terminal" in on_terminal(verb.split(), "x\n\x04")[0]

    def test_a_socket_path_beyond_the_limit(
        self, canned: Canned, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A path that no socket can have is told of with its limit, not as a daemon that does not answer."""
        monkeypatch.setenv("AMNESIA_SOCKET", f"/tmp/{'x' * 200}")  # noqa: S108
        assert main(["status"]) == 3
        assert f"has 205 bytes, the limit is {SUN_PATH_BYTES}" in capsys.readouterr().err
        assert canned.requests == []

    async def test_ctrl_c(self, canned: Canned) -> None:
        """An interrupted command ends with 130 and says nothing."""
        canned.answers["status"] = SILENT
        # Tests that run in the background of a script inherit that Ctrl-C is ignored; somebody at a terminal does not.
        heeded = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        process = amnesia("status", stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=heeded)
        await wait_until(lambda: canned.requests)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        assert (process.returncode, said) == (130, b"")

    @pytest.mark.parametrize(("typed", "forgotten"), [("y\n", True), ("n\n", False), ("\n", False)])
    def test_a_person_is_shown_what_goes_and_asked(self, canned: Canned, typed: str, forgotten: bool) -> None:
        """On a terminal the words are shown before they are erased, and only a yes erases just those."""
        canned.answers["forget"] = DRY
        out, code = on_terminal(["forget", "--query", "tea"], typed)
        assert "oolong" in out
        assert canned.requests[0][1]["dry_run"] is True
        if forgotten:
            assert canned.body == {"ids": ["7f3k2m9qx0"], "confirm": True}
        assert (len(canned.requests), code) == ((2, 0) if forgotten else (1, 1))

    def test_a_missing_yes_is_asked_for_in_the_commands_own_words(
        self, canned: Canned, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The daemon speaks of a field; whoever types is told the option."""
        canned.answers["workspaces"] = error(422, "refused", rule="unconfirmed", field="confirm")
        assert main(["workspaces", "drop", "w"]) == 1
        assert "--yes" in capsys.readouterr().err

    def test_off_a_terminal_nobody_is_asked(self, canned: Canned) -> None:
        """A script says --yes; without it the daemon decides what needs one."""
        canned.answers["forget"] = DRY
        assert main(["forget", "--all"]) == 0
        assert canned.body == {"all": True}
        assert main(["forget", "--all", "--yes"]) == 0
        assert canned.body == {"all": True, "confirm": True}

    def test_a_person_on_a_terminal_is_human(self, canned: Canned) -> None:
        """A person who types speaks as human; the same command run by an agent's shell does not."""
        canned.answers["done"] = {"id": "abcd", "changed": True, "state": "expired", "seq": "1-0"}
        assert on_terminal(["done", "abcd"])[1] == 0
        assert canned.caller["role"] == "human"
        assert on_terminal(["done", "abcd"], environ={"CLAUDECODE": "1"})[1] == 0
        assert canned.caller.get("role", "agent") == "agent"

    def test_colour_only_where_it_is_wanted(self, canned: Canned) -> None:
        """Colour comes on a terminal and goes with NO_COLOR."""
        canned.answers["list"] = {"notes": [NOTE], "seq": "1-0"}
        green = "\x1b[32m"
        assert green in on_terminal(["list"])[0]
        assert green not in on_terminal(["list"], environ={"NO_COLOR": "1"})[0]
        with amnesia("list", stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert b"\x1b" not in process.stdout.read()

    def test_json_on_a_terminal_is_escaped(self, canned: Canned) -> None:
        """Even unchanged, an answer cannot move a person's cursor."""
        canned.answers["list"] = {"notes": [{**NOTE, "content": "a\x9b2J\u202e"}], "seq": "1-0"}
        out, _ = on_terminal(["list", "--json"])
        assert json.loads(out) == canned.answers["list"]
        assert out.isascii()

    @pytest.mark.parametrize("arguments", ["--help", "status --json", "status"])
    def test_a_quick_start(self, canned: Canned, arguments: str) -> None:
        """What takes long to import is not imported by the commands that people and hooks run all day."""
        canned.answers["status"] = STATUS
        program = (
            "import sys; from amnesiad.cli import main; main(sys.argv[1:]);"
            "print([m for m in ('amnesiad.settings', 'amnesiad.wire', 'redis', 'rq', 'uvicorn', 'structlog')"
            " if m in sys.modules], file=sys.stderr)"
        )
        result = subprocess.run([sys.executable, "-c", program, *arguments.split()], capture_output=True, check=True)
        assert result.stderr.splitlines()[-1] == b"[]"


class TestDoctor:
    """What is wrong, and what to do."""

    @pytest.fixture(autouse=True)
    def healthy(self, canned: Canned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An installation with nothing wrong; each test breaks one thing. No agent of this machine's is looked at."""
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        canned.answers["status"] = STATUS
        canned.path.chmod(0o600)
        state = tmp_path / "state"
        state.mkdir(mode=0o700)
        key = state / "install.key"
        key.write_bytes(b"k" * 32)
        key.chmod(0o600)
        return state

    def checks(self, capsys: pytest.CaptureFixture[str], code: int) -> dict[str, tuple[bool, str, str]]:
        """Run it and return each check's verdict, what was found and the remedy."""
        assert main(["doctor", "--json"]) == code
        answer = json.loads(capsys.readouterr().out)
        assert answer["ok"] is (code == 0)
        return {check["name"]: (check["ok"], check["found"], check["remedy"]) for check in answer["checks"]}

    def test_nothing_wrong(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A healthy installation passes every check and exits with 0."""
        checks = self.checks(capsys, 0)
        assert list(checks) == [
            "versions", "settings", "state directory", "install key", "socket", "workspace", "daemon", "store", "worker",
            "hooks", "service",
        ]  # fmt: skip
        assert main(["doctor"]) == 0
        assert "nothing is wrong" in capsys.readouterr().out

    def test_no_daemon(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """Without a daemon it says so, and how to start one."""
        monkeypatch.setenv("AMNESIA_SOCKET", str(tmp_path / "nobody.sock"))
        checks = self.checks(capsys, 1)
        assert "amnesia up" in checks["socket"][2]
        assert "amnesia up" in checks["daemon"][2]

    def test_an_old_daemon(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """After an upgrade, the daemon that still runs the old version is found out."""
        canned.version = "0.0.1"
        assert self.checks(capsys, 1)["daemon"][2] == "restart the daemon"

    def test_an_embedder_that_is_not_there(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """A daemon that cannot search by meaning as it was told to is found out, with what it lacks."""
        trouble = "embedder is use, but not all of it is installed: pip install it"
        canned.answers["status"] = STATUS | {
            "store": STATUS["store"] | {"embedder": "use", "embedder_trouble": trouble}
        }
        checks = self.checks(capsys, 1)
        assert checks["embedder"][:2] == (False, trouble)
        assert checks["store"][0]
        assert trouble not in checks["store"][1]

    def test_a_shared_store_without_a_workspace(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With a store on another machine the missing name of the workspace is what is wrong, not the daemon."""
        monkeypatch.delenv("AMNESIA_WORKSPACE")
        monkeypatch.setenv("AMNESIA_REDIS_URL", "redis://192.0.2.1:6379/0")
        checks = self.checks(capsys, 1)
        assert (checks["workspace"][0], checks["daemon"][0]) == (False, True)

    def test_others_may_look_in(self, capsys: pytest.CaptureFixture[str], healthy: Path) -> None:
        """Files that others may read are named with the command that mends them."""
        healthy.chmod(0o755)
        (healthy / "install.key").chmod(0o644)
        checks = self.checks(capsys, 1)
        assert checks["state directory"][2] == f"chmod 0700 {healthy}"
        assert checks["install key"][2] == f"chmod 0600 {healthy / 'install.key'}"

    def test_a_key_that_is_none(self, capsys: pytest.CaptureFixture[str], healthy: Path) -> None:
        """A damaged install key is found before a start fails on it."""
        (healthy / "install.key").write_bytes(b"short")
        assert "5 bytes" in self.checks(capsys, 1)["install key"][1]

    def test_a_key_that_is_gone(self, capsys: pytest.CaptureFixture[str], healthy: Path) -> None:
        """A store whose install key was not restored with it is told from one that has yet to begin."""
        (healthy / "install.key").unlink()
        assert "the first start makes it" in self.checks(capsys, 0)["install key"][1]
        (healthy / "store").mkdir()
        assert "from a backup" in self.checks(capsys, 1)["install key"][2]

    def test_a_file_where_the_socket_should_be(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """C41: a regular file at the socket's path is named as what it is."""
        path = tmp_path / "file.sock"
        path.touch(0o600)
        monkeypatch.setenv("AMNESIA_SOCKET", str(path))
        assert "not a socket" in self.checks(capsys, 1)["socket"][1]

    def test_no_worker(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """A fleet without a worker is told that nothing gets unplugged."""
        canned.answers["status"] = {**STATUS, "worker": {"alive": False, "lag_ms": None}}
        assert "amnesia worker" in self.checks(capsys, 1)["worker"][2]

    def test_a_worker_far_behind(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """A worker that cannot keep erasure's promise is wrong even though it is alive."""
        canned.answers["status"] = {**STATUS, "worker": {"alive": True, "lag_ms": 90_000}}
        assert "90 s" in self.checks(capsys, 1)["worker"][1]

    def test_the_store_is_away(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """A daemon without its store answers, and says so."""
        canned.answers["status"] = {**STATUS, "degraded": True}
        assert self.checks(capsys, 1)["store"][0] is False

    def test_a_store_of_ones_own_is_looked_at(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """With no daemon to ask, a configured store is tried directly, and its password is not shown."""
        monkeypatch.setenv("AMNESIA_SOCKET", str(tmp_path / "nobody.sock"))
        monkeypatch.setenv("AMNESIA_REDIS_URL", "redis://:hunter2@127.0.0.1:1/0")
        checks = self.checks(capsys, 1)
        assert checks["store"][0] is False
        assert "hunter2" not in str(checks)

    def test_a_wrong_setting(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        """V11: a setting that stops the start is named, with the rest of the checks that make sense without it."""
        monkeypatch.setenv("AMNESIA_TIE_WIDTH", "nan")
        assert "tie_width" in self.checks(capsys, 1)["settings"][1]


def on_terminal(arguments: list[str], typed: str = "", environ: dict[str, str] | None = None) -> tuple[str, int]:
    """Run a command on a terminal of its own, type, and return all that the terminal showed and the exit code."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", **(environ or {})}
    if "NO_COLOR" not in (environ or {}):
        variables.pop("NO_COLOR", None)
    process = amnesia(*arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b""
    while select.select([ours], [], [], 30)[0]:
        try:
            data = os.read(ours, 65536)
        except OSError:  # Linux reports the other side's end as an error
            break
        if not data:
            break
        shown += data
    os.close(ours)
    return shown.decode().replace("\r\n", "\n"), process.wait()
