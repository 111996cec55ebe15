#!/usr/bin/env python3
"""`cargo xtask test --only chaostoolkit`: documents under the real Chaos Toolkit (PyPI `chaostoolkit`).

Makes a venv below `target/` with the pinned release, then becomes `check.py` in a network namespace of its own, which
goes with its last process. Wants `CHAOS_BIN_DIR`. Prints `FAILED: ...` and `skipped: ...` lines, and at the end
`N passed, N failed, N skipped`. Where `CI` is set, nothing may be skipped.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mcp"))

import venvs  # noqa: E402


def main():
    if os.geteuid() != 0:
        venvs.give_up("Chaos Toolkit", "needs root to make a network namespace")
    programs = Path(os.environ["CHAOS_BIN_DIR"]).resolve()
    python = venvs.interpreter("Chaos Toolkit", HERE / "requirements.txt", "chaostoolkit")
    # `check.py` refuses to do anything in the namespace that is named here.
    outside = os.readlink("/proc/self/ns/net")
    os.execvp("unshare", ["unshare", "--net", "--", str(python), str(HERE / "check.py"), str(programs), outside])


if __name__ == "__main__":
    main()
