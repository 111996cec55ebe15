"""What checks in Python have in common: a service that is well, programs of ours, and a count of what held."""

import contextlib
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import node


class Health(http.server.BaseHTTPRequestHandler):
    """Answers as a service that is well."""

    def do_GET(self):
        body = json.dumps({"state": "up", "ms": 12.5, "jobs": [{"id": 1}, {"id": 2}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Checks:
    """Counts what held and what did not, a line each."""

    def __init__(self):
        self.passed = self.failed = 0

    def __call__(self, name, held, seen=""):
        self.passed += bool(held)
        self.failed += not held
        print(f"ok: {name}" if held else f"FAILED: {name}: {seen}", flush=True)


class Programs:
    """`chaos` and `chaosctl`, which find each other and the daemon."""

    def __init__(self, programs, socket, folder):
        self.folder = folder
        path = os.pathsep.join([str(Path(sys.executable).parent), str(programs), os.environ["PATH"]])
        self.environment = {**os.environ, "PATH": path, "CHAOS_SOCKET": str(socket), "CHAOS_TEST_TOKEN": "hunter2"}

    def __call__(self, *command):
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=node.HANG,
                              check=False, env=self.environment, cwd=self.folder)
        return done.returncode, done.stdout + done.stderr


@contextlib.contextmanager
def unit(pid):
    """The name by which a process is found as that of a systemd unit is: it is in a control group that is called so."""
    with open("/proc/self/mounts", encoding="ascii") as mounts:
        root = next(Path(mount.split()[1]) for mount in mounts if mount.split()[2] == "cgroup2")
    before = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").split("::", 1)[1].strip()
    group = root / f"ct{os.getpid()}.service"
    group.mkdir()
    try:
        (group / "cgroup.procs").write_text(str(pid))
        yield group.name
    finally:
        (root / before.lstrip("/") / "cgroup.procs").write_text(str(pid))
        group.rmdir()


@contextlib.contextmanager
def calls(address, port):
    """Connects again and again meanwhile, whether or not anybody answers: a fault there meets somebody."""
    over, whom = threading.Event(), (address, int(port))

    def call():
        while not over.wait(0.05):
            with socket.socket() as caller:
                caller.setblocking(False)
                caller.connect_ex(whom)

    caller = threading.Thread(target=call)
    caller.start()
    try:
        yield
    finally:
        over.set()
        caller.join()


@contextlib.contextmanager
def service():
    """The port and the process of a service that is well: a process of its own, so that it can be killed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        server = http.server.ThreadingHTTPServer(("", 0), Health)
        os.write(writer, str(server.server_port).encode())
        os.close(writer)
        threading.Timer(600, lambda: os._exit(0)).start()
        server.serve_forever()
    os.close(writer)
    try:
        yield os.read(reader, 16).decode(), pid
    finally:
        os.close(reader)
        # Not reaped until here, so that the number is still its own.
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
