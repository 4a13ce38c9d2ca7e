"""Export and import as a person runs them: the command line, the real door and the real service, over one store."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.daemon.desk import HUMAN, call, listed, recalled, remember

from amnesiad.api.app import App
from amnesiad.api.serve import serve
from amnesiad.cli import main
from amnesiad.service import Service

Run = Callable[..., Awaitable[int]]


@pytest.fixture
async def run(service: Service, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    """Runs a command against a daemon of its own; returns how it exits."""
    for name in list(os.environ):
        if name.startswith(("AMNESIA_", "CLAUDE", "CODEX_")):
            monkeypatch.delenv(name)
    with TemporaryDirectory(prefix="amn") as place:
        server = await serve(App(service), Path(place) / "a.sock")
        monkeypatch.setenv("AMNESIA_SOCKET", f"{place}/a.sock")
        monkeypatch.setenv("XDG_CONFIG_HOME", place)

        async def command(*arguments: object, workspace: str = "desk", stdin: bytes | None = None) -> int:
            if stdin is not None:
                monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
            return await asyncio.to_thread(main, [*map(str, arguments), "-w", workspace])

        yield command
        await server.stop()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A person sits at it."""
    monkeypatch.setattr("amnesiad.cli.call.on_terminal", lambda: True)


class TestExport:
    """Out into a file."""

    async def test_a_file_goes_over_whole(
        self, run: Run, service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """What export writes import takes; the file is readable by its owner alone, and none is written over."""
        note = await remember(service, "配置 is «here»", tags=["a,b"])
        path = tmp_path / "out.ndjson"
        assert await run("export", "-o", path) == 0
        assert path.stat().st_mode & 0o777 == 0o600
        assert await run("export", "-o", path) == 2
        assert "--resume" in capsys.readouterr().err
        assert await run("import", path, workspace="other") == 0
        assert "imported 1 note of" in capsys.readouterr().out
        assert await listed(service, workspace="other") == [note]

    @pytest.mark.parametrize("keep", [0, 1, 60, 400, 900, 10_000])
    async def test_a_cut_off_file_is_gone_on_with(
        self, run: Run, service: Service, tmp_path: Path, keep: int, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Killed at any byte, an export resumes: together the two pieces hold everything once."""
        for n in range(5):
            await remember(service, f"note number {n}")
        path = tmp_path / "out.ndjson"
        await run("export", "-o", path)
        path.write_bytes(path.read_bytes()[:keep])
        await remember(service, "written meanwhile")
        assert await run("export", "-o", path, "--resume") == 0
        assert await run("import", path, workspace="other") == 0
        assert "imported 6 notes" in capsys.readouterr().out
        assert sorted(await recalled(service, workspace="other")) == sorted(await recalled(service))

    async def test_resume_spoils_no_other_file(self, run: Run, tmp_path: Path, service: Service) -> None:
        """A file that is no export is refused and left as it is."""
        await remember(service, "x")
        path = tmp_path / "letter.txt"
        path.write_text("Dear all,\nthis is no export\n")
        assert await run("export", "-o", path, "--resume") == 2
        assert path.read_text() == "Dear all,\nthis is no export\n"

    async def test_after_gives_what_changed(
        self, run: Run, service: Service, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """An export behind an earlier one holds the notes that changed since."""
        await remember(service, "old")
        await run("export")
        through = json.loads(capsys.readouterr().out.splitlines()[-1])["through"]
        new = await remember(service, "new")
        assert await run("export", "--after", through) == 0
        rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [row["id"] for row in rows if row["line"] == "note"] == [new]

    async def test_progress_is_for_a_terminal(self, run: Run, service: Service, tmp_path: Path) -> None:
        """Where standard error is a terminal it moves with the work; in a pipe nothing is drawn."""
        await remember(service, "x")
        assert await run("export", "-o", tmp_path / "by hand.ndjson") == 0
        seen = await asyncio.to_thread(_on_a_terminal, ["export", "-o", str(tmp_path / "seen.ndjson"), "-w", "desk"])
        assert b"exported" in seen
        piped = ["import", str(tmp_path / "seen.ndjson"), "-w", "other"]
        done = await asyncio.to_thread(subprocess.run, [*COMMAND, *piped], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


COMMAND = [sys.executable, "-m", "amnesiad.cli"]


def _on_a_terminal(arguments: list[str]) -> bytes:
    """What the command writes to its standard error where that is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 65536):
            seen += piece
    except OSError:  # how Linux says that nobody holds the other end any more
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0
    return seen


class TestImport:
    """In from a file."""

    async def test_problems_name_the_line_of_the_file(
        self, run: Run, service: Service, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """C03: blank lines count, a last line without its break is read, and exit 1 says that something was refused."""
        lines = b'\n{"content": "one"}\n\n  \n{"content": ""}\nnonsense\n\n{"content": "two"}'
        assert await run("import", stdin=lines) == 1
        out = capsys.readouterr().out
        assert "imported 2 notes of 4 lines" in out
        assert "line 5: invalid" in out
        assert "line 6: invalid" in out
        assert sorted(await recalled(service)) == ["one", "two"]

    async def test_lines_that_are_typed_are_not_drawn_over(self, run: Run, service: Service) -> None:
        """On a terminal import says that it waits for lines and how to end them, and shows no progress over them."""
        assert await run("import", stdin=b"") == 0
        line = '{"content": "typed by hand"}'
        shown = await asyncio.to_thread(_typed, ["import", "-w", "desk"], f"{line}\n\x04")
        assert "reading from the terminal; end with Ctrl-D" in shown
        assert shown.count(line) == 1, "what was typed is echoed once and drawn over by nothing"
        assert "\x1b" not in shown
        assert await recalled(service) == ["typed by hand"]


def _typed(arguments: list[str], text: str) -> str:
    """What a terminal shows while the command runs on it and the text is typed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        # Not before it says so: what is typed earlier is echoed by the terminal, whoever reads it.
        while piece := os.read(ours, 65536):
            before, shown = shown, shown + piece
            if b"Ctrl-D" in shown and b"Ctrl-D" not in before:
                os.write(ours, text.encode())
    except OSError:  # how Linux says that nobody holds the other end any more
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0
    return shown.decode()


MEMORY = """# Memory

## Build

- run `make test` before a push
- [ ] document the port

## Ports

- the web port is 8080
"""


class TestMarkdown:
    """From a file that people and agents keep by hand."""

    @pytest.fixture
    def memory(self, tmp_path: Path) -> Path:
        path = tmp_path / "MEMORY.md"
        path.write_text(MEMORY)
        return path

    async def test_it_is_shown_first_and_not_imported(
        self, run: Run, service: Service, memory: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Without a yes, and with nobody to ask, the preview is all that happens."""
        assert await run("import", "--from-markdown", memory) == 2
        shown = capsys.readouterr()
        assert "run `make test` before a push" in shown.out
        assert "#build" in shown.out
        assert "would import 3 notes" in shown.out
        assert "--yes" in shown.err
        assert await run("import", "--from-markdown", memory, "--dry-run") == 0
        assert (await call(service, "workspaces")).rows == ()

    @pytest.mark.usefixtures("terminal")
    @pytest.mark.parametrize(("word", "code", "count"), [(b"y\n", 0, 3), (b"n\n", 1, 0)])
    async def test_a_person_is_asked(
        self, run: Run, service: Service, memory: Path, word: bytes, code: int, count: int
    ) -> None:
        """On a terminal the answer decides; what a person lets in is a human's."""
        assert await run("import", "--from-markdown", memory, stdin=word) == code
        notes = (await call(service, "list", caller=HUMAN)).notes
        assert [note.provenance for note in notes] == ["human"] * count

    async def test_yes_imports_once(
        self, run: Run, service: Service, memory: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Kinds, tags and the place in the file come along; a second time everything is known already."""
        assert await run("import", "--from-markdown", memory, "--yes") == 0
        notes = {note.content: note for note in (await call(service, "list", with_content=True)).notes}
        task, port = notes["document the port"], notes["the web port is 8080"]
        assert (task.kind, task.tags, task.source_ref) == ("task", ("build",), "MEMORY.md:6")
        assert (port.kind, port.tags, port.source_ref) == ("reference", ("ports",), "MEMORY.md:10")
        capsys.readouterr()
        assert await run("import", "--from-markdown", memory, "--yes") == 0
        assert "imported 0 notes of 3 lines, 3 known already" in capsys.readouterr().out

    async def test_a_refused_statement_is_named_by_its_line(
        self, run: Run, memory: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A statement past the limit is told by its line in the Markdown file, before anything is imported."""
        await asyncio.to_thread(memory.write_text, f"- short\n\n\n- {'long ' * 1000}\n")
        assert await run("import", "--from-markdown", memory, "--dry-run", "--json") == 1
        shown = json.loads(capsys.readouterr().out)
        assert shown["notes"][0]["content"] == "short"
        assert [(problem["line"], problem["code"]) for problem in shown["problems"]] == [(4, "too_large")]

    @pytest.mark.parametrize("content", [b"\xff\xfe broken", None])
    async def test_a_file_that_cannot_be_read_is_refused(self, run: Run, tmp_path: Path, content: bytes | None) -> None:
        """No file, or one that is no text, is a usage error and no traceback."""
        path = tmp_path / "x.md"
        if content is not None:
            path.write_bytes(content)
        assert await run("import", "--from-markdown", path, "--yes") == 2
