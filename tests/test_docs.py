"""The documents say what the code does: tables, links and every command line in them. What runs is in ``e2e/``."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import typer.main

from amnesiad import __version__
from amnesiad.cli import SECTIONS, app
from amnesiad.core.diagram import BEGIN, END, marked_block
from amnesiad.core.kinds import REGIMES
from amnesiad.settings import CLIENT_VARIABLES, LIVE_SETTINGS, RULES
from amnesiad.wire import STATUS, VERBS

ROOT: Final = Path(__file__).parents[1]
DOCUMENTS: Final = ("README.md", "REFERENCE.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
README: Final = ROOT / "README.md"
REFERENCE: Final = ROOT / "REFERENCE.md"

IN_EVERY_REQUEST: Final = frozenset({"workspace", "caller", "after", "request_id"})
IN_EVERY_ANSWER: Final = frozenset({"seq", "degraded"})
SEARCHED_FOR: Final = ("agent memory", "forgetting", "forget", "TTL", "expiry", "decay", "eviction", "audit")
"""What somebody types who needs this and does not know its name."""

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"`([^`\n]+)`")
_LINK: Final = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


def text_of(document: str) -> str:
    """The whole of a document at the root."""
    return (ROOT / document).read_text(encoding="utf-8")


def rows_of(text: str, *heading: str) -> list[str]:
    """The rows of the one table that has these headings."""
    lines = text.splitlines()
    start = lines.index(f"| {' | '.join(heading)} |") + 2
    return lines[start : next(n for n in range(start, len(lines) + 1) if n == len(lines) or not lines[n])]


def kind_rows() -> list[str]:
    """README's row of each kind, from the file that is shipped."""
    tables = tomllib.loads((ROOT / "daemon/amnesiad/kinds.toml").read_text(encoding="utf-8"))
    half_life, ttl = tables["half_life_days"], tables["ttl_days"]
    return [f"| {kind} | {regime} | {half_life[kind]} | {ttl[kind]} |" for kind, regime in REGIMES.items()]


def command_rows() -> list[str]:
    """The reference's row of each command, in the words and the order of the help."""
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    names = (
        command.name or command.callback.__name__  # type: ignore[union-attr]
        for group in SECTIONS.values()
        for command in group.registered_commands
    )
    return [f"| `{name}` | {commands[name].get_short_help_str(1000)} |" for name in names]


def setting_rows() -> dict[str, str]:
    """The beginning of the reference's row of each setting; the defaults are those of the commented file."""
    commented = re.findall(r"^# (\w+) = (.+)$", text_of("deploy/amnesia.toml"), re.MULTILINE)
    defaults = {name: value.strip('"') for name, value in commented}
    live = {name: "live" if name in LIVE_SETTINGS else "" for name in RULES}
    return {name: f"| `{name}` | `{defaults[name]}` | {live[name]} |" for name in RULES}


def verb_rows() -> list[str]:
    """The reference's row of each verb of the API, with the fields that it does not share with all others."""
    return [f"| `{verb}` | {_asked(spec.request)} | {_answered(spec.answer)} |" for verb, spec in VERBS.items()]


def _asked(request: type[Any]) -> str:
    fields = [field for field in msgspec.structs.fields(request) if field.encode_name not in IN_EVERY_REQUEST]
    fields.sort(key=lambda field: not field.required)
    return ", ".join(f"**{field.encode_name}**" if field.required else field.encode_name for field in fields) or "–"


def _answered(answer: type[Any]) -> str:
    if answer is bytes:
        return "NDJSON"
    names = (field.encode_name for field in msgspec.structs.fields(answer))
    return ", ".join(name for name in names if name not in IN_EVERY_ANSWER)


def test_architecture_shows_the_transition_table_that_runs() -> None:
    """The block between the markers in ARCHITECTURE.md is the diagram of the table; to mend it, paste the expected
    text."""
    text = text_of("ARCHITECTURE.md")
    assert text.count(BEGIN) == 1
    assert text.count(END) == 1
    block = text[text.index(BEGIN) : text.index(END) + len(END)]
    assert block == marked_block()


class TestReadme:
    """What a newcomer meets first; the table of kinds is the code's own."""

    def test_it_can_be_found(self) -> None:
        """The first paragraph has the words by which people search for such a thing."""
        first = text_of("README.md").split("\n\n")[1].replace("*", "").replace("\n", " ")
        assert [words for words in SEARCHED_FOR if words not in first] == []

    def test_kinds(self) -> None:
        """Every kind is there with its regime, half-life and TTL."""
        assert rows_of(README.read_text(), "kind", "regime", "half-life in days (order)", "TTL in days") == kind_rows()


class TestReference:
    """The reference's tables are the code's own; to mend one, paste the expected rows."""

    def test_commands(self) -> None:
        """Every command is there with the line that the help gives it."""
        assert rows_of(REFERENCE.read_text(), "command", "what it does") == command_rows()

    def test_settings(self) -> None:
        """Every setting is there once, with its default, whether it is live, and a few words."""
        rows = rows_of(REFERENCE.read_text(), "setting", "default", "live", "what it says")
        expected = setting_rows()
        assert [row for row, begin in zip(rows, expected.values(), strict=True) if not row.startswith(begin)] == []
        assert all(len(row) > len(begin) + 10 for row, begin in zip(rows, expected.values(), strict=True))

    def test_verbs(self) -> None:
        """Every verb of the API is there with the fields of its request and answer."""
        assert rows_of(REFERENCE.read_text(), "verb", "request", "answer") == verb_rows()

    def test_error_codes(self) -> None:
        """Every code of a refusal is there with its status."""
        text = text_of("REFERENCE.md")
        assert [f"`{code}` {status}" for code, status in STATUS.items() if f"`{code}` {status}" not in text] == []

    def test_environment(self) -> None:
        """Every variable that is no setting is explained."""
        assert [name for name in CLIENT_VARIABLES if f"`{name}`" not in text_of("REFERENCE.md")] == []


@pytest.mark.parametrize("document", DOCUMENTS)
class TestEveryDocument:
    """What holds for all of them."""

    def test_links_lead_somewhere(self, document: str) -> None:
        """A link to a file finds it, and one to a heading finds that."""
        text = text_of(document)
        for target in _LINK.findall(text):
            path, _, heading = target.partition("#")
            if path.startswith(("http:", "https:")):
                continue
            assert (ROOT / path).exists(), target
            if heading:
                assert heading in _anchors(text_of(path) if path else text), target

    def test_commands_exist(self, document: str) -> None:
        """Whatever is quoted as ``amnesia …`` is a command with options that it has."""
        commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
        for words in _amnesia_lines(text_of(document)):
            name, *rest = words
            if name.startswith("-") or name == "COMMAND":
                continue
            assert name in commands, words
            known = {option for parameter in commands[name].params for option in parameter.opts} | {"--help"}
            assert [word for word in rest if re.match(r"--?[a-z]", word) and word.split("=")[0] not in known] == []

    def test_make_targets_exist(self, document: str) -> None:
        """Whatever is quoted as ``make …`` is a target."""
        targets = set(re.findall(r"^(\w+):", text_of("Makefile"), re.MULTILINE))
        quoted = re.findall(r"(?:`|^\$ )make (\w+)", text_of(document), re.MULTILINE)
        assert [target for target in quoted if target not in targets] == []


def test_changelog_knows_this_version() -> None:
    """The version that runs has an entry."""
    assert f"## {__version__} " in text_of("CHANGELOG.md")


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _amnesia_lines(text: str) -> Iterator[list[str]]:
    """The words after ``amnesia`` of each command in a block or between backquotes, comments left out."""
    blocks = "\n".join(body for _, body in _FENCE.findall(text))
    for line in (*blocks.splitlines(), *_CODE.findall(_FENCE.sub("", text)), *_CODE.findall(blocks)):
        command = re.search(r"(?:^|\$ |^\$ .*\$\()amnesia (?!is up)(.+)$", line)
        if command:
            yield shlex.split(command[1].partition(")")[0] if "$(" in line else command[1], comments=True)
