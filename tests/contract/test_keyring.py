"""The install key: where it lives, what is made with it, and to which store it belongs."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis

from amnesiad.errors import ConfigError
from amnesiad.store.keyring import KEY_FILE, Keyring

ONE, OTHER = Keyring(b"1" * 32), Keyring(b"2" * 32)


def test_the_key_is_made_once_and_only_for_us(tmp_path: Path) -> None:
    """Eight processes that start at once agree on one key, which others cannot read; no draft of it is left."""
    folder = tmp_path / "state"
    with ThreadPoolExecutor(8) as pool:
        prints = set(pool.map(lambda _: Keyring.open(folder).fingerprint, range(8)))
    assert len(prints) == 1
    assert [path.name for path in folder.iterdir()] == [KEY_FILE]
    assert stat.S_IMODE((folder / KEY_FILE).stat().st_mode) == 0o600
    assert Keyring.open(folder).fingerprint in prints


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    """A truncated key is named, not used."""
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(ConfigError, match="5 bytes"):
        Keyring.open(tmp_path)


@pytest.mark.parametrize("part", ["", KEY_FILE, "below/it"])
def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path, part: str) -> None:
    """Where a file stands in the place of the state directory, or a directory in the place of the key, every process is
    told so by the setting's name."""
    if part == KEY_FILE:
        (tmp_path / KEY_FILE).mkdir()
        folder = tmp_path
    else:
        (tmp_path / "taken").touch()
        folder = tmp_path / "taken" / part
    with pytest.raises(ConfigError, match="cannot be used") as refused:
        Keyring.open(folder)
    assert refused.value.field == "state_dir"


def test_hashes_tell_nothing_without_the_key() -> None:
    """The same text under another key, and the same text for another use, have nothing in common."""
    assert ONE.content_hash("x") != OTHER.content_hash("x")
    assert ONE.cell("text", "x") != ONE.cell("slot", "x").replace("slot:", "text:")
    assert len(ONE.content_hash("x")) == 64
    assert ONE.body_hash(b"x") not in (ONE.content_hash("x")[:32], OTHER.body_hash(b"x"))
    assert ONE.digest("hook", "x") not in (ONE.content_hash("x"), ONE.digest("import", "x"))


@given(st.lists(st.text(max_size=4), max_size=4), st.lists(st.text(max_size=4), max_size=4))
def test_parts_are_kept_apart(one: list[str], two: list[str]) -> None:
    """Two lists of parts name the same cell only if they are the same list, whatever the parts contain."""
    assert (ONE.cell("text", *one) == ONE.cell("text", *two)) == (one == two)


async def test_a_store_belongs_to_one_key(store: Redis) -> None:
    """The first process leaves its fingerprint; one with another key does not start, and is told whose store it is."""
    await ONE.check_store(store)
    await ONE.check_store(store)
    with pytest.raises(ConfigError, match="another install key") as refused:
        await OTHER.check_store(store)
    assert ONE.fingerprint in (refused.value.hint or "")


async def test_a_layout_we_do_not_know_is_refused(store: Redis) -> None:
    """A store written by a later version is left alone."""
    await ONE.check_store(store)
    await store.hset("amnesia:meta", "layout", "9")
    with pytest.raises(ConfigError, match="layout 9"):
        await ONE.check_store(store)
