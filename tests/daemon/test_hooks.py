"""What a context is told by its agent's hooks, on a real store."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tests.agents.payloads import CASES, CWD, EVERY_HOOK, SESSION, payload
from tests.daemon.desk import HUMAN, WORKSPACE, ManualClock, call, remember
from tests.daemon.hooked import MAIN, hook, session_of, stream, told
from tests.support import dump

from amnesiad import wire
from amnesiad.agents import MAX_CONTEXT_UNITS
from amnesiad.service import Service
from amnesiad.service.hooks.hooking import MAX_WATCHED


class TestStart:
    """A context that begins is told what may matter in it."""

    async def test_it_is_told_of_rules_tasks_and_what_is_strong(self, service: Service) -> None:
        """Pinned notes, directives and open tasks come first, then the strongest."""
        await remember(service, "the harbor is shallow", kind="finding")
        await remember(service, "mend the crane", kind="task")
        await remember(service, "never push on friday", kind="directive")
        await remember(service, "the mole is long", kind="finding", pinned=True)
        text = await told(service, "SessionStart")
        lines = [line.partition(": ")[2] for line in text.splitlines()[1:-1]]
        assert lines == ["the mole is long", "never push on friday", "mend the crane", "the harbor is shallow"]
        (row,) = (await call(service, "ledger", caller=MAIN)).rows
        assert (row.kind, row.session, len(row.ids)) == ("inject", SESSION, 4)

    async def test_a_done_task_is_not_open(self, service: Service) -> None:
        """What is done is not told."""
        done = await remember(service, "mend the crane", kind="task")
        await call(service, "done", id=done)
        assert await told(service, "SessionStart") == ""

    async def test_a_switched_off_injection_says_nothing(self, service: Service) -> None:
        """The operator's word holds for hooks too; the events still go on."""
        await remember(service, "never push on friday", kind="directive")
        await call(service, "policy", set={"injection_enabled": False}, caller=HUMAN)
        assert await hook(service, "claude-code", "SessionStart") == {}
        assert [event["event"] for event in await stream(service)] == ["session-start"]

    async def test_a_resumed_context_is_not_told_again(self, service: Service) -> None:
        """What was injected is replayed with the transcript: only what is new is told."""
        await remember(service, "never push on friday", kind="directive")
        assert "friday" in await told(service, "SessionStart")
        assert await told(service, "SessionStart", source="resume") == ""
        await remember(service, "the mole is long", kind="finding")
        text = await told(service, "SessionStart", source="resume")
        assert "mole" in text
        assert "friday" not in text


class TestPrompt:
    """A prompt brings up what it is about, once."""

    async def test_only_what_matches_and_only_once(self, service: Service) -> None:
        """Neither the whole block again at each prompt, nor a note that the context has."""
        await remember(service, "never push on friday", kind="directive")
        await told(service, "SessionStart")
        await remember(service, "the deploy needs a warm cache", kind="gotcha")
        await remember(service, "the harbor is shallow", kind="finding")
        text = await told(service, "UserPromptSubmit", prompt="mend our deploy")
        assert "warm cache" in text
        assert "harbor" not in text
        assert "friday" not in text
        assert await told(service, "UserPromptSubmit", prompt="and our deploy again") == ""
        assert "harbor" in await told(service, "UserPromptSubmit", prompt="how deep is the harbor?")

    async def test_a_context_that_was_told_nothing_is_told_all_at_its_first_prompt(self, service: Service) -> None:
        """The daemon was away when the session began, or the agent takes nothing in then."""
        await remember(service, "never push on friday", kind="directive")
        await remember(service, "the deploy needs a warm cache", kind="gotcha")
        for agent, said in [
            ("openhands", "UserPromptSubmit"),
            ("gemini", "BeforeAgent"),
            ("cursor", "beforeSubmitPrompt"),
        ]:
            text = await told(service, said, agent, **session_of(agent, f"{agent}-1"))
            assert text.index("friday") < text.index("warm cache")
            assert await told(service, said, agent, **session_of(agent, f"{agent}-1")) == ""

    async def test_a_note_that_changed_is_told_again(self, service: Service) -> None:
        """It is told as what it has become: here as taken back; and that once."""
        note = await remember(service, "the deploy needs a warm cache", kind="gotcha")
        assert "warm cache" in await told(service, "SessionStart")
        await call(service, "revoke", id=note, reason="it warms itself", caller=HUMAN)
        assert "it warms itself" in await told(service, "UserPromptSubmit", prompt="mend the deploy")
        assert await told(service, "UserPromptSubmit", prompt="mend the deploy now") == ""

    async def test_a_note_that_stands_again_is_told_again(self, service: Service, clock: ManualClock) -> None:
        """It was told as taken back since, so that it holds after all is news; and that once."""
        note = await remember(service, "the deploy needs a warm cache", kind="gotcha")
        assert "warm cache" in await told(service, "SessionStart")
        for verb in ("revoke", "reinstate"):
            clock.advance(1000)
            await call(service, verb, id=note, reason="it warms itself", caller=HUMAN)
            text = await told(service, "UserPromptSubmit", prompt=f"mend the deploy, {verb}")
            assert f"[{note}]" in text
            assert ("gotcha" in text) == (verb == "reinstate")
        assert await told(service, "UserPromptSubmit", prompt="mend the deploy now") == ""

    async def test_a_warning_is_given_once(self, service: Service) -> None:
        """A revoked note that this context never saw as a fact comes as a warning, not at each prompt."""
        await remember(service, "never push on friday", kind="directive")
        note = await remember(service, "the deploy needs a warm cache", kind="gotcha")
        await call(service, "revoke", id=note, reason="it warms itself", caller=HUMAN)
        await told(service, "SessionStart")
        assert "[REVOKED]" in await told(service, "UserPromptSubmit", prompt="mend the deploy")
        assert await told(service, "UserPromptSubmit", prompt="mend the deploy now") == ""

    async def test_a_prompt_of_any_length_is_a_query(self, service: Service) -> None:
        """What somebody pastes does not hide what they ask, before or behind it."""
        await remember(service, "the deploy needs a warm cache", kind="gotcha")
        log = "0x00ff " * 20_000
        for prompt in (f"why does the deploy fail? {log}", f"{log} why does the deploy fail?"):
            await told(service, "SessionStart")
            await told(service, "PostCompact")
            assert "warm cache" in await told(service, "UserPromptSubmit", prompt=prompt)

    async def test_nothing_of_a_prompt_or_command_is_kept(self, service: Service) -> None:
        """C25: neither the stream nor the ledger nor anything else holds a word of it."""
        await remember(service, "the deploy needs a warm cache", kind="gotcha")
        await told(service, "UserPromptSubmit", prompt="mend the deploy xylophone-4711")
        await told(service, "PreToolUse", tool_name="Bash", tool_input={"command": "echo xylophone-4711"})
        await service.quiesce()
        assert "xylophone" not in str(await dump(service.redis))


class TestTooLate:
    """A busy machine answers when nobody listens any more."""

    async def test_what_was_not_heard_is_told_next_time(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The event counts, and nothing passes for shown that never entered the context."""
        await remember(service, "never push on friday", kind="directive")

        hung_up, begun = asyncio.Event(), asyncio.Event()

        async def gone() -> None:
            await hung_up.wait()

        async def stuck(*_: object, **__: object) -> None:
            begun.set()
            await asyncio.Event().wait()

        with monkeypatch.context() as patch:
            patch.setattr(service, "inject", stuck)
            request = wire.decode_hook(
                "claude-code", {"workspace": WORKSPACE}, json.dumps(payload("claude-code", "SessionStart")).encode()
            )
            asked = asyncio.create_task(service.hooks(request, hung_up=gone))
            await begun.wait()
            assert not asked.done()
            hung_up.set()
            assert await asked == {}
        assert [event["event"] for event in await stream(service)] == ["session-start"]
        assert "friday" in await told(service, "UserPromptSubmit", prompt="on with it")

    async def test_one_of_whom_nobody_can_tell_is_told(self, service: Service) -> None:
        """That the watch over its connection broke is no sign that the agent has hung up."""
        await remember(service, "never push on friday", kind="directive")

        async def broken() -> None:
            raise OSError("no such connection")

        request = wire.decode_hook(
            "claude-code", {"workspace": WORKSPACE}, json.dumps(payload("claude-code", "SessionStart")).encode()
        )
        assert "friday" in repr(await service.hooks(request, hung_up=broken))


class TestCompaction:
    """What was shown before a compaction is gone from the context."""

    @pytest.mark.parametrize("said", ["PreCompact", "PostCompact"])
    async def test_everything_is_told_again_at_the_next_prompt(self, service: Service, said: str) -> None:
        """Where nothing is taken in at the compaction itself, the next prompt brings it back."""
        await remember(service, "never push on friday", kind="directive")
        await told(service, "SessionStart")
        assert await told(service, "UserPromptSubmit", prompt="anything") == ""
        assert await told(service, said) == ""
        assert "friday" in await told(service, "UserPromptSubmit", prompt="anything else")

    async def test_a_start_after_it_tells_everything_at_once(self, service: Service) -> None:
        """Claude Code starts a compacted session anew; it is still the same session to its owner."""
        await remember(service, "never push on friday", kind="directive")
        await told(service, "SessionStart")
        assert "friday" in await told(service, "SessionStart", source="compact")
        assert await told(service, "UserPromptSubmit", prompt="anything") == ""
        assert [event["event"] for event in await stream(service)] == ["session-start", "heartbeat", "pre-step"]

    async def test_gemini_says_so_beforehand(self, service: Service) -> None:
        """It has no word for the time after."""
        await remember(service, "never push on friday", kind="directive")
        await told(service, "SessionStart", "gemini")
        await told(service, "PreCompress", "gemini")
        assert "friday" in await told(service, "BeforeAgent", "gemini")


class TestTools:
    """A file about to be changed and a command about to be run bring up what is known about them."""

    async def test_a_file_brings_its_notes(self, service: Service) -> None:
        """Those anchored there and those whose trigger asks for it, each once; the rest stays where it is."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py"])
        await remember(service, "run the formatter", kind="finding", triggers=[{"event": "pre-edit", "path": "*.py"}])
        await remember(service, "the harbor is shallow", kind="finding")
        text = await told(service, "PreToolUse")
        assert "lock order" in text
        assert "formatter" in text
        assert "harbor" not in text
        assert await told(service, "PreToolUse", tool_use_id="later") == ""

    async def test_every_agent_is_told_where_it_listens(self, service: Service) -> None:
        """Before the change where that is read, else along with what the tool answers, and never in both."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py"])
        heard = {
            (agent, said)
            for agent, said in EVERY_HOOK
            if CASES[agent][said].hook in ("PreToolUse", "PostToolUse")
            and "lock order" in await told(service, said, agent, **session_of(agent, f"{agent}-2"))
        }
        assert heard == {
            ("claude-code", "PreToolUse"), ("codex", "PreToolUse"), ("vscode", "PreToolUse"), ("gemini", "AfterTool"),
            ("cursor", "postToolUse"),
        }  # fmt: skip

    async def test_a_file_elsewhere_brings_nothing(self, service: Service) -> None:
        """V12: notes are about this workspace's files."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py"])
        for path in ("/other/src/a.py", "/src/app/../../etc/src/a.py"):
            assert await told(service, "PreToolUse", tool_input={"file_path": path}, tool_use_id=path) == ""

    async def test_a_command_brings_what_asks_for_it(self, service: Service) -> None:
        """By the globs and words of triggers alone: a command is no question."""
        await remember(service, "deploys go out at noon", kind="gotcha", triggers=[{"command": "npm run deploy*"}])
        await remember(service, "npm is pinned", kind="finding")
        run: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "npm run deploy --now"}}
        text = await told(service, "PreToolUse", **run)
        assert "noon" in text
        assert "pinned" not in text
        assert await told(service, "PreToolUse", **run, tool_use_id="later") == ""

    async def test_a_trigger_may_ask_again_later(self, service: Service, clock: ManualClock) -> None:
        """Once its cooldown is over, though not in the same turn."""
        trigger = {"command": "npm run deploy*", "cooldown_ms": 60_000}
        await remember(service, "deploys go out at noon", kind="gotcha", triggers=[trigger])
        run: dict[str, Any] = {"tool_name": "Bash", "tool_input": {"command": "npm run deploy"}}
        assert "noon" in await told(service, "PreToolUse", **run, prompt_id="p1", tool_use_id="1")
        clock.advance(120_000)
        assert await told(service, "PreToolUse", **run, prompt_id="p1", tool_use_id="2") == ""
        assert "noon" in await told(service, "PreToolUse", **run, prompt_id="p2", tool_use_id="3")

    async def test_parallel_calls_bring_a_note_once(self, service: Service) -> None:
        """An agent that changes one file by eight calls at once is told by one of them."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py"])
        texts = await asyncio.gather(
            *(told(service, "PreToolUse", tool_use_id=f"t{n}", prompt_id="p") for n in range(8))
        )
        assert sum("lock order" in text for text in texts) == 1


class TestWatching:
    """Claude Code tells of every change of a file that it was asked to watch."""

    async def test_it_is_asked_to_watch_what_notes_are_anchored_to(self, service: Service) -> None:
        """As paths of the tree it works in; ended notes' files are nobody's business, and no other agent is asked."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py", "src/b.py"])
        gone = await remember(service, "c.py is old", kind="gotcha", anchors=["src/c.py"])
        await call(service, "revoke", id=gone, reason="it was rewritten", caller=HUMAN)
        answer = await hook(service, "claude-code", "SessionStart")
        assert set(answer["hookSpecificOutput"]) == {"hookEventName", "additionalContext", "watchPaths"}
        assert answer["hookSpecificOutput"]["watchPaths"] == [f"{CWD}/src/a.py", f"{CWD}/src/b.py"]
        again = await hook(service, "claude-code", "FileChanged", file_path=f"{CWD}/src/a.py")
        assert set(again["hookSpecificOutput"]) == {"hookEventName", "watchPaths"}
        for agent in ("codex", "vscode", "gemini"):
            other = await hook(service, agent, "SessionStart", **session_of(agent, "s3"))
            assert "watchPaths" not in other["hookSpecificOutput"]

    async def test_it_is_asked_again_wherever_it_goes(self, service: Service) -> None:
        """It forgets what it watched when it changes its directory, and watches what it is told there; going back and
        forth within a moment is no call that came twice."""
        await remember(service, "a.py holds the lock order", kind="gotcha", anchors=["src/a.py"])
        for place in ("lib", "src", "lib"):
            answer = await hook(service, "claude-code", "CwdChanged", prompt_id="p", new_cwd=f"{CWD}/{place}")
            assert answer["hookSpecificOutput"] == {"hookEventName": "CwdChanged", "watchPaths": [f"{CWD}/src/a.py"]}

    async def test_there_are_only_so_many(self, service: Service) -> None:
        """A watch costs the agent a handle."""
        for number in range(5):
            anchors = [f"src/{number}-{each}.py" for each in range(50)]
            await remember(service, f"they hang together: {number}", kind="gotcha", anchors=anchors)
        answer = await hook(service, "claude-code", "SessionStart")
        assert len(answer["hookSpecificOutput"]["watchPaths"]) == MAX_WATCHED


class TestCeiling:
    """No hook's text is longer than an agent takes in."""

    @pytest.mark.parametrize(("agent", "said"), [("claude-code", "SessionStart"), ("gemini", "BeforeAgent")])
    async def test_whole_notes_up_to_ten_thousand_characters(self, service: Service, agent: str, said: str) -> None:
        """C45: however large the budget and whatever the notes are made of; no note is cut, and the frame is closed."""
        for word in ("harbor " * 40, "x" * 1800, "=" * 1500, "🦀" * 400, "港口" * 300):
            place = f"full of {word[:2].strip()}"
            notes = [f"{number} {word}".strip() for number in range(40)]
            items = [{"verb": "remember", "body": {"content": note, "kind": "finding"}} for note in notes]
            await call(service, "batch", workspace=place, requests=items)
            await call(service, "policy", workspace=place, set={"max_injected_tokens": 100_000}, caller=HUMAN)
            text = await told(service, said, agent, workspace=place)
            units = len(text.encode("utf-16-le")) // 2
            longest = max(len(note.encode("utf-16-le")) // 2 for note in notes) + 80
            assert MAX_CONTEXT_UNITS - 3 * longest < units <= MAX_CONTEXT_UNITS
            *lines, end = text.splitlines()
            assert end.startswith("END AMNESIA MEMORY")
            assert {line.partition(": ")[2] for line in lines[1:]} <= set(notes)
