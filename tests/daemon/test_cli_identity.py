"""Whom the command line speaks for: roles by terminal and environment."""

from __future__ import annotations

import pytest

from amnesiad.cli.identity import agent_marker, decide_role
from amnesiad.errors import Forbidden


class TestRole:
    """Human is a claim that must at least look true."""

    def test_human_on_a_terminal(self) -> None:
        """Somebody who types in a terminal of their own is human."""
        assert decide_role(None, {}, terminal=True) == "human"

    def test_agent_off_a_terminal(self) -> None:
        """A pipe or a script is an agent, whatever the environment says."""
        assert decide_role(None, {}, terminal=False) == "agent"

    @pytest.mark.parametrize(
        "marker",
        ["CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CODEX_SANDBOX", "CODEX_THREAD_ID", "AMNESIA_AGENT", "GEMINI_CLI"],
    )
    def test_agent_by_its_marker(self, marker: str) -> None:
        """V07: an agent that was given a terminal is still an agent, and cannot claim otherwise."""
        assert decide_role(None, {marker: "1"}, terminal=True) == "agent"
        with pytest.raises(Forbidden, match=marker):
            decide_role("human", {marker: "1"}, terminal=True)

    def test_a_users_own_variables_are_no_markers(self) -> None:
        """A person who configured an agent in the shell's profile is not taken for one."""
        assert agent_marker({"CODEX_HOME": "/home/u/.codex", "CLAUDECODE": "", "PATH": "/bin"}) is None

    def test_human_is_refused_off_a_terminal(self) -> None:
        """V07: a script cannot make itself human with an option."""
        with pytest.raises(Forbidden, match="terminal"):
            decide_role("human", {}, terminal=False)

    def test_naming_an_agent_speaks_for_it(self) -> None:
        """A person who names an agent speaks as that agent, unless they say they do not."""
        assert decide_role(None, {}, terminal=True, named_agent=True) == "agent"
        assert decide_role("human", {}, terminal=True, named_agent=True) == "human"

    def test_an_agent_may_always_be_an_agent(self) -> None:
        """Claiming less than one could is allowed everywhere."""
        assert decide_role("agent", {}, terminal=True) == "agent"
