"""Limits that both ends of the socket keep, so that a client can refuse what the daemon would.

Imports nothing: the command line and the hooks load it at every start.
"""

from __future__ import annotations

import sys
from typing import Final

MAX_REQUEST_BYTES: Final = 1024 * 1024
"""A request; a note is two kilobytes, so this is a full batch of ordinary ones."""

MAX_PAYLOAD_BYTES: Final = 8 * 1024 * 1024
"""What an agent hands a hook: after an edit that is the file before it, the file after it and what changed."""

MAX_LINE_BYTES: Final = 1024 * 1024
"""A line of an import or export; the whole stream may be of any length."""

SUN_PATH_BYTES: Final = 103 if sys.platform == "darwin" else 107
"""The longest path a Unix socket can have: ``sun_path`` of the platform less its closing NUL."""
