"""The command line as a process: pipes and terminals, what is asked on them, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.daemon.canned import DRY, NOTE, REMEMBERED, SILENT, STATUS, Canned, amnesia, error, on_terminal
from tests.support import wait_until

from amnesiad.cli import main
from amnesiad.limits import SUN_PATH_BYTES


class TestProcess:
    """The command as a process: pipes, signals, terminals, imports."""

    @pytest.mark.parametrize("count", [1, 300])
    def test_the_reader_of_a_pipe_goes_away(self, canned: Canned, count: int) -> None:
        """amnesia list | head ends quietly, with the code that shells give it."""
        canned.answers["list"] = {"notes": [NOTE] * count, "seq": "1-0"}
        with amnesia("list", stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141

    @pytest.mark.parametrize("stream", [0, 1, 2])
    def test_a_stream_that_is_closed(self, canned: Canned, stream: int) -> None:
        """Supervisors start programs without some of the three streams: what would go there is dropped, no more."""
        canned.answers["list"] = {"notes": [NOTE], "seq": "1-0"}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with amnesia("list", **pipes, preexec_fn=partial(os.close, stream)) as process:
            out, said = process.communicate()
        assert (process.returncode, said) == (0, b"")
        assert (b"oolong" in out) == (stream != 1)

    def test_a_narrow_terminal_cuts_nothing(self, canned: Canned) -> None:
        """However narrow, the id can be typed and the words can be read."""
        canned.answers["list"] = {"notes": [NOTE], "seq": "1-0"}
        out, _ = on_terminal(["list"], environ={"COLUMNS": "30"})
        assert NOTE["id"] in out
        assert NOTE["content"] in out
        assert "…" not in out

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
    @pytest.mark.parametrize("count", [1, 300])
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

    @pytest.mark.parametrize("key", ["\x03", "\x04"])
    def test_a_question_may_be_left(self, canned: Canned, key: str) -> None:
        """Ctrl-C and Ctrl-D at a question erase nothing, say so, and leave the cursor on a line of its own."""
        canned.answers["forget"] = DRY
        out, code = on_terminal(["forget", "--query", "tea"], key, answering="[y/N]")
        assert out.endswith("\nnothing changed\n")
        assert (len(canned.requests), code) == (1, 130)

    def test_a_missing_yes_is_asked_for_in_the_commands_own_words(
        self, canned: Canned, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """The daemon speaks of a field; whoever types is told the option."""
        canned.answers["workspaces"] = error(
            422, "refused", rule="unconfirmed", field="confirm", hint="send confirm: true"
        )
        assert main(["workspaces", "drop", "w"]) == 1
        assert "hint: add --yes" in capsys.readouterr().err

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
