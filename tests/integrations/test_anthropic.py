"""The memory tool: held against the library's own over a file system, and what only files that end can show."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from anthropic.lib.tools import BetaAsyncAbstractMemoryTool, ToolError
from anthropic.tools.memory import BetaAsyncLocalFilesystemMemoryTool, BetaLocalFilesystemMemoryTool
from hypothesis import given
from hypothesis import strategies as st
from tests.daemon.desk import DAY, HUMAN, ManualClock, call, kept
from tests.integrations.running import run_example

from amnesiad.errors import Invalid
from amnesiad.integrations.anthropic import AsyncMemoryTool, MemoryTool
from amnesiad.integrations.commands import checked
from amnesiad.integrations.files import pieces_of
from amnesiad.service import Service

Do = Callable[..., Awaitable[str]]


def doer(tool: Any) -> Do:
    """One command after the other, as a model gives them; a blocking tool runs beside the loop that serves it."""

    async def do(command: str, **fields: Any) -> str:
        body = {"command": command, **fields}
        if isinstance(tool, MemoryTool | BetaLocalFilesystemMemoryTool):
            return str(await asyncio.to_thread(tool.call, body))
        return str(await tool.call(body))

    return do


@pytest.fixture(params=["files", "async-files", "notes", "async-notes"])
async def do(request: pytest.FixtureRequest, tmp_path: Path, daemon: str) -> AsyncIterator[Do]:
    """Each tool there is: the library's own, blocking and not, and ours."""
    if "notes" not in request.param:
        files = BetaAsyncLocalFilesystemMemoryTool if "async" in request.param else BetaLocalFilesystemMemoryTool
        yield doer(files(str(tmp_path)))
        return
    tool = (AsyncMemoryTool if "async" in request.param else MemoryTool)(daemon, workspace="desk")
    yield doer(tool)
    await tool.link.aclose()


@pytest.fixture
async def notes(daemon: str) -> AsyncIterator[AsyncMemoryTool]:
    """Our tool in the desk's workspace."""
    tool = AsyncMemoryTool(daemon, workspace="desk")
    yield tool
    await tool.aclose()


async def refused(work: Awaitable[Any]) -> str:
    """What the model is told instead of an answer."""
    with pytest.raises(ToolError) as error:
        await work
    return str(error.value)


class TestContract:
    """What models know of the tool, whoever keeps the files."""

    async def test_a_file_is_created_and_viewed(self, do: Do) -> None:
        """A file shows its lines with their numbers, or some of them."""
        text = "one\ntwo\n\nfour"
        await do("create", path="/memories/a.md", file_text=text)
        head, *lines = (await do("view", path="/memories/a.md")).split("\n")
        assert head == "Here's the content of /memories/a.md with line numbers:"
        assert lines == ["     1\tone", "     2\ttwo", "     3\t", "     4\tfour"]
        assert (await do("view", path="/memories/a.md", view_range=[2, 3])).split("\n")[1:] == lines[1:3]
        assert (await do("view", path="/memories/a.md", view_range=[3, -1])).split("\n")[1:] == lines[2:]

    async def test_a_directory_lists_what_it_holds(self, do: Do) -> None:
        """Two levels deep, without what is hidden; an empty memory is a directory too."""
        assert "/memories" in await do("view", path="/memories")
        for path in ("/memories/b.md", "/memories/x/y.md", "/memories/x/z/deep.md", "/memories/.hidden"):
            await do("create", path=path, file_text="something")
        told = (await do("view", path="/memories")).split("\n")
        assert "2 levels deep in /memories" in told[0]
        assert [row.split("\t")[1] for row in told[2:]] == [
            "/memories/b.md",
            "/memories/x/",
            "/memories/x/y.md",
            "/memories/x/z/",
        ]
        assert [row.split("\t")[1] for row in (await do("view", path="/memories/x/z")).split("\n")[2:]] == [
            "/memories/x/z/deep.md"
        ]

    async def test_a_file_is_created_once(self, do: Do) -> None:
        """What exists is not overwritten."""
        await do("create", path="/memories/a.md", file_text="one")
        assert "already exists" in await refused(do("create", path="/memories/a.md", file_text="two"))
        assert "one" in await do("view", path="/memories/a.md")

    async def test_a_text_is_replaced(self, do: Do) -> None:
        """Only one that stands there exactly once; the model is shown the place."""
        await do("create", path="/memories/a.md", file_text="red\ngreen\nblue\ngreen grass\n")
        told = await do("str_replace", path="/memories/a.md", old_str="blue", new_str="black\nand white")
        assert told.split("\n")[1:4] == ["     1\tred", "     2\tgreen", "     3\tblack"]
        assert "did not appear verbatim" in await refused(
            do("str_replace", path="/memories/a.md", old_str="pink", new_str="x")
        )
        assert "lines: 2, 5" in await refused(do("str_replace", path="/memories/a.md", old_str="green", new_str="x"))
        assert "4\tand white" in await do("view", path="/memories/a.md")

    @pytest.mark.parametrize(("at", "expected"), [(0, "new\na\nb"), (1, "a\nnew\nb"), (2, "a\nb\nnew")])
    async def test_lines_are_inserted(self, do: Do, at: int, expected: str) -> None:
        """Behind a line, at the beginning, and at the end."""
        await do("create", path="/memories/a.md", file_text="a\nb\n")
        await do("insert", path="/memories/a.md", insert_line=at, insert_text="new\n")
        lines = (await do("view", path="/memories/a.md")).split("\n")[1:]
        assert [line.partition("\t")[2] for line in lines] == [*expected.split("\n"), ""]

    async def test_no_line_is_inserted_outside(self, do: Do) -> None:
        """A line that is not there is refused by the range there is."""
        await do("create", path="/memories/a.md", file_text="a\nb\n")
        assert "[0, 2]" in await refused(do("insert", path="/memories/a.md", insert_line=3, insert_text="x"))
        assert "[0, 2]" in await refused(do("insert", path="/memories/a.md", insert_line=-1, insert_text="x"))

    async def test_files_and_directories_are_deleted(self, do: Do) -> None:
        """And are not there afterwards; the memory itself stays."""
        for path in ("/memories/a.md", "/memories/x/b.md", "/memories/x/c.md"):
            await do("create", path=path, file_text="something")
        await do("delete", path="/memories/a.md")
        await do("delete", path="/memories/x")
        for path in ("/memories/a.md", "/memories/x", "/memories/x/b.md"):
            assert "does not exist" in await refused(do("view", path=path))
            assert "does not exist" in await refused(do("delete", path=path))
        assert "Cannot delete" in await refused(do("delete", path="/memories"))

    async def test_files_and_directories_are_renamed(self, do: Do) -> None:
        """With all that is in them, to a path that is free."""
        await do("create", path="/memories/a.md", file_text="something")
        await do("create", path="/memories/x/b.md", file_text="else")
        await do("rename", old_path="/memories/a.md", new_path="/memories/y/c.md")
        await do("rename", old_path="/memories/x", new_path="/memories/z")
        assert "something" in await do("view", path="/memories/y/c.md")
        assert "else" in await do("view", path="/memories/z/b.md")
        assert "does not exist" in await refused(do("view", path="/memories/a.md"))
        assert "already exists" in await refused(do("rename", old_path="/memories/z/b.md", new_path="/memories/y/c.md"))
        assert "does not exist" in await refused(do("rename", old_path="/memories/q", new_path="/memories/r"))
        assert "Cannot rename" in await refused(do("rename", old_path="/memories", new_path="/memories/r"))

    @pytest.mark.parametrize("command", ["str_replace", "insert"])
    async def test_only_files_are_edited(self, do: Do, command: str) -> None:
        """A directory, or nothing, is not."""
        fields = (
            {"old_str": "a", "new_str": "b"} if command == "str_replace" else {"insert_line": 0, "insert_text": "x"}
        )
        await do("create", path="/memories/x/b.md", file_text="a")
        assert "not a file" in await refused(do(command, path="/memories/x", **fields))
        assert "does not exist" in await refused(do(command, path="/memories/a.md", **fields))

    @pytest.mark.parametrize("path", ["/etc/passwd", "/memories/../etc", "/memories/a/../../b", "memories/a", ""])
    async def test_no_path_leads_out(self, do: Do, path: str) -> None:
        """Whatever is done with a path that leaves the memory is refused."""
        for command, fields in (
            ("view", {}),
            ("create", {"file_text": "x"}),
            ("delete", {}),
            ("insert", {"insert_line": 0, "insert_text": "x"}),
        ):
            assert await refused(do(command, path=path, **fields))


@pytest.mark.parametrize(
    "path",
    [
        *("/memories/%2e%2e/x", "/memories/%252e%252e/x", "/memories/..%2fx", "/memories/..%5cx", "/memories/..\\x"),
        *("/memories/%2E%2E%2Fx", "/memoriesx", "/memories\\x", "/memories/a\x00b", "/memories/a\nb", "/", "..", "/.."),
        *("/memories/%5cx", "//etc/memories", "/memories/\u202eexe", "/memories/%25252525252e"),
    ],
)
def test_no_spelling_leads_out(path: str) -> None:
    """V: encoded once, twice or strangely: a path that leaves the memory, or cannot be read, is refused."""
    with pytest.raises(Invalid):
        checked(path)


@pytest.mark.parametrize("path", ["/memories/a.md", "/memories//a.md", "/memories/./a.md", "//memories/a.md"])
def test_a_path_has_one_form(path: str) -> None:
    """A file has one name, however it is written."""
    assert checked(path) == "/memories/a.md"


@given(text=st.text(alphabet="ab\n é💡", max_size=300), room=st.integers(min_value=4, max_value=40))
def test_pieces_are_the_text(text: str, room: int) -> None:
    """However a text is cut, no piece is too long and none of it is lost."""
    pieces = pieces_of(text, room)
    assert "".join(pieces) == text
    assert all(len(piece.encode()) <= room for piece in pieces)
    assert all(pieces) or pieces == [""]


class TestFilesThatEnd:
    """What a file system cannot show."""

    async def test_a_long_file_is_several_notes(self, notes: AsyncMemoryTool, service: Service) -> None:
        """Cut between paragraphs, put together again to the letter, and edited by as few notes as have changed."""
        do = doer(notes)
        text = "\n\n".join(f"Paragraph {number}: {'word ' * 60}" for number in range(20)) + "\n"
        await do("create", path="/memories/long.md", file_text=text)
        assert _text(await do("view", path="/memories/long.md")) == text
        before = {note.key: note.id for note in (await call(service, "list", tags=["/memories/long.md"])).notes}
        assert len(before) == 4
        await do("str_replace", path="/memories/long.md", old_str="Paragraph 19", new_str="The last paragraph")
        after = {note.key: note.id for note in (await call(service, "list", tags=["/memories/long.md"])).notes}
        assert [key for key in sorted(after) if after[key] != before[key]] == ["/memories/long.md#4"]
        await do("str_replace", path="/memories/long.md", old_str=text[: len(text) // 2], new_str="")
        changed = text[len(text) // 2 :].replace("Paragraph 19", "The last paragraph")
        assert _text(await do("view", path="/memories/long.md")) == changed

    async def test_a_file_longer_than_any_is_refused(self, notes: AsyncMemoryTool) -> None:
        """With the limit, and with what to do."""
        told = await refused(doer(notes)("create", path="/memories/a.md", file_text="x" * 500_000))
        assert "500000 bytes" in told
        assert "several files" in told

    async def test_two_files_may_say_the_same(self, notes: AsyncMemoryTool) -> None:
        """Neither takes the other's note."""
        do = doer(notes)
        for name in "ab":
            await do("create", path=f"/memories/{name}.md", file_text="the same")
        for name in "ab":
            assert "the same" in await do("view", path=f"/memories/{name}.md")

    async def test_an_empty_file_is_a_file(self, notes: AsyncMemoryTool) -> None:
        """It is there, and can be filled."""
        do = doer(notes)
        await do("create", path="/memories/a.md", file_text="")
        await do("insert", path="/memories/a.md", insert_line=0, insert_text="now")
        assert "1\tnow" in await do("view", path="/memories/a.md")

    async def test_no_file_is_a_directory(self, notes: AsyncMemoryTool) -> None:
        """A file has nothing below it, and a directory is not overwritten by a file."""
        do = doer(notes)
        await do("create", path="/memories/a", file_text="x")
        assert "not a directory" in await refused(do("create", path="/memories/a/b", file_text="x"))
        await do("create", path="/memories/d/e", file_text="x")
        assert "already exists" in await refused(do("create", path="/memories/d", file_text="x"))
        assert "into itself" in await refused(do("rename", old_path="/memories/d", new_path="/memories/d/f"))

    async def test_a_file_that_nobody_views_ends(self, daemon: str, clock: ManualClock) -> None:
        """One that is viewed lives on, whole; the other is erased with its TTL."""
        tool = AsyncMemoryTool(daemon, workspace="desk", kind="fact", ttl="10d")
        do = doer(tool)
        text = "\n\n".join("word " * 80 + str(number) for number in range(10))
        for name in ("viewed", "left"):
            await do("create", path=f"/memories/{name}.md", file_text=text)
        for _ in range(4):
            clock.advance(3 * DAY)
            assert _text(await do("view", path="/memories/viewed.md")) == text
        assert "does not exist" in await refused(do("view", path="/memories/left.md"))
        await tool.aclose()

    async def test_what_has_gone_from_a_file_is_said(self, notes: AsyncMemoryTool, service: Service) -> None:
        """A part that was forgotten, and one in doubt, are no secret to the reader."""
        do = doer(notes)
        text = "\n\n".join("word " * 80 + str(number) for number in range(10))
        await do("create", path="/memories/a.md", file_text=text)
        parts = {note.key: note.id for note in (await call(service, "list", tags=["/memories/a.md"])).notes}
        await call(service, "forget", id=parts["/memories/a.md#1"])
        await call(service, "flag", id=parts["/memories/a.md#2"], reason="it may be wrong")
        head = (await do("view", path="/memories/a.md")).split("\n")[0]
        assert "Part 1 of it has ended." in head
        assert "It is stale" in head

    @pytest.mark.parametrize("gone", ["delete", "rename", "delete above", "clear"])
    async def test_deleted_is_erased(self, notes: AsyncMemoryTool, service: Service, gone: str) -> None:
        """C: no word of a file is left where it was, not of what it held before an edit either."""
        do = doer(notes)
        await do("create", path="/memories/x/a.md", file_text="the code is sesame")
        await do("str_replace", path="/memories/x/a.md", old_str="sesame", new_str="open")
        if gone == "rename":
            await do("rename", old_path="/memories/x/a.md", new_path="/memories/b.md")
        elif gone == "clear":
            await notes.clear_all_memory()
        else:
            await do("delete", path="/memories/x" if "above" in gone else "/memories/x/a.md")
        assert "sesame" not in str(await kept(service))
        assert ("open" in str(await kept(service))) is (gone == "rename")

    async def test_what_a_human_said_is_not_rewritten(self, notes: AsyncMemoryTool, service: Service) -> None:
        """A file that a human has made his own is refused to the agent, in the daemon's words."""
        do = doer(notes)
        await do("create", path="/memories/a.md", file_text="ask first")
        (note,) = (await call(service, "list")).notes
        await call(service, "promote", id=note.id, to="human", caller=HUMAN)
        assert "human" in await refused(do("delete", path="/memories/a.md"))
        assert "human" in await refused(do("str_replace", path="/memories/a.md", old_str="ask", new_str="do not ask"))

    async def test_a_note_that_is_no_file_is_left_alone(self, notes: AsyncMemoryTool, service: Service) -> None:
        """Notes of the same workspace are not among the files."""
        await call(service, "remember", content="no file", tags=["/memories/"])
        told = await doer(notes)("view", path="/memories")
        assert told.split("\n")[1:] == ["0B\t/memories"]

    @pytest.mark.parametrize(
        "fields",
        [
            {"command": "peek", "path": "/memories"},
            {"path": "/memories"},
            [],
            "view",
            {"command": "view"},
            {"command": "view", "path": 7},
            {"command": "view", "path": "/memories/a.md", "view_range": "all"},
            {"command": "view", "path": "/memories/a.md", "view_range": 5},
            {"command": "view", "path": "/memories/a.md", "view_range": {"from": 1}},
            {"command": "view", "path": "/memories/a.md", "view_range": [9, 10]},
            {"command": "create", "path": "/memories/b.md"},
            {"command": "create", "path": "/memories/b.md", "file_text": "a\x00b"},
            {"command": "create", "path": "/memories/b.md", "file_text": "\ud83d"},
            {"command": "create", "path": "/memories/", "file_text": "x"},
            {"command": "create", "path": "/memories/" + "x" * 200, "file_text": "x"},
            {"command": "create", "path": "/memories" + "/x" * 40, "file_text": "x"},
            {"command": "insert", "path": "/memories/a.md", "insert_line": "soon", "insert_text": "x"},
            {"command": "insert", "path": "/memories/a.md", "insert_line": 0, "insert_text": "\ud83d"},
            {"command": "str_replace", "path": "/memories/a.md", "old_str": "", "new_str": "x"},
        ],
    )
    async def test_a_wrong_command_is_told_what_is_wrong(self, notes: AsyncMemoryTool, fields: Any) -> None:
        """Never a traceback: an error that the model can act on, and nothing is changed."""
        await doer(notes)("create", path="/memories/a.md", file_text="one")
        assert await refused(notes.call(fields))
        assert (await doer(notes)("view", path="/memories")).count("\n") == 2

    async def test_without_a_daemon(self, place: Path) -> None:
        """The model is told that memory is away, at once."""
        for tool in (
            MemoryTool(place / "none.sock", workspace="w"),
            AsyncMemoryTool(place / "none.sock", workspace="w"),
        ):
            assert "none.sock" in await refused(doer(tool)("view", path="/memories"))


async def test_the_tool_is_the_one_that_models_know(notes: AsyncMemoryTool) -> None:
    """It presents itself as the built-in tool, and the library takes it for one."""
    assert notes.to_dict() == {"type": "memory_20250818", "name": "memory"}
    assert isinstance(notes, BetaAsyncAbstractMemoryTool)


async def test_the_example_runs(daemon: str) -> None:
    """A runner of the library with a scripted model keeps a file and reads it back."""
    told = await run_example("anthropic_memory.py", daemon)
    assert "     1\tDeploys go out on Thursdays." in told
    assert "I have noted" in told


def _text(shown: str) -> str:
    """The text of a file as it was shown."""
    return "\n".join(line.partition("\t")[2] for line in shown.split("\n")[1:])
