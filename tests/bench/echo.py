"""``python -m tests.bench.echo SOCKET``: the daemon's own server stack with nothing behind it.

It answers every request with the request's body. What a verb takes beyond this is the verb's; the rest is the price of
HTTP over a Unix socket on this machine.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from amnesiad.api.app import App
from amnesiad.api.exchange import Exchange
from amnesiad.api.serve import ApiServer


class Echo(App):
    """No routes, no decoding, no service."""

    async def _route(self, exchange: Exchange) -> None:
        await exchange.answer(200, await exchange.body())


async def _serve(socket: Path) -> None:
    server = ApiServer(Echo(None), socket)
    await server.start()
    try:
        await asyncio.Event().wait()
    finally:
        await server.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(Path(sys.argv[1])))
