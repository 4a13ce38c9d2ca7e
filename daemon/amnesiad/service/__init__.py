"""The verbs, one method each, used by every face.

``Service`` is one class made of rooms: ``base`` (finding and addressing), ``writing`` (the loop that writes), ``guarding``
(what no word passes without), ``remembering`` (words in), ``transitions`` (one note from state to state), ``mirroring`` (what became of it
elsewhere), ``forgetting`` (words out),
``looking`` and ``ledger`` (without using), ``feed`` (as it happens), ``showing`` (what an answer passes before it is shown),
``recalling`` and ``injecting`` (into a context), ``explaining`` (why not), ``governing`` (workspaces and policy),
``hearing`` (agents' events and owners), ``maintaining`` (passes and proofs),
``hooking`` and ``glancing`` (what agents ask by themselves),
``exporting``, ``arriving`` and ``transfer`` (whole workspaces, out and in). A method takes a decoded ``wire`` request and
returns the answer, or raises an ``AmnesiaError``. Nothing here knows HTTP or Redis.
"""

from __future__ import annotations

from amnesiad import wire
from amnesiad.core.errors import AmnesiaError
from amnesiad.service.base import Jobs
from amnesiad.service.batch import answer_batch
from amnesiad.service.exposing import Exposing
from amnesiad.service.feed import Feeding
from amnesiad.service.glancing import Glancing
from amnesiad.service.transfer import Transfer

__all__ = ["Jobs", "Service"]


class Service(Transfer, Feeding, Exposing, Glancing):
    """Everything amnesiad can be asked to do."""

    async def batch(self, request: wire.BatchRequest) -> wire.BatchAnswer:
        """Several requests at once, answered in order, each on its own: one that is refused stops no other."""

        async def answer(verb: str, item: wire.Request) -> object:
            try:
                return await getattr(self, wire.VERBS[verb].method)(item)
            except AmnesiaError as error:
                return wire.error_answer(error)

        return await answer_batch(request, answer)
