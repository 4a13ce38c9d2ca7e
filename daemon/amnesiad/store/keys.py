"""The whole keyspace on one page. Nothing else builds a key.

All keys of a workspace share the hash tag ``{ws}``, its random internal id: names and paths never become keys.
"""

from __future__ import annotations

from typing import Final

LIFECYCLE: Final = "amnesia:lifecycle"
"""stream · any process writes, the bridge reads by consumer group · field ``e`` = JSON; handled entries trimmed after 7
d"""

DEAD: Final = "amnesia:dead"
"""stream · the bridge writes, people read · lifecycle events that could not be handled, with the error; bounded"""

WORKSPACES: Final = "amnesia:workspaces"
"""hash · daemon writes and reads · name → ws; until the workspace is dropped"""

META: Final = "amnesia:meta"
"""hash · every process · fingerprint of the install key (``key``), ``layout``; when owners were last reconciled
(``reconciled_at``, ``reconciling_since``); dropped workspaces whose words the files may still hold (``unscrubbed``)"""

BRIDGE_GROUP: Final = "bridge"
"""The consumer group on ``LIFECYCLE``: every daemon is one consumer in it."""


class Keys:
    """The keys of one workspace."""

    __slots__ = (
        "access",
        "anchored",
        "audit",
        "cells",
        "due",
        "heads",
        "leases",
        "log",
        "policy",
        "prefix",
        "tomb",
        "totals",
        "use",
        "vault",
        "vectors",
        "ws",
    )

    def __init__(self, ws: str) -> None:
        self.ws = ws
        p = self.prefix = f"amnesia:{{{ws}}}:"
        # stream · commit writes, tails read · every event (e) and the note's previous one (p); for good
        self.log = p + "log"
        # hash · commit · id → version|op|seq|bare state of notes not forgotten; a cache of the fold
        self.heads = p + "heads"
        # hash · commit · id → words; erased by forgotten
        self.vault = p + "vault"
        # hash · commit · id → version|op|seq|tomb of forgotten notes; hash and copy purged
        self.tomb = p + "tomb"
        # hash · commit · slot:, text:, owner:, policy, filed, scrub → stamp|op|seq|payload; compared and set
        self.cells = p + "cells"
        # zset · commit writes, timer and passes read · id by the time of its next transition or purge
        self.due = p + "due"
        # set · commit writes, the check of anchors reads · live notes with a hash of a file; of ids, never of paths
        self.anchored = p + "anchored"
        # zset · commit writes, audit reads · forgotten ids by time; for good
        self.audit = p + "audit"
        # hash · commit · bytes and counts, bounded in the script
        self.totals = p + "totals"
        # hash · witness writes · id:n count, id:t last access; beside the fold, erased by forgotten
        self.use = p + "use"
        # stream · witness writes, exposure reads · recalls and injections; audit_retention
        self.access = p + "access"
        # hash · daemons with an embedder write and read · id → model|vector; erased by commit with the words it is of
        self.vectors = p + "vectors"
        # hash · commit · live overrides, name → JSON
        self.policy = p + "policy"
        # zset · commit, bridge · owners by last sign of life
        self.leases = p + "leases"

    @property
    def fixed(self) -> tuple[str, ...]:
        """Every key above: all of the workspace but its sets of members, ledgers and answers, which hold no words."""
        return (
            self.cells, self.vault, self.tomb, self.heads, self.log, self.due, self.audit, self.totals, self.use,
            self.access, self.policy, self.leases, self.vectors, self.anchored,
        )  # fmt: skip

    @property
    def any_members(self) -> str:
        """pattern · verify and rebuild scan · every ``members`` key; what it leaves of one is the owner"""
        return f"{self.prefix}members:*"

    def members(self, owner: str) -> str:
        """set · commit writes, unplug reads · ids of the owner's notes that are not forgotten"""
        return f"{self.prefix}members:{owner}"

    def request(self, request_id: str) -> str:
        """string · commit · keyed hash of the body and the answer without words; 24 h"""
        return f"{self.prefix}req:{request_id}"

    def ledger(self, context: str) -> str:
        """hash · fire writes and reads · note id → turn it was last shown in; until compaction or the session's
        lease"""
        return f"{self.prefix}ledger:{context}"

    def shown(self, context: str) -> str:
        """hash · witness writes, injections read · note id → when it was shown, and whether it was corrected since;
        until compaction or the session's lease"""
        return f"{self.prefix}shown:{context}"
