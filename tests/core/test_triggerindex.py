"""Triggers found through the index are those that asking every note would find."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.strategies import examples

from amnesiad.core.notes import Trigger, Words
from amnesiad.core.triggerindex import TriggerIndex
from amnesiad.core.triggers import Occasion, matching

names = st.sampled_from(
    ["a", "b", "src", "app.py", "x.py", "x.tar.gz", ".env", "*", "**", "*.py", "a?", "[ab]", "[.]py", "."]
)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
patterns = paths | paths.map(lambda path: path + "/") | paths.map(lambda path: "/" + path) | st.just("")
texts = st.lists(
    st.sampled_from(["git", "push", "ﬁne", "FINE", "İ", "ß", "SS", "rm -rf", " ", "deploy", "x"]), max_size=4
).map("".join)
globs = texts | texts.map(lambda text: f"*{text}*") | texts.map(lambda text: f"{text}*")
classes = st.sampled_from(["[r]m?", "git [pq]ush", "[!r]it*", "g[]i]t", "x[gp", "[]", "[!]"])
commands = globs | st.lists(globs | classes, max_size=2).map("".join)
triggers = st.builds(
    Trigger,
    event=st.none() | st.sampled_from(["pre-edit", "pre-bash"]),
    path=st.none() | patterns,
    command=st.none() | commands,
    words=st.lists(texts, max_size=2).map(tuple),
)
occasions = st.builds(
    Occasion,
    event=st.none() | st.sampled_from(["pre-edit", "pre-bash"]),
    paths=st.lists(paths, max_size=2).map(tuple),
    command=st.none() | texts | st.sampled_from(["git push", "rm", "x[gp", "[]"]),
    prompt=st.none() | texts,
)


@given(st.lists(st.lists(triggers, max_size=3).map(tuple), max_size=12), st.lists(occasions, max_size=4))
@examples(500)
def test_the_index_finds_what_asking_every_note_finds(notes: list[tuple[Trigger, ...]], asked: list[Occasion]) -> None:
    """Whatever the triggers and the occasion; and the same again after notes changed and went."""
    index = TriggerIndex()
    for round_ in range(2):
        # In the second round every third note is gone, and every other has the triggers of the one before.
        words = {
            f"n{number}": Words(content="", triggers=notes[number - round_ * (number % 2)])
            for number in range(len(notes))
            if not (round_ and number % 3 == 0)
        }
        for number in range(len(notes)):
            index.put(f"n{number}", words.get(f"n{number}", Words(content="")).triggers)
        for occasion in asked:
            found = [id_ for id_ in index.candidates(occasion) if matching(words[id_], occasion)]
            assert found == sorted(id_ for id_, one in words.items() if matching(one, occasion))
    for number in range(len(notes)):
        index.drop(f"n{number}")
    assert len(index) == 0
    assert not index._buckets


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("[!r]it *", "git push"),
        ("git [cp]ommit*", "git commit"),
        ("g[]i]t", "g]t"),
        ("x[y", "x[y"),
        ("[]", "[]"),
        ("*[.]py", "a.py"),
    ],
)
def test_a_class_of_characters_in_a_command_is_none_that_must_occur(command: str, said: str) -> None:
    """``[cp]`` asks for a c or a p and not for *cp*, whatever else is filed; a bracket that is never closed is one."""
    index = TriggerIndex()
    for number in range(3):
        index.put(f"other{number}", (Trigger(command=f"git {number}*"), Trigger(command="?ommit*")))
    index.put("n", (Trigger(command=command),))
    occasion = Occasion(command=said)
    assert matching(Words(content="", triggers=(Trigger(command=command),)), occasion)
    assert "n" in index.candidates(occasion)


def test_the_cost_grows_with_matches() -> None:
    """Fifty thousand triggers on files, commands and words, all of the same event: two of them are looked at."""
    index = TriggerIndex()
    for number in range(50_000):
        match number % 3:
            case 0:
                trigger = Trigger(event="pre-edit", path=f"src/part{number % 50}/module_{number}.py")
            case 1:
                trigger = Trigger(event="pre-edit", path=f"lib/area_{number}/**")
            case _:
                trigger = Trigger(event="pre-edit", words=(f"ticket-{number}x",))
        index.put(f"n{number:06d}", (trigger,))
    occasion = Occasion(
        event="pre-edit", paths=("src/part9/module_9.py", "lib/area_10/deep/x.py"), prompt="fix " + "it now " * 40
    )
    assert index.candidates(occasion) == ["n000009", "n000010"]
    started = time.process_time()
    for _ in range(100):
        index.candidates(occasion)
    assert time.process_time() - started < 0.5


def test_an_occasion_is_cut_only_into_what_is_filed() -> None:
    """A request full of paths of hundreds of folders costs a few looks for each path, not one for every folder."""
    index = TriggerIndex()
    index.put("n", (Trigger(path="src/app/**"), Trigger(path="docs/*/x.py")))
    deep = "/".join(["src", "app", *"abcdefgh" * 60])
    occasion = Occasion(paths=[f"{deep}{number}" for number in range(900)])
    assert index.candidates(occasion) == ["n"]
    assert sum(1 for _ in index._offers(occasion)) < 5 * 900
