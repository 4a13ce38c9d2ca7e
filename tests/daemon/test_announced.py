"""Which agent announced a tool call, for whoever serves it."""

from __future__ import annotations

import pytest

from amnesiad import wire
from amnesiad.service.hooks import announced
from amnesiad.service.hooks.announced import HOOKED_MS, KEEP_MS, Announced

ONE = wire.CallerSpec(session="s1", agent="a1", agent_kind="subagent")
TWO = wire.CallerSpec(session="s2")


class Times:
    """A clock that a test sets."""

    now = 1_000_000

    def __call__(self) -> int:
        return self.now


def test_a_call_is_claimed_by_its_id() -> None:
    """Also a second time, since a call may be sent twice; an id that nobody announced is nobody's."""
    calls = Announced(times := Times())
    calls.announce("t1", "w", ONE, times.now)
    calls.announce("t2", "v", TWO, times.now)
    assert [calls.claim("t1"), calls.claim("t1"), calls.claim("t2")] == [("w", ONE), ("w", ONE), ("v", TWO)]
    assert calls.claim("t3") is None


def test_the_latest_word_counts() -> None:
    """An id that is announced again is whose it was announced for last."""
    calls = Announced(times := Times())
    calls.announce("t1", "w", ONE, times.now)
    calls.announce("t1", "v", TWO, times.now)
    assert calls.claim("t1") == ("v", TWO)


def test_an_announcement_does_not_last() -> None:
    """A call that never came leaves nothing behind."""
    calls = Announced(times := Times())
    calls.announce("t1", "w", ONE, times.now)
    times.now += KEEP_MS
    assert calls.claim("t1") == ("w", ONE)
    times.now += 1
    assert calls.claim("t1") is None
    calls.announce("t2", "w", ONE, times.now)
    assert list(calls._calls) == ["t2"]


def test_announcements_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood of calls pushes out the oldest ones only."""
    monkeypatch.setattr(announced, "MAX_CALLS", 3)
    calls = Announced(times := Times())
    for number in range(5):
        calls.announce(f"t{number}", "w", ONE, times.now)
    assert [number for number in range(5) if calls.claim(f"t{number}")] == [2, 3, 4]


def test_a_workspace_is_hooked_for_a_day(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks that were taken out are forgotten in the end, and so are the workspaces that were heard of first."""
    monkeypatch.setattr(announced, "MAX_HOOKED", 2)
    calls = Announced(times := Times())
    assert not calls.hooked("w", "claude-code")
    calls.heard("w", "claude-code", times.now)
    times.now += HOOKED_MS
    assert calls.hooked("w", "claude-code")
    times.now += 1
    assert not calls.hooked("w", "claude-code")
    for name in "abc":
        calls.heard(name, "claude-code", times.now)
    assert [calls.hooked(name, "claude-code") for name in "abc"] == [False, True, True]


def test_one_agents_hooks_tell_nothing_of_another() -> None:
    """A workspace where only Codex has hooks is not one where Claude Code's would announce a call."""
    calls = Announced(times := Times())
    calls.heard("w", "codex", times.now)
    assert calls.hooked("w", "codex")
    assert not calls.hooked("w", "claude-code")
