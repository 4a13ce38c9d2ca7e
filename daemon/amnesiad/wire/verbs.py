"""The table of verbs: each with its request, its answer and the service method behind it. Nothing else decides that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from amnesiad.wire import answers as a
from amnesiad.wire import oversight as o
from amnesiad.wire import requests as r


class VerbSpec(NamedTuple):
    """One verb. ``write`` means it takes a ``request_id``; whatever does not is safe to repeat as it is.

    ``stream`` tells whether the request's or the answer's body is a stream of NDJSON.
    """

    request: type[Any]
    answer: type[Any]
    write: bool
    method: str
    stream: Literal["none", "in", "out"] = "none"


def _verb(name: str, request: type[Any], answer: type[Any], method: str | None = None) -> VerbSpec:
    return VerbSpec(request, answer, "request_id" in request.__struct_fields__, method or name)


VERBS: Final[Mapping[str, VerbSpec]] = {
    "remember": _verb("remember", r.RememberRequest, a.RememberAnswer),
    "recall": _verb("recall", r.RecallRequest, a.RecallAnswer),
    "inject": _verb("inject", r.InjectRequest, a.InjectAnswer),
    "preview": _verb("preview", r.InjectRequest, a.InjectAnswer),
    "fire": _verb("fire", r.FireRequest, a.FireAnswer),
    "why-not": _verb("why_not", r.WhyNotRequest, a.WhyNotAnswer),
    "list": _verb("list", r.ListRequest, a.ListAnswer, "list_notes"),
    "inspect": _verb("inspect", r.InspectRequest, a.InspectAnswer),
    "history": _verb("history", r.HistoryRequest, a.HistoryAnswer),
    "forget": _verb("forget", r.ForgetRequest, a.ForgetAnswer),
    "revoke": _verb("revoke", r.RevokeRequest, a.RevokeAnswer),
    "flag": _verb("flag", r.FlagRequest, a.FlagAnswer),
    "supersede": _verb("supersede", r.SupersedeRequest, a.SupersedeAnswer),
    "reinstate": _verb("reinstate", r.ReinstateRequest, a.ReinstateAnswer),
    "pin": _verb("pin", r.PinRequest, a.PinAnswer),
    "unpin": _verb("unpin", r.UnpinRequest, a.UnpinAnswer),
    "renew": _verb("renew", r.RenewRequest, a.RenewAnswer),
    "done": _verb("done", r.DoneRequest, a.DoneAnswer),
    "promote": _verb("promote", r.PromoteRequest, a.PromoteAnswer),
    "edit": _verb("edit", r.EditRequest, a.EditAnswer),
    "restore": _verb("restore", r.RestoreRequest, a.RestoreAnswer),
    "undo": _verb("undo", r.UndoRequest, a.UndoAnswer),
    "mirror": _verb("mirror", r.MirrorRequest, a.MirrorAnswer),
    "status": _verb("status", o.StatusRequest, o.StatusAnswer),
    "audit": _verb("audit", o.AuditRequest, o.AuditAnswer),
    "ledger": _verb("ledger", o.LedgerRequest, o.LedgerAnswer),
    "exposure": _verb("exposure", o.ExposureRequest, o.ExposureAnswer),
    "policy": _verb("policy", o.PolicyRequest, o.PolicyAnswer),
    "events": _verb("events", o.EventsRequest, o.EventsAnswer),
    "batch": _verb("batch", r.BatchRequest, a.BatchAnswer),
    "settle": _verb("settle", o.SettleRequest, o.SettleAnswer),
    "scrub": _verb("scrub", o.ScrubRequest, o.ScrubAnswer),
    "verify": _verb("verify", o.VerifyRequest, o.VerifyAnswer),
    "rebuild": _verb("rebuild", o.RebuildRequest, o.RebuildAnswer),
    "check": _verb("check", o.CheckRequest, o.CheckAnswer),
    "owners": _verb("owners", o.OwnersRequest, o.OwnersAnswer),
    "dead": _verb("dead", o.DeadRequest, o.DeadAnswer),
    "workspaces": _verb("workspaces", o.WorkspacesRequest, o.WorkspacesAnswer),
    "export": VerbSpec(o.ExportRequest, bytes, False, "export", "out"),
    "import": VerbSpec(o.ImportRequest, o.ImportAnswer, False, "import_notes", "in"),
}
"""Every verb of ``POST /v1/<verb>``."""
