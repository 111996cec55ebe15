#!/usr/bin/env python3
"""`cargo xtask test --only mcp-client`: the official Python client against a real daemon.

Makes a venv below `target/` with the pinned client, then becomes `client.py` in a network namespace of its own, which
goes with its last process. Wants `CHAOS_BIN_DIR`. Prints `FAILED: ...` and `skipped: ...` lines, and at the end
`N passed, N failed, N skipped`. Where `CI` is set, nothing may be skipped.
"""

import os
from pathlib import Path

import venvs

HERE = Path(__file__).resolve().parent
WHAT = "the Python client"


def main():
    if os.geteuid() != 0:
        venvs.give_up(WHAT, "needs root to make a network namespace")
    programs = Path(os.environ["CHAOS_BIN_DIR"]).resolve()
    python = venvs.interpreter(WHAT, HERE / "requirements.txt", "mcp-client")
    # `client.py` refuses to do anything in the namespace that is named here.
    outside = os.readlink("/proc/self/ns/net")
    os.execvp("unshare", ["unshare", "--net", "--", str(python), str(HERE / "client.py"), str(programs), outside])


if __name__ == "__main__":
    main()
