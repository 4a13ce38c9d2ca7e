"""How a verb becomes a method: the body made of its arguments, the answer read by its type."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
A = TypeVar("A")

Built = dict[str, Any]


class Verb(Generic[P, A]):
    """One verb as clients offer it: ``build`` makes the body, ``decode`` reads the answer.

    ``signature`` is declared to return the answer, so that a client's method can take over its types whole.
    """

    def __init__(self, name: str, signature: Callable[P, A]) -> None:
        self.name = name
        self.signature = signature
        self.build = cast("Callable[P, Built]", signature)

    @cached_property
    def decode(self) -> Callable[[bytes], A]:
        """Bytes to the verb's answer type. The types are loaded on first use."""
        import msgspec

        from amnesiad import wire

        return cast("Callable[[bytes], A]", msgspec.json.Decoder(wire.VERBS[self.name].answer).decode)


def verb(name: str) -> Callable[[Callable[P, A]], Verb[P, A]]:
    """Make a verb of the function that builds its body. The function is called what callers call the method, for
    Python's own ``TypeError`` for a wrong argument repeats it."""

    def offer(signature: Callable[P, A]) -> Verb[P, A]:
        return Verb(name, signature)

    return offer


def asks(arguments: Built) -> A:  # type: ignore[type-var]
    """The body made of the arguments that say something; ``False`` is every flag's default on the wire.

    To the type checker it is the answer, which the client puts in its place once it has asked.
    """
    body = {
        name: value
        for name, value in arguments.items()
        if value is not ... and value is not False and (value is not None or name == "ttl_ms")
    }
    return cast("A", body)
