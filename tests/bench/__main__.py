"""``python -m tests.bench [name...]``: measure, and print one table. Ratios travel between machines; absolutes do
not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from tests.bench import (
    daemon,
    erasure,
    hooks,
    passes,
    recall,
    recall_by_meaning,
    recall_checks,
    renewals,
    search,
    shims,
    store,
)
from tests.bench.figures import Figure

BENCHES: Mapping[str, Callable[[], Coroutine[Any, Any, list[Figure]]]] = {
    "store": store.figures,
    "passes": passes.figures,
    "daemon": daemon.figures,
    "erasure": erasure.figures,
    "search": search.figures,
    "recall": recall.figures,
    "checks": recall_checks.figures,
    "meaning": recall_by_meaning.figures,
    "renewals": renewals.figures,
    "shims": shims.figures,
    "hooks": hooks.figures,
}
"""Every measurement by name; a new one is a module with such a function and a row here."""


def main(names: list[str]) -> int:
    """Run the benches of these names, or all. Returns the exit code."""
    if unknown := [name for name in names if name not in BENCHES]:
        print(f"there is no bench {unknown[0]!r}; there are: {', '.join(BENCHES)}", file=sys.stderr)
        return 2
    table = Table("bench", "what", "measured", "beside", "measured", "ratio")
    for name in names or BENCHES:
        for figure in asyncio.run(BENCHES[name]()):
            value, baseline = (f"{number:,.0f} {figure.unit}" for number in (figure.value, figure.baseline))
            table.add_row(name, figure.what, value, figure.than, baseline, f"{figure.ratio:.2f}")
    Console(width=120).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
