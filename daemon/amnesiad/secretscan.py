"""Keys and tokens in text, found by MongoDB's Kingfisher: its rules, its engine, in this process and offline.

What is told is the *type* of a finding (``github-pat``, ``private-key``), never the secret. Looking takes some ten
microseconds; making the engine ready takes a third of a second (a few seconds the first time ever, while the rules are
compiled), and happens in a thread when the first text comes by that could hold a key at all. The compiled rules are
kept in a directory of ours; no text is ever written anywhere.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

CONFIDENCE: Final = "medium"
"""The rules that go by a key's own shape, or by what stands around it. ``low`` adds none in the version at hand."""
RULES_FOLDER: Final = "secret-rules"

_CANDIDATE: Final = re.compile(r"(?<!\S)(?=\S{16})\S*?[0-9A-Z]|://[^\s@]{1,256}@")
"""A long run with a digit or a capital, or a URL that names a user: text with neither is passed without the engine."""
_SHAPELESS: Final = re.compile(r"[0-9a-f-]{1,64}|a[a-z-]{1,63}-[0-9a-f]{16}")
"""Hexadecimal digits and nothing else, as in a UUID, or sixteen of them behind a name in small letters, as of a member
of a team: no rule knows a key by that shape alone, and nearly every session and child has such an id. So those who hand
in ids, and have no time for the engine to get ready, do not wait for it."""
_AWS_RULE: Final = "betterleaks.aws-secret-access-key"
"""Kingfisher counts it only beside a key id, because forty characters may be anything; beside the name it is enough."""
_URI_RULE: Final = "betterleaks.generic-credential-uri"
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""The default password of a database on one's own machine is no secret, and every setup guide has it."""


class SecretScan:
    """A detector that gets ready when it is first needed. ``folder`` keeps the compiled rules; ``None``: nowhere."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._loading: asyncio.Task[Scanner] | None = None
        self._scanner: Scanner | None = None

    async def types(self, texts: Iterable[str]) -> tuple[str, ...]:
        """The types of secrets in these texts, each once, in the order found; mostly ``()``."""
        suspects = [text for text in texts if _CANDIDATE.search(text) and not _SHAPELESS.fullmatch(text)]
        if not suspects:
            return ()
        scanner = self._scanner or await self.load()
        found: dict[str, None] = {}
        for text in suspects:
            for finding in scanner.scan(text):
                if _counts(finding, text):
                    found[_type_of(finding.rule_id)] = None
        return tuple(found)

    async def load(self) -> Scanner:
        """Make the engine ready, once, however many ask. A caller that gives up does not stop it for the others."""
        if self._scanner is None:
            if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
                self._loading = asyncio.create_task(asyncio.to_thread(_load, self._folder))
            self._scanner = await asyncio.shield(self._loading)
        return self._scanner


def _load(folder: Path | None) -> Scanner:
    from kingfisher_sdk import Rules, Scanner

    if folder is None:
        return Scanner(Rules(confidence=CONFIDENCE, cache=False), base64=False)
    return Scanner(Rules(confidence=CONFIDENCE, cache_dir=str(folder)), base64=False)


def _counts(finding: Any, text: str) -> bool:
    if finding.rule_id == _URI_RULE:
        return finding.captures.get("host", "").lower() not in _LOCAL_HOSTS
    if finding.rule_id == _AWS_RULE:
        return "aws" in text.lower()
    return bool(finding.visible)


def _type_of(rule_id: str) -> str:
    """``betterleaks.github-pat`` → ``github-pat``; ``veles.secrets/sendgrid`` → ``sendgrid``."""
    return rule_id.rpartition(".")[2].rpartition("/")[2]
