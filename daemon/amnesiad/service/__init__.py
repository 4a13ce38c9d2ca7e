"""The verbs, one method each, used by every face.

``Service`` is one class made of rooms, each of which extends only what it uses. ``base`` finds workspaces and addresses
notes; ``writing``, ``reading``, ``hooks`` and ``transfer`` are folders of rooms; beside them stand ``governing``
(workspaces and policy), ``hearing`` (agents' events and owners), ``maintaining`` (passes and proofs) and ``batch``
(several requests at once). ``residence`` keeps projections loaded and ``meaning`` embeds, after the answers. A method
takes a decoded ``wire`` request and returns the answer, or raises an ``AmnesiaError``. Nothing here knows HTTP or
Redis.
"""

from __future__ import annotations

from amnesiad import wire
from amnesiad.core.errors import AmnesiaError
from amnesiad.service.base import Jobs
from amnesiad.service.batch import answer_batch
from amnesiad.service.hooks.status_line import StatusLine
from amnesiad.service.maintaining import Maintaining
from amnesiad.service.reading.explaining import Explaining
from amnesiad.service.reading.exposing import Exposing
from amnesiad.service.reading.feed import Feeding
from amnesiad.service.transfer.exporting import Exporting
from amnesiad.service.transfer.importing import Importing
from amnesiad.service.writing.forgetting import Forgetting
from amnesiad.service.writing.mirroring import Mirroring
from amnesiad.service.writing.transitions import Transitions

__all__ = ["Jobs", "Service"]


class Service(
    Transitions,
    Mirroring,
    Forgetting,
    Explaining,
    Exposing,
    Feeding,
    StatusLine,
    Exporting,
    Importing,
    Maintaining,
):
    """Everything amnesiad can be asked to do."""

    async def batch(self, request: wire.BatchRequest) -> wire.BatchAnswer:
        """Several requests at once, answered in order, each on its own: one that is refused stops no other."""

        async def answer(verb: str, item: wire.Request) -> object:
            try:
                return await getattr(self, wire.VERBS[verb].method)(item)
            except AmnesiaError as error:
                return wire.error_answer(error)

        return await answer_batch(request, answer)
