#!/usr/bin/env python3
"""`cargo xtask test --only mcp-client`: the official Python client against a real daemon.

Makes a venv below `target/` with the pinned client, then becomes `client.py` in a network namespace of its own, which
goes with its last process. Wants `CHAOS_BIN_DIR`. Prints `FAILED: ...` and `skipped: ...` lines, and at the end
`N passed, N failed, N skipped`. Where `CI` is set, nothing may be skipped.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
REQUIREMENTS = HERE / "requirements.txt"
VENV = HERE.parent.parent / "target" / "mcp-client"
# Holds the hash of the requirements that are installed; written last.
STAMP = VENV / "installed"
# Making the venv takes some 20 s with a package index near by.
PATIENCE = 300


def give_up(reason):
    """Says that nothing could be checked here, and why; a failure where everything has to be checked."""
    failed = bool(os.environ.get("CI"))
    print(f"{'FAILED' if failed else 'skipped'}: every check of the Python client: {reason}")
    print(f"0 passed, {int(failed)} failed, {int(not failed)} skipped", flush=True)
    sys.exit(int(failed))


def run(*command):
    """Runs a command; gives up with the last line it wrote when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        give_up(f"{command[0]}: {error}")
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()
        give_up(f"{' '.join(command)}: {lines[-1] if lines else done.returncode}")


def interpreter():
    """The Python of a venv that has what the requirements say, made now unless it is there."""
    python = VENV / "bin" / "python"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()
    if not (STAMP.is_file() and STAMP.read_text() == wanted):
        shutil.rmtree(VENV, ignore_errors=True)
        run(sys.executable, "-m", "venv", str(VENV))
        run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
            "--requirement", str(REQUIREMENTS))
        STAMP.write_text(wanted)
    return python


def main():
    if os.geteuid() != 0:
        give_up("needs root to make a network namespace")
    programs = Path(os.environ["CHAOS_BIN_DIR"]).resolve()
    python = interpreter()
    # `client.py` refuses to do anything in the namespace that is named here.
    outside = os.readlink("/proc/self/ns/net")
    os.execvp("unshare", ["unshare", "--net", "--", str(python), str(HERE / "client.py"), str(programs), outside])


if __name__ == "__main__":
    main()
