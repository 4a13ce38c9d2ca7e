"""Telling systemd how far we are, where it asked (``NOTIFY_SOCKET``, see sd_notify(3))."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(state: str) -> None:
    """Send one state, such as ``READY=1`` or ``STOPPING=1``. Does nothing outside systemd, and never raises."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        # An @ stands for the leading zero of a name in Linux's abstract namespace.
        sender.connect("\0" + address[1:] if address.startswith("@") else address)
        sender.sendall(state.encode())
