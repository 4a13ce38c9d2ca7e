"""The secret guard at the door: whether what is about to be written holds a key or a token.

By ``secret_guard`` it stays silent, tells the type of what it found, or refuses. It never repeats the secret, and it
never changes a word: what is to become of it is for the writer to decide. In ids and pointers it refuses wherever it is
on: they enter the log, and nothing there is ever erased.

What was found does not depend on the policy; what follows from it does, and so does how long a note may be. Both are
judged inside the loop that writes, by the policy that the unit is compared with, so that no policy that another daemon
has changed meanwhile lets anything through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from amnesiad import wire
from amnesiad.core import intake
from amnesiad.core.errors import Refused
from amnesiad.core.notes import Words
from amnesiad.core.policy import LIVE_RULES, Policy
from amnesiad.core.rules import Size
from amnesiad.service.base import Jobs
from amnesiad.service.writing.change import Change
from amnesiad.service.writing.loop import A, Decide, Writing
from amnesiad.settings import Settings
from amnesiad.store.clock import StoreClock
from amnesiad.store.connect import Store
from amnesiad.store.keyring import Keyring
from amnesiad.workspace import Workspace

MAX_ITEM_BYTES: Final = cast(Size, LIVE_RULES["max_item_bytes"]).at_most
"""No policy lets a note be longer."""
RULE: Final = "secret-guard"
MAX_CLEAN_IDS: Final = 4096
"""Ids known to be none: those of a busy machine's agents, which come back with every request."""
_CALLER_IDS: Final = ("session", "agent", "team")
_IDS: Final = ("owner", "source_ref", "request_id", "turn")


class Found(msgspec.Struct, frozen=True):
    """What a look at one request found: the types of secrets in its words, and in which of its ids there are some.

    ``words`` is ``None`` where nobody has looked, because the guard seemed to be off.
    """

    words: tuple[str, ...] | None
    ids: Mapping[str, tuple[str, ...]]


class Guarding(Writing):
    """What every verb that writes goes through."""

    def __init__(self, redis: Store, keyring: Keyring, settings: Settings, clock: StoreClock, jobs: Jobs) -> None:
        super().__init__(redis, keyring, settings, clock, jobs)
        self._clean_ids: set[str] = set()

    async def write(
        self,
        request: wire.Write,
        answer_type: type[A],
        decide: Decide[A],
        *,
        owners: Sequence[str] = (),
        words: Words | None = None,
    ) -> A:
        """``Writing.write`` of a request whose words, reason and ids are looked at, and judged with every decision.

        ``words`` are those that the request brings in; a new note's content is held against ``max_item_bytes`` too. An
        answer that has room for notices says what was found. Raises ``Refused`` (rule ``secret-guard``), ``TooLarge``.
        """
        texts = _texts(words, getattr(request, "reason", None))
        ids = _ids_of(request)
        found = await self._look(texts, ids, await self._policy_of(request.workspace))
        notices: tuple[str, ...] = ()

        def judged(workspace: Workspace, change: Change) -> A:
            nonlocal notices
            if words is not None and words.content:
                intake.check_content(words.content, change.policy.max_item_bytes)
            notices = _judge(change.policy, found)
            return decide(workspace, change)

        while True:
            try:
                answer = await super().write(request, answer_type, judged, owners=owners)
            except _UnlookedError:
                found = await self._look(texts, ids)
                continue
            if notices and hasattr(answer, "notices"):
                return msgspec.structs.replace(answer, notices=notices)
            return answer

    async def guard(
        self, workspace: Workspace, words: Words | None, reason: str | None = None, *, ids: Mapping[str, str]
    ) -> tuple[str, ...]:
        """Notices about these words by the policy as it is known now, one for each type of secret in them.

        Raises ``Refused`` (rule ``secret-guard``) instead where the policy says so, or where it is an id that holds
        one.
        """
        policy = workspace.policy
        found = await self._look(_texts(words, reason), ids, policy)
        with self.counting_refusals(workspace.name):
            return _judge(policy, found)

    async def guard_request(self, workspace: Workspace, request: wire.Write) -> tuple[str, ...]:
        """Judge a request's reason and ids before the first of several units, by the policy as it is known."""
        return await self.guard(workspace, None, getattr(request, "reason", None), ids=_ids_of(request))

    async def guard_reader(self, request: wire.Request) -> None:
        """Judge the ids of a read that is logged: it writes into the ledger, and renewals into the log."""
        await self.guard_ids(request.workspace, _ids_of(request))

    async def guard_ids(self, name: str, ids: Mapping[str, str]) -> None:
        """Refuse ids, by field, that look like a secret, by the policy in force now in the workspace ``name``."""
        found = await self._secrets_in_ids(ids)
        if not found:
            return
        workspace = await self.caught_up(name)
        policy = self.settings.policy if workspace is None else workspace.policy
        with self.counting_refusals(name):
            _judge(policy, Found((), found))

    async def _secrets_in_ids(self, ids: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """The fields among these whose id looks like a secret, with its types. Clean ones are looked at once."""
        found = {}
        for field, value in ids.items():
            if value in self._clean_ids:
                continue
            if types := await self.secrets.types((value,)):
                found[field] = types
                continue
            if len(self._clean_ids) >= MAX_CLEAN_IDS:
                self._clean_ids.clear()
            self._clean_ids.add(value)
        return found

    async def _look(self, texts: Sequence[str], ids: Mapping[str, str], policy: Policy | None = None) -> Found:
        """Look for secrets, unless this policy says that nobody need."""
        mode = None if policy is None else policy.secret_guard
        if mode == "off":
            return Found(None, {})
        return Found(await self.secrets.types(texts) if texts else (), await self._secrets_in_ids(ids))

    async def _policy_of(self, name: str) -> Policy:
        """The policy of a workspace as it is known here; of one that does not exist yet, the operator's."""
        workspace = await self.open(name, create=False)
        return self.settings.policy if workspace is None else workspace.policy


class _UnlookedError(Exception):
    """The guard turned out to be on, and nobody has looked yet."""


def _judge(policy: Policy, found: Found) -> tuple[str, ...]:
    """What the policy makes of a finding: notices, or ``Refused``. Raises ``_UnlookedError`` where there is none
    yet."""
    mode = policy.secret_guard
    if mode == "off":
        return ()
    if found.words is None:
        raise _UnlookedError
    if found.ids:
        field, types = next(iter(found.ids.items()))
        raise Refused(
            f"{field} looks like a secret: {', '.join(types)}",
            rule=RULE,
            field=field,
            hint="an id enters the log for good; send one that tells nothing",
        )
    if found.words and mode == "refuse":
        raise Refused(
            f"this holds what looks like a secret: {', '.join(found.words)}",
            rule=RULE,
            field="content",
            hint="say where the secret is kept, not what it is; secret_guard is the policy that says so",
        )
    return tuple(f"this holds what looks like a secret: {name}" for name in found.words)


def _ids_of(request: Any) -> dict[str, str]:
    """Everything of a request that enters events, cells and names of keys, by field."""
    ids = {f"caller.{part}": getattr(request.caller, part) for part in _CALLER_IDS}
    ids |= {field: getattr(request, field, None) for field in _IDS}
    return {field: value for field, value in ids.items() if value is not None}


def _texts(words: Words | None, reason: str | None) -> Sequence[str]:
    texts = [] if reason is None else [reason]
    if words is None:
        return texts
    texts += [words.content, *words.tags]
    texts += [] if words.key is None else [words.key]
    texts += [anchor.path for anchor in words.anchors]
    for trigger in words.triggers:
        parts = (trigger.event, trigger.path, trigger.command, *trigger.words)
        texts += [text for text in parts if text is not None]
    return [*texts, *words.reasons.values()]
