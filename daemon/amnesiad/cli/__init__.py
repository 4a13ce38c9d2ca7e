"""The command line: every verb as one command, grouped as the help lists them, and the meaning of the exit codes.

``main`` is the entry point; it returns the exit code and never lets a traceback through. The commands are one file
per group of verbs beside this one. No verb is decided here: each asks the daemon and shows its answer.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
import typer.core
import typer.main

from amnesiad import __version__, shims
from amnesiad.cli import connecting, endings, fleet, notes, oversight, processes, reading, tools, transfer, trying
from amnesiad.cli.call import print_json
from amnesiad.errors import AmnesiaError, ConfigError, DaemonUnreachable, Invalid

__all__ = ["EXIT_REFUSED", "EXIT_UNREACHABLE", "EXIT_USAGE", "main"]

EXIT_REFUSED: Final = 1
"""The daemon said no, found nothing, or could not do it; also an answer that is bad news (verify, doctor)."""
EXIT_USAGE: Final = 2
"""The command, a value or a setting is wrong."""
EXIT_UNREACHABLE: Final = 3
"""No daemon answers."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C, as shells count it."""
EXIT_PIPE_CLOSED: Final = 141
"""Whoever read our output has gone, as shells count it."""

_UNWRITABLE: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""What says that the place our output goes to takes no more: no fault of ours, and none of the daemon's."""


def _joined(*groups: typer.Typer) -> typer.Typer:
    """The commands of several files as one group, in order."""
    whole = typer.Typer()
    for group in groups:
        whole.registered_commands.extend(group.registered_commands)
    return whole


SECTIONS: Final = {
    "Remember": notes.app,
    "Read": reading.app,
    "End and bring back": endings.app,
    "Watch over": oversight.app,
    "Connect agents": _joined(connecting.app, tools.app),
    "Agents and workspaces": fleet.app,
    "In bulk": transfer.app,
    "Run": processes.app,
    "Find out": trying.app,
}
"""The help's sections, in order, each with the commands of one file or of two that belong together."""

# The class that typer raises for wrong usage has no public name of its own; the public BadParameter derives from it.
_UsageError: Final[type[Any]] = typer.BadParameter.__bases__[0]


class _Sectioned(typer.core.TyperGroup):
    """Lists the commands under the headings of ``SECTIONS``; forty in one column are hard to find one's way in."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - typer's signature
        for title, group in SECTIONS.items():
            names = [_name(command) for command in group.registered_commands]
            width = formatter.width - max(map(len, names)) - 6
            with formatter.section(title):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(width)) for name in names])


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"amnesia {__version__}\n")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """Holds the options of ``amnesia`` itself; ``--version`` has ended the command before this is called."""


def _new_app() -> typer.Typer:
    app = typer.Typer(
        cls=_Sectioned,
        help="The memory sidecar that governs how agent memory ends.",
        epilog="Exit codes: 0 done, 1 refused or not found, 2 wrong usage, 3 no daemon answers.",
        no_args_is_help=True,
        # Plain help and errors: rich would take longer to import than most commands to run.
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


app: Final = _new_app()
for _group in SECTIONS.values():
    app.add_typer(_group)


def _tree(arguments: list[str]) -> Any:
    """The tree of commands, or for one that is named only its branch: forty take longer to make than most to run."""
    for group in SECTIONS.values():
        for command in group.registered_commands:
            if arguments and _name(command) == arguments[0]:
                branch = _new_app()
                branch.registered_commands.append(command)
                return typer.main.get_command(branch)
    return typer.main.get_command(app)


def _name(command: Any) -> str:
    return str(command.name or command.callback.__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. ``arguments`` default to those of the process."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if (code := shims.dispatch(arguments)) is not None:  # for those who did not come through ``amnesiad.entry``
        return code
    _stand_in_for_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that is not UTF-8 gets escapes, not a traceback
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
        return EXIT_PIPE_CLOSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        _give_up_output()
        # In words on standard error even for --json: the JSON would go where nothing can be written.
        why = AmnesiaError(f"the output could not be written: {error.strerror}", hint="make room, or write elsewhere")
        _report(why, as_json=False)
        return EXIT_REFUSED
    return code


def _stand_in_for_closed_streams() -> None:
    """Put the void where a supervisor started us without a stream: Python has ``None`` there, and the number of the
    descriptor would go to the next file or socket that is opened."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 - open for as long as the process lives


def _give_up_output() -> None:
    """Python flushes once more on its way out; into the void, then, rather than where nothing can be written."""
    void = os.open(os.devnull, os.O_WRONLY)
    os.dup2(void, sys.stdout.fileno())
    os.close(void)


def _run(arguments: list[str]) -> int:
    as_json = "--json" in arguments
    try:
        code = _tree(arguments).main(arguments, prog_name="amnesia", standalone_mode=False)
    except AmnesiaError as error:
        _report(error, as_json)
        return exit_code(error)
    except typer.Abort:
        return EXIT_INTERRUPTED
    except _UsageError as error:
        if as_json:
            _report(Invalid(error.format_message()), as_json)
        else:
            error.show()
        return EXIT_USAGE
    except SystemExit as ended:
        # typer ends the process where the reader of a pipe has gone, with a code that says something else.
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from None
        raise
    except Exception as error:
        if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno in _UNWRITABLE):
            raise  # of the output, which is ``main``'s to give up
        _report(_as_bug(error), as_json)
        return EXIT_REFUSED
    return code if isinstance(code, int) else 0


def exit_code(error: AmnesiaError) -> int:
    """The exit code of a refusal."""
    if isinstance(error, Invalid | ConfigError):
        return EXIT_USAGE
    return EXIT_UNREACHABLE if isinstance(error, DaemonUnreachable) else EXIT_REFUSED


def _report(error: AmnesiaError, as_json: bool) -> None:
    hint = error.hint
    if isinstance(error, DaemonUnreachable) and not hint:
        hint = 'start it with "amnesia up", or see what is wrong with "amnesia doctor"'
    if as_json:
        extras = {"field": error.field, "rule": error.rule, "choices": list(error.choices)}
        given = {name: value for name, value in extras.items() if value}
        print_json({"error": {"code": error.code, "message": error.message, "hint": hint, **given}})
        return
    from amnesiad.cli.refusing import lines

    sys.stderr.write("\n".join(lines(error, hint)) + "\n")


def _as_bug(error: Exception) -> AmnesiaError:
    """An unexpected exception as one line that can be reported. Its message stays out: it may quote a note."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place is not None else "nowhere"
    return AmnesiaError(
        f"a bug in amnesia {__version__}: {type(error).__name__} at {where}",
        hint="please report this line and the command; none of your notes is in it",
    )
