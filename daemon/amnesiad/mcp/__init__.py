"""The tools agents see, as an MCP server inside the daemon: one table of tools over the verbs of the service.

``table`` is what is told to agents, ``identity`` who is calling, ``calling`` one call from its arguments to the answer,
``texts`` the answer in words, ``envelope`` what is wrong with a message. Only ``server`` knows the ``mcp`` SDK, which
is optional and slow to import; ``face`` imports it when the first client comes. No rule about notes lives here:
arguments are checked by ``wire`` and decided by the service, as those of the socket API are.
"""

from __future__ import annotations

from amnesiad.mcp.face import McpFace

__all__ = ["McpFace"]
