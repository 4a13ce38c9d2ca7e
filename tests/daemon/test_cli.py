"""The command line against a daemon that answers what the test says: what each command asks for."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
import typer.main
from tests.daemon.canned import REMEMBERED, Canned, error

from amnesiad.cli import SECTIONS, app, main
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
        """A variable of a script that is not set names nobody else: not the directory's workspace, not the main
        agent."""
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
