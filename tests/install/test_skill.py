"""``amnesia skill``: a page in the format that agents read, put where each looks for it, and taken away again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from amnesiad.cli import main
from amnesiad.cli.tools import NAME, SHELVES, place_of, skill_text
from amnesiad.core.kinds import REGIMES
from amnesiad.mcp.table import load_table

MAX_DESCRIPTION = 1024
MAX_LINES = 500


class TestPage:
    """What the page says, and that agents can read it."""

    def test_its_head_is_the_formats(self) -> None:
        """Name and description are there, and within the limits of the format."""
        head = re.match(r"---\n(.*?)\n---\n", skill_text(), re.DOTALL)
        assert head is not None
        fields = dict(line.split(": ", 1) for line in head[1].splitlines())
        assert fields["name"] == NAME
        assert re.fullmatch(r"[a-z0-9-]{1,64}", NAME)
        assert 0 < len(fields["description"]) <= MAX_DESCRIPTION
        assert len(skill_text().splitlines()) < MAX_LINES

    def test_what_it_names_exists(self) -> None:
        """Every tool and every kind that it names is one."""
        assert set(re.findall(r"`(amnesia_[a-z]+)`", skill_text())) <= set(load_table().tools)
        rows = re.findall(r"^\| [^|]+ \| (`[^|]+`) \| [^|]+ \|$", skill_text(), re.MULTILINE)
        named = {kind for row in rows for kind in re.findall(r"`([a-z-]+)`", row)}
        assert len(named) > 5
        assert named <= set(REGIMES)


@pytest.mark.parametrize("scope", ["user", "project"])
@pytest.mark.parametrize("agent", SHELVES)
def test_it_is_put_where_the_agent_looks(
    agent: str, scope: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Installed it lies in the agent's folder and was shown before; again changes nothing; undone it is gone."""
    path = home / SHELVES[agent].folder / NAME / "SKILL.md"
    command = ["skill", "install", "--agent", agent, "--scope", scope]
    assert main([*command, "--dry-run"]) == 0
    assert not path.exists()
    assert main([*command, "--yes"]) == 0
    assert path.read_text(encoding="utf-8") == skill_text()
    assert f"+name: {NAME}" in capsys.readouterr().out
    assert main(command) == 0
    assert "up to date" in capsys.readouterr().out
    beside = path.parent.parent / "other" / "SKILL.md"
    beside.parent.mkdir()
    beside.write_text("another's")
    assert main([*command, "--undo", "--yes"]) == 0
    assert not path.parent.exists()
    assert beside.read_text() == "another's"
    assert main([*command, "--undo"]) == 0


def test_claude_codes_own_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Claude Code's folder was moved, the skill goes there."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "elsewhere"))
    assert main(["skill", "install", "--yes", "--json"]) == 0
    assert (home / "elsewhere" / "skills" / NAME / "SKILL.md").exists()


def test_it_asks_before_it_writes(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nobody can be asked nothing is written without --yes."""
    assert main(["skill", "install", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["field"] == "yes"
    assert list(home.iterdir()) == []


def test_show_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """The page can be read without installing it, and put anywhere by hand."""
    assert main(["skill", "show"]) == 0
    assert capsys.readouterr().out == skill_text()


@pytest.mark.parametrize("wrong", [["burn"], ["install", "--agent", "emacs"], ["install", "--scope", "moon"]])
def test_wrong_words_are_named(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """What is none of the words known is refused with those that are."""
    assert main(["skill", *wrong]) == 2
    assert wrong[-1] in capsys.readouterr().err


def test_a_folder_that_is_a_link_stays_one(home: Path) -> None:
    """Whoever keeps their skills elsewhere gets the page there, and keeps the link when it is taken away."""
    elsewhere = home / "elsewhere"
    elsewhere.mkdir()
    link = home / SHELVES["claude-code"].folder / NAME
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    assert main(["skill", "install", "--yes"]) == 0
    assert (elsewhere / "SKILL.md").read_text(encoding="utf-8") == skill_text()
    assert main(["skill", "install", "--undo", "--yes"]) == 0
    assert link.is_symlink()
    assert list(elsewhere.iterdir()) == []


def test_a_home_of_nobody_is_taken_as_it_is() -> None:
    """A variable that names a user who is none is no reason to fail."""
    place = place_of(SHELVES["claude-code"], "user", {"CLAUDE_CONFIG_DIR": "~no-such-user/claude"})
    assert str(place) == f"~no-such-user/claude/skills/{NAME}"
