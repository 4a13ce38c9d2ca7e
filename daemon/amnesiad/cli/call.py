"""One verb on the command line: the options that every verb shares, the request, and the answer as it was asked for.

``verb`` turns a function whose first argument is a ``Call`` into a command with the common options. A command says
which verb to ask for with which body, and how people see the answer; who is calling, where, and ``--json`` are dealt
with here, once. Nothing here knows what a verb means.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final, cast

import typer

from amnesiad.cli.identity import Role, decide_role
from amnesiad.cli.screen import console_note, say, sentence
from amnesiad.errors import Invalid
from amnesiad.limits import MAX_REQUEST_BYTES
from amnesiad.places import config_file
from amnesiad.repository import default_workspace

if TYPE_CHECKING:
    from amnesiad.client import Client

Answer = dict[str, Any]

_IDENTITY: Final = {
    "named_workspace": "--workspace",
    "session": "--session",
    "team": "--team",
    "agent": "--agent",
    "agent_kind": "--agent-kind",
    "socket": "--socket",
}
"""What says for whom and where a call is, and the option it comes from."""

_answers: ContextVar[list[Answer] | None] = ContextVar("_answers", default=None)


@contextmanager
def listening() -> Iterator[list[Answer]]:
    """The answers that commands run inside this block got, in order; they are printed all the same."""
    heard: list[Answer] = []
    token = _answers.set(heard)
    try:
        yield heard
    finally:
        _answers.reset(token)


@dataclass(frozen=True)
class Call:
    """Who calls, where, and how the answer is wanted. The common options of every verb."""

    named_workspace: str | None = None
    session: str | None = None
    team: str | None = None
    agent: str | None = None
    agent_kind: str | None = None
    wanted_role: str | None = None
    on_behalf: str | None = None
    as_json: bool = False
    socket: str | None = None

    def check(self) -> None:
        """Raise ``Invalid`` for an option that was given without a value: ``--workspace "$UNSET"`` means some
        workspace, but not the one of the current directory, and a child without its name is not the main agent."""
        for name, option in _IDENTITY.items():
            if getattr(self, name) == "":
                raise Invalid(
                    f"{option} is empty", field=option.removeprefix("--"), hint="give it a value, or leave it out"
                )

    @cached_property
    def workspace(self) -> str:
        """The workspace that was named, else the one of the current directory."""
        if self.named_workspace:
            return self.named_workspace
        try:
            directory = Path.cwd()
        except FileNotFoundError:
            raise Invalid(
                "the current directory no longer exists", field="workspace", hint="change to one that does"
            ) from None
        return default_workspace(directory, os.environ, store_is_local=_store_is_local(os.environ))

    @cached_property
    def role(self) -> Role:
        """The role this call claims. Raises ``Forbidden`` or ``Invalid`` for a claim that cannot be made here."""
        if self.wanted_role not in (None, "human", "agent"):
            raise Invalid(f"--as must be human or agent, not {self.wanted_role!r}", field="as")
        named_agent = self.agent is not None or self.agent_kind not in (None, "main")
        wanted = cast("Role | None", self.wanted_role)
        return decide_role(wanted, os.environ, terminal=on_terminal(), named_agent=named_agent)

    @cached_property
    def client(self) -> Client:
        """The connection to the daemon; nothing is sent before the first ``ask``."""
        from amnesiad.client import Client

        return Client(
            self.socket,
            workspace=self.workspace,
            session=self.session,
            agent=self.agent,
            team=self.team,
            agent_kind=self.agent_kind,
            role=self.role,
            on_behalf=self.on_behalf,
        )

    def ask(self, verb: str, fields: Mapping[str, Any] | None = None, **options: Any) -> Answer:
        """The daemon's answer to one request: ``fields`` as they are, and those ``options`` that are not ``None``."""
        body = {name: value for name, value in options.items() if value is not None}
        answer: Answer = self.client.call(verb, {**body, **(fields or {})})
        heard = _answers.get()
        if heard is not None:
            heard.append(answer)
        return answer

    def close(self) -> None:
        """Hang up, if there ever was a connection."""
        if "client" in self.__dict__:
            self.client.close()

    def show(self, answer: Answer, text: Callable[[], None]) -> None:
        """Print an answer: unchanged with ``--json``, else as ``text`` prints it for people, and the notices in it."""
        if self.as_json:
            print_json(answer)
        else:
            text()
            say_notices(answer)

    def confirm(self, question: str) -> bool:
        """Ask on a terminal. Raises ``Invalid`` where nobody can answer; ``--yes`` is then the way to say it."""
        if not on_terminal() or self.as_json:
            raise Invalid("this needs a yes, and there is no terminal to ask on", field="confirm", hint="add --yes")
        return agreed(question)


def agreed(question: str) -> bool:
    """The answer of whoever sits at the terminal. Raises ``typer.Abort`` for Ctrl-C and Ctrl-D, which mean no."""
    try:
        return typer.confirm(question)
    except typer.Abort:  # the cursor stands behind the question still
        console_note("\nnothing changed")
        raise


def on_terminal() -> bool:
    """Whether a person can read and answer here: input and output are both a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def say_notices(answer: Answer) -> None:
    """What the secret guard has to say about the words that the request brought in."""
    for notice in answer.get("notices") or ():
        say(f"notice: {sentence(notice)}")


def print_json(answer: Mapping[str, Any]) -> None:
    """One line of JSON. On a terminal everything beyond ASCII is escaped, so that no text can move the cursor."""
    import json

    readable = not sys.stdout.isatty() and (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    text = json.dumps(answer, ensure_ascii=not readable, separators=(",", ":"))
    sys.stdout.write(text + "\n")


def standard_input() -> BinaryIO:
    """What is typed or piped in. On a terminal it is said that we wait for it, which nothing else would show."""
    if sys.stdin.isatty():
        sys.stderr.write("reading from the terminal; end with Ctrl-D on a line of its own\n")
    return sys.stdin.buffer


def text_or_stdin(argument: str, field: str) -> str:
    """The argument, or for ``-`` what stands on standard input without its last line break."""
    if argument != "-":
        return argument
    data = standard_input().read(MAX_REQUEST_BYTES + 1)
    if len(data) > MAX_REQUEST_BYTES:
        raise Invalid(f"{field} on standard input exceeds {MAX_REQUEST_BYTES} bytes", field=field)
    try:
        return data.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Invalid(f"{field} on standard input is not UTF-8 text", field=field) from None


def _store_is_local(environ: Mapping[str, str]) -> bool:
    """Whether a directory names a workspace. Settings are slow to load, so only where some say otherwise."""
    if not environ.get("AMNESIA_REDIS_URL") and config_file(environ) is None:
        return True
    from amnesiad.settings import load_settings

    return load_settings().store_is_local


def _common(
    *,
    named_workspace: Annotated[
        str | None,
        typer.Option(
            "--workspace",
            "-w",
            metavar="NAME",
            envvar="AMNESIA_WORKSPACE",
            help="Default: this repository, else this directory.",
        ),
    ] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="ID", envvar="AMNESIA_SESSION", help="Session id.")
    ] = None,
    team: Annotated[str | None, typer.Option("--team", metavar="ID", envvar="AMNESIA_TEAM", help="Team id.")] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="ID", envvar="AMNESIA_AGENT", help="Agent id.")
    ] = None,
    agent_kind: Annotated[
        str | None,
        typer.Option(
            "--agent-kind",
            metavar="KIND",
            envvar="AMNESIA_AGENT_KIND",
            help="main, subagent, continuable, workflow, teammate or fresh.",
        ),
    ] = None,
    wanted_role: Annotated[
        str | None, typer.Option("--as", metavar="human|agent", help="Default: human on a terminal of your own.")
    ] = None,
    on_behalf: Annotated[
        str | None, typer.Option("--on-behalf", metavar="user", help="The agent does what its user said.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer object unchanged.")] = False,
    socket: Annotated[
        str | None, typer.Option("--socket", envvar="AMNESIA_SOCKET", metavar="PATH", help="The daemon's socket.")
    ] = None,
) -> None:
    """Never called: its signature is where the common options are written down."""


_COMMON: Final = tuple(inspect.signature(_common, eval_str=True).parameters.values())


def verb(app: typer.Typer, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command of ``app`` that takes the common options besides its own."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        def run(**values: Any) -> None:
            call = Call(**{parameter.name: values.pop(parameter.name) for parameter in _COMMON})
            call.check()
            try:
                function(call, **values)
            finally:
                call.close()

        own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in (*own, *_COMMON)]
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        app.command(name)(run)
        return function

    return register
