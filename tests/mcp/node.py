"""What the checks run against: a real daemon, an echo server, and a loopback that is nobody else's.

Everything here changes the network namespace it runs in, so `enter` has to have agreed first.
"""

import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
from pathlib import Path

# netdevice(7), ip(7); the module socket has no name for the last.
SIOCGIFFLAGS, SIOCSIFFLAGS = 0x8913, 0x8914
IFF_UP = 1
IP_PKTINFO = 8
# What takes so long hangs, however busy the machine is, in seconds.
HANG = 60
# How long it is waited for what is not to come.
SILENCE = 0.4


def enter(outside):
    """Sets up lo, unless this is the namespace `outside`, or any in which lo is in use already."""
    here = os.readlink("/proc/self/ns/net")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        answer = fcntl.ioctl(control, SIOCGIFFLAGS, struct.pack("16s16x", b"lo"))
        (flags,) = struct.unpack_from("H", answer, 16)
        if here == outside or flags & IFF_UP:
            raise SystemExit(f"not in a new network namespace of our own: {here}, where lo is up")
        fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


class Daemon:
    """A `chaos-daemon run` with directories of its own, and a policy; nothing of it is left when the block ends."""

    def __init__(self, programs, policy=""):
        self.programs, self.policy = programs, policy

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="chaos-mcp-")
        root = Path(self.folder.name)
        # The server, which has no privileges, has to get through to its socket.
        root.chmod(0o755)
        self.socket = root / "run" / "mcp.sock"
        self.log = root / "log"
        policy = root / "policy.toml"
        policy.write_text('environment = "test"\n' + self.policy)
        with self.log.open("wb") as log:
            # Ends with us, whatever ends us.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", str(self.programs / "chaos-daemon"), "run",
                 "--runtime-dir", str(root / "run"), "--state-dir", str(root / "state"), "--policy", str(policy)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self._wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_ready(self):
        until = time.monotonic() + HANG
        while not self._accepts():
            ended = self.process.poll()
            if ended is not None or time.monotonic() > until:
                raise RuntimeError(f"the daemon is not ready (status {ended}); its log:\n{self.log.read_text()}")
            time.sleep(0.02)

    def _accepts(self):
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(self.socket)) == 0

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(HANG)
        except subprocess.TimeoutExpired:
            # Its children go with it.
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()


class Echo:
    """UDP echoes on every address of lo; `answers` tells whether one comes back."""

    def __enter__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        # The answer has to come from the address that was asked.
        self.socket.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        self.socket.bind(("0.0.0.0", 0))
        self.socket.settimeout(0.1)
        self.port = self.socket.getsockname()[1]
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()
        return self

    def _serve(self):
        while not self.stop.is_set():
            try:
                data, control, _, peer = self.socket.recvmsg(64, 64)
                self.socket.sendmsg([data], control, 0, peer)
            except TimeoutError:
                pass

    def answers(self, address, patience=HANG):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.connect((address, self.port))
            client.settimeout(patience)
            client.send(b"x")
            try:
                return client.recv(64) == b"x"
            except TimeoutError:
                return False

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()
        self.socket.close()


def queues():
    """The qdiscs and filters of lo, as `tc` sees them."""
    shown = [["qdisc", "show"], ["filter", "show", "ingress"], ["filter", "show", "egress"]]
    texts = []
    for what, *where in shown:
        command = ["tc", "-j", what, where[0], "dev", "lo", *where[1:]]
        texts.append(subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANG).stdout.strip())
    return [json.loads(text or "[]") for text in texts]
