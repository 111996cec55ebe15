#!/usr/bin/env python3
"""`cargo xtask test --only report`: reports on runs, looked at in headless Chromium, and read by what reports on Chaos Toolkit's runs.

Makes a venv below `target/` with PyPI `chaostoolkit-reporting` and `selenium`, then becomes `check.py` in a network namespace of
its own, which goes with its last process. Wants `CHAOS_BIN_DIR`, and Debian's `chromium` and `chromium-driver`. Prints as
`tests/chaostoolkit/run.py` does.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mcp"))

import venvs  # noqa: E402


if __name__ == "__main__":
    venvs.become("reports", HERE, "report", "check.py")
