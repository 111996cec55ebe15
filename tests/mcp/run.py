#!/usr/bin/env python3
"""`cargo xtask test --only mcp-client`: the official Python client against a real daemon.

Makes a venv below `target/` with the pinned client, then becomes `client.py` in a network namespace of its own, which
goes with its last process. Wants `CHAOS_BIN_DIR`. Prints `FAILED: ...` and `skipped: ...` lines, and at the end
`N passed, N failed, N skipped`. Where `CI` is set, nothing may be skipped.
"""

from pathlib import Path

import venvs

HERE = Path(__file__).resolve().parent


if __name__ == "__main__":
    venvs.become("the Python client", HERE, "mcp-client", "client.py")
