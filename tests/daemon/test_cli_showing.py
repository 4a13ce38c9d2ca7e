"""The command line against a daemon that answers what the test says: what people and programs are shown."""

from __future__ import annotations

import json

import pytest
from tests.daemon.canned import NOTE, REMEMBERED, Canned

from amnesiad import __version__
from amnesiad.cli import SECTIONS, _name, main, screen
from amnesiad.wire import VERBS


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

    def test_columns_line_up_and_words_fold_under_themselves(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A wide letter takes its two columns, and where the line is short only the last cell goes on in the next."""
        monkeypatch.setattr(screen, "PIPE_WIDTH", 40)
        rows = [("修改", None, "run the tests before you change module seven"), ("b", "22", "")]
        screen.table(("ID", "LEFT", "NOTE"), rows)
        assert capsys.readouterr().out.splitlines() == [
            "ID    LEFT  NOTE",
            "修改        run the tests before you",
            "            change module seven",
            "b     22",
        ]

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
        """What became of a note's item elsewhere is told when it is recorded, in the history, and of the note
        itself."""
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
