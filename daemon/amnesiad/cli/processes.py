"""The long-running commands, up, daemon and worker, and where their socket is.

Each loads the settings, hands them to the process it names and passes its exit code on. The processes themselves
live in ``amnesiad.daemon`` and ``amnesiad_workers.worker`` and are imported only when they are to run.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amnesiad.cli.call import print_json

if TYPE_CHECKING:
    from amnesiad.settings import Settings

app = typer.Typer()

Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The TOML file to read; also AMNESIA_CONFIG.")
]
Socket = Annotated[str | None, typer.Option("--socket", metavar="PATH", help="Where to serve.")]
StateDir = Annotated[str | None, typer.Option("--state-dir", metavar="PATH", help="Where to keep what lasts.")]
RedisUrl = Annotated[
    str | None, typer.Option("--redis-url", metavar="URL", help="A store of yours; by default one of our own is run.")
]
Http = Annotated[str | None, typer.Option("--http", metavar="HOST:PORT", help="Also serve loopback TCP.")]
LogLevel = Annotated[str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")]


def _settings(config: Path | None, **overrides: str | None) -> Settings:
    from amnesiad.settings import load_settings

    return load_settings(config, os.environ, **overrides)


@app.command()
def up(
    config: Config = None,
    socket: Socket = None,
    state_dir: StateDir = None,
    redis_url: RedisUrl = None,
    http: Http = None,
    log_level: LogLevel = None,
) -> None:
    """Run store, daemon and worker in the foreground. All that one machine needs."""
    settings = _settings(
        config, socket=socket, state_dir=state_dir, redis_url=redis_url, http=http, log_level=log_level
    )
    from amnesiad.daemon import run_up

    raise typer.Exit(run_up(settings))


@app.command()
def daemon(
    config: Config = None,
    socket: Socket = None,
    state_dir: StateDir = None,
    redis_url: RedisUrl = None,
    http: Http = None,
    log_level: LogLevel = None,
) -> None:
    """Run the daemon alone, for systemd and containers."""
    settings = _settings(
        config, socket=socket, state_dir=state_dir, redis_url=redis_url, http=http, log_level=log_level
    )
    from amnesiad.daemon import run_daemon

    raise typer.Exit(run_daemon(settings))


@app.command()
def worker(
    config: Config = None, state_dir: StateDir = None, redis_url: RedisUrl = None, log_level: LogLevel = None
) -> None:
    """Run one worker alone, for systemd and containers."""
    settings = _settings(config, state_dir=state_dir, redis_url=redis_url, log_level=log_level)
    from amnesiad_workers.worker import run_worker

    raise typer.Exit(run_worker(settings))


@app.command()
def sockname(
    config: Config = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Print the path of the daemon's socket."""
    path = str(_settings(config).socket)
    if as_json:
        print_json({"socket": path})
    else:
        sys.stdout.write(path + "\n")
