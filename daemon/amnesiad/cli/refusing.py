"""A refusal as whoever types it is told: the daemon speaks of fields, which are options here.

Words only: which exit code it is, and the JSON that programs get, are ``cli``'s own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from amnesiad.cli.screen import sentence
from amnesiad.errors import AmnesiaError

OPTION_OF: Final[Mapping[str, str]] = {
    "anchors": "--anchor",
    "budget_tokens": "--budget",
    "dry_run": "--dry-run",
    "expires_at": "--expires-at",
    "kinds": "--kind",
    "paths": "--path",
    "source_ref": "--source-ref",
    "states": "--state",
    "tags": "--tag",
    "triggers": "--trigger",
    "ttl_ms": "--ttl",
}
"""Fields that are no words of a sentence, and the options that fill them; the others are called the same."""

_FIELD: Final = re.compile(rf"(?<![\w-])({'|'.join(OPTION_OF)})\b(\[\d+\])?(?=$|[ .,:;])")
_LISTED: Final = frozenset({"anchors", "kinds", "paths", "states", "tags", "triggers"})
"""Words of a sentence as well: they are the field where they begin it, or with the number of an item."""
_CALLER: Final = re.compile(r"\bcaller\.(session|agent|team|agent_kind|on_behalf)\b")


def lines(error: AmnesiaError, hint: str) -> Iterator[str]:
    """What happened, the choices there are, and what to do."""
    yield f"error: {sentence(in_options(error.message))}"
    if error.choices:
        these = "these" if error.rule == "unconfirmed" else "one of"
        yield f"  {these}: {sentence(', '.join(error.choices))}"
    if hint:
        yield f"  hint: {sentence(in_options(hint).replace('send confirm: true', 'add --yes'))}"


def in_options(text: str) -> str:
    """The text with fields of a request under the names of the options."""

    def option(found: re.Match[str]) -> str:
        field, item = found.groups()
        if field in _LISTED and not item and found.start():
            return found[0]
        return OPTION_OF[field]

    return _CALLER.sub(lambda found: "--" + found[1].replace("_", "-"), _FIELD.sub(option, text))
