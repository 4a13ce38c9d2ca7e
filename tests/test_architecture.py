"""The arrows of the house, held with ``ast``: who may import whom, whatever modules exist.

Every import counts, at the top of a module, inside a function or for types alone. The checker is a pure function of
sources, so that made-up modules prove that it fails.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

ROOT: Final = Path(__file__).parents[1]
PACKAGES: Final = {"amnesiad": ROOT / "daemon" / "amnesiad", "amnesiad_workers": ROOT / "workers" / "amnesiad_workers"}

CORE_MAY_USE: Final = frozenset({"msgspec"})
"""What core/ imports beside the standard library and itself."""

_BASE: Final = frozenset({"core", "errors", "limits", "places", "logs", "tasks"})
"""The core, and the leaves with nothing behind them: exceptions, constants, and where files are when nothing says
so."""

FACES: Final = frozenset({"cli", "install", "integrations", "shims"})
_FACE: Final = _BASE | {"client", "wire", "settings", "amnesiad"}

ARROWS: Final[Mapping[str, frozenset[str]]] = {
    "core": frozenset(),
    "limits": frozenset(),
    "places": frozenset(),
    "tasks": frozenset(),
    "logs": frozenset(),
    "errors": frozenset({"core"}),
    "addresses": _BASE,
    "settings": _BASE | {"addresses"},
    "anchors": _BASE,
    "tokens": _BASE,
    "secretscan": frozenset(),
    "embedding": frozenset(),
    "repository": _BASE,
    "agents": _BASE,
    "wire": _BASE,
    "store": _BASE,
    "search": _BASE,
    "projection": _BASE | {"search", "tokens"},
    "workspace": _BASE | {"projection", "store"},
    "service": _BASE
    | {
        "workspace",
        "projection",
        "store",
        "search",
        "wire",
        "settings",
        "anchors",
        "tokens",
        "secretscan",
        "embedding",
        "amnesiad",
    }
    | {"agents", "repository"},
    "api": _BASE | {"service", "wire", "settings", "amnesiad"},
    "mcp": _BASE | {"service", "wire", "settings", "amnesiad", "repository"},
    "bridge": _BASE | {"store", "settings", "wire", "secretscan"},
    "daemon": _BASE | {"api", "mcp", "bridge", "service", "workspace", "store", "wire", "settings", "amnesiad"},
    "client": _BASE | {"wire"},
    "cli": _FACE | (FACES - {"cli"}) | {"repository"},
    "entry": frozenset({"cli", "shims"}),
    "install": _FACE | {"agents"},
    "integrations": _FACE,
    "shims": frozenset({"places", "limits", "amnesiad"}),
    "amnesiad": frozenset({"client"}),
    "amnesiad_workers": _BASE | {"service", "workspace", "store", "settings", "anchors", "wire"},
}
"""Each part of the house and the other parts it may import. ``amnesiad`` is the package's own ``__init__``."""

LAZILY: Final[Mapping[str, frozenset[str]]] = {
    "amnesiad.cli.processes": frozenset({"daemon", "amnesiad_workers"}),
    "amnesiad.cli.doctor": frozenset({"store"}),
    "amnesiad.client.identity": frozenset({"settings"}),
}
"""Inside a function only: the commands that *are* the daemon and the worker, the one that examines the store when
neither runs, and the client where only a configuration file can tell the socket's path."""

REDIS_USERS: Final[Mapping[str, frozenset[str]]] = {
    "redis": frozenset({"store", "bridge", "amnesiad_workers"}),
    "rq": frozenset({"bridge", "amnesiad_workers"}),
}
"""Only the store speaks Redis; the bridge and the workers need connections of RQ's own."""


class Import(NamedTuple):
    """One imported module, absolute, and whether it stands inside a function."""

    target: str
    lazy: bool
    line: int


def part(module: str) -> str:
    """The part of the house a module of ours belongs to."""
    names = module.split(".")
    return names[0] if names[0] != "amnesiad" or len(names) == 1 else names[1]


def imports_of(module: str, source: str, *, package: bool, known: Iterable[str]) -> Iterator[Import]:
    """Every import of a module. ``from a import b`` is of ``a.b`` where that is a module of ours, and else of ``a``."""
    modules = set(known)

    def walk(node: ast.AST, lazy: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, lazy, child.lineno)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    above = module.split(".")[: None if package and child.level == 1 else (package - child.level)]
                    base = ".".join([*above, *([base] if base else [])])
                for alias in child.names:
                    whole = f"{base}.{alias.name}"
                    yield Import(whole if whole in modules else base, lazy, child.lineno)
            inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk(child, lazy or inside)

    yield from walk(ast.parse(source), False)


def violations(sources: Mapping[str, str], packages: Iterable[str] = ()) -> list[str]:
    """One sentence for each import that no arrow allows. ``packages`` are the modules that are an ``__init__``."""
    known, inits = set(sources) | set(ARROWS), set(packages)
    found = []
    for module, source in sorted(sources.items()):
        own = part(module)
        if own not in ARROWS:
            found.append(f"{module}: {own} is no part of the house; give it a row in ARROWS")
            continue
        for item in imports_of(module, source, package=module in inits, known=known):
            verdict = _verdict(module, own, item)
            if verdict:
                found.append(f"{module}:{item.line} {verdict}")
    return found


def _verdict(module: str, own: str, item: Import) -> str:
    top = item.target.split(".")[0]
    if top in PACKAGES:
        other = part(item.target)
        allowed = ARROWS[own] | {own}
        if item.lazy:
            allowed |= LAZILY.get(module, frozenset())
        return "" if other in allowed else f"imports {item.target}: no arrow leads from {own} to {other}"
    if top in REDIS_USERS and own not in REDIS_USERS[top]:
        return f"imports {top}, which is for {', '.join(sorted(REDIS_USERS[top]))}"
    if own == "core" and top not in sys.stdlib_module_names and top not in CORE_MAY_USE:
        return f"imports {top}: core uses the standard library and msgspec only"
    return ""


def _read_house() -> tuple[dict[str, str], set[str]]:
    sources, inits = {}, set()
    for package, root in PACKAGES.items():
        for path in sorted(root.rglob("*.py")):
            names = [package, *path.relative_to(root).with_suffix("").parts]
            if names[-1] == "__init__":
                names.pop()
                inits.add(".".join(names))
            sources[".".join(names)] = path.read_text(encoding="utf-8")
    return sources, inits


def test_every_import_follows_an_arrow() -> None:
    """Arrows point one way: faces to client to wire; api to service to workspace to store and search to core."""
    sources, inits = _read_house()
    assert {"amnesiad", "amnesiad.core.clocks", "amnesiad_workers"} <= set(sources)
    found = violations(sources, inits)
    assert not found, "\n".join(found)


def test_the_import_roots_are_no_packages() -> None:
    """An __init__.py directly in daemon/ or workers/ would make a second import path for every module."""
    assert not [path for path in (ROOT / "daemon", ROOT / "workers") if (path / "__init__.py").exists()]


def test_the_arrows_have_no_cycle() -> None:
    """The house can be built from the bottom: no part reaches itself through others."""
    left = {name: set(targets) for name, targets in ARROWS.items()}
    # The package's own __init__ re-exports the client and states the version; parts that read the version close no
    # ring.
    for targets in left.values():
        targets.discard("amnesiad")
    while free := [name for name, targets in left.items() if not targets & set(left)]:
        for name in free:
            del left[name]
    assert left == {}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("amnesiad.core.made_up", "import redis"),
        ("amnesiad.core.made_up", "import structlog"),
        ("amnesiad.core.made_up", "from amnesiad.errors import Bug"),
        ("amnesiad.core.made_up", "def f():\n    from amnesiad import settings"),
        ("amnesiad.core.made_up", "from .. import settings"),
        ("amnesiad.core.made_up", "from ..store import keys"),
        ("amnesiad.store.made_up", "from amnesiad.workspace import Workspace"),
        ("amnesiad.search.made_up", "from amnesiad.store import keys"),
        ("amnesiad.workspace", "import amnesiad.service"),
        ("amnesiad.workspace", "from redis.asyncio import Redis"),
        ("amnesiad.service.made_up", "from amnesiad.api import app"),
        ("amnesiad.service.made_up", "if TYPE_CHECKING:\n    import redis.asyncio"),
        ("amnesiad.api.made_up", "from amnesiad.store.log import Log"),
        ("amnesiad.client.made_up", "from amnesiad.settings import load_settings"),
        ("amnesiad.bridge", "from amnesiad_workers import jobs"),
        ("amnesiad.bridge", "def f():\n    import amnesiad_workers.jobs"),
        ("amnesiad.cli.notes", "from amnesiad.service import Service"),
        ("amnesiad.cli.notes", "def f():\n    from amnesiad.daemon import run"),
        ("amnesiad.cli.processes", "from amnesiad.daemon import run"),
        ("amnesiad.mcp.made_up", "async def f():\n    from amnesiad.workspace import Workspace"),
        ("amnesiad.hooks.made_up", "class A:\n    from amnesiad.store import keys"),
        ("amnesiad.panel.made_up", "from amnesiad import store"),
        ("amnesiad.integrations.made_up", "from amnesiad.cli import main"),
        ("amnesiad.daemon", "from rq import Queue"),
        ("amnesiad_workers.jobs", "from amnesiad.cli import main"),
        ("amnesiad_workers.jobs", "from amnesiad.client import Client"),
        ("amnesiad.helpers", ""),
    ],
)
def test_the_checker_finds_what_no_arrow_allows(module: str, source: str) -> None:
    """Each made-up module breaks one rule, and is named."""
    assert [found.split(":")[0] for found in violations({module: source, "amnesiad.store": ""})] == [module]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("amnesiad.core.made_up", "import math, msgspec\nfrom amnesiad.core import notes\nfrom . import clocks"),
        ("amnesiad.store.made_up", "from redis.asyncio import Redis\nfrom amnesiad.errors import Bug"),
        (
            "amnesiad.cli.processes",
            "def up():\n    from amnesiad.daemon import run\n    import amnesiad_workers.worker",
        ),
        ("amnesiad.cli.notes", "from amnesiad import __version__\nfrom amnesiad.client import Client"),
        ("amnesiad.bridge", "import rq, redis"),
        ("amnesiad_workers.jobs", "from amnesiad.service import Service\nfrom redis import Redis"),
    ],
)
def test_the_checker_lets_the_arrows_pass(module: str, source: str) -> None:
    """What the house allows is no finding."""
    assert violations({module: source}) == []
