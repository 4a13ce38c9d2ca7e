"""One caller's way to the daemon for adapters: blocking or from any event loop, as strictly or as softly as they need.

``ask`` and ``aask`` raise the errors of ``amnesiad.errors``. ``block`` and ``report``, with their asynchronous twins,
fail open: an agent goes on without memory when memory is away, and a warning in the log says so once. No words of a
note or a prompt are ever logged. Frameworks and their shapes are the other modules' business.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

from amnesiad.client import AsyncClient, Client
from amnesiad.client.identity import Identity, raise_refusal
from amnesiad.core.intake import ID_PATTERN, MAX_ID_CHARS, MAX_QUERY_CHARS
from amnesiad.errors import AmnesiaError

STEP_TIMEOUT_S: Final = 2.0
"""What a model call waits for its notes at most: two hundred times what an idle daemon takes, and still bearable."""
MAX_BATCH_BYTES: Final = 512 * 1024
"""Of the requests sent at once: half of what the daemon takes, since the client adds ids to each."""
MAX_BATCH: Final = 200
"""Requests sent at once, so that no answer of full notes grows beyond a few megabytes."""

Body = Mapping[str, Any]
Ask = tuple[str, Body]
"""One request: verb and body."""

_logger: Final = logging.getLogger(__name__)


def missing(library: str, extra: str) -> str:
    """What to say where an adapter's framework is not installed."""
    return f"this adapter needs {library}: pip install 'amnesiad[{extra}]'"


def token(name: object) -> str:
    """A framework's id, a number or UUID too, as one that may enter the log: as it is where it fits, else a digest of
    it."""
    text = str(name)
    if len(text) <= MAX_ID_CHARS and re.fullmatch(ID_PATTERN, text):
        return text
    return "x" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def session_of(name: object) -> str | None:
    """A framework's id of a conversation as a session; ``None`` where it has none."""
    return None if name in (None, "") else token(name)


class Link:
    """Connections of one caller in one workspace, opened when they are first needed. Threads may share it, and loops.

    ``who`` names workspace and caller as the arguments of ``Client`` do; what it leaves out is taken from its
    ``AMNESIA_*`` variable. ``timeout_s`` bounds each request.
    """

    def __init__(
        self, socket: Path | str | None = None, *, timeout_s: float = STEP_TIMEOUT_S, **who: str | None
    ) -> None:
        self._client = Client(socket, timeout_s=timeout_s, **who)
        self._connect = partial(AsyncClient, socket, timeout_s=timeout_s, **who)
        self._caller = Identity(socket, **who).caller
        # A client's connections belong to one loop, and frameworks run agents in many, one after the other.
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = WeakKeyDictionary()
        self._away = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def close(self) -> None:
        """Close the blocking connection; a later request opens a new one."""
        self._client.close()
        self._drop_over()

    async def aclose(self) -> None:
        """Close also the running loop's connections."""
        self.close()
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.aclose()

    def client(self) -> Client:
        """The blocking client."""
        return self._client

    def aclient(self) -> AsyncClient:
        """The running loop's client."""
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._drop_over()
            self._clients[loop] = self._connect()
        return self._clients[loop]

    def _drop_over(self) -> None:
        """What ran in a loop that is over can only be dropped, which closes it; kept, it would keep its loop, too."""
        for over in [loop for loop in self._clients if loop.is_closed()]:
            del self._clients[over]

    # -- strictly ------------------------------------------------------------------------------------------------------

    def ask(self, verb: str, body: Body) -> dict[str, Any]:
        """The answer to one request. Raises the errors of ``amnesiad.errors``."""
        return self.client().call(verb, body)

    async def aask(self, verb: str, body: Body) -> dict[str, Any]:
        """``ask`` without blocking the loop."""
        return await self.aclient().call(verb, body)

    def ask_all(self, asks: Sequence[Ask]) -> list[dict[str, Any]]:
        """The answers to several requests, in order. All are tried; then the first refusal is raised."""
        answers: list[dict[str, Any]] = []
        for requests in _parts(asks):
            answers += self.ask("batch", {"requests": requests})["answers"]
        return _checked(answers)

    async def aask_all(self, asks: Sequence[Ask]) -> list[dict[str, Any]]:
        """``ask_all`` without blocking the loop."""
        answers: list[dict[str, Any]] = []
        for requests in _parts(asks):
            answers += (await self.aask("batch", {"requests": requests}))["answers"]
        return _checked(answers)

    # -- softly --------------------------------------------------------------------------------------------------------

    def block(self, prompt: str | None, budget_tokens: int | None, who: Body) -> str:
        """The notes for a model call that is about ``prompt``, as text; ``""`` for none, and where memory is away."""
        try:
            text = str(self.ask("inject", _inject(prompt, budget_tokens, self.who(who)))["text"])
        except AmnesiaError as error:
            return self._without(error)
        self._away = False
        return text

    async def ablock(self, prompt: str | None, budget_tokens: int | None, who: Body) -> str:
        """``block`` without blocking the loop."""
        try:
            text = str((await self.aask("inject", _inject(prompt, budget_tokens, self.who(who))))["text"])
        except AmnesiaError as error:
            return self._without(error)
        self._away = False
        return text

    def report(self, event: str, who: Body) -> None:
        """Report a lifecycle event; that memory is away is no reason for an agent to fail."""
        try:
            self.ask("events", {"event": event, **_whose(self.who(who))})
        except AmnesiaError as error:
            self._without(error)

    async def areport(self, event: str, who: Body) -> None:
        """``report`` without blocking the loop."""
        try:
            await self.aask("events", {"event": event, **_whose(self.who(who))})
        except AmnesiaError as error:
            self._without(error)

    def who(self, who: Body) -> dict[str, Any]:
        """Who asks: as the link was told, but for what is known better of this one call."""
        return {**self._caller, **{name: value for name, value in who.items() if value is not None}}

    def _without(self, error: AmnesiaError) -> str:
        if not self._away:
            _logger.warning("an agent goes on without memory: %s", error.code)
        self._away = True
        return ""


def query_of(prompt: str | None) -> str | None:
    """What notes are looked for with, ``None`` where nothing is said: whatever people paste, it makes a query.

    Of a long one it is the end, where the question usually is.
    A text that was cut in the middle of a character, or holds a NUL byte, is no reason to be without memory.
    """
    words = (prompt or "").encode("utf-8", "replace").decode().replace("\0", " ").strip()
    return words[-MAX_QUERY_CHARS:].strip() or None


def _inject(prompt: str | None, budget_tokens: int | None, caller: Body) -> Body:
    body: dict[str, Any] = {"caller": caller} if caller else {}
    if budget_tokens is not None:
        body["budget_tokens"] = budget_tokens
    if query := query_of(prompt):
        body["query"] = query
    return body


def _whose(caller: Body) -> Body:
    return {name: value for name, value in caller.items() if name not in ("role", "on_behalf")}


def _parts(asks: Sequence[Ask]) -> Iterator[list[dict[str, Any]]]:
    """The requests in as few batches as their bounds allow. One that is too large by itself goes alone, to be
    refused."""
    part: list[dict[str, Any]] = []
    size = 0
    for verb, body in asks:
        request = {"verb": verb, "body": dict(body)}
        grown = len(json.dumps(request))
        if part and (len(part) == MAX_BATCH or size + grown > MAX_BATCH_BYTES):
            yield part
            part, size = [], 0
        part.append(request)
        size += grown
    if part:
        yield part


def _checked(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    for answer in answers:
        if "error" in answer:
            raise_refusal(0, json.dumps(answer).encode())
    return answers
