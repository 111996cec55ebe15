"""A Kubernetes API server with etcd behind it, on the loopback of a network namespace, and nothing that would run what it is told of.

So whatever is there is as these checks have put it there, its status, too.
"""

import json
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request

from node import HANG

ADDRESS = "127.0.0.1:6443"
# Nobody's but this cluster's, which has no one else's.
TOKENS = {"admin": "hunter2-admin-token", "stranger": "hunter2-stranger-token"}


class Cluster:
    """etcd and kube-apiserver; nothing of them is left when the block ends. `folder` gets their certificates."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        self.processes = []

    def __enter__(self):
        try:
            self._certificates()
            self._start("etcd", "etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", "http://127.0.0.1:2379",
                        "--advertise-client-urls", "http://127.0.0.1:2379", "--listen-peer-urls", "http://127.0.0.1:2380")
            self._start("kube-apiserver", self.server, *self._options())
            self._wait_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _options(self):
        file = self.folder / "tokens.csv"
        groups = {"admin": ',"system:masters"'}
        file.write_text("".join(f'{token},{user},{user}{groups.get(user, "")}\n' for user, token in TOKENS.items()))
        at = lambda name: str(self.folder / name)  # noqa: E731
        return ["--etcd-servers=http://127.0.0.1:2379", "--bind-address=127.0.0.1", "--secure-port=6443",
                # Nobody is told of an address; without one of its own it would look for a default route.
                "--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.0.0.0/24",
                f"--cert-dir={self.folder}", f"--tls-cert-file={at('server.pem')}", f"--tls-private-key-file={at('server.key')}",
                f"--client-ca-file={at('ca.pem')}", f"--token-auth-file={file}", "--authorization-mode=RBAC",
                "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={at('server.key')}",
                f"--service-account-signing-key-file={at('server.key')}",
                # Nobody makes accounts here.
                "--disable-admission-plugins=ServiceAccount"]

    def _start(self, name, *command):
        with (self.folder / f"{name}.log").open("wb") as log:
            # Ends with us, whatever ends us.
            words = ["setpriv", "--pdeathsig", "TERM", *map(str, command)]
            self.processes.append(subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def _wait_ready(self):
        until = time.monotonic() + 2 * HANG
        while True:
            try:
                # The namespace is made by the server itself, some time after it is ready.
                if self.ask("GET", "/readyz")[0] == 200 and self.ask("GET", "/api/v1/namespaces/default")[0] == 200:
                    return
            except OSError:
                pass
            ended = [process.poll() for process in self.processes]
            if any(status is not None for status in ended) or time.monotonic() > until:
                logs = "\n".join(log.read_text()[-3000:] for log in self.folder.glob("*.log"))
                raise RuntimeError(f"the API server is not ready (statuses {ended}):\n{logs}")
            time.sleep(0.2)

    def _certificates(self):
        self._openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=cluster", "-keyout", "ca.key",
                      "-out", "ca.pem")
        self._openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other", "-keyout", "other.key",
                      "-out", "other.pem")
        for name, subject, about in [("server", "/CN=server", "subjectAltName=IP:127.0.0.1"),
                                     ("client", "/O=system:masters/CN=certified", "extendedKeyUsage=clientAuth")]:
            (self.folder / f"{name}.ext").write_text(about + "\n")
            self._openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", subject, "-keyout", f"{name}.key", "-out",
                          f"{name}.csr")
            self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days",
                          "2", "-extfile", f"{name}.ext", "-out", f"{name}.pem")

    def _openssl(self, *words):
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True, timeout=HANG)

    def ask(self, method, path, body=None, kind="application/json"):
        """Status and answer of one request, in the name of who may do anything."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {TOKENS['admin']}", "Content-Type": kind}
        request = urllib.request.Request(f"https://{ADDRESS}{path}", data, headers, method=method)
        context = ssl.create_default_context(cafile=self.folder / "ca.pem")
        try:
            with urllib.request.urlopen(request, timeout=HANG, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def make(self, place, version, kind, name, spec):
        """Makes a resource, and returns where it is."""
        resource = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        status, said = self.ask("POST", place, resource)
        if status != 201:
            raise RuntimeError(f"{place}: {status}: {said}")
        return f"{place}/{name}"

    def tell(self, path, status):
        """Says of a resource what otherwise its controller, or the kubelet, would say."""
        code, said = self.ask("PATCH", f"{path}/status", {"status": status}, "application/merge-patch+json")
        if code != 200:
            raise RuntimeError(f"{path}: {code}: {said}")

    def change(self, path, spec):
        """Changes what is wanted of a resource."""
        code, said = self.ask("PATCH", path, {"spec": spec}, "application/merge-patch+json")
        if code != 200:
            raise RuntimeError(f"{path}: {code}: {said}")

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(HANG)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
