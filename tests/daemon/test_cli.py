"""The command line against a daemon that answers what the test says: what is sent, what is shown, how it exits."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.daemon.canned import NOTE, REMEMBERED, Canned, error

from amnesiad import __version__
from amnesiad.cli import SECTIONS, _name, app, main
from amnesiad.cli.refusing import OPTION_OF
from amnesiad.wire import VERBS

TYPED_AS_WORDS: dict[str, set[str]] = {
    "list": {"with_content"},
    "policy": {"set", "reset"},
    "events": {"events"},
    "batch": {"requests"},
    "owners": {"close"},
    "dead": {"retry", "drop", "show"},
    "workspaces": {"rename", "to", "drop"},
}
"""Fields that are a word of the command, come on standard input, or are always sent."""

REFUSED_IN_OPTIONS = [
    ("ttl_ms must be a duration, not '5y'", "--ttl must be a duration, not '5y'"),
    ("states[0] must be one of active, stale", "--state must be one of active, stale"),
    ("tags has 33 items", "--tag has 33 items"),
    ("give either ttl_ms or expires_at", "give either --ttl or --expires-at"),
    ("caller.agent_kind must be main", "--agent-kind must be main"),
    ("nothing has these tags", "nothing has these tags"),
    ("default_ttl must be a duration", "default_ttl must be a duration"),
]
"""What the daemon says of fields, and what that is on the command line."""


def feed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    """Put bytes on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


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

    @pytest.mark.parametrize("verb", VERBS)
    def test_every_field_can_be_typed(self, verb: str) -> None:
        """What the API takes the command line takes: each field of a request has its option or its place."""
        command: Any = typer.main.get_command(app).commands[verb]  # type: ignore[attr-defined]
        typed = {name for parameter in command.params for name in (parameter.name, *parameter.opts)}
        own = set(VERBS[verb].request.__struct_fields__) - {"workspace", "caller", "after", "request_id"}
        options = {**OPTION_OF, "pinned": "--pin", "format": "--text", "confirm": "--yes", "id": "note_id"}
        missing = {
            field
            for field in own - TYPED_AS_WORDS.get(verb, set())
            if not {options.get(field, "--" + field.replace("_", "-")), field} & typed
        }
        assert missing - ({"id"} if "ids" in typed else set()) == set()

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

    @pytest.mark.parametrize("options", [["--clear", "id"], ["--clear", "content"], ["--clear", "tags", "--tag", "x"]])
    def test_edit_clears_lists_and_nothing_else(
        self, canned: Canned, capsys: pytest.CaptureFixture[str], options: list[str]
    ) -> None:
        """What cannot be emptied is refused in the words of the command, and so is giving what is emptied."""
        assert main(["edit", "abcd", *options]) == 2
        assert "--clear" in capsys.readouterr().err
        assert canned.requests == []

    @pytest.mark.parametrize("option", ["--workspace", "--session", "--team", "--agent", "--agent-kind", "--socket"])
    def test_an_empty_identity_is_no_identity(
        self, canned: Canned, capsys: pytest.CaptureFixture[str], option: str
    ) -> None:
        """A variable of a script that is not set names nobody else: not the directory's workspace, not the main agent."""
        assert main(["remember", "oolong", option, ""]) == 2
        assert f"{option} is empty" in capsys.readouterr().err
        assert canned.requests == []

    def test_an_empty_variable_says_nothing(self, canned: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
        """In the environment, empty means unset."""
        canned.answers["remember"] = REMEMBERED
        monkeypatch.setenv("AMNESIA_SESSION", "")
        assert main(["remember", "oolong"]) == 0
        assert "session" not in canned.caller

    @pytest.mark.parametrize("rule", ["event=a event=b", "cooldown=1h cooldown=2h"])
    def test_a_part_of_a_trigger_is_given_once(
        self, canned: Canned, capsys: pytest.CaptureFixture[str], rule: str
    ) -> None:
        """Of two values neither is dropped in silence."""
        assert main(["remember", "oolong", "--trigger", rule]) == 2
        assert "twice" in capsys.readouterr().err
        assert canned.requests == []

    def test_a_setting_is_given_one_value(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """Of two values neither is dropped in silence."""
        assert main(["policy", "set", "default_ttl=7d", "default_ttl=8d"]) == 2
        assert "default_ttl is given twice" in capsys.readouterr().err
        assert canned.requests == []

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

    def test_a_note_s_fields_stand_in_one_column(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """All that is known about a note is one list, its history's length as well."""
        canned.answers["inspect"] = {"note": NOTE, "history_length": 2, "text": "", "seq": "1-0"}
        assert main(["inspect", "abcd"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[-1].split(maxsplit=1) == ["history", f"2 events, see: amnesia history {NOTE['id']}"]
        starts = {len(line) - len(line.split("  ", 1)[1].lstrip()) for line in lines}
        assert len(starts) == 1

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

    @pytest.mark.parametrize(("said", "typed"), REFUSED_IN_OPTIONS)
    def test_a_refusal_names_the_option(
        self, canned: Canned, capsys: pytest.CaptureFixture[str], said: str, typed: str
    ) -> None:
        """Whoever typed an option is told of the option; a program, of the field."""
        answer = 400, {"error": {"code": "invalid", "message": said, "hint": said}}
        canned.answers["list"] = answer
        assert main(["list"]) == 2
        assert capsys.readouterr().err.splitlines() == [f"error: {typed}", f"  hint: {typed}"]
        assert main(["list", "--json"]) == 2
        assert json.loads(capsys.readouterr().out) == answer[1]

    def test_what_would_go_is_no_choice(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """Notes that a forget would take are listed as such, and the way on is told in options."""
        canned.answers["forget"] = error(
            422,
            "refused",
            rule="unconfirmed",
            choices=["abcd1", "abcd2"],
            hint="look with dry_run, then send confirm: true",
        )
        assert main(["forget", "--query", "tea"]) == 1
        said = capsys.readouterr().err
        assert "these: abcd1, abcd2" in said
        assert "look with --dry-run, then add --yes" in said

    def test_a_setting_that_nobody_has_heard_of(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """To show a misspelt setting is to be told of it, not an empty table."""
        canned.answers["policy"] = {"values": {"default_ttl": {"value": "30d", "origin": "default"}}, "seq": "1-0"}
        assert main(["policy", "show", "defualt_ttl"]) == 2
        assert "did you mean default_ttl?" in capsys.readouterr().err
        assert main(["policy", "show", "default_ttl"]) == 0

    def test_which_settings_are_live(self, canned: Canned, capsys: pytest.CaptureFixture[str]) -> None:
        """Whoever looks at the settings is told which can be changed while everything runs."""
        default = {"value": "30d", "origin": "default"}
        canned.answers["policy"] = {
            "values": {"default_ttl": default, "session_lease": {**default, "live": False}},
            "seq": "1-0",
        }
        assert main(["policy"]) == 0
        assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
            ["SETTING", "VALUE", "FROM", "LIVE"],
            ["default_ttl", "30d", "default", "yes"],
            ["session_lease", "30d", "default", "no"],
        ]

    @pytest.mark.parametrize(("changed", "code"), [(0, 1), (1, 1), (2, 0)])
    def test_a_parked_event_that_is_not_there(self, canned: Canned, changed: int, code: int) -> None:
        """An id that names none is not found, as everywhere."""
        canned.answers["dead"] = {"rows": [], "changed": changed}
        assert main(["dead", "retry", "1-1", "1-2"]) == code

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
