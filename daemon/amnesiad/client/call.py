"""How a verb becomes a method: the body made of its arguments, the answer read by its type, a name that callers know."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar, cast

P = ParamSpec("P")
A = TypeVar("A")

Built = dict[str, Any]


def _named(function: Callable[P, A], name: str) -> Callable[P, A]:
    """The function under the name that callers know, which Python's own ``TypeError`` for a wrong argument repeats."""
    known = cast("FunctionType", function)
    named = FunctionType(known.__code__, known.__globals__, name, known.__defaults__, known.__closure__)
    named.__qualname__ = name
    named.__doc__, named.__module__ = known.__doc__, known.__module__
    named.__kwdefaults__, named.__annotations__ = known.__kwdefaults__, known.__annotations__
    return cast("Callable[P, A]", named)


class Call(Generic[P, A]):
    """One verb as clients offer it: ``build`` makes the body, ``decode`` reads the answer.

    ``signature`` is declared to return the answer, so that a client's method can take over its types whole. ``method`` is
    that method's name, where it is not the verb's.
    """

    def __init__(self, verb: str, signature: Callable[P, A], *, method: str = "") -> None:
        self.verb = verb
        self.signature = _named(signature, method or verb.replace("-", "_"))
        self.build = cast("Callable[P, Built]", self.signature)

    @cached_property
    def decode(self) -> Callable[[bytes], A]:
        """Bytes to the verb's answer type. The types are loaded on first use."""
        import msgspec

        from amnesiad import wire

        return cast("Callable[[bytes], A]", msgspec.json.Decoder(wire.VERBS[self.verb].answer).decode)


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
