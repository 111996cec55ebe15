#!/usr/bin/env python3
"""Documents under the real Chaos Toolkit and natively: what is valid here is valid there, and one file has one verdict.

The faults go to 127.0.0.2 on the loopback of a network namespace that `run.py` made.
"""

import json
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mcp"))

import checks  # noqa: E402
import node  # noqa: E402


def document(title, address, tolerance, method):
    """An experiment whose steady state is the health of `address`."""
    return steady(title, {"type": "http", "url": f"http://{address}/health", "timeout": 1}, tolerance, method)


def steady(title, provider, tolerance, method):
    """An experiment whose steady state is what a provider says."""
    probe = {"type": "probe", "name": "health", "tolerance": tolerance, "provider": provider}
    return {"title": title, "description": title, "steady-state-hypothesis": {"title": "up", "probes": [probe]},
            "method": method, "rollbacks": []}


def inject(lasts, after, *arguments):
    """An action that injects, and the pause after it: what Chaos Toolkit injects is over before it looks again."""
    return {"type": "action", "name": "inject", "pauses": {"after": after},
            "provider": {"type": "process", "path": "chaosctl", "arguments": ["inject", *arguments, "--for", lasts]}}


def experiments(address, service):
    """Documents, and whether their steady state is met before and after."""
    cut = inject("500ms", 1.5, "timeout", "--interface", "lo", "--cidr", "127.0.0.2")
    kill = inject("500ms", 1, "process-kill", "--pid", str(service))
    tolerances = [
        ("a status", 200, True), ("another status", 204, False), ("a list", [200, 204], True),
        ("a list without it", [204, 301], False), ("two that are no range", [199, 201], False),
        ("a range", {"type": "range", "target": "status", "range": [200, 299]}, True),
        ("another range", {"type": "range", "target": "status", "range": [201.5, 299]}, False),
        ("a path", {"type": "jsonpath", "target": "body", "path": "$.jobs[*].id"}, True),
        ("a path that finds nothing", {"type": "jsonpath", "target": "body", "path": "$.tasks"}, False),
        ("a count", {"type": "jsonpath", "target": "body", "path": "$.jobs[*].id", "count": 2}, True),
        ("another count", {"type": "jsonpath", "target": "body", "path": "$.jobs[*].id", "count": 1}, False),
        ("a value", {"type": "jsonpath", "target": "body", "path": "$.state", "expect": "up"}, True),
        ("values", {"type": "jsonpath", "target": "body", "path": "$.jobs[*].id", "expect": [1, 2.0]}, True),
        ("another value", {"type": "jsonpath", "target": "body", "path": "$.state", "expect": "down"}, False),
        ("a header", {"type": "jsonpath", "path": "$.headers.Server"}, True),
    ]
    for title, tolerance, met in tolerances:
        yield document(title, address, tolerance, [cut]), (met, met)
    for title, arguments, tolerance, met in [
        ("a program", ["-c", "echo up"], 0, True),
        ("a program that fails", ["-c", "exit 3"], 0, False),
        ("a program with one of two statuses", ["-c", "exit 3"], [0, 3], True),
        ("text that it prints", ["-c", "echo all up"], {"type": "regex", "target": "stdout", "pattern": "up$"}, True),
        ("text in another line", ["-c", "echo up; echo down"], {"type": "regex", "target": "stdout", "pattern": "up$"}, False),
        ("text that it does not print", ["-c", "echo up >&2"], {"type": "regex", "target": "stdout", "pattern": "up"}, False),
        ("a number that it prints", ["-c", "echo 5"], {"type": "range", "target": "stdout", "range": [0, 10]}, True),
        ("JSON that it prints", ["-c", "echo '{\"a\": [1, 2]}'"],
         {"type": "jsonpath", "target": "stdout", "path": "$.a[*]", "count": 2}, True),
        ("arguments in a string", "-c true", 0, True),
        ("arguments in a mapping", {"-c": "exit 4"}, 4, True),
    ]:
        provider = {"type": "process", "path": "/bin/sh", "arguments": arguments}
        yield steady(title, provider, tolerance, [cut]), (met, met)
    yield document("nobody there", "127.0.0.1:9", 200, [cut]), (False, False)
    # The last, because it ends the service.
    yield document("killed", address, 200, [kill]), (True, False)


def validate(check, programs):
    """Every document that is shipped, for this test or in the hub, is valid to both."""
    hub = HERE.parent.parent / "chaos-daemon" / "experiments"
    for path in [*sorted((HERE / "documents").iterdir()), *sorted(hub.iterdir())]:
        for command in (["chaosctl", "validate", path], ["chaos", "--no-version-check", "validate", path]):
            code, said = programs(*command)
            valid = code == 0 and ("valid" in said and "invalid" not in said.lower())
            check(f"{command[0]} validates {path.name}", valid, said)


def under_chaos_toolkit(programs, path):
    """Whether the steady state was met before and after, and whether what was injected was."""
    journal = programs.folder / "journal.json"
    journal.unlink(missing_ok=True)
    programs("chaos", "--no-version-check", "run", "--journal-path", journal, path)
    told = json.loads(journal.read_text())
    met = [(told["steady_states"].get(when) or {}).get("steady_state_met", False) for when in ("before", "after")]
    return tuple(met), all(run["output"]["status"] == 0 for run in told["run"])


def natively(programs, path, title):
    """The same, by the daemon."""
    code, said = programs("chaosctl", "experiment", "register", path)
    if code == 0:
        code, said = programs("chaosctl", "--json", "experiment", "run", title)
    try:
        told = json.loads(said.splitlines()[0])
        return (told["steady_state_before"], told["steady_state_after"]), code == int(not told["success"])
    except (IndexError, KeyError, ValueError):
        return said, False


def run(check, programs, experiment, expected):
    """One document under both programs."""
    title = experiment["title"]
    path = programs.folder / "experiment.json"
    path.write_text(json.dumps(experiment))
    seen = natively(programs, path, title)
    check(f"natively, {title}", seen == (expected, True), seen)
    if expected == (True, False):
        # A service can be killed once: Chaos Toolkit is to find the state in which it was left.
        expected = (False, False)
    seen = under_chaos_toolkit(programs, path)
    check(f"chaos run, {title}", seen == (expected, True), seen)


def main():
    programs, outside = Path(sys.argv[1]).resolve(), sys.argv[2]
    node.enter(outside)
    check = checks.Checks()
    with checks.service() as (port, pid), node.Daemon(programs, 'probe_commands = ["/bin/sh"]') as daemon, \
            tempfile.TemporaryDirectory(prefix="chaos-toolkit-") as folder:
        tools = checks.Programs(programs, daemon.socket, Path(folder))
        validate(check, tools)
        for experiment, expected in experiments(f"127.0.0.1:{port}", pid):
            run(check, tools, experiment, expected)
    print(f"{check.passed} passed, {check.failed} failed, 0 skipped", flush=True)
    sys.exit(int(check.failed > 0))


if __name__ == "__main__":
    main()
