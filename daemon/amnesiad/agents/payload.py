"""Reading a hook's payload: what must be there is there and is text, and what may be there cannot break anything.

Payloads belong to programs that change every week, so fields nobody knows are left alone and optional ones of another
type count as absent. Only who it is about is held to its letter: a child that cannot be told must not pass for its
session. A refusal names the field and quotes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from amnesiad.core.errors import Invalid
from amnesiad.core.intake import check_id

MAX_PATHS: Final = 256
"""Paths taken from one payload: as many as one lifecycle event may name."""
MAX_PATH_CHARS: Final = 4096
"""PATH_MAX of Linux; a longer text is no path."""
MAX_ID_CHARS: Final = 256
"""Of a tool call's id, which is kept in memory only and need not fit the log."""


class Payload:
    """A hook's fields. ``names`` are alternatives: the first is the agent's own word, and the one an error names."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._fields = fields

    def value(self, names: Iterable[str]) -> tuple[str, Any]:
        """The first field that is there and not null, with its name; else the first name, and ``None``."""
        first = ""
        for name in names:
            first = first or name
            if self._fields.get(name) is not None:
                return name, self._fields[name]
        return first, None

    def text(self, names: Iterable[str]) -> str:
        """A field that must be there as text. Raises ``Invalid`` naming it."""
        name, value = self.value(names)
        if value is None or value == "":
            raise Invalid(f"{name} is missing from the hook's payload", field=name, hint="the agent goes on without")
        if not isinstance(value, str):
            raise Invalid(f"{name} must be text, not {_shape(value)}", field=name)
        return value

    def identity(self, names: Iterable[str]) -> str:
        """An id that must be there. Raises ``Invalid`` naming it."""
        names = tuple(names)
        return check_id(self.text(names), self.value(names)[0])

    def own_identity(self, names: Iterable[str]) -> str | None:
        """An id that may be absent, null or empty; anything else must be one. Raises ``Invalid`` naming it."""
        names = tuple(names)
        return None if self.value(names)[1] in (None, "") else self.identity(names)

    def any_text(self, *names: str) -> str | None:
        """A field that may be there as text."""
        _, value = self.value(names)
        return value if isinstance(value, str) and value else None

    def any_id(self, names: Iterable[str]) -> str | None:
        """A field that may be there as an id, or a number that serves as one."""
        _, value = self.value(names)
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        try:
            return check_id(value, "id") if isinstance(value, str) else None
        except Invalid:
            return None

    def any_object(self, name: str) -> Payload:
        """A field that may be there as an object; an empty one where it is not."""
        value = self._fields.get(name)
        return Payload(value if isinstance(value, dict) else {})

    def any_objects(self, name: str) -> list[Payload]:
        """The objects in a field that may be there as a list."""
        value = self._fields.get(name)
        return [Payload(one) for one in value if isinstance(one, dict)] if isinstance(value, list) else []

    def any_texts(self, *names: str) -> list[str]:
        """The texts that these fields hold, each one text or a list of them."""
        found: list[str] = []
        for name in names:
            value = self._fields.get(name)
            found += [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str) and one]
        return found


def _shape(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    return "a list" if isinstance(value, list) else "an object"
