"""An answer of the service in the fewest words that an agent can act on. Times as dates or coarse, ids always.

A note's words come in lines that ``core.render`` has made safe, or go through ``one_line`` here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from amnesiad import wire
from amnesiad.core.errors import AmnesiaError
from amnesiad.core.render import one_line
from amnesiad.core.times import SECOND_MS, format_coarse, format_time
from amnesiad.mcp.table import ALIASES, PREFIX, WHO, Tool, load_table

TOOL_OF: Final[Mapping[str, str]] = {"list": "recall"}
"""Commands that no tool is named after, and the tool that tells the same."""
_COMMAND: Final = re.compile(r"amnesia ([a-z-]+)")
_CALLER_FIELD: Final = re.compile(rf"\bcaller\.({'|'.join(sorted(WHO))})\b")
IDS_SHOWN: Final = 10
"""Ids of forgotten notes that are listed; nothing can be done with the rest either."""


def refusal_text(error: AmnesiaError, tool: Tool) -> str:
    """A refusal of a call of ``tool``: its code, what happened, the choices there are, and what to do, in the words
    that the agent knows: its arguments, and tools in place of commands."""
    lines = [f"{error.code}: {_by_argument(error.message, tool)}"]
    if error.choices:
        lines.append(f"one of: {', '.join(error.choices)}")
    if hint := _by_tool(error.hint):
        lines.append(f"hint: {_by_argument(hint, tool)}")
    return "\n".join(lines)


def _by_argument(text: str, tool: Tool) -> str:
    """Fields of the request under the names of the tool's arguments."""
    for argument, field in ALIASES.items():
        if argument in tool.arguments:
            text = re.sub(rf"\b{field}\b", argument, text)
    return _CALLER_FIELD.sub(r"\1", text)


def _by_tool(hint: str) -> str:
    """A hint that begins with a command, with the tool that does the same; empty where no tool does."""
    command = _COMMAND.match(hint)
    if command is None:
        return hint
    tool = f"{PREFIX}{TOOL_OF.get(command[1], command[1])}"
    return f"{tool}{hint[command.end() :]}" if tool in load_table().tools else ""


def answer_text(verb: str, request: Any, answer: Any, now: int) -> str:
    """The answer of ``verb`` to ``request``, as lines. ``now`` is the store's time in epoch ms."""
    return "\n".join(_TEXTS[verb](request, answer, now))


def _ids(ids: Iterable[str]) -> str:
    every = tuple(ids)
    more = len(every) - IDS_SHOWN
    return ", ".join(every[:IDS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _ends(expires_at: int | None) -> str:
    """To the second: an agent compares it with nothing finer."""
    return "does not expire" if expires_at is None else f"ends {format_time(expires_at // SECOND_MS * SECOND_MS)}"


def _beside(answer: Any) -> Iterator[str]:
    """What an answer says beside the change itself: resemblance to ended notes, and what the secret guard found."""
    for warned in getattr(answer, "warnings", ()):
        yield f"warning, resembles a {warned.kind} note: {warned.text}"
    for notice in answer.notices:
        yield f"notice: {notice}"


def _remember(_request: Any, answer: wire.RememberAnswer, _now: int) -> Iterator[str]:
    said = f"remembered {answer.id}" if answer.created else f"known already as {answer.id}"
    replaced = f"; superseded {_ids(answer.superseded)}" if answer.superseded else ""
    yield f"{said}; {_ends(answer.expires_at)}{replaced}"
    yield from _beside(answer)


def _recall(_request: Any, answer: wire.RecallAnswer, _now: int) -> Iterator[str]:
    if answer.degraded:
        yield "(the store is away: this may be out of date)"
    yield answer.text or "nothing found"


def _forget(request: wire.ForgetRequest, answer: wire.ForgetAnswer, _now: int) -> Iterator[str]:
    if request.dry_run:
        yield f"{len(answer.ids)} would be forgotten" + (f": {_ids(answer.ids)}" if answer.ids else "")
        yield from (f"[{one.id}] {one.kind} {one.state}: {one_line(one.content)}" for one in answer.would)
    else:
        yield answer.summary + (f" ({_ids(answer.ids)}); erasure {answer.scrub}" if answer.ids else "")
    yield from _beside(answer)


def _change(_request: Any, answer: wire.ChangeAnswer, _now: int) -> Iterator[str]:
    said = f"{answer.id} is {answer.state}"
    if answer.state in ("active", "stale"):
        about = [part for part in (answer.scope, answer.provenance) if part]
        said += f" ({', '.join((*about, _ends(answer.expires_at)))})"
    yield said if answer.changed else f"nothing to change: {said}"
    yield from _beside(answer)


def _supersede(_request: Any, answer: wire.SupersedeAnswer, _now: int) -> Iterator[str]:
    said = f"{answer.id} is superseded by {answer.by}"
    yield said if answer.changed else f"nothing to change: {said}"
    yield from _beside(answer)


def _restore(_request: Any, answer: wire.RestoreAnswer, _now: int) -> Iterator[str]:
    yield f"restored {answer.restored_from} as {answer.id}"
    yield from _beside(answer)


def _preview(_request: Any, answer: wire.InjectAnswer, _now: int) -> Iterator[str]:
    yield answer.text or "nothing would be injected"
    if answer.omitted.count:
        yield f"left out for the budget: {answer.omitted.count} ({_ids(answer.omitted.ids)})"


def _status(request: wire.StatusRequest, answer: wire.StatusAnswer, now: int) -> Iterator[str]:
    counts = answer.counts
    named = {name: getattr(counts, name) for name in counts.__struct_fields__}
    yield f"{request.workspace}: " + ", ".join(f"{count} {name}" for name, count in named.items())
    yield f"{answer.tokens} tokens if all live notes were shown"
    if answer.next_expiry_at is not None:
        yield f"next expiry in {format_coarse(max(0, answer.next_expiry_at - now))}"
    if answer.injection is not None:
        yield f"last injection: {answer.injection.count} notes, {answer.injection.tokens} tokens"
    for end in answer.recent:
        yield f"forgotten {end.id} ({end.reason}) {format_time(end.at)}"
    if answer.degraded:
        yield "(the store is away: this may be out of date)"


def _audit(_request: Any, answer: wire.AuditAnswer, _now: int) -> Iterator[str]:
    if not answer.entries:
        yield "nothing was forgotten"
    for entry in answer.entries:
        mark = " restorable" if entry.restorable else ""
        trace = f" {entry.content_hash}" if entry.content_hash else ""
        yield f"{entry.id} {entry.kind} {entry.reason} by {entry.actor} {format_time(entry.at)}{trace}{mark}"


_TEXTS: Final[Mapping[str, Callable[[Any, Any, int], Iterator[str]]]] = {
    "remember": _remember,
    "recall": _recall,
    "forget": _forget,
    "supersede": _supersede,
    "revoke": _change,
    "reinstate": _change,
    "promote": _change,
    "preview": _preview,
    "status": _status,
    "audit": _audit,
    "restore": _restore,
}
