"""The command lines that agents are given: the hook in its two forms, the MCP server, the status line.

A line is one word list for ``sh``, whatever shell the agent runs it with, and names everything by its full path, since
an agent started from a desktop has a short ``PATH``. Every form fails open: exit 0 and no output.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from amnesiad import places

Form = Literal["curl", "python"]
FORMS: Final[tuple[Form, ...]] = ("curl", "python")
MAX_SECONDS: Final = 1
"""As long as the Python form waits."""

_OUR_HOOK: Final = re.compile(r"/v1/hooks/[a-z-]+|amnesiad/shims/hook\.py|\bamnesia hook ")


def hook_line(agent: str, form: Form, *, socket: str, workspace: str | None = None) -> str:
    """What an agent runs for one event. ``curl`` is the fast form, and falls back to the other where there is none."""
    python = shlex.join(
        [*_python("hook.py"), agent, "--socket", socket, *(["--workspace", workspace] if workspace else [])]
    )
    if form == "python":
        return _for_sh(f"{python} || true")
    query = f"?workspace={quote(workspace, safe='')}" if workspace else ""
    # -q: no ~/.curlrc. -f: a refusal is no output. Kept until it is whole, so that half an answer is never read.
    curl = shlex.join(
        [
            *("curl", "-qsf", "--noproxy", "amnesiad", "--max-time", str(MAX_SECONDS), "--unix-socket", socket),
            *("-H", "Expect:", "--data-binary", "@-", f"http://amnesiad/v1/hooks/{agent}{query}"),
        ]
    )
    # A workspace that the environment names would have to be quoted for a URL, which a shell cannot.
    unnamed = "" if workspace else '[ -z "$AMNESIA_WORKSPACE" ] && '
    return _for_sh(
        f'if {unnamed}command -v curl >/dev/null; then answer=$({curl}) && printf %s "$answer"; '
        f"else {python}; fi || true"
    )


def mcp_command(*, socket: str) -> list[str]:
    """What an agent starts as our MCP server."""
    return [*_python("mcp.py"), "--socket", socket]


def status_line(*, socket: str, workspace: str | None = None) -> str:
    """What an agent runs for its status line."""
    named = ["--workspace", workspace] if workspace else []
    return _for_sh(f"{shlex.join([*_python('statusline.py'), '--socket', socket, *named])} || true")


def is_our_hook(command: object) -> bool:
    """Whether a command line is one of ours, of whatever version, form and socket."""
    return isinstance(command, str) and _OUR_HOOK.search(command) is not None


def is_our_status_line(command: object) -> bool:
    """Whether a command line is our status line."""
    return isinstance(command, str) and ("amnesiad/shims/statusline.py" in command or "amnesia statusline" in command)


def socket_of(command: str) -> str | None:
    """The socket that one of our lines names, if it names one."""
    words = iter(_words(command))
    return next((next(words, "").rstrip(";") for word in words if word in ("--socket", "--unix-socket")), None)


def files_of(command: str) -> list[str]:
    """The programs and scripts of ours that a line names by their full path."""
    words = [word.rstrip(";") for word in _words(command)]
    shims = (place for place, word in enumerate(words) if "/amnesiad/shims/" in word)
    return [word for place in shims for word in (words[max(0, place - 3)], words[place]) if word.startswith("/")]


def _python(shim: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(Path(places.__file__).parent / "shims" / shim)]


def _for_sh(script: str) -> str:
    return f"sh -c {shlex.quote(script)}"


def _words(command: str) -> list[str]:
    """The words of a line, those of the script in it where it is one for ``sh``."""
    try:
        words = shlex.split(command)
        return shlex.split(words[2]) if words[:2] == ["sh", "-c"] and len(words) == 3 else words
    except ValueError:  # a quotation that is not closed: somebody has edited it
        return command.split()
