#!/usr/bin/env python3
"""`cargo xtask test --only report`: reports on runs, looked at in headless Chromium, and read by what reports on Chaos Toolkit's runs.

Makes a venv below `target/` with PyPI `chaostoolkit-reporting` and `selenium`, then becomes `check.py` in a network namespace of
its own, which goes with its last process. Wants `CHAOS_BIN_DIR`, and Debian's `chromium` and `chromium-driver`. Prints as
`tests/chaostoolkit/run.py` does.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mcp"))

import venvs  # noqa: E402


def main():
    if os.geteuid() != 0:
        venvs.give_up("reports", "needs root to make a network namespace")
    programs = Path(os.environ["CHAOS_BIN_DIR"]).resolve()
    python = venvs.interpreter("reports", HERE / "requirements.txt", "report")
    # `check.py` refuses to do anything in the namespace that is named here.
    outside = os.readlink("/proc/self/ns/net")
    os.execvp("unshare", ["unshare", "--net", "--", str(python), str(HERE / "check.py"), str(programs), outside])


if __name__ == "__main__":
    main()
