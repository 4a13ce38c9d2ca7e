"""One tool call: from the name and the arguments to the lines of the answer, by way of ``wire`` and the service.

Whatever is wrong with a call is answered in the result, where the agent that made it reads it: the code, what happened
and what to do. Nothing of the arguments is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from amnesiad import wire
from amnesiad.core.errors import AmnesiaError, Invalid, TooLarge
from amnesiad.core.rules import suggestion
from amnesiad.errors import Deadline
from amnesiad.limits import MAX_REQUEST_BYTES
from amnesiad.mcp.identity import Headers, identify
from amnesiad.mcp.table import ALIASES, WHO, Tool, load_table
from amnesiad.mcp.texts import answer_text, refusal_text
from amnesiad.service import Service

DEADLINE_S: Final = 4.5
"""For a call. The shim gives up after 5 s; until then the agent gets an answer that says more."""
MAX_NAME_CHARS: Final = 64
"""How much of an unknown argument's name an error repeats."""


class Said(NamedTuple):
    """The answer of a call, in words; ``refused`` tells that it was not done."""

    text: str
    refused: bool = False


class Desk:
    """Where calls are taken. ``answerable`` makes a refusal of any exception, and logs a bug without its message."""

    def __init__(self, service: Service, *, answerable: Callable[[Exception, str], AmnesiaError]) -> None:
        self._service = service
        self._answerable = answerable

    async def call(
        self, tool: Tool, arguments: Mapping[str, Any], *, headers: Headers, meta: Mapping[str, Any]
    ) -> Said:
        """Do what the call asks for. Never raises for anything that a call can hold."""
        try:
            async with asyncio.timeout(DEADLINE_S) as deadline:
                return Said(await self._answer(tool, arguments, headers, meta))
        except TimeoutError as error:
            if not deadline.expired():
                return self._refused(error, tool)
            hint = "a write may have landed: look with amnesia_recall before you repeat it"
            return self._refused(Deadline(f"there was no answer within {DEADLINE_S:g} s", hint=hint), tool)
        except Exception as error:
            return self._refused(error, tool)

    async def _locate(self, directory: str) -> str:
        return (await self._service.whereabouts.of(directory)).workspace

    def _refused(self, error: Exception, tool: Tool) -> Said:
        return Said(refusal_text(self._answerable(error, f"mcp {tool.verb}"), tool), refused=True)

    async def _answer(self, tool: Tool, arguments: Mapping[str, Any], headers: Headers, meta: Mapping[str, Any]) -> str:
        _check_names(tool, arguments)
        named = await identify(arguments, headers, meta, self._service.announced, self._locate)
        body = {ALIASES.get(name, name): value for name, value in arguments.items() if name not in WHO}
        # Agents fill in what they do not use: a null is no value of any argument.
        body = {name: value for name, value in body.items() if value is not None}
        if tool.verb == "recall":
            body["format"] = "text"
        request = wire.decode(tool.verb, _encoded({**body, "workspace": named.workspace, "caller": named.caller}))
        answer = await getattr(self._service, wire.VERBS[tool.verb].method)(request)
        return answer_text(tool.verb, request, answer, self._service.clock.now_ms())


def find_tool(name: str) -> Tool:
    """The tool of that name. Raises ``Invalid`` with the nearest one."""
    tools = load_table().tools
    if name not in tools:
        shown = name[:MAX_NAME_CHARS]
        hint = suggestion(shown, tools) or f"the tools are {', '.join(tools)}"
        raise Invalid(f"there is no tool {shown!r}", field="name", hint=hint)
    return tools[name]


def _check_names(tool: Tool, arguments: Mapping[str, Any]) -> None:
    """The request knows more fields than an agent is told of; none of those is taken from one."""
    for name in arguments:
        if name not in tool.arguments:
            shown = name[:MAX_NAME_CHARS]
            hint = suggestion(shown, tool.arguments) or f"known are {', '.join(tool.arguments)}"
            raise Invalid(f"{shown!r} is not an argument of {tool.told['name']}", field=shown, hint=hint)


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        raw = wire.encode(body)
    except (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError):
        raise Invalid(
            "the arguments hold something that is not plain JSON", field="arguments", hint="send plain text as UTF-8"
        ) from None
    if len(raw) > MAX_REQUEST_BYTES:
        raise TooLarge(f"the arguments exceed {MAX_REQUEST_BYTES} bytes", field="arguments", hint="send less at a time")
    return raw
