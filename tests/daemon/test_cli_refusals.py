"""The command line against a daemon that answers what the test says: how refusals are told, and how it exits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.canned import Canned, error

from amnesiad.cli import main

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
