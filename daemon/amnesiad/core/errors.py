"""What the core raises: refusals that name the field or the rule, never a bare ``ValueError``.

The shells' own failures (store, daemon) live in ``amnesiad.errors``, which also draws the whole tree.
Each class carries the closed ``code`` of the socket API. Messages hold identifiers, limits and numbers, never a
note's words.
"""

from __future__ import annotations


class AmnesiaError(Exception):
    """Base of everything amnesiad raises on purpose: what happened, and what to do about it.

    ``field`` names the request field or setting at fault, ``rule`` the domain rule that said no,
    ``choices`` the ids or owners an ambiguous address could mean.
    """

    code = "internal"

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        field: str | None = None,
        rule: str | None = None,
        choices: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field
        self.rule = rule
        self.choices = choices


class CallerError(AmnesiaError):
    """The caller can mend it; nothing was changed."""


class Invalid(CallerError):
    """A value is malformed or out of range; ``field`` names it."""

    code = "invalid"


class NotFound(CallerError):
    """No such note, owner or workspace is visible to this caller."""

    code = "not_found"


class Ambiguous(CallerError):
    """An address matches several; ``choices`` lists them."""

    code = "ambiguous"


class Refused(CallerError):
    """A domain rule said no; ``rule`` names it."""

    code = "refused"


class IllegalTransition(Refused):
    """The transition table has no row for this move from this state."""


class Forbidden(CallerError):
    """This role may not do this to this note."""

    code = "forbidden"


class StoreFull(CallerError):
    """A capacity bound of the workspace would be passed and nothing may be evicted for it."""

    code = "store_full"


class TooLarge(CallerError):
    """A request or a value exceeds its size limit."""

    code = "too_large"
