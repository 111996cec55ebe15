#!/usr/bin/env python3
"""Documents under the real Chaos Toolkit and natively: what is valid here is valid there, and one file has one verdict.

The faults go to 127.0.0.2 on the loopback of a network namespace that `run.py` made.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mcp"))

import checks  # noqa: E402
import node  # noqa: E402


def document(title, address, tolerance, method):
    """An experiment whose steady state is the health of `address`."""
    return steady(title, {"type": "http", "url": f"http://{address}/health", "timeout": 30}, tolerance, method)


def steady(title, provider, tolerance, method):
    """An experiment whose steady state is what a provider says."""
    probe = {"type": "probe", "name": "health", "tolerance": tolerance, "provider": provider}
    return {"title": title, "description": title, "steady-state-hypothesis": {"title": "up", "probes": [probe]},
            "method": method, "rollbacks": []}


def inject(lasts, after, *arguments):
    """An action that injects, and the pause after it: what Chaos Toolkit injects is over before it looks again."""
    return {"type": "action", "name": "inject", "pauses": {"after": after},
            "provider": {"type": "process", "path": "chaosctl", "arguments": ["inject", *arguments, "--for", lasts]}}


def experiments(address):
    """Documents, and whether their steady state is met before and after."""
    cut = inject("500ms", 1.5, "timeout", "--interface", "lo", "--cidr", "127.0.0.2")
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


def refused(is_watched):
    """An action that has 127.0.0.2 refuse; for long where somebody is to notice who looks once a second."""
    lasts, after = ("6s", 7) if is_watched else ("1500ms", 2)
    return inject(lasts, after, "error", "--interface", "lo", "--cidr", "127.0.0.2")


def strategies(address, port):
    """Documents with a strategy, and whether their steady state is met before, during and after; None: it is not verified."""
    reached = f"127.0.0.2:{port}"
    for strategy, where, tolerance, met in [
        ("before-method-only", address, 200, (True, None, None)),
        ("before-method-only", address, 204, (False, None, None)),
        ("after-method-only", address, 200, (None, None, True)),
        ("after-method-only", address, 204, (None, None, False)),
        ("during-method-only", address, 200, (None, True, None)),
        ("during-method-only", address, 204, (None, False, None)),
        ("during-method-only", reached, 200, (None, False, None)),
        ("continuously", address, 200, (True, True, True)),
        ("continuously", reached, 200, (True, False, True)),
        ("default", reached, 200, (True, None, True)),
    ]:
        title = f"{strategy}, {tolerance} of {'an address that is cut off' if where == reached else 'a service'}"
        experiment = document(title, where, tolerance, [refused(where == reached)])
        experiment["runtime"] = {"hypothesis": {"strategy": strategy}, "rollbacks": {"strategy": "always"}}
        yield experiment, met


def killed(address, service):
    """A document that ends the service: its steady state is met before and not after."""
    kill = inject("500ms", 1, "process-kill", "--pid", str(service))
    return document("killed", address, 200, [kill]), (True, False)


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


def strategy_under_chaos_toolkit(programs, path, *options):
    """Whether the steady state was met before, all the time during, and after; None where it was not verified. And the method."""
    journal = programs.folder / "journal.json"
    journal.unlink(missing_ok=True)
    programs("chaos", "--no-version-check", "run", "--journal-path", journal, *options, path)
    told = json.loads(journal.read_text())
    states = told["steady_states"]
    before, after = ((states[when] or {}).get("steady_state_met") for when in ("before", "after"))
    during = [state["steady_state_met"] for state in states["during"]]
    return (before, all(during) if during else None, after), told["run"]


def strategy_natively(programs, path, title):
    """The same, by the daemon: when it was met with the verdict, and the samples of the method's own probes."""
    programs("chaosctl", "experiment", "register", path)
    _, said = programs("chaosctl", "--json", "run", title)
    try:
        told = json.loads(said.splitlines()[-1])
        met = {"before": told["steady_state_before"], "during": told.get("failure_mode") != "not_steady_during",
               "after": told["steady_state_after"]}
        seen = tuple(met[when] if when in told["verified"] else None for when in met), told["verdict"]
        _, said = programs("chaosctl", "--json", "show", told["run_id"])
        return seen, [sample for sample in json.loads(said)["samples"] if sample["role"] == "method"]
    except (IndexError, KeyError, ValueError):
        return said, None


def verdict(met):
    """What is said of a run whose steady state was met at these times."""
    before, during, after = met
    if before is False:
        return "refused"
    if False in (during, after):
        return "deviated"
    return "unverified" if during is None and after is None else "held"


def run_strategy(check, programs, experiment, met):
    """One document with a strategy under both programs."""
    title = experiment["title"]
    path = programs.folder / "strategy.json"
    path.write_text(json.dumps(experiment))
    code, said = programs("chaos", "--no-version-check", "validate", path)
    check(f"chaos validates {title}", code == 0, said)
    seen, _ = strategy_natively(programs, path, title)
    check(f"natively, {title}", seen == (met, verdict(met)), seen)
    seen, _ = strategy_under_chaos_toolkit(programs, path)
    check(f"chaos run, {title}", seen == met, seen)


def fail_fast(check, programs, port):
    """A run that ends when the steady state is not met, without the rest of its method: `--fail-fast`, and `stopOnFailure`."""
    title = "failing fast"
    provider = {"type": "http", "url": f"http://127.0.0.1:{port}/health", "timeout": 30}
    cut = refused(True)
    look = {"type": "probe", "name": "never taken", "provider": provider}
    experiment = document(title, f"127.0.0.2:{port}", 200, [cut, look])
    experiment["runtime"] = {"hypothesis": {"strategy": "continuously"}}
    experiment["extensions"] = [{"name": "chaos-daemon", "probes": [{"name": "health", "stopOnFailure": True}]}]
    path = programs.folder / "fast.json"
    path.write_text(json.dumps(experiment))
    met = (True, False, True)
    seen, samples = strategy_natively(programs, path, title)
    check(f"natively, {title}", seen == (met, "deviated") and samples == [], (seen, samples))
    seen, activities = strategy_under_chaos_toolkit(programs, path, "--fail-fast")
    check(f"chaos run, {title}", seen == met and len(activities) == 1, (seen, activities))


def shipped(check, programs, address, port, unit):
    """An experiment of the hub, told where to act by its variables, under both programs. Somebody calls what is cut off, and it is no
    dependency of the service: Chaos Toolkit looks at it while the fault is still active."""
    name = "dependency-partition"
    path = programs.folder / f"{name}.yaml"
    code, said = programs("chaosctl", "hub", "copy", name, path)
    check(f"the hub has {name}", code == 0, said)
    title = yaml.safe_load(path.read_text())["title"]
    programs.environment.update(CHAOS_INTERFACE="lo", CHAOS_DEPENDENCY="127.0.0.2", CHAOS_DEPENDENCY_PORT=port,
                                CHAOS_SERVICE=address, CHAOS_OUTAGE_SECONDS="1", CHAOS_UNIT=unit, CHAOS_UPTIME_SECONDS="1")
    for health, met in [(address, (True, None, True)), ("127.0.0.1:9", (False, None, None))]:
        programs.environment["CHAOS_HEALTH_URL"] = f"http://{health}/health"
        seen, _ = strategy_natively(programs, path, title)
        check(f"natively, {name} as shipped, health at {health}", seen == (met, verdict(met)), seen)
        seen, activities = strategy_under_chaos_toolkit(programs, path)
        statuses = [run["output"]["status"] for run in activities if run["activity"]["type"] == "action"]
        injected = [0] if met[0] else []
        check(f"chaos run, {name} as shipped, health at {health}", (seen, statuses) == (met, injected), (seen, statuses))
        _, said = programs("chaosctl", "--json", "status")
        left = [fault["name"] for fault in json.loads(said)["active_faults"] if fault["active"]]
        check(f"neither leaves a fault, health at {health}", left == [], left)


def probe_as_tolerance(check, programs, address):
    """Why a probe is no tolerance here: of a program Chaos Toolkit takes any answer for right."""
    provider = {"type": "process", "path": "/bin/false", "arguments": {}}
    tolerance = {"type": "probe", "name": "judge", "provider": provider}
    experiment = document("judged by a program that fails", address, tolerance, [])
    path = programs.folder / "judged.json"
    path.write_text(json.dumps(experiment))
    seen = under_chaos_toolkit(programs, path)
    check("chaos run takes the answer of a program that fails for right", seen == ((True, True), True), seen)
    code, said = programs("chaosctl", "validate", path)
    check("natively, a probe as a tolerance is refused by name", code == 2 and '"probe" is not supported' in said, said)


def launcher():
    """A Python that the user of probes can run, too, with the packages of this one; it is root's, as the daemon wants it."""
    venv = HERE.parent.parent / "target" / "chaostoolkit-python"
    shutil.rmtree(venv, ignore_errors=True)
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", str(venv)], check=True)
    packages = next((venv / "lib").glob("python3*/site-packages"))
    (packages / "chaostoolkit.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return venv / "bin" / "python3"


def called(module, func, **arguments):
    """A provider that calls a function of Python."""
    return {"type": "python", "module": module, "func": func, "arguments": arguments}


def python_probes():
    """Documents whose steady state is what a function returns, and whether it is met."""
    cut = inject("500ms", 1.5, "timeout", "--interface", "lo", "--cidr", "127.0.0.2")
    text = '{"jobs": [{"id": 1}, {"id": 2}], "load": 0.5, "state": "up"}'
    loads, found = called("json", "loads", s=text), called("os.path", "exists", path="${there}")
    for title, provider, tolerance, met in [
        ("a truth", found, True, True),
        ("another truth", found, False, False),
        ("a text", called("os.path", "basename", p="/a/b"), "b", True),
        ("two bounds", called("json", "loads", s="5"), [1, 9], True),
        ("a range of a number", called("json", "loads", s="5"), {"type": "range", "range": [6, 9]}, False),
        ("a path in what is returned", loads, {"type": "jsonpath", "path": "$.jobs[*].id", "count": 2}, True),
        ("an expression", called("os.path", "basename", p="/a/all up"), {"type": "regex", "pattern": "up$"}, True),
        ("a function that raises", called("json", "loads", s="{"), True, False),
    ]:
        experiment = steady(f"Python, {title}", provider, tolerance, [cut])
        experiment["configuration"] = {"there": "/etc/passwd"}
        yield experiment, (met, met)


def natively(programs, path, title):
    """The same, by the daemon."""
    code, said = programs("chaosctl", "experiment", "register", path)
    if code == 0:
        code, said = programs("chaosctl", "--json", "experiment", "run", title)
    try:
        told = json.loads(said.splitlines()[0])
        seen = (told["steady_state_before"], told["steady_state_after"])
        return seen, told["success"] == all(seen) and code == int(not told["success"])
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
    policy = f'probe_commands = ["/bin/sh"]\nprobe_python = {{ interpreter = "{launcher()}", modules = ["json", "os.path", "chaoslib"] }}'
    with checks.service() as (port, pid), node.Daemon(programs, policy) as daemon, \
            tempfile.TemporaryDirectory(prefix="chaos-toolkit-") as folder:
        tools = checks.Programs(programs, daemon.socket, Path(folder))
        validate(check, tools)
        address = f"127.0.0.1:{port}"
        # Somebody to meet what is cut off: a fault that acts on nothing shows nothing.
        with checks.calls("127.0.0.2", port):
            for experiment, expected in experiments(address):
                run(check, tools, experiment, expected)
            for experiment, expected in python_probes():
                run(check, tools, experiment, expected)
            for experiment, met in strategies(address, port):
                run_strategy(check, tools, experiment, met)
            fail_fast(check, tools, port)
            probe_as_tolerance(check, tools, address)
            with checks.unit(pid) as unit:
                shipped(check, tools, address, port, unit)
        # The last, because it ends the service.
        run(check, tools, *killed(address, pid))
    print(f"{check.passed} passed, {check.failed} failed, 0 skipped", flush=True)
    sys.exit(int(check.failed > 0))


if __name__ == "__main__":
    main()
