"""Agents' settings with our hooks in them and without: merged into what people have, and taken out again."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from amnesiad.agents import DIALECTS
from amnesiad.agents.tools import EDITING, RUNNING
from amnesiad.errors import Invalid
from amnesiad.install import changes, commands, settings
from amnesiad.install.settings import Places, Wanted
from amnesiad.install.table import AGENTS, CLAUDE_CODE, CODEX, CURSOR, GEMINI, OPENHANDS, VSCODE, Agent, Scope

SOCKET = "/run/user/1000/amnesia/amnesia.sock"
WANTED = Wanted(SOCKET)

CLAUDE_SETTINGS = """\
{
    "$schema": "https://json.schemastore.org/claude-code-settings.json",
    "model": "opus", "cleanupPeriodDays": 30,
    "permissions": {"allow": ["Bash(npm run lint)", "Read(~/.zshrc)"], "deny": []},
    "statusLine": {"type": "command", "command": "~/.claude/line.sh"},
    "hooks": {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "check.sh", "timeout": 10}]}
        ],
        "Notification": [{"hooks": [{"type": "command", "command": "notify-send Claude"}]}],
        "Stop": []
    },
    "unknown-of-next-year": {"a": [1, 2.50, null]}
}
"""

CLAUDE_STATE = '{"numStartups": 412, "mcpServers": {"github": {"command": "gh-mcp", "args": []}}, "projects": {"/src": {"history": []}}}'

CURSOR_HOOKS = """\
{
  "version": 1,
  "hooks": {
    "stop": [{"command": "./done.sh"}]
  }
}
"""

GEMINI_SETTINGS = """\
{
  "hooksConfig": {"enabled": true},
  "hooks": {
    "enabled": true,
    "BeforeTool": [{"matcher": "write_file", "hooks": [{"name": "scan", "type": "command", "command": "scan.sh"}]}]
  },
  "mcpServers": {"docs": {"httpUrl": "http://127.0.0.1:9/mcp"}}
}
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """A home and a project with nothing in them."""
    (tmp_path / "home").mkdir()
    (tmp_path / "project").mkdir()
    return Places(tmp_path / "home", tmp_path / "project", {})


def write(path: Path, text: str) -> Path:
    """A file somebody has already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def install(agent: Agent, places: Places, scope: Scope = "user", wanted: Wanted = WANTED) -> list[Path]:
    """Install, and which files that changed."""
    made = settings.install(agent, scope, places, wanted)
    changes.apply(made)
    return [change.path for change in made]


def undo(agent: Agent, places: Places, scope: Scope = "user") -> list[Path]:
    """Undo, and which files that changed."""
    made = settings.undo(agent, scope, places)
    changes.apply(made)
    return [change.path for change in made]


def files(places: Places) -> dict[str, str]:
    """Every file below home and project, with its text."""
    root = places.home.parent
    return {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}


class TestEveryAgent:
    """What holds for all of them, in both scopes."""

    @pytest.fixture(params=sorted(AGENTS))
    def agent(self, request: pytest.FixtureRequest) -> Agent:
        return AGENTS[request.param]

    @pytest.fixture(params=["user", "project"])
    def scope(self, request: pytest.FixtureRequest) -> Scope:
        return "user" if request.param == "user" else "project"

    def test_each_event_leads_to_us_once(self, agent: Agent, scope: Scope, places: Places) -> None:
        """Every event of the table has one hook of ours, on this socket and for this agent."""
        install(agent, places, scope)
        found = settings.find(agent, scope, places)
        assert [hook.event for hook in found] == [hook.event for hook in agent.hooks]
        assert {commands.socket_of(hook.command) for hook in found} == {SOCKET}
        assert all(agent.name in hook.command for hook in found)

    def test_the_daemon_knows_every_event(self, agent: Agent, scope: Scope) -> None:
        """No agent is told to call for what nobody understands."""
        assert scope in agent.files
        assert {hook.event for hook in agent.hooks} <= set(DIALECTS[agent.name].hooks)

    def test_every_tool_that_is_waited_for_says_something(self, agent: Agent, scope: Scope) -> None:
        """No agent starts a process before or after a tool of which nobody knows what it touches."""
        assert scope in agent.files
        patterns = [name for hook in agent.hooks for name in (hook.matcher or "").split("|")]
        assert {name for name in patterns if name and "*" not in name} <= EDITING | RUNNING

    def test_a_second_run_changes_nothing(self, agent: Agent, scope: Scope, places: Places) -> None:
        """It can stand in a script that sets up a machine."""
        install(agent, places, scope)
        assert install(agent, places, scope) == []

    def test_undo_leaves_nothing(self, agent: Agent, scope: Scope, places: Places) -> None:
        """Files that held nothing but ours go as well."""
        assert install(agent, places, scope)
        undo(agent, places, scope)
        assert files(places) == {}
        assert undo(agent, places, scope) == []

    def test_another_socket_takes_the_place_of_the_first(self, agent: Agent, scope: Scope, places: Places) -> None:
        """After a move there is no hook that leads to where the daemon was."""
        install(agent, places, scope)
        assert install(agent, places, scope, Wanted("/srv/a.sock"))
        found = settings.find(agent, scope, places)
        assert {commands.socket_of(hook.command) for hook in found} == {"/srv/a.sock"}
        assert sorted(hook.event for hook in found) == sorted(hook.event for hook in agent.hooks)

    def test_what_is_printed_is_what_is_written(self, agent: Agent, scope: Scope, places: Places) -> None:
        """Whoever adds it by hand gets the same."""
        install(agent, places, scope)
        printed = settings.printed(agent, scope, WANTED)
        assert {str(places.of(agent, scope, file)): value for file, value in printed.items()} == {
            str(places.home.parent / name): json.loads(text) for name, text in files(places).items()
        }


EXISTING: list[tuple[Agent, str, str]] = [
    (CLAUDE_CODE, ".claude/settings.json", CLAUDE_SETTINGS),
    (CLAUDE_CODE, ".claude.json", CLAUDE_STATE),
    (CURSOR, ".cursor/hooks.json", CURSOR_HOOKS),
    (GEMINI, ".gemini/settings.json", GEMINI_SETTINGS),
    (CODEX, ".codex/hooks.json", '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "bell"}]}]}}'),
    (
        OPENHANDS,
        ".openhands/hooks.json",
        '{"hooks":{"Stop":[{"matcher":"*","hooks":[{"type":"command","command":"lint"}]}]}}',
    ),
]


@pytest.mark.parametrize(("agent", "file", "text"), EXISTING, ids=[file for _, file, _ in EXISTING])
class TestWhatPeopleHave:
    """Realistic files, each by its owner's hand."""

    def test_everything_of_theirs_stays(self, agent: Agent, file: str, text: str, places: Places) -> None:
        """Unknown keys, other hooks of the same event, other servers, and the order."""
        path = write(places.home / file, text)
        install(agent, places)
        before, after = json.loads(text), json.loads(path.read_text())
        assert [key for key in after if key in before] == list(before)
        assert _without_ours(after) == {**before, "hooks": _events(before)}

    def test_undo_restores_every_byte(self, agent: Agent, file: str, text: str, places: Places) -> None:
        """As if it had never been there."""
        write(places.home / file, text)
        before = files(places)
        install(agent, places)
        undo(agent, places)
        stripped = {name: json.loads(its) for name, its in files(places).items()}
        expected = {name: json.loads(its) for name, its in before.items()}
        if '"Stop": []' in text:  # an empty list of their own cannot be told from one that we left
            del expected[f"home/{file}"]["hooks"]["Stop"]
            assert stripped == expected
        else:
            assert files(places) == before

    def test_undo_leaves_what_was_edited_since(self, agent: Agent, file: str, text: str, places: Places) -> None:
        """A hook that somebody put beside ours, into our own group, stays."""
        path = write(places.home / file, text)
        install(agent, places)
        value = json.loads(path.read_text())
        if "hooks" not in value:  # the file of its servers: somebody adds one
            value["mcpServers"]["mine"] = {"command": "mine"}
            path.write_text(json.dumps(value))
            undo(agent, places)
            assert set(json.loads(path.read_text())["mcpServers"]) == {"github", "mine"}
            return
        theirs = {"type": "command", "command": "mine.sh"}
        event = agent.hooks[0].event
        entry = value["hooks"][event][-1]
        if agent.grouped:
            entry["hooks"].append(theirs)
        else:
            value["hooks"][event].append(theirs)
        path.write_text(json.dumps(value, indent=4))
        undo(agent, places)
        left = json.loads(path.read_text())["hooks"][event]
        assert [handler for item in left for handler in (item["hooks"] if agent.grouped else [item])] == [theirs]
        assert settings.find(agent, "user", places) == []


def _events(value: dict[str, Any]) -> dict[str, Any]:
    return {event: entries for event, entries in value.get("hooks", {}).items() if entries != []}


def _without_ours(value: dict[str, Any]) -> dict[str, Any]:
    """The value without what is ours, by a reading of the format that is not the code's."""
    value = {key: its for key, its in value.items() if key != "mcpServers" or set(its) != {"amnesiad"}}
    if "mcpServers" in value:
        value["mcpServers"] = {name: its for name, its in value["mcpServers"].items() if name != "amnesiad"}
    hooks = {
        event: [entry for entry in entries if SOCKET not in json.dumps(entry)] if isinstance(entries, list) else entries
        for event, entries in value.get("hooks", {}).items()
    }
    return {**value, "hooks": {event: entries for event, entries in hooks.items() if entries != []}}


class TestClaudeCode:
    """What is its own."""

    def test_the_start_of_a_session_runs_python_and_the_rest_curl(self, places: Places) -> None:
        """Only the Python form can write the file that tells the session's shells whom they speak for."""
        install(CLAUDE_CODE, places)
        by_form = {hook.event: "curl" in hook.command for hook in settings.find(CLAUDE_CODE, "user", places)}
        assert by_form.pop("SessionStart") is False
        assert all(by_form.values())

    def test_python_for_all_when_asked(self, places: Places) -> None:
        """For machines where a hook may not run curl."""
        install(CLAUDE_CODE, places, wanted=Wanted(SOCKET, form="python"))
        assert not any("curl" in hook.command for hook in settings.find(CLAUDE_CODE, "user", places))

    def test_a_status_line_of_theirs_is_left_alone(self, places: Places) -> None:
        """Ours is set where none is, and taken away again; another's is neither replaced nor removed."""
        path = write(places.home / ".claude/settings.json", CLAUDE_SETTINGS)
        install(CLAUDE_CODE, places, wanted=Wanted(SOCKET, statusline=True))
        assert json.loads(path.read_text())["statusLine"]["command"] == "~/.claude/line.sh"
        path.write_text("{}")
        install(CLAUDE_CODE, places, wanted=Wanted(SOCKET, statusline=True))
        assert "statusline.py" in json.loads(path.read_text())["statusLine"]["command"]
        undo(CLAUDE_CODE, places)
        assert not path.exists()

    def test_no_other_agent_has_one(self, places: Places) -> None:
        """It is said rather than written where nobody reads it."""
        with pytest.raises(Invalid, match="status line"):
            settings.install(CURSOR, "user", places, Wanted(SOCKET, statusline=True))

    def test_its_directory_may_be_elsewhere(self, places: Places, tmp_path: Path) -> None:
        """CLAUDE_CONFIG_DIR moves both of its files."""
        moved = places._replace(environ={"CLAUDE_CONFIG_DIR": str(tmp_path / "c")})
        assert install(CLAUDE_CODE, moved) == [tmp_path / "c/settings.json", tmp_path / "c/.claude.json"]

    def test_a_project_gets_its_own_files(self, places: Places) -> None:
        """The repository's settings and its .mcp.json."""
        install(CLAUDE_CODE, places, "project")
        assert set(files(places)) == {"project/.claude/settings.json", "project/.mcp.json"}

    def test_a_named_workspace_goes_along(self, places: Places) -> None:
        """Quoted for the shell and for the URL, and for the server in its environment."""
        install(CLAUDE_CODE, places, wanted=Wanted(SOCKET, workspace="/home/x y/it's"))
        found = settings.find(CLAUDE_CODE, "user", places)
        assert all("x y" in hook.command or "x%20y" in hook.command for hook in found)
        server = json.loads((places.home / ".claude.json").read_text())["mcpServers"]["amnesiad"]
        assert server["env"] == {"AMNESIA_WORKSPACE": "/home/x y/it's"}


class TestShapes:
    """The formats that differ from Claude Code's, as the agents document them."""

    def test_cursor(self, places: Places) -> None:
        """A version, and hooks without groups."""
        install(CURSOR, places, "project")
        value = json.loads((places.project / ".cursor/hooks.json").read_text())
        assert value["version"] == 1
        assert all(
            set(entry) - {"matcher"} == {"command", "timeout"}
            for entries in value["hooks"].values()
            for entry in entries
        )

    def test_gemini(self, places: Places) -> None:
        """Time-outs in milliseconds; hooks and servers in one file."""
        install(GEMINI, places)
        value = json.loads((places.home / ".gemini/settings.json").read_text())
        assert value["hooks"]["SessionStart"][0]["hooks"][0]["timeout"] == 5000
        assert "amnesiad" in value["mcpServers"]

    def test_codex(self, places: Places) -> None:
        """Nothing but the keys it knows, since it refuses a file with others; its configuration is not touched."""
        install(CODEX, places)
        assert set(files(places)) == {"home/.codex/hooks.json"}
        value = json.loads((places.home / ".codex/hooks.json").read_text())
        assert set(value) == {"hooks"}
        groups = [group for entries in value["hooks"].values() for group in entries]
        assert all(set(group) <= {"matcher", "hooks"} for group in groups)
        assert all(set(handler) == {"type", "command", "timeout"} for group in groups for handler in group["hooks"])

    def test_vscode(self, places: Places) -> None:
        """A file of our own beside others, and a server with its kind of transport."""
        install(VSCODE, places, "project")
        assert set(files(places)) == {"project/.github/hooks/amnesiad.json", "project/.vscode/mcp.json"}
        server = json.loads((places.project / ".vscode/mcp.json").read_text())["servers"]["amnesiad"]
        assert server["type"] == "stdio"


class TestFiles:
    """How a file is changed."""

    def test_mode_and_link_stay(self, places: Places, tmp_path: Path) -> None:
        """Dotfiles are often links into a repository, and settings are often private."""
        real = write(tmp_path / "dotfiles/claude.json", "{}\n")
        real.chmod(0o640)
        link = places.home / ".claude/settings.json"
        link.parent.mkdir()
        link.symlink_to(real)
        install(CLAUDE_CODE, places)
        assert link.is_symlink()
        assert stat.S_IMODE(real.stat().st_mode) == 0o640
        assert SOCKET in real.read_text()
        undo(CLAUDE_CODE, places)
        assert json.loads(real.read_text()) == {}
        assert [path.name for path in real.parent.iterdir()] == ["claude.json"]

    def test_new_files_of_a_home_are_private(self, places: Places) -> None:
        """Agents keep tokens beside their settings."""
        install(CLAUDE_CODE, places)
        assert stat.S_IMODE((places.home / ".claude.json").stat().st_mode) == 0o600

    def test_a_path_that_is_not_text_is_refused(self, places: Places) -> None:
        """JSON is UTF-8, and so is what an agent would run."""
        with pytest.raises(Invalid, match="not UTF-8"):
            install(CLAUDE_CODE, places, wanted=Wanted("/run/\udcff.sock"))
        assert files(places) == {}

    def test_a_byte_order_mark_stays(self, places: Places) -> None:
        """Some editors write one."""
        path = write(places.home / ".claude/settings.json", "\ufeff{}\n")
        install(CLAUDE_CODE, places)
        assert path.read_text().startswith("\ufeff{")
        assert install(CLAUDE_CODE, places) == []

    def test_a_change_meanwhile_is_not_overwritten(self, places: Places) -> None:
        """Agents rewrite their own files; what was shown is what is done, or nothing."""
        path = write(places.home / ".claude/settings.json", "{}")
        planned = settings.install(CLAUDE_CODE, "user", places, WANTED)
        path.write_text('{"model": "opus"}')
        with pytest.raises(Invalid, match="meanwhile"):
            changes.apply(planned)
        assert path.read_text() == '{"model": "opus"}'

    def test_all_of_the_files_or_none(self, places: Places) -> None:
        """One that cannot be written leaves the other as it was, and no draft behind."""
        path = write(places.home / ".claude/settings.json", "{}")
        planned = settings.install(CLAUDE_CODE, "user", places, WANTED)
        (places.home / ".claude.json").symlink_to("/proc/nowhere/x")
        with pytest.raises(Invalid, match=r"\.claude\.json"):
            changes.apply(planned)
        assert path.read_text() == "{}"
        assert [one.name for one in path.parent.iterdir()] == ["settings.json"]

    def test_what_was_written_is_put_back_where_the_next_one_fails(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file that turns out to be unwritable at the last moment leaves those before it as they were, modes and all:
        one changed, one new and one that was to go."""
        changed, new, gone, last = (tmp_path / name for name in ("changed", "new", "gone", "last"))
        for path in (changed, gone, last):
            path.write_text("before")
            path.chmod(0o640)
        planned = [
            changes.Change(changed, "before", "after"),
            changes.Change(new, None, "after"),
            changes.Change(gone, "before", None),
            changes.Change(last, "before", "after"),
        ]
        replace = Path.replace

        def refuse(draft: Path, target: Path) -> Path:
            if target == last:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            return replace(draft, target)

        monkeypatch.setattr(Path, "replace", refuse)
        with pytest.raises(Invalid, match="last cannot be written: Operation not permitted"):
            changes.apply(planned)
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(
            ("changed", "gone", "last"), "before"
        )
        assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o640}

    def test_a_file_that_cannot_be_put_back_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where even the way back is barred, nobody is told that nothing has changed."""
        first, last = tmp_path / "first", tmp_path / "last"
        for path in (first, last):
            path.write_text("before")
        replace, given = Path.replace, []

        def refuse(draft: Path, target: Path) -> Path:
            given.append(target)
            if given != [first]:
                raise OSError(errno.EROFS, "Read-only file system")
            return replace(draft, target)

        monkeypatch.setattr(Path, "replace", refuse)
        with pytest.raises(Invalid, match=r"could not be put back: \S+first \(Read-only"):
            changes.apply([changes.Change(path, "before", "after") for path in (first, last)])

    @pytest.mark.parametrize(
        "text",
        [
            "[]",
            '{"hooks": []}',
            '{"hooks": {"Stop": {"a": 1}}}',
            '{"hooks": {"Stop": null}}',
            '{"hooks": {}} //',
            "\x00",
        ],
    )
    def test_what_is_not_understood_is_left_as_it_is(self, text: str, places: Places) -> None:
        """A clear refusal, and the file untouched."""
        path = write(places.home / ".claude/settings.json", text)
        with pytest.raises(Invalid, match=r"settings\.json"):
            settings.install(CLAUDE_CODE, "user", places, WANTED)
        assert path.read_text() == text

    def test_what_is_no_file_is_refused(self, places: Places) -> None:
        """A directory, a pipe that nobody writes to, and a file that is not text."""
        (places.home / ".gemini").mkdir()
        os.mkfifo(places.home / ".gemini/settings.json")
        with pytest.raises(Invalid, match="no file"):
            settings.install(GEMINI, "user", places, WANTED)
        (places.home / ".claude/settings.json").mkdir(parents=True)
        with pytest.raises(Invalid, match="directory") as refusal:
            settings.install(CLAUDE_CODE, "user", places, WANTED)
        assert refusal.value.hint == "move it away"
        (places.home / ".cursor").mkdir()
        (places.home / ".cursor/hooks.json").write_bytes(b"\xff\xfe")
        with pytest.raises(Invalid, match="UTF-8"):
            settings.install(CURSOR, "user", places, WANTED)
