"""The tools agents see, called as the MCP server calls them: what they are told, who they speak for, what is
refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs
from tests.daemon.desk import WORKSPACE, call, listed, remember, state_of

from amnesiad import wire
from amnesiad.api.errors import answerable
from amnesiad.core.errors import Invalid
from amnesiad.mcp import calling
from amnesiad.mcp.calling import Desk, Said, find_tool
from amnesiad.mcp.identity import TOOL_USE
from amnesiad.mcp.table import ALIASES, WHO, Tool, load_table
from amnesiad.mcp.texts import refusal_text
from amnesiad.service import Service
from amnesiad.tokens import count_o200k

TOOLS = list(load_table().tools.values())
READING = {"recall", "preview", "status", "audit"}
DESTROYING = {"forget", "revoke", "supersede"}

MAX_DESCRIPTION_BYTES = 2048
"""Longer ones are cut by clients."""
MAX_TOOL_TOKENS = 450
MAX_TABLE_TOKENS = 2600


async def said(service: Service, tool: str, *, headers: dict[str, str] | None = None, **arguments: Any) -> Said:
    """What a tool answers; keyword ``_meta`` is what the client says beside the arguments."""
    meta = arguments.pop("_meta", {})
    desk = Desk(service, answerable=answerable)
    given = {"x-amnesia-workspace": WORKSPACE} if headers is None else headers
    return await desk.call(find_tool(f"amnesia_{tool}"), arguments, headers=given, meta=meta)


async def done(service: Service, tool: str, **arguments: Any) -> str:
    """The text of an answer that is no refusal."""
    answer = await said(service, tool, **arguments)
    assert not answer.refused, answer.text
    return answer.text


class TestTable:
    """What agents are told."""

    def test_there_are_eleven(self) -> None:
        """The seven tools of every note and the four for records, each a verb of the API."""
        verbs = {tool.verb for tool in TOOLS}
        expected = "remember forget status audit recall restore preview revoke supersede reinstate promote"
        assert verbs == set(expected.split())
        assert verbs <= set(wire.VERBS)

    @pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.verb)
    def test_arguments_are_the_requests_own(self, tool: Tool) -> None:
        """Each argument is a field of the verb's request, and what must be given there must be given here."""
        fields = {field.encode_name: field for field in msgspec.structs.fields(wire.VERBS[tool.verb].request)}
        own = {ALIASES.get(name, name) for name in tool.arguments if name not in WHO}
        assert own <= set(fields)
        needed = {name for name, field in fields.items() if field.required} - {"workspace"}
        assert set(tool.told["inputSchema"].get("required", ())) == needed
        assert tool.told["inputSchema"]["additionalProperties"] is False

    @pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.verb)
    def test_annotations_say_what_it_does(self, tool: Tool) -> None:
        """Tools that only read say so, and so do those that end or erase something."""
        told = tool.told["annotations"]
        assert told["readOnlyHint"] == (tool.verb in READING)
        assert told.get("destructiveHint", False) == (tool.verb in DESTROYING)
        assert isinstance(told["idempotentHint"], bool)

    def test_it_costs_little(self) -> None:
        """An agent carries the table at every step: all of it has fewer tokens than a page of text."""
        costs = [count_o200k(json.dumps(tool.told, separators=(",", ":"))) for tool in TOOLS]
        assert max(costs) <= MAX_TOOL_TOKENS
        assert sum(costs) <= MAX_TABLE_TOKENS
        assert all(len(tool.told["description"].encode()) < MAX_DESCRIPTION_BYTES for tool in TOOLS)

    def test_an_unknown_tool_is_named_with_the_nearest(self) -> None:
        """A misspelt name is answered with the one that was meant."""
        with pytest.raises(Invalid, match="amnesia_rember") as refused:
            find_tool("amnesia_rember")
        assert "amnesia_remember" in refused.value.hint


class TestCalls:
    """What each tool answers, in few words."""

    async def test_a_note_from_beginning_to_end(self, service: Service) -> None:
        """A note is remembered, recalled in one line, superseded, revoked, reinstated and forgotten."""
        told = await done(service, "remember", content="The build needs make 4.", kind="finding", ttl="7d")
        old = told.split()[1].rstrip(";")
        assert told.startswith(f"remembered {old}; ends 20")
        assert await done(service, "recall", query="make") == f"[{old}] finding 7d agent: The build needs make 4."
        told = await done(service, "supersede", id=old, content="The build needs make 5.", ttl="7d")
        new = told.split()[-1]
        assert told == f"{old} is superseded by {new}"
        assert (await done(service, "revoke", id=new, reason="it builds with 3")).startswith(f"{new} is revoked")
        assert (await done(service, "revoke", id=new, reason="it does")).startswith("nothing to change")
        assert "[REVOKED]" in await done(service, "recall", query="make")
        assert (await done(service, "reinstate", id=new)).startswith(f"{new} is active (")
        assert "1 note forgotten: 1 finding" in await done(service, "forget", id=new)
        assert new in await done(service, "audit")
        assert f"{WORKSPACE}: 0 active" in await done(service, "status")

    async def test_the_same_text_again_is_known(self, service: Service) -> None:
        """Remembering what lives already says so, and what resembles a revoked note is answered with its warning."""
        first = await remember(service, "The port is 8080.", kind="fact")
        assert (await done(service, "remember", content="The port is 8080.")).startswith(f"known already as {first};")
        await call(service, "revoke", id=first, reason="it is 9090")
        assert "warning, resembles a revoked note" in await done(service, "remember", content="The port is 8080!")

    async def test_preview_and_restore(self, service: Service) -> None:
        """The block that would be injected is shown as it is, and a kept copy comes back as a new note."""
        await call(service, "policy", set={"restorable": True}, caller={"role": "human"})
        note = await remember(service, "Deploys happen on Fridays.", ttl_ms="3d")
        assert "AMNESIA MEMORY" in await done(service, "preview", query="deploys")
        await done(service, "forget", id=note)
        assert (await done(service, "restore", id=note)).startswith(f"restored {note} as ")

    async def test_everything_goes_only_with_confirm(self, service: Service) -> None:
        """``all`` is refused with what to do, shows what would go, and erases once it is confirmed."""
        for number in range(3):
            await remember(service, f"Note number {number} about nothing in particular.")
        refused = await said(service, "forget", all=True)
        assert refused.refused
        assert "unconfirmed" not in refused.text
        assert "hint: look with dry_run, then send confirm: true" in refused.text
        shown = await done(service, "forget", all=True, dry_run=True)
        assert shown.startswith("3 would be forgotten")
        assert len(await listed(service)) == 3
        assert "3 notes forgotten" in await done(service, "forget", all=True, confirm=True)

    async def test_a_session_note_is_promoted(self, service: Service) -> None:
        """What a subagent found is lifted to the workspace, and everybody finds it then."""
        told = await done(service, "remember", content="Port 7 is taken.", session="s", agent="a", ttl="1d")
        note = told.split()[1].rstrip(";")
        assert "workspace" in await done(service, "promote", id=note, to="workspace", session="s", agent="a")
        assert note in await done(service, "recall", query="port")


class TestRefusals:
    """Whatever is wrong with a call is said in its result, with what to change."""

    @pytest.mark.parametrize(
        ("tool", "arguments", "words"),
        [
            ("remember", {}, "content is missing"),
            ("remember", {"content": 5}, "content"),
            ("remember", {"content": ["a"]}, "content"),
            ("remember", {"content": "x" * 3000}, "too_large"),
            ("remember", {"content": "x" * 2_000_000}, "too_large"),
            ("remember", {"content": "A note.", "ttl": "soon"}, "a duration such as 15s"),
            ("remember", {"content": ""}, "content is empty\nhint: give it at least one character"),
            ("remember", {"content": "x" * 3000}, "the policy's max_item_bytes is the limit"),
            ("remember", {"content": "A note.", "kind": "rumour"}, "kind must be one of decision"),
            ("remember", {"content": "A note.", "tag": ["a"]}, "did you mean tags?"),
            ("remember", {"content": "A note.", "role": "human"}, "'role' is not an argument"),
            ("remember", {"content": "A note.", "caller": {"role": "human"}}, "'caller' is not an argument"),
            ("remember", {"content": "A note.", "on_behalf": "everybody"}, "on_behalf"),
            ("remember", {"content": "A note.", "workspace": 7}, "workspace"),
            ("remember", {"content": "A note.", "agent": "a"}, "refused"),
            ("remember", {"content": "lone \ud800 surrogate"}, "invalid"),
            ("recall", {"limit": "ten"}, "limit"),
            ("recall", {"limit": 10**400}, "limit"),
            ("recall", {"query": "\x00"}, "NUL"),
            ("revoke", {"id": "0000000000", "reason": "r"}, "not_found"),
            ("promote", {"id": "0000000000", "to": "human"}, "not_found"),
            ("forget", {}, "invalid"),
        ],
    )
    async def test_a_wrong_call(self, service: Service, tool: str, arguments: dict[str, Any], words: str) -> None:
        """Wrong types, missing, unknown and huge arguments are refused by name and change nothing."""
        await remember(service, "A note that stays as it is.")
        answer = await said(service, tool, **arguments)
        assert answer.refused
        assert words in answer.text
        assert len(answer.text) < 1000
        assert "Traceback" not in answer.text
        assert len(await listed(service)) == 1

    async def test_refusals_speak_of_tools(self, service: Service) -> None:
        """Arguments under their own names, tools in place of commands, and no command that an agent has no tool for."""
        wrong = (await said(service, "remember", content="A note.", ttl="soon")).text
        assert "ttl" in wrong
        assert "ttl_ms" not in wrong
        wrong = (await said(service, "remember", content="A note.", session="a b")).text
        assert "session" in wrong
        assert "caller." not in wrong
        missed = (await said(service, "revoke", id="0000000000", reason="r")).text
        assert missed.splitlines()[-1] == "hint: amnesia_recall shows what there is"
        lost = refusal_text(Invalid("it cannot be read", hint="amnesia verify tells more"), find_tool("amnesia_recall"))
        assert lost == "invalid: it cannot be read"

    async def test_a_deep_argument(self, service: Service) -> None:
        """Nesting beyond all measure is refused like any other wrong value."""
        deep: list[Any] = []
        for _ in range(100_000):
            deep = [deep]
        assert (await said(service, "remember", content=deep)).text.startswith("invalid: ")

    async def test_nulls_count_as_left_out(self, service: Service) -> None:
        """A model that fills in every argument with null has given none of them."""
        await done(service, "remember", content="Plain.", kind=None, tags=None, ttl=None, workspace=None, agent=None)

    async def test_a_bug_is_told_by_its_id(self, service: Service) -> None:
        """An exception of ours becomes an id that stands in the log, without a word of the arguments in either."""

        async def broken(request: Any) -> Any:
            raise ValueError(request.content)

        service.remember = broken  # type: ignore[method-assign]
        with capture_logs() as logs:
            answer = await said(service, "remember", content="the launch code is 0000")
        assert answer.text.startswith("internal: ")
        assert logs[0]["id"] in answer.text
        assert "launch code" not in answer.text + str(logs)

    async def test_a_call_that_takes_too_long(self, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
        """A call ends within its deadline, with what to do about a write that may have landed."""

        async def slow(request: Any) -> Any:
            await asyncio.Event().wait()
            return request

        service.remember = slow  # type: ignore[method-assign]
        monkeypatch.setattr(calling, "DEADLINE_S", 0.01)
        answer = await said(service, "remember", content="Anything.")
        assert answer.refused
        assert answer.text.startswith("deadline: ")
        assert "before you repeat it" in answer.text


class TestCallers:
    """Whose call it is."""

    async def announce(self, service: Service, call_id: str, **caller: Any) -> None:
        """What a hook would tell just before the call."""
        now = service.clock.now_ms()
        service.announced.heard(WORKSPACE, "claude-code", now)
        service.announced.announce(call_id, WORKSPACE, wire.CallerSpec(**caller), now)

    async def test_an_announced_call_is_its_callers(self, service: Service) -> None:
        """A call that a hook announced writes in its workspace and for its agent, whatever the shim was started
        with."""
        await self.announce(service, "toolu_1", session="s1", agent="a1", agent_kind="subagent")
        await done(
            service, "remember", content="Mine.", headers={"x-amnesia-cwd": "/nowhere"}, _meta={TOOL_USE: "toolu_1"}
        )
        assert [note.owner for note in (await call(service, "list", caller={"role": "human"})).notes] == ["s1/a1"]

    async def test_an_unannounced_call_is_refused(self, service: Service) -> None:
        """Where hooks are alive, a call that none of them announced is an unidentified child's: refused, not
        widened."""
        await self.announce(service, "toolu_1", session="s1")
        claims: list[dict[str, Any]] = [
            {},
            {"session": "s1"},
            {"session": "s1", "agent": "a9"},
            {"workspace": "elsewhere"},
        ]
        for arguments in claims:
            refused = await said(service, "recall", _meta={TOOL_USE: "toolu_2"}, **arguments)
            assert refused.refused
            assert refused.text.startswith("refused: no hook announced this call")

    async def test_without_hooks_a_named_call_is_the_shims(self, service: Service) -> None:
        """Where no hook was ever heard, the call's id says nothing, and the shim's environment counts."""
        headers = {"x-amnesia-workspace": WORKSPACE, "x-amnesia-session": "s7"}
        await done(service, "remember", content="Ours.", scope="session", headers=headers, _meta={TOOL_USE: "toolu_3"})
        assert [note.owner for note in (await call(service, "list", caller={"role": "human"})).notes] == ["s7"]

    async def test_other_agents_hooks_refuse_nothing(self, service: Service) -> None:
        """Claude Code without hooks is served where Codex's are alive: those would never announce its calls."""
        service.announced.heard(WORKSPACE, "codex", service.clock.now_ms())
        assert not (await said(service, "status", _meta={TOOL_USE: "toolu_9"})).refused

    async def test_arguments_name_a_subagent(self, service: Service) -> None:
        """A subagent that says who it is writes for itself, and sees nothing of its parent's."""
        await remember(service, "The parent's finding.", kind="finding")
        assert await done(service, "recall", query="finding", session="s", agent="a") == "nothing found"

    async def test_the_kind_of_the_shim_widens_no_subagent(self, service: Service) -> None:
        """A shim that was told that its agent is the main one speaks for that one alone, not for its subagents."""
        await remember(service, "The parent's finding.", kind="finding")
        shim = {"x-amnesia-workspace": WORKSPACE, "x-amnesia-session": "s", "x-amnesia-agent-kind": "main"}
        assert await done(service, "recall", query="finding", agent="a", headers=shim) == "nothing found"
        own = {**shim, "x-amnesia-agent": "lead"}
        assert "The parent's finding." in await done(service, "recall", query="finding", agent="lead", headers=own)

    async def test_nobody_becomes_human(self, service: Service) -> None:
        """Neither headers nor an announcement make a caller human: a human's note stays as it is."""
        note = await remember(service, "Typed by a person.", caller={"role": "human"})
        await self.announce(service, "toolu_4", role="human", session="s1")
        headers = {"x-amnesia-workspace": WORKSPACE, "x-amnesia-role": "human"}
        extras: list[dict[str, Any]] = [{"headers": headers}, {"_meta": {TOOL_USE: "toolu_4"}}]
        for extra in extras:
            refused = await said(service, "revoke", id=note, reason="no", on_behalf="user", **extra)
            assert refused.text.startswith("forbidden: ")
        assert await state_of(service, note) == "active"

    async def test_the_directory_names_the_workspace(self, service: Service, tmp_path: Any) -> None:
        """Without a name the workspace is that of the directory the shim stands in, percent-encoded in its header."""
        folder = tmp_path / "a b"
        folder.mkdir()
        told = await done(service, "status", headers={"x-amnesia-cwd": str(folder).replace(" ", "%20")})
        assert told.startswith(f"{folder}: 0 active")

    @pytest.mark.parametrize("directory", ["%00", "relative", "/%ff", "/nowhere/at/all", "/" + "x" * 9000, "."])
    async def test_a_directory_that_is_none(self, service: Service, directory: str) -> None:
        """Whatever stands in that header, the call is answered or refused; no bug comes of it."""
        headers = {"x-amnesia-cwd": directory}
        assert not (await said(service, "status", headers=headers)).text.startswith("internal")
        assert await done(service, "status", headers=headers, workspace=WORKSPACE, _meta={TOOL_USE: "toolu_9"})

    async def test_no_workspace_at_all(self, service: Service) -> None:
        """A client that names none, over HTTP, is told what to pass."""
        refused = await said(service, "status", headers={})
        assert refused.text == "invalid: no workspace is named\nhint: pass workspace: the path of the repository"
