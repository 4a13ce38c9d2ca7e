"""The MCP server on the ``mcp`` SDK: answers the handshakes of every revision, lists the tools, passes calls on.

The only module that imports the SDK; ``face`` imports this one when the first client comes. Each request stands for
itself: no sessions, no streams, and nothing is ever sent that was not asked for. The SDK's own log lines may quote what
a client sent, so it has none here; what goes wrong inside a call is logged by the desk.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from amnesiad import __version__
from amnesiad.core.errors import Invalid
from amnesiad.limits import MAX_REQUEST_BYTES
from amnesiad.mcp.calling import Desk, find_tool
from amnesiad.mcp.table import load_table

LIST_TTL_MS: Final = 3_600_000
"""How long a client may keep the list of tools: it changes only with another version of the daemon."""
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "[::1]")
"""What a request may call the host it was sent to, with any port. A page of another site whose name was made to point
to this machine would send that name, and its browser that site as the origin."""
SHIM_HOST: Final = "amnesiad"
"""What clients on the Unix socket say, where no name was looked up."""


@asynccontextmanager
async def serving(desk: Desk, listens_at: str | None = None) -> AsyncGenerator[StreamableHTTPASGIApp]:
    """The running server as an ASGI application. On leaving, what it still does is cancelled.

    ``listens_at`` is one more host that requests may name: the one that the daemon was told to listen at.
    """
    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)
    hosts = [*LOCAL_HOSTS, *([listens_at] if listens_at else [])]
    origins = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    manager = StreamableHTTPSessionManager(
        _server(desk),
        json_response=True,
        stateless=True,
        max_request_body_size=MAX_REQUEST_BYTES,
        security_settings=TransportSecuritySettings(
            allowed_hosts=[SHIM_HOST, *hosts, *(f"{host}:*" for host in hosts)],
            allowed_origins=[*origins, *(f"{origin}:*" for origin in origins)],
        ),
    )
    async with manager.run():
        yield StreamableHTTPASGIApp(manager)


def _server(desk: Desk) -> Server[Any]:
    table = load_table()
    told = [Tool.model_validate(tool.told) for tool in table.tools.values()]
    schemas = {name: tool.told["inputSchema"] for name, tool in table.tools.items()}

    async def list_tools(
        _context: ServerRequestContext[Any], _params: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=told)

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        try:
            tool = find_tool(params.name)
        except Invalid as unknown:
            raise MCPError(INVALID_PARAMS, f"{unknown.message} ({unknown.hint})") from None
        headers = getattr(context.request, "headers", {})
        said = await desk.call(tool, params.arguments or {}, headers=headers, meta=context.meta or {})
        return CallToolResult(content=[TextContent(text=said.text)], is_error=said.refused)

    return Server(
        "amnesiad",
        title="amnesiad",
        version=__version__,
        instructions=table.instructions,
        cache_hints={"tools/list": CacheHint(LIST_TTL_MS), "server/discover": CacheHint(LIST_TTL_MS)},
        get_tool_input_schema=schemas.get,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
