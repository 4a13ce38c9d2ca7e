"""Telling systemd how far we are and that we live, where it asked (``NOTIFY_SOCKET``, see sd_notify(3))."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping


def notify(state: str) -> None:
    """Send one state, such as ``READY=1`` or ``STOPPING=1``. Does nothing outside systemd, and never raises."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        # An @ stands for the leading zero of a name in Linux's abstract namespace.
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.sendall(state.encode())


def watchdog_s(environ: Mapping[str, str]) -> float | None:
    """Between two signs of life, in seconds: half of what systemd waits for one. ``None`` where it waits for none."""
    wanted, whose = environ.get("WATCHDOG_USEC", ""), environ.get("WATCHDOG_PID", "")
    if not (wanted.isascii() and wanted.isdigit()) or int(wanted) == 0:
        return None
    if whose and whose != str(os.getpid()):  # the variables of a service that started us as its child
        return None
    return int(wanted) / 1_000_000 / 2


async def keep_alive(every_s: float) -> None:
    """Give a sign of life every so often, for ever. From the event loop: one that stands still gives none."""
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(every_s)
