#!/usr/bin/env python3
"""A server of the official Python library, for `chaosctl probe mcp`: `server.py PORT [json]` over HTTP, `server.py stdio`."""

import sys

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
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]), json_response="json" in sys.argv[2:])
