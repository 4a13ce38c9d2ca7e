"""The console script ``amnesia``: hands hooks and their like to the shims before anything heavy is imported.

An agent waits for its hooks at each step, and the command line takes ten times as long to import as a shim to run.
Everything else is the command line's.
"""

from __future__ import annotations

import sys

from amnesiad import shims


def main() -> int:
    """Run the command that the process's arguments name, and return its exit code."""
    code = shims.dispatch(sys.argv[1:])
    if code is not None:
        return code
    from amnesiad import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
