#!/usr/bin/env python3
"""Probes of a real Kubernetes API server: by `chaosctl`, which reads the kubeconfig itself, and by the daemon, whose policy names it; what is
ready is ready to kubectl, too.

Everything is on the loopback of a network namespace that `run.py` made.
"""

import base64
import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mcp"))

import checks  # noqa: E402
import cluster  # noqa: E402
import node  # noqa: E402

PODS = "/api/v1/namespaces/default/pods"
APPS = "/apis/apps/v1/namespaces/default"
LABELS = {"app": "pay"}
POD = {"containers": [{"name": "pay", "image": "pay", "env": [{"name": "PASSWORD", "value": "hunter2-of-a-pod"}]}]}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": POD}
SET = {"selector": {"matchLabels": LABELS}, "template": TEMPLATE}


def kubeconfigs(folder):
    """Files of every kind, by name, for root alone; and that of which nothing but root's word keeps others."""
    data = {name: base64.b64encode((folder / name).read_bytes()).decode() for name in ("ca.pem", "client.pem", "client.key")}
    server = f"https://{cluster.ADDRESS}"
    good = {"server": server, "certificate-authority-data": data["ca.pem"]}
    token = {"token": cluster.TOKENS["admin"]}
    (folder / "token").write_text(cluster.TOKENS["admin"] + "\n")
    (folder / "token").chmod(0o600)
    made = {
        "token": (good, token),
        "token-file": ({"server": server, "certificate-authority": "ca.pem"}, {"tokenFile": "token"}),
        "certificate": (good, {"client-certificate-data": data["client.pem"], "client-key-data": data["client.key"]}),
        "certificate-file": (good, {"client-certificate": "client.pem", "client-key": "client.key"}),
        "unverified": ({"server": server, "insecure-skip-tls-verify": True}, token),
        "wrong-token": (good, {"token": "hunter2-of-nobody"}),
        "stranger": (good, {"token": cluster.TOKENS["stranger"]}),
        "host-trust": ({"server": server}, token),
        "other-authority": ({"server": server, "certificate-authority": "other.pem"}, token),
        "other-key": (good, {"client-certificate": "client.pem", "client-key": "server.key"}),
        "exec": (good, {"exec": {"command": "/bin/touch", "args": [str(folder / "was-run")], "apiVersion": "v1"}}),
        "open": (good, token),
    }
    for name, (of_cluster, of_user) in made.items():
        document = {"apiVersion": "v1", "kind": "Config", "current-context": "pay",
                    "clusters": [{"name": "here", "cluster": of_cluster}], "users": [{"name": "somebody", "user": of_user}],
                    "contexts": [{"name": "pay", "context": {"cluster": "here", "user": "somebody"}},
                                 {"name": "elsewhere", "context": {"cluster": "here", "user": "somebody", "namespace": "shop"}}]}
        path = folder / f"{name}.kubeconfig"
        path.write_text(json.dumps(document))
        path.chmod(0o644 if name == "open" else 0o600)
    (folder / "client.key").chmod(0o600)
    (folder / "server.key").chmod(0o600)
    return {name: str(folder / f"{name}.kubeconfig") for name in made}


class Probe:
    """`chaosctl probe kubernetes`, of which no secret may be in what it says; and what kubectl says of the same."""

    def __init__(self, check, tools):
        self.check, self.tools = check, tools

    def __call__(self, name, kubeconfig, resource, *options, code, says):
        ended, said = self.tools("chaosctl", "probe", "kubernetes", "--kubeconfig", kubeconfig, resource, "--timeout", "30s", *options)
        held = ended == code and says in said and "hunter2" not in said
        self.check(f"chaosctl: {name}", held, (ended, said))

    def ready(self, name, kubeconfig, resource, *, is_ready, says):
        """Whether it is ready, and to kubectl as well: it waits for no time until it would be."""
        self(name, kubeconfig, resource, "--ready", code=int(not is_ready), says=says)
        kind = resource.split("/")[0]
        conditions = {"pod": "Ready", "node": "Ready", "job": "Complete"}
        waits = ["wait", f"--for=condition={conditions[kind]}"] if kind in conditions else ["rollout", "status"]
        # What is ready is so at once, however long that takes.
        limit = f"--timeout={cluster.HANG if is_ready else 1}s"
        ended, said = self.tools("kubectl", "--kubeconfig", kubeconfig, "--cache-dir", self.tools.folder / "cache", *waits, resource,
                                 limit)
        self.check(f"kubectl: {name}", (ended == 0) == is_ready, (ended, said))


def resources(told, probe, files):
    """Each kind: not there, there, not ready, ready."""
    token = files["token"]
    probe("a pod that is not there is absent", token, "pod/pay-0", "--absent", code=0, says="absent")
    probe("and not present", token, "pod/pay-0", "--present", code=1, says="absent")
    probe("and not ready", token, "pod/pay-0", "--ready", code=1, says="absent")
    pod = told.make(PODS, "v1", "Pod", "pay-0", POD)
    probe("a pod that is there is present", token, "pod/pay-0", code=0, says="present")
    probe("and not absent", token, "pod/pay-0", "--absent", code=1, says="present, and must not be")
    probe.ready("and not ready before anybody says so", token, "pod/pay-0", is_ready=False, says="no condition Ready yet")
    probe("in another namespace it is not", token, "pod/pay-0", "--namespace", "shop", "--absent", code=0, says="absent")
    probe("nor in that of another context", token, "pod/pay-0", "--context", "elsewhere", "--absent", code=0, says="absent")
    for status, is_ready, says in [("False", False, "not ready: Ready is False (Why)"), ("True", True, "ready: Ready is True")]:
        told.tell(pod, {"conditions": [{"type": "Ready", "status": status, "reason": "Why"}]})
        probe.ready(f"a pod whose condition is {status}", token, "pod/pay-0", is_ready=is_ready, says=says)
    sets = [("deployment", "deployments", "Deployment", {**SET, "replicas": 3}, "availableReplicas", "available"),
            ("statefulset", "statefulsets", "StatefulSet", {**SET, "serviceName": "pay", "replicas": 3}, "readyReplicas", "ready")]
    for kind, place, name, spec, field, word in sets:
        path = told.make(f"{APPS}/{place}", "apps/v1", name, "pay", spec)
        probe.ready(f"a {kind} of which nothing is known yet", token, f"{kind}/pay", is_ready=False, says="seen generation 0 of 1")
        for number in (2, 3):
            told.tell(path, {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": number,
                             "availableReplicas": number})
            probe.ready(f"a {kind} with {number} of 3", token, f"{kind}/pay", is_ready=number == 3,
                        says=f"ready: {number} of 3 {word}")
        told.change(path, {"replicas": 2})
        probe.ready(f"a {kind} that has changed since", token, f"{kind}/pay", is_ready=False, says="seen generation 1 of 2")
    daemons = told.make(f"{APPS}/daemonsets", "apps/v1", "DaemonSet", "pay", SET)
    for number in (1, 2):
        told.tell(daemons, {"currentNumberScheduled": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2,
                            "numberMisscheduled": 0, "numberReady": number, "numberAvailable": number, "observedGeneration": 1})
        probe.ready(f"a daemonset with {number} of 2", token, "daemonset/pay", is_ready=number == 2,
                    says=f"{number} of 2 available")
    job = told.make("/apis/batch/v1/namespaces/default/jobs", "batch/v1", "Job", "pay",
                    {"template": {"spec": {**POD, "restartPolicy": "Never"}}})
    probe.ready("a job that goes on", token, "job/pay", is_ready=False, says="no condition Complete yet")
    told.tell(job, {"conditions": [{"type": "Complete", "status": "True"}]})
    probe.ready("a job that is done", token, "job/pay", is_ready=True, says="Complete is True")
    told.make("/api/v1/namespaces/default/services", "v1", "Service", "pay", {"ports": [{"port": 80}]})
    probe("a service", token, "service/pay", "--present", code=0, says="present")
    host = told.make("/api/v1/nodes", "v1", "Node", "node-1.test", {})
    for status in ("Unknown", "True"):
        told.tell(host, {"conditions": [{"type": "Ready", "status": status, "reason": "Why"}]})
        probe.ready(f"a node whose condition is {status}", token, "node/node-1.test", is_ready=status == "True",
                    says=f"Ready is {status}")


def credentials(check, probe, files, folder):
    """Each way to show who asks, and each that is none."""
    for name in ("token", "token-file", "certificate", "certificate-file", "unverified"):
        probe(f"by {name}", files[name], "pod/pay-0", "--ready", code=0, says="ready")
    for name, says in [("wrong-token", "does not accept the credential"), ("stranger", "is forbidden"),
                       ("host-trust", "certificate refused: unknown issuer"), ("other-authority", "certificate refused: unknown issuer"),
                       ("other-key", "client-key"), ("exec", "exec is not supported: no program is run")]:
        # What cannot be seen is neither there nor absent.
        for wanted in ("--present", "--absent"):
            probe(f"by {name}, {wanted}", files[name], "pod/pay-0", wanted, code=1, says=says)
    check("no program was run for a credential", not (folder / "was-run").exists())
    probe("by a file that is not there", str(folder / "none"), "pod/pay-0", code=1, says="cannot be read")
    probe("by a context that is not there", files["token"], "pod/pay-0", "--context", "none", code=1, says="no context \"none\"")
    for resource, options, says in [("secret/pay", [], "is not one of pod"), ("pod/../pay", [], "no name of a resource"),
                                    ("service/pay", ["--ready"], "no readiness"), ("node/a", ["--namespace", "b"], "in none")]:
        probe(f"{resource} {' '.join(options)}", files["token"], resource, *options, code=2, says=says)


def judged(tools, kubeconfig, *options):
    """Whether a steady state of one such probe is met, by the daemon, and what it says."""
    provider = {"type": "process", "path": "chaosctl", "timeout": 30,
                "arguments": ["probe", "kubernetes", "--kubeconfig", kubeconfig, "pod/pay-0", "--timeout", "30s", *options]}
    burn = ["inject", "resource_exhaustion", "--cpu-percent", "5", "--for", "300ms"]
    document = {"title": "cluster", "description": "Of a cluster.", "rollbacks": [],
                "steady-state-hypothesis": {"title": "so", "probes": [
                    {"type": "probe", "name": "pod", "tolerance": 0, "provider": provider}]},
                "method": [{"type": "action", "name": "burn",
                            "provider": {"type": "process", "path": "chaosctl", "arguments": burn}}]}
    path = tools.folder / "experiment.json"
    path.write_text(json.dumps(document))
    code, said = tools("chaosctl", "experiment", "register", path)
    if code != 0:
        return None, said
    _, said = tools("chaosctl", "--json", "run", "cluster", "--dry-run")
    try:
        return json.loads(said.splitlines()[0])["steady_state_before"], said
    except (IndexError, KeyError, ValueError):
        return None, said


def by_the_daemon(check, told, tools, files, folder):
    """The same by the prober, which was given what the policy names."""
    for name, options, met, says in [
            ("token", ["--ready"], True, ""), ("token", ["--absent"], False, "present, and must not be"),
            ("certificate-file", ["--ready"], True, ""), ("token-file", ["--namespace", "shop", "--absent"], True, ""),
            ("wrong-token", ["--present"], False, "does not accept the credential"),
            ("other-authority", ["--present"], False, "unknown issuer"), ("exec", ["--absent"], False, "exec is not supported"),
            ("open", ["--present"], False, "others may get at it"),
            ("stranger", ["--present"], None, "probe_kubeconfigs")]:
        seen, said = judged(tools, files[name], *options)
        check(f"daemon: {name} {' '.join(options)}", seen == met and says in said and "hunter2" not in said, (seen, said))
    told.ask("DELETE", f"{PODS}/pay-0?gracePeriodSeconds=0")
    seen, said = judged(tools, files["token"], "--absent")
    check("daemon: a pod that was deleted is absent", seen is True, (seen, said))
    check("no program was run for a credential by the daemon", not (folder / "was-run").exists())


def main():
    programs, outside, server = Path(sys.argv[1]).resolve(), sys.argv[2], Path(sys.argv[3])
    node.enter(outside)
    check = checks.Checks()
    # Where nobody but root can put another file.
    with tempfile.TemporaryDirectory(prefix="chaos-kubernetes-", dir="/run") as place, \
            tempfile.TemporaryDirectory(prefix="chaos-kubernetes-") as scratch:
        folder = Path(place)
        with cluster.Cluster(server, folder) as told:
            files = kubeconfigs(folder)
            named = [path for name, path in files.items() if name != "stranger"]
            with node.Daemon(programs, f"probe_kubeconfigs = {json.dumps(named)}") as daemon:
                tools = checks.Programs(programs, daemon.socket, Path(scratch))
                probe = Probe(check, tools)
                resources(told, probe, files)
                credentials(check, probe, files, folder)
                by_the_daemon(check, told, tools, files, folder)
                check("the daemon's log has no secret", "hunter2" not in daemon.log.read_text(), daemon.log.read_text())
    print(f"{check.passed} passed, {check.failed} failed, 0 skipped", flush=True)
    sys.exit(int(check.failed > 0))


if __name__ == "__main__":
    main()
