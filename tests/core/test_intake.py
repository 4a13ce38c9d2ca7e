"""What may come in: every limit named with its field, at its edge, and nothing shortened or repaired."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.strategies import examples, note_ids, texts, tokens

from amnesiad.core import intake
from amnesiad.core.errors import CallerError, Invalid, TooLarge
from amnesiad.core.notes import Trigger
from amnesiad.core.render import one_line
from amnesiad.core.times import MAX_DURATION_MS


def refused(act: Callable[[], Any], field: str, error: type[CallerError] = Invalid) -> CallerError:
    """The refusal that ``act`` raises; it names the field."""
    with pytest.raises(error) as refusal:
        act()
    assert type(refusal.value) is error
    assert refusal.value.field == field
    assert field in refusal.value.message
    return refusal.value


@examples(60)
@given(texts)
def test_text_that_fits_comes_back_exactly(text: str) -> None:
    """C24: any language, any punctuation, line breaks and emoji pass unchanged, up to the limit in UTF-8 bytes."""
    size = len(text.encode())
    assert intake.check_text(text, "content", size) == text
    refused(lambda: intake.check_text(text, "content", size - 1), "content", TooLarge)


@pytest.mark.parametrize("text", ["", "a\x00b", "\ud800", "x\udfff"])
def test_what_is_not_text_is_refused(text: str) -> None:
    """V25: empty text, NUL bytes and lone surrogates are refused."""
    error = refused(lambda: intake.check_text(text, "key", 128), "key")
    assert error.hint


def test_content_is_bounded_and_says_something() -> None:
    """V25: 50 MB, emptiness and blanks are refused; the limit is named."""
    assert intake.check_content(" x ", 3) == " x "
    assert "2048" in refused(lambda: intake.check_content("x" * 50_000_000, 2048), "content", TooLarge).message
    refused(lambda: intake.check_content("", 2048), "content")
    refused(lambda: intake.check_content(" \n\t\u3000", 2048), "content")


@pytest.mark.parametrize(
    "blank", ["\u200b", "\u200b \u2060\n", "\ufeff", "\u3164", "\U000e0041", "\ufe0f", "\u2800", "\u00ad"]
)
def test_what_shows_nothing_says_nothing(blank: str) -> None:
    """V25: content, reasons and names made of characters that no reader sees are refused, as blanks are."""
    assert one_line(blank).strip(" \ufe0f⏎") == ""
    refused(lambda: intake.check_content(blank, 2048), "content")
    refused(lambda: intake.check_reason(blank), "reason")
    refused(lambda: intake.check_name(blank, "workspace", 4096), "workspace")
    for seen in (f"a{blank}", "👨\u200d👩\u200d👧", "❤\ufe0f", "נ", "\x01"):
        assert intake.check_content(seen, 2048) == seen


@examples(200)
@given(st.text(min_size=1, max_size=8).filter(lambda text: "\x00" not in text))
def test_accepted_content_is_seen(text: str) -> None:
    """V25: whatever is accepted renders as something."""
    try:
        kept = intake.check_content(text, 2048)
    except Invalid:
        return
    assert one_line(kept).strip()


@pytest.mark.parametrize("name", ["w\n", "\nw", "a\tb", "\x1b[2J", "a\u2028b", "a\x85", "\u200b", " "])
def test_a_name_reads_as_it_is(name: str) -> None:
    """V25: a workspace's name holds no line break or control character, and is not blank."""
    refused(lambda: intake.check_name(name, "workspace", 4096), "workspace")
    for plain in ("/home/ü b/src", "项目", "w", " w", "a👨\u200d👩"):
        assert intake.check_name(plain, "workspace", 4096) == plain


def test_a_refusal_never_repeats_the_words() -> None:
    """Errors may be logged, so they hold limits and field names, never a note's text."""
    secret = "hunter2" * 1000
    for act in (
        lambda: intake.check_content(secret, 10),
        lambda: intake.check_tags([secret]),
        lambda: intake.check_key(secret),
        lambda: intake.check_reason(secret),
        lambda: intake.check_path(secret, "path"),
        lambda: intake.check_path("/" + secret[:100], "path"),
        lambda: intake.check_id(secret, "session"),
        lambda: intake.check_source_ref(secret),
        lambda: intake.check_note_address(secret),
        lambda: intake.check_triggers([Trigger(command=secret)]),
    ):
        with pytest.raises(CallerError) as refusal:
            act()
        assert "hunter2" not in refusal.value.message + refusal.value.hint


def test_tags_keep_their_order_and_their_exact_text() -> None:
    """C24, V25: odd tags round trip, each once; 20 000 tags and a long one are refused with the limit."""
    odd = ["a,b", "a|b", "*", "{x}", ":", "\n", "🦊", "配置"]
    assert intake.check_tags([*odd, "*"]) == tuple(odd)
    assert len(intake.check_tags([str(number) for number in range(32)])) == 32
    refused(lambda: intake.check_tags([str(number) for number in range(20_000)]), "tags", TooLarge)
    refused(lambda: intake.check_tags(["a", "b" * 129]), "tags[1]", TooLarge)
    refused(lambda: intake.check_tags([""]), "tags[0]")


def test_a_key_is_a_short_text() -> None:
    """A key has 1 to 128 bytes."""
    assert intake.check_key("ключ " * 14) == "ключ " * 14
    refused(lambda: intake.check_key("k" * 129), "key", TooLarge)


@pytest.mark.parametrize(
    ("path", "canonical"),
    [("a/b.py", "a/b.py"), ("./a//b/./c/", "a/b/c"), ("a b/ü", "a b/ü"), ("..a/b..", "..a/b.."), ("c:x", "c:x")],
)
def test_paths_become_canonical(path: str, canonical: str) -> None:
    """One file has one spelling, and checking it again changes nothing."""
    assert intake.check_path(path, "path") == canonical
    assert intake.check_path(canonical, "path") == canonical


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "~/x", "C:\\x", "c:/x", "..", "a/../b", "../a", "a/..", ".", "./", "a\x00", ""]
)
def test_paths_outside_the_workspace_are_refused(path: str) -> None:
    """V12: absolute paths, homes, drives and every '..' are refused, as is a path that names nothing."""
    refused(lambda: intake.check_path(path, "anchors[0]"), "anchors[0]")


def test_anchors_are_paths_each_once() -> None:
    """Two spellings of one file are one anchor; the number and the length are bounded."""
    assert intake.check_anchors(["b", "./a", "a"]) == ("b", "a")
    assert len(intake.check_anchors([str(number) for number in range(64)])) == 64
    refused(lambda: intake.check_anchors(["a"] * 65), "anchors", TooLarge)
    refused(lambda: intake.check_anchors(["a", "b" * 1025]), "anchors[1]", TooLarge)


def test_triggers_each_ask_for_something() -> None:
    """A trigger needs an event, path, command or words; a cooldown alone is nothing to match."""
    good = [
        Trigger(event="turn-end"),
        Trigger(path="src/**/*.py", cooldown_ms=0),
        Trigger(command="git push *", words=("force",), cooldown_ms=MAX_DURATION_MS),
    ]
    assert intake.check_triggers(good) == tuple(good)
    refused(lambda: intake.check_triggers([Trigger(event="x"), Trigger(cooldown_ms=5)]), "triggers[1]")
    refused(lambda: intake.check_triggers([Trigger(event="x")] * 17), "triggers", TooLarge)


@pytest.mark.parametrize(
    ("trigger", "field", "error"),
    [
        (Trigger(event="two words"), "triggers[0].event", Invalid),
        (Trigger(path="p" * 1025), "triggers[0].path", TooLarge),
        (Trigger(command="c" * 1025), "triggers[0].command", TooLarge),
        (Trigger(words=("w",) * 17), "triggers[0].words", TooLarge),
        (Trigger(words=("",)), "triggers[0].words", Invalid),
        (Trigger(words=("w", " \u200b\n")), "triggers[0].words", Invalid),
        (Trigger(words=("w",), cooldown_ms=-1), "triggers[0].cooldown_ms", Invalid),
        (Trigger(words=("w",), cooldown_ms=10**18), "triggers[0].cooldown_ms", Invalid),
    ],
)
def test_each_part_of_a_trigger_is_named_when_it_is_at_fault(
    trigger: Trigger, field: str, error: type[CallerError]
) -> None:
    """V26: the refusal names the part, not just the trigger."""
    refused(lambda: intake.check_triggers([trigger]), field, error)


def test_reasons_are_counted_in_characters() -> None:
    """500 characters of any script fit; one more, none, or blanks do not."""
    assert intake.check_reason("🦊" * 500) == "🦊" * 500
    refused(lambda: intake.check_reason("x" * 501), "reason", TooLarge)
    refused(lambda: intake.check_reason(""), "reason")
    refused(lambda: intake.check_reason("  \n"), "reason")


@examples(40)
@given(tokens, tokens)
def test_ids_and_owners_are_opaque_tokens(session: str, agent: str) -> None:
    """Tokens pass as they are, and an owner may be session/agent."""
    assert intake.check_id(session, "session") == session
    assert intake.check_owner(session) == session
    assert intake.check_owner(f"{session}/{agent}") == f"{session}/{agent}"
    assert intake.check_source_ref(f"{session}/{agent}/{session}") == f"{session}/{agent}/{session}"


@pytest.mark.parametrize("value", ["", " ", "two words", "a\n", "-a", "a/b", "é", "a" * 129, "a\x00"])
def test_what_could_carry_prose_is_no_id(value: str) -> None:
    """Ids enter the log, which is never erased: nothing with a blank, a line break or another script gets in."""
    refused(lambda: intake.check_id(value, "session"), "session")
    if value != "a/b":
        refused(lambda: intake.check_source_ref(value), "source_ref")


@pytest.mark.parametrize("value", ["a/b/c", "/a", "a/", "a b/c"])
def test_an_owner_has_at_most_two_parts(value: str) -> None:
    """An owner is one token, or two with one slash."""
    refused(lambda: intake.check_owner(value), "owner")


@examples(40)
@given(note_ids, st.integers(4, 10))
def test_a_note_is_addressed_by_its_id_or_a_prefix(note_id: str, length: int) -> None:
    """Any prefix of four or more, in either case, is an address."""
    assert intake.check_note_address(note_id[:length].upper()) == note_id[:length]


@pytest.mark.parametrize("value", ["", "abc", "a" * 11, "abci", "abcl", "abco", "abcu", "ab d", "ab*d"])
def test_what_cannot_be_a_note_id_is_refused(value: str) -> None:
    """Too short, too long, or with a character that no id has."""
    refused(lambda: intake.check_note_address(value), "id")
