"""Triggers found through the index are those that asking every note would find."""

from __future__ import annotations

import time

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
commands = texts | texts.map(lambda text: f"*{text}*") | texts.map(lambda text: f"{text}*") | st.just("[r]m?")
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
    command=st.none() | texts,
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
