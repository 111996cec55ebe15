#!/usr/bin/env python3
"""`cargo xtask test --only kubernetes`: probes of a real Kubernetes API server, with etcd behind it.

Becomes `check.py` in a network namespace of its own, which goes with its last process. Wants `CHAOS_BIN_DIR`, `CHAOS_KUBE_APISERVER`,
`kubectl`, and Debian's `etcd-server` and `openssl`. Prints as `tests/chaostoolkit/run.py` does.
"""

import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mcp"))

import venvs  # noqa: E402


def main():
    if os.geteuid() != 0:
        venvs.give_up("Kubernetes", "needs root to make a network namespace")
    programs = Path(os.environ["CHAOS_BIN_DIR"]).resolve()
    server = Path(os.environ["CHAOS_KUBE_APISERVER"]).resolve()
    outside = os.readlink("/proc/self/ns/net")
    os.execvp("unshare", ["unshare", "--net", "--", sys.executable, str(HERE / "check.py"), str(programs), outside, str(server)])


if __name__ == "__main__":
    main()
