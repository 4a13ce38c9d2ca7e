"""What a file of rules or memories is read as: every rule of the parser, on text a person would write."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amnesiad.cli.markdown import Statement, statements
from amnesiad.core.intake import MAX_TAG_BYTES


def said(text: str) -> list[str]:
    return [statement.content for statement in statements(text)]


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("", []),
        ("One sentence.", ["One sentence."]),
        ("Wrapped over\ntwo lines.", ["Wrapped over two lines."]),
        ("First.\n\nSecond.", ["First.", "Second."]),
        ("- one\n- two\n", ["one", "two"]),
        ("* one\n\n* two\n", ["one", "two"]),
        ("1. one\n2. two\n", ["one", "two"]),
        ("- use `make test`, **always**", ["use `make test`, **always**"]),
        ("- first\n\n  and more of it\n- second", ["first\nand more of it", "second"]),
        ("- no line break at the end", ["no line break at the end"]),
        ("windows\r\n\r\n- line\r\n- ends\r\n", ["windows", "line", "ends"]),
        ("> quoted\n> - and listed", ["quoted", "and listed"]),
        ("用户服务器部署在腾讯云\n\n- 中文优先", ["用户服务器部署在腾讯云", "中文优先"]),
    ],
)
def test_items_and_paragraphs_are_statements(text: str, contents: list[str]) -> None:
    """Each list item and each paragraph is one statement, in one line, markup as it was written."""
    assert said(text) == contents


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("Commands:\n\n- make up\n- make test", ["Commands: make up", "Commands: make test"]),
        ("- Imports:\n  - sorted\n  - absolute", ["Imports: sorted", "Imports: absolute"]),
        ("- Use pnpm\n  - never npm", ["Use pnpm", "Use pnpm: never npm"]),
        ("- Use pnpm.\n  - Never npm.", ["Use pnpm.", "Use pnpm. Never npm."]),
        ("A:\n- B:\n  - C", ["A: B: C"]),
        ("- Only a colon:", ["Only a colon:"]),
    ],
)
def test_an_inner_item_brings_what_stands_above_it(text: str, contents: list[str]) -> None:
    """A statement makes sense by itself: what introduces a list is said before each of its items."""
    assert said(text) == contents


@pytest.mark.parametrize(
    ("text", "contents"),
    [
        ("Run the tests:\n\n```sh\nmake test\n```", ["Run the tests:\n```sh\nmake test\n```"]),
        ("- Run:\n\n  ```\n  make\n  ```\n- rest", ["Run:\n```\nmake\n```", "rest"]),
        ("```\nalone\n```", ["```\nalone\n```"]),
        ("    indented = True\n", ["```\nindented = True\n```"]),
    ],
)
def test_code_belongs_to_what_it_follows(text: str, contents: list[str]) -> None:
    """Code is kept as it stands, with the sentence that leads to it."""
    assert said(text) == contents


def test_rows_of_a_table_are_statements() -> None:
    """Each row is one, its cells named by the columns; empty cells are left out."""
    assert said("| Port | Who |\n|---|---|\n| 8080 | web |\n| 5432 | |") == ["Port: 8080; Who: web", "Port: 5432"]


def test_headings_are_tags() -> None:
    """All headings above a statement tag it, outermost first; the document's only level-one heading is its title."""
    text = "# Project\n\nintro\n\n## Code style\n\n- a\n\n### Python 3.11!\n\n- b\n\n## 配置\n\n- c"
    assert [(one.content, one.tags) for one in statements(text)] == [
        ("intro", ()),
        ("a", ("code-style",)),
        ("b", ("code-style", "python-3-11")),
        ("c", ("配置",)),
    ]
    several = statements("# Build\n\n- a\n\n# Deploy\n\n- b")
    assert [one.tags for one in several] == [("build",), ("deploy",)]


def test_boxes_are_tasks() -> None:
    """What is still to do is a task; what is ticked off is left out, with what hangs under it."""
    text = "- [ ] write the docs\n- [x] old\n  - under it\n- [X] older\n- plain"
    assert [(one.content, one.todo) for one in statements(text)] == [("write the docs", True), ("plain", False)]


@pytest.mark.parametrize(
    "text",
    [
        "---\ntitle: x\ntags: [a, b]\n---\n",
        "<!-- a comment -->",
        "<div>\nhtml\n</div>\n",
        "---\n\n***\n",
        "@docs/style.md\n@~/.claude/rules.md",
        "# A title and nothing else",
        "-\n-\n",
        "[ref]: https://example.org\n",
    ],
)
def test_what_says_nothing_is_left_out(text: str) -> None:
    """Front matter, comments, rules, includes, empty items and bare headings are no statements."""
    assert said(text) == []


def test_lines_are_those_of_the_file() -> None:
    """A statement knows where it stands, front matter or not, so that a problem can be found."""
    text = "---\na: b\n---\n# T\n\nfirst\n\n- second\n  - third\n"
    assert [one.line for one in statements(text)] == [6, 8, 9]


def test_the_same_twice_is_said_once() -> None:
    """A repeated sentence is one statement, with the tags of its first place."""
    assert statements("## A\n\n- x\n\n## B\n\n- x") == [Statement(3, "x", ("a",))]


def test_a_tag_fits_its_limit() -> None:
    """A heading of any length makes a tag that the daemon takes."""
    (one,) = statements(f"## {'配' * 300}\n\n- x")
    assert 0 < len(one.tags[0].encode()) <= MAX_TAG_BYTES


@given(st.text(st.sampled_from("-*# \n>`|:[]x1.ab<!配\t@\\"), max_size=200))
def test_any_text_is_read(text: str) -> None:
    """Whatever stands in a file, every statement has words, and reading it twice gives the same."""
    found = statements(text)
    assert all(one.content.strip() and one.line >= 1 for one in found)
    assert found == statements(text)
