"""The outbound feed as server-sent events: formatting, heartbeats and an end, whoever ends it first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from amnesiad import wire
from amnesiad.api.exchange import Exchange
from amnesiad.tasks import end

HEARTBEAT_S: Final = 15.0
"""A comment this often keeps proxies from closing a quiet feed and lets both ends notice a dead one."""


def sse(item: wire.FeedItem) -> bytes:
    """One server-sent event. JSON has no raw line breaks, so the data is always one line."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (item.seq.encode(), item.type.encode(), wire.encode(item.data))


async def stream_feed(exchange: Exchange, items: AsyncIterator[wire.FeedItem], closing: asyncio.Event) -> None:
    """Send the items until the client hangs up, the source ends, or ``closing`` is set.

    A source tells at once where it begins, so its first item is waited for: a refusal still gets its own status.
    """
    source: Any = items
    async with aclosing(source):
        first = await anext(source, None)
        await exchange.start_stream(b"text/event-stream")
        await exchange.write(b": amnesiad\n\n")
        ends: set[asyncio.Future[Any]] = {
            asyncio.ensure_future(exchange.hang_up()),
            asyncio.ensure_future(closing.wait()),
        }
        pending: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        pending.set_result(first)
        try:
            while True:
                done, _ = await asyncio.wait({pending, *ends}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if done & ends:
                    break
                if not done:
                    await exchange.write(b": still here\n\n")
                    continue
                item = pending.result()
                if item is None:
                    break
                await exchange.write(sse(item))
                pending = asyncio.ensure_future(anext(source, None))
        finally:
            await end(pending, *ends)
        await exchange.finish()
