"""Notes found by path through the indexes are those that asking every note would find."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.core.strategies import examples
from tests.daemon.desk import Recorder, call, projection, recalled, refused, remember

from amnesiad.core.notes import Anchor, Trigger, Words
from amnesiad.core.pathindex import PathIndex, words_of_mention
from amnesiad.core.recall import GRADE_NONE, path_grade
from amnesiad.search import Index
from amnesiad.service import Service

parts = st.sampled_from(
    ["src", "app", "App.py", "app.py", "my_mod.py", "v1.2", ".env", "__init__.py", "a-b", "Makefile"]
) | st.sampled_from(
    [
        "说明.md",
        "設定_v2.py",
        "é-b.c",
        "Straße",
        "हिन्दी.txt",
        "ภาษี",
        "が",
        "cafe\u0301",
        "İ",
        "ｆｕｌｌ.py",
        "한글.kt",
        "שָׁ",
    ]
)
paths = st.lists(parts, min_size=1, max_size=3).map("/".join)
globs = paths | st.sampled_from(["*.py", "src/**", "**/app/*", "src/", "?pp.py", "**"])
around = st.sampled_from(
    ["", " ", "(", "/", ".", "-", "_", "x", "修改", "é", "ど", ",\n", "`", "：", "İ", "#", "ß"]
) | st.sampled_from(
    ["™", "㎏", "①", "½", "ไทย", "\u200b", "\u200bx", "\ufe0f", "\u0301", "\u0332", "\u064b", "\u0901", "\u3099"]
)
"""Also what Unicode makes letters of, what shows nothing, and marks: the words of a text may be others than they
seem."""
contents = st.lists(st.tuples(around, paths, around).map("".join), max_size=3).map(" ".join)
words = st.builds(
    Words,
    content=contents,
    anchors=st.lists(paths.map(lambda path: Anchor(path=path)), max_size=2).map(tuple),
    triggers=st.lists(st.none() | globs, max_size=2).map(lambda some: tuple(Trigger(path=one) for one in some)),
)


@given(st.lists(words, max_size=8), st.lists(paths, min_size=1, max_size=2))
@example([Words(content="İ\u3099")] * 3, ["İ"])
@examples(400)
def test_no_note_about_a_path_is_missed(notes: list[Words], asked: list[str]) -> None:
    """Anchored at or below it, triggered by it, or mentioning it, whatever stands around the mention; also after some
    notes went."""
    index, live = PathIndex(), Index()
    for number, one in enumerate(notes):
        index.put(f"n{number}", one)
        live.put(f"n{number}", one)
    for gone in (0, 2):
        found = index.candidates(asked)
        for path in asked:
            wanted = words_of_mention(path)
            assert wanted
            said = live.contains_all_words(wanted)
            assert index.anchored([path]) <= said, "an anchor's path stands beside the content"
            found |= said
        for number, one in enumerate(notes):
            if number >= gone and path_grade(one, asked) > GRADE_NONE:
                assert f"n{number}" in found
        below = [f"{path}/" for path in asked]
        assert index.anchored(asked) == {
            f"n{number}"
            for number, one in enumerate(notes)
            if number >= gone and any(f"{anchor.path}/".startswith(path) for anchor in one.anchors for path in below)
        }
        for number in range(2):
            index.drop(f"n{number}")
            live.drop(f"n{number}")
    for number in range(len(notes)):
        index.drop(f"n{number}")
    assert len(index) == 0
    assert not index._anchored


async def test_recall_by_path_asks_only_notes_that_may_concern_it(service: Service) -> None:
    """An anchor, a trigger and a mention are found; the rest of the workspace is not even looked at."""
    for number in range(20):
        await remember(service, f"nothing about files, {number}", kind="finding")
    await remember(service, "mind the lock", kind="gotcha", triggers=[{"event": "pre-edit", "path": "src/*.py"}])
    await remember(service, "see src/app.py for the port", kind="finding")
    await remember(service, "the port is 8080", kind="finding", anchors=["src/app.py"])
    found = ["the port is 8080", "mind the lock", "see src/app.py for the port"]
    assert await recalled(service, paths=["src/app.py"]) == found
    workspace = await projection(service)
    assert len(list(workspace.concerning(["src/app.py"]))) == 3
    assert await recalled(service, paths=["README.md"]) == []
    for note in (await call(service, "list", limit=1000)).notes:
        if note.content in found or note.anchors or note.triggers:
            await call(service, "revoke", id=note.id, reason="r")
    assert await recalled(service, paths=["src/app.py"]) == ["see src/app.py for the port"]
    await remember(service, "先读docs/说明.md再改", kind="finding")
    assert await recalled(service, paths=["docs/说明.md"]) == ["先读docs/说明.md再改"]
    assert len(list(workspace.concerning(["docs/说明.md"]))) == 1
    assert list(workspace.concerning(["..."])) == list(workspace.notes), "a name without a word tells nothing"


async def test_a_check_of_some_paths_is_a_check_of_the_notes_anchored_there(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker is told ids of live notes at or below the paths, never a path; nothing where no note is anchored
    there, and no ids where it may as well look at all."""
    recorder = service.jobs
    assert isinstance(recorder, Recorder)
    port = await remember(service, "the port is 8080", anchors=["src/app.py"])
    lock = await remember(service, "the lock is a file", anchors=["src/lock.py", "doc/lock.md"])
    await remember(service, "see src/app.py", kind="gotcha", triggers=[{"event": "pre-edit", "path": "src/*.py"}])
    ended = await remember(service, "the host is one", kind="finding", anchors=["src/app.py"])
    await call(service, "revoke", id=ended, reason="r")
    ws = (await projection(service)).ws
    for paths, notes in (
        (["./src//app.py"], [port]),
        (["src"], [port, lock]),
        (["doc", "src/lock.py"], [lock]),
        ([], []),
    ):
        await call(service, "check", paths=paths)
        assert recorder.ran.pop() == ("check_anchors", ws, *sorted(notes))
    for nowhere in ("README.md", "src/app", "rc"):
        answer = await call(service, "check", paths=[nowhere])
        assert (answer.figures, recorder.ran) == ({"stale": 0}, [])
    assert (await refused(call(service, "check", paths=["src", "../etc"]))).field == "paths[1]"
    monkeypatch.setattr("amnesiad.service.maintaining.MAX_CHECKED", 1)
    await call(service, "check", paths=["src"])
    assert recorder.ran == [("check_anchors", ws)]


async def test_a_path_s_notes_come_in_bands_that_are_told(service: Service) -> None:
    """Anchored, covered and mentioned, in this order, each with its band; without query and path there are no bands."""
    for content, fields in (
        ("see src/app.py first", {}),
        ("whatever is below", {"triggers": [{"path": "src/*.py"}]}),
        ("about that very file", {"anchors": ["src/app.py"]}),
    ):
        await remember(service, content, kind="finding", **fields)
    found = (await call(service, "recall", paths=["src/app.py"])).notes
    assert [(note.content, note.band, note.relevance) for note in found] == [
        ("about that very file", 0, None), ("whatever is below", 1, None), ("see src/app.py first", 2, None),
    ]  # fmt: skip
    assert {note.band for note in (await call(service, "recall")).notes} == {None}
