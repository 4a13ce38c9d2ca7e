"""What a model may do with its memory by itself, in the same words under every framework: remember and recall.

An answer is one line that a model can act on, also where the daemon refused. Nothing else is offered to a model here:
ending and erasing go by their own faces, with their own checks.
"""

from __future__ import annotations

from typing import Any, Final

from amnesiad.errors import AmnesiaError
from amnesiad.integrations.link import Body, Link, query_of

REMEMBER: Final = (
    "Keep one statement for later turns. Only when the user asks for it, or when it will clearly be needed again. "
    "shelf_life is how long it will hold, like 2h, 7d or 90d. Pass key to replace what was kept under the same key."
)
RECALL: Final = "Find what was kept about a subject. Answers with the statements that still hold, one a line."
RECALLED: Final = 10
"""Statements in one answer."""


async def remember(link: Link, who: Body, content: str, shelf_life: str, key: str | None) -> str:
    """Keep a statement; what a model is told about it."""
    body: dict[str, Any] = {"content": content, "ttl_ms": shelf_life, "caller": link.who(who)}
    if key:
        body["key"] = key
    try:
        answer = await link.aask("remember", body)
    except AmnesiaError as error:
        return refused(error).replace("ttl_ms", "shelf_life")  # as the model knows it
    said = f"kept as {answer['id']}" if answer["created"] else f"known already, as {answer['id']}"
    return "\n".join([said, *(warning["text"] for warning in answer.get("warnings", ()))])


async def recall(link: Link, who: Body, query: str) -> str:
    """Find statements; what a model is told of them."""
    body = {"query": query_of(query) or "", "limit": RECALLED, "format": "text", "caller": link.who(who)}
    try:
        answer = await link.aask("recall", body)
    except AmnesiaError as error:
        return refused(error)
    return answer.get("text") or "nothing is kept about that"


def refused(error: AmnesiaError) -> str:
    """A refusal as a model can use it: what happened and what to do."""
    return f"not done: {error.message}" + (f" ({error.hint})" if error.hint else "")
