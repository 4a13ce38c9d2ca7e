"""A feed's server-sent events, line by line, as items: for both clients, whatever they read the lines with."""

from __future__ import annotations

import msgspec

from amnesiad import wire


class Told:
    """What was read of the event that is under way."""

    def __init__(self) -> None:
        self._fields: dict[bytes, bytes] = {}

    def take(self, line: bytes) -> wire.FeedItem | None:
        """The item that this line, without its end, completes. Comments are heartbeats and left out."""
        name, _, value = line.partition(b":")
        if name:
            self._fields[name] = value.removeprefix(b" ")
            return None
        if line or b"data" not in self._fields:
            return None
        fields, self._fields = self._fields, {}
        return wire.FeedItem(
            seq=fields[b"id"].decode(), type=fields[b"event"].decode(), data=msgspec.json.decode(fields[b"data"])
        )
