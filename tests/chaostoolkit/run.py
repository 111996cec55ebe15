#!/usr/bin/env python3
"""`cargo xtask test --only chaostoolkit`: documents under the real Chaos Toolkit (PyPI `chaostoolkit`).

Makes a venv below `target/` with the pinned release, then becomes `check.py` in a network namespace of its own, which
goes with its last process. Wants `CHAOS_BIN_DIR`. Prints `FAILED: ...` and `skipped: ...` lines, and at the end
`N passed, N failed, N skipped`. Where `CI` is set, nothing may be skipped.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mcp"))

import venvs  # noqa: E402


if __name__ == "__main__":
    venvs.become("Chaos Toolkit", HERE, "chaostoolkit", "check.py")
