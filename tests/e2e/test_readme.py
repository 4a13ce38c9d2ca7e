"""README and REFERENCE, word for word: what they say to type is typed on a terminal, and what they say is answered is.

Blocks marked ``console`` are commands and their output, ``python`` a program whose output is the ``text`` block after
it. Ids, times and other figures that differ from run to run are made alike on both sides; ``...`` stands for any lines.
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.e2e.conftest import Up

from amnesiad.cli.identity import AGENT_MARKERS

DOCUMENTS: Final = tuple(Path(__file__).parents[2] / name for name in ("README.md", "REFERENCE.md"))
SETTING_UP: Final = re.findall(r"@echo '(.+)'", (DOCUMENTS[0].parent / "Makefile").read_text(encoding="utf-8"))[0]
"""What the first run of ``make up`` says before."""
PATIENCE_S: Final = 30.0
"""For what the documents have somebody wait for."""
LOOK_EVERY_S: Final = 0.2

_BLOCK: Final = re.compile(r"^```(console|python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ESCAPE: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")
_ALIKE: Final = (
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"\b\d{4}-\d\d-\d\d\b", "DATE"),
    (r"\b\d{13}(-\d+)?\b", "INSTANT"),
    (r"\b[0-9a-hjkmnp-tv-z]{10}\b", "ID"),
    (r"(?<=is up: )\S+", "SOCKET"),
    (r"\bin <?\d+(s|m|h|d|mo)\b", "in A_WHILE"),
    (r"(?<=active )<?\d+(s|m|h|d|mo)\b", "A_WHILE"),
    (r"\b(fact|finding) (<1m|\d+[mhd]|lasting)(?= (human|agent):)", r"\1 A_WHILE"),
    (r"\b[01]\.\d\d\b", "STRENGTH"),
    (r"\b\d+ of (\d+) tokens", r"N of \1 tokens"),
    (r"in \d+\.\d s\.", "in N s."),
)
"""What differs from run to run, by pattern; blanks are collapsed before."""


class Step(NamedTuple):
    """One command of a block and the output printed below it."""

    command: str
    output: str


def blocks(language: str) -> list[str]:
    """The blocks in one language, in order, the README's first."""
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    return [body for text in texts for kind, body in _BLOCK.findall(text) if kind == language]


def steps(block: str) -> Iterator[Step]:
    """The commands of a ``console`` block, each with its output."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield Step(re.sub(r"\s+# .*", "", command), output)


def alike(text: str) -> list[str]:
    """The lines of an output that are not blank, without what differs from run to run."""
    lines = (re.sub(r" +", " ", line).strip() for line in _ESCAPE.sub("", text).splitlines())
    text = "\n".join(line for line in lines if line)
    for pattern, word in _ALIKE:
        text = re.sub(pattern, word, text)
    return text.splitlines()


def is_as_said(output: str, said: str) -> bool:
    """Whether an output is what a document says, ``...`` standing for any lines."""
    shown, rest = alike(output), alike(said)
    while "..." in rest:
        dots = rest.index("...")
        part, rest = rest[:dots], rest[dots + 1 :]
        if shown[:dots] != part:
            return False
        # Any lines may come before the next part, which is the longest stretch without dots.
        following = rest[: rest.index("...")] if "..." in rest else rest
        shown = shown[dots:]
        size = len(following)
        starts = [n for n in range(len(shown) - size + 1) if shown[n : n + size] == following]
        if not starts:
            return False
        # The last part has to end the output; every other is taken where it first appears.
        shown = shown[starts[0] if "..." in rest else starts[-1] :]
    return shown == rest


class Terminal:
    """A terminal of a person's own, in a directory of a project."""

    def __init__(self, directory: Path, environ: dict[str, str]) -> None:
        agents = re.compile("|".join(marker.replace("*", r"\w+") for marker in AGENT_MARKERS))
        self.environ = {name: value for name, value in environ.items() if not agents.fullmatch(name)}
        self.environ |= {"TERM": "xterm", "COLUMNS": "200", "LINES": "50"}
        self.directory = directory
        self.typed_before: list[str] = []

    def type(self, command: str) -> str:
        """Run a command, after those that change the shell itself, and return what the terminal shows."""
        script = "\n".join([*self.typed_before, command])
        if command.startswith((". ", "cd ", "export ")):
            self.typed_before.append(command)
        ours, theirs = pty.openpty()
        try:
            process = subprocess.Popen(
                ["bash", "-c", script],
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                cwd=self.directory,
                env=self.environ,
            )
        finally:
            os.close(theirs)
        shown = bytearray()
        with suppress(OSError):  # Linux reports the other side's end as an error
            while data := os.read(ours, 65536):
                shown += data
        os.close(ours)
        process.wait()
        return shown.decode()


@pytest.fixture
def terminal(up: Up) -> Iterator[Terminal]:
    """A terminal in a directory as a clone has it once ``make`` has made ``.venv``; its workspaces are dropped
    after."""
    with tempfile.TemporaryDirectory(prefix="amnesia-readme-") as folder:
        directory = Path(folder).resolve()
        scripts = directory / ".venv" / "bin"
        scripts.mkdir(parents=True)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        (scripts / "activate").write_text(f"export PATH={path}\n")
        terminal = Terminal(directory, up.environ)
        yield terminal
        for workspace in (str(directory), "docs", "billing"):
            terminal.type(f". .venv/bin/activate; amnesia workspaces drop {workspace} --yes")


@pytest.mark.timeout(180)
def test_every_session_happens_as_printed(up: Up, terminal: Terminal) -> None:
    """All console blocks, top to bottom, on one terminal: each command answers what is printed below it."""
    for block in blocks("console"):
        for command, said in steps(block):
            if command == "make up":  # which sets up, and runs `amnesia up`: that is running
                printed = [SETTING_UP, *up.log.read_text().splitlines()]
                shown = "\n".join(line for line in printed if not line.startswith("{"))
            elif command.startswith("sleep "):
                continue  # the next command is typed until what is waited for has happened
            elif command == "amnesia demo":
                shown, said = terminal.type(command), said + demo_of(block)
            else:
                shown = until_as_said(terminal, command, said)
            assert is_as_said(shown, said), f"$ {command}\n{shown}\nprinted:\n{said}"
            if command == "amnesia demo":
                break


def demo_of(block: str) -> str:
    """What the demo prints after its first ``$``: it shows commands, which here are output."""
    return "$ " + block.split("\n$ ", 1)[1]


def until_as_said(terminal: Terminal, command: str, said: str) -> str:
    """The output of a command; one that only looks is repeated until it shows what is printed, or time is up."""
    looks = command.startswith(("amnesia audit", "amnesia status"))
    deadline = time.monotonic() + PATIENCE_S
    while True:
        shown = terminal.type(command)
        if not looks or is_as_said(shown, said) or time.monotonic() > deadline:
            return shown
        time.sleep(LOOK_EVERY_S)


def test_the_python_example_runs(terminal: Terminal) -> None:
    """The program prints the block printed below it."""
    (program,), (said,) = blocks("python"), blocks("text")
    file = terminal.directory / "example.py"
    file.write_text(program)
    result = subprocess.run(
        [sys.executable, str(file)], cwd=terminal.directory, env=terminal.environ, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert is_as_said(result.stdout, said), result.stdout


class TestTheComparison:
    """A comparison that lets everything pass would prove nothing."""

    def test_what_differs_from_run_to_run_is_alike(self) -> None:
        """Other ids, times and remaining lives are the same answer."""
        assert is_as_said(
            "remembered 0123456789, expires 2030-01-01T00:00:00Z (in 14s)\r\n",
            "remembered abcdefghjk, expires 2026-11-30T11:04:31Z (in 15s)\n",
        )

    def test_another_answer_is_noticed(self) -> None:
        """Other words, a line too many and a line too few are not."""
        assert not is_as_said("revoked 0123456789\n", "remembered 0123456789\n")
        assert not is_as_said("one\ntwo\n", "one\n")
        assert not is_as_said("one\n", "one\ntwo\n")

    def test_dots_stand_for_lines(self) -> None:
        """Three dots stand for any lines, also none, and for nothing within a line."""
        assert is_as_said("one\ntwo\nthree\n", "one\n...\nthree\n")
        assert is_as_said("one\nthree\n", "one\n...\nthree\n")
        assert not is_as_said("one\ntwo\n", "one\n...\nthree\n")
