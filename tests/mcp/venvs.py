"""Venvs below `target/` with exactly the packages that a list has, made when the list has changed."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

TARGET = Path(__file__).resolve().parent.parent.parent / "target"
# Making a venv takes some 20 s with a package index near by.
PATIENCE = 300


def give_up(what, reason):
    """Says that nothing could be checked here, and why; a failure where everything has to be checked."""
    failed = bool(os.environ.get("CI"))
    print(f"{'FAILED' if failed else 'skipped'}: every check of {what}: {reason}")
    print(f"0 passed, {int(failed)} failed, {int(not failed)} skipped", flush=True)
    sys.exit(int(failed))


def interpreter(what, requirements, name):
    """The Python of a venv called `name` that has what the requirements say, made now unless it is there."""
    venv = TARGET / name
    # Holds the hash of the requirements that are installed; written last.
    stamp = venv / "installed"
    python = venv / "bin" / "python"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if not (stamp.is_file() and stamp.read_text() == wanted):
        shutil.rmtree(venv, ignore_errors=True)
        _run(what, sys.executable, "-m", "venv", str(venv))
        _run(what, str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "--requirement", str(requirements))
        stamp.write_text(wanted)
    return python


def become(what, folder, name, checks):
    """Becomes the script `checks` of `folder`, with the packages that are listed there, in a new network namespace, which goes with its
    last process. The script refuses to do anything in the namespace that it is told."""
    if os.geteuid() != 0:
        give_up(what, "needs root to make a network namespace")
    programs = Path(os.environ["CHAOS_BIN_DIR"]).resolve()
    python = interpreter(what, folder / "requirements.txt", name)
    outside = os.readlink("/proc/self/ns/net")
    os.execvp("unshare", ["unshare", "--net", "--", str(python), str(folder / checks), str(programs), outside])


def _run(what, *command):
    """Runs a command; gives up with the last line it wrote when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        give_up(what, f"{command[0]}: {error}")
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()
        give_up(what, f"{' '.join(command)}: {lines[-1] if lines else done.returncode}")
