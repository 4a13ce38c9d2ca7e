"""CLAUDE.md, AGENTS.md, MEMORY.md and their like as statements: what ``import --from-markdown`` proposes to remember.

The rules, which depend on the text alone:

- A list item is a statement, and so is a paragraph outside a list. A row of a table is one, its cells named by the
  columns. Inline markup stays as it was written; line breaks inside a sentence become spaces.
- Further paragraphs of a list item, and code that follows a statement, belong to it. Code alone is a statement.
- An item inside an item is a statement of its own that begins with the text above it. Text that ends in a colon and
  is followed by a list only introduces it: it is said before each item and is no statement itself.
- The headings above a statement are its tags (``## Code style`` is ``code-style``), except the document's title: a
  level-one heading that is the only one.
- ``[ ]`` makes a statement a task; what is ticked off is left out. So are front matter, comments and other HTML,
  rules, and lines that only include another file (``@docs/style.md``). The same content twice is one statement.

Parsing is markdown-it's; nothing here reads a file or asks the daemon.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from amnesiad.core.intake import MAX_TAG_BYTES, MAX_TAGS

_FRONT_MATTER: Final = re.compile(r"\A---[ \t]*\n.*?\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_INCLUDE: Final = re.compile(r"@\S+")
_BOX: Final = re.compile(r"\[(?P<mark>[ xX])\][ \t]+")
_LISTS: Final = frozenset({"bullet_list", "ordered_list"})
_CODE: Final = frozenset({"fence", "code_block"})


class Statement(NamedTuple):
    """One thing the file says: the line it begins on (from 1), its words, its tags, and whether it is still to do."""

    line: int
    content: str
    tags: tuple[str, ...]
    todo: bool = False


def statements(text: str) -> list[Statement]:
    """Everything the file says, in its order."""
    text = text.replace("\r\n", "\n")
    # Blank lines in its place, so that line numbers are those of the file.
    text = _FRONT_MATTER.sub(lambda found: "\n" * found[0].count("\n"), text, count=1)
    root = SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(text))
    found: dict[str, Statement] = {}
    for statement in _document(root):
        found.setdefault(statement.content, statement)
    return list(found.values())


def _document(root: SyntaxTreeNode) -> Iterator[Statement]:
    titled = sum(node.type == "heading" and node.tag == "h1" for node in root.children) == 1
    headings: dict[int, str] = {}
    section: list[SyntaxTreeNode] = []
    for node in root.children:
        if node.type != "heading":
            section.append(node)
            continue
        yield from _blocks(section, _tags(headings), ())
        section = []
        level = int(node.tag[1])
        headings = {above: tag for above, tag in headings.items() if above < level}
        if not (titled and level == 1):
            headings[level] = _slug(_text(node))
    yield from _blocks(section, _tags(headings), ())


def _tags(headings: dict[int, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(tag for _, tag in sorted(headings.items()) if tag))[:MAX_TAGS]


def _slug(heading: str) -> str:
    words = "-".join(re.findall(r"\w+", heading.lower()))
    return words.encode()[:MAX_TAG_BYTES].decode(errors="ignore")


def _blocks(nodes: Sequence[SyntaxTreeNode], tags: tuple[str, ...], leads: tuple[str, ...]) -> Iterator[Statement]:
    """The statements of blocks that stand side by side outside a list."""
    index = 0
    while index < len(nodes):
        node, index = nodes[index], index + 1
        if node.type in _LISTS:
            yield from _items(node, tags, leads)
        elif node.type == "blockquote":
            yield from _blocks(node.children, tags, leads)
        elif node.type == "table":
            yield from _rows(node, tags, leads)
        elif node.type == "paragraph" or node.type in _CODE:
            parts = [] if node.type == "paragraph" and _is_include(node) else [_text(node)]
            following = nodes[index] if index < len(nodes) else None
            if parts and node.type == "paragraph" and following is not None:
                if following.type in _LISTS and parts[0].endswith(":"):
                    yield from _items(following, tags, (*leads, parts[0]))
                    index += 1
                    continue
                while index < len(nodes) and nodes[index].type in _CODE:
                    parts.append(_text(nodes[index]))
                    index += 1
            yield from _statement(node, parts, tags, leads)


def _items(node: SyntaxTreeNode, tags: tuple[str, ...], leads: tuple[str, ...]) -> Iterator[Statement]:
    for item in node.children:
        own = [child for child in item.children if child.type == "paragraph" or child.type in _CODE]
        parts = [_text(child) for child in own]
        nested = [child for child in item.children if child.type in _LISTS]
        if not (nested and len(parts) == 1 and parts[0].endswith(":")):
            yield from _statement(item, parts, tags, leads)
        inner = (*leads, _BOX.sub("", parts[0], count=1)) if parts else leads
        if parts and (box := _BOX.match(parts[0])) and box["mark"] in "xX":
            continue
        for child in item.children:
            if child.type in _LISTS:
                yield from _items(child, tags, inner)
            elif child not in own:
                yield from _blocks([child], tags, inner)


def _rows(node: SyntaxTreeNode, tags: tuple[str, ...], leads: tuple[str, ...]) -> Iterator[Statement]:
    head, *body = node.children
    names = [_text(cell) for cell in head.children[0].children]
    for row in (row for part in body for row in part.children):
        cells = [_text(cell) for cell in row.children]
        said = [f"{name}: {cell}" if name else cell for name, cell in zip(names, cells, strict=True) if cell]
        yield from _statement(row, ["; ".join(said)], tags, leads)


def _statement(
    node: SyntaxTreeNode, parts: Sequence[str], tags: tuple[str, ...], leads: tuple[str, ...]
) -> Iterator[Statement]:
    content = "\n".join(part for part in parts if part)
    box = _BOX.match(content)
    if box is not None:
        content = content[box.end() :]
    if not content.strip() or (box is not None and box["mark"] in "xX"):
        return
    above = "".join(f"{lead.rstrip(':')}{' ' if lead[-1] in '.!?。！？' else ': '}" for lead in leads if lead)
    yield Statement((node.map or (0, 0))[0] + 1, above + content, tags, todo=box is not None)


def _text(node: SyntaxTreeNode) -> str:
    """A block's words: one line of inline markup, or code between fences as it stands."""
    if node.type in _CODE:
        return f"```{node.info.strip()}\n{node.content.rstrip()}\n```"
    inline = "".join(child.content for child in node.children if child.type == "inline")
    return " ".join(inline.split())


def _is_include(node: SyntaxTreeNode) -> bool:
    return all(_INCLUDE.fullmatch(word) for word in _text(node).split())
