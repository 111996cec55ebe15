#!/usr/bin/env python3
"""A server of the official Python library, for `chaosctl probe mcp`: `server.py PORT [json] [modern]` over HTTP, `server.py stdio`."""

import sys

from mcp.server import streamable_http_manager
from mcp.server.mcpserver import MCPServer

server = MCPServer("probed")


@server.tool()
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@server.tool()
def fail() -> str:
    """Never works."""
    raise ValueError("on purpose")


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        if "modern" in sys.argv[2:]:
            # The library serves both eras. Without a revision that has a handshake, every request that names one is of the other.
            streamable_http_manager.HANDSHAKE_PROTOCOL_VERSIONS = ()
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]), json_response="json" in sys.argv[2:])
