#!/usr/bin/env python3
"""The official Python client (PyPI `mcp`) against a real chaos-daemon, through `chaosctl mcp`.

In a session of the older revisions, in revision 2026-07-28, and in one that finds out by itself: lists the tools, calls
them, and cuts 127.0.0.2 off on the loopback of a network namespace that `run.py` made. The client checks every
structured result against the tool's output schema.
"""

import argparse
import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from mcp import MCPError
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

import node

FAULT = "python-client-check"
PEER, BYSTANDER = "127.0.0.2", "127.0.0.3"
PARTITION = {"fault_type": "network_partition", "probability": 1.0, "duration_seconds": 600,
             "target": {"interface": "lo", "cidr": PEER}}
TOOLS = {"chaos_inject_fault", "chaos_run_experiment", "chaos_status", "chaos_stop", "chaos_doctor", "chaos_plan",
         "chaos_plan_experiment", "chaos_list_experiments", "chaos_describe_experiment",
         "chaos_register_experiment", "chaos_probe", "chaos_list_runs", "chaos_get_run", "chaos_statistics",
         "chaos_schedule", "chaos_search", "chaos_targets"}
# The server that is probed, and its port.
SERVER, PORT = Path(__file__).resolve().parent / "server.py", 8765
# What only a hang takes of one session, and of everything together, in seconds; and the longest that may be waited for a run.
SESSION, ALL, WAIT = 5 * node.HANG, 20 * node.HANG, 44
# The longest time limit of a probe.
PATIENT = ("--timeout", "30s")

# A registration that is right but for this is refused: what is changed, the error's name, what its message starts with.
BAD = [
    ("an unknown fault type", {"fault_type": "meteor"}, "INVALID_PARAMETER", "fault_type:"),
    ("no fault type", {"fault_type": None}, "MISSING_PARAMETER", "fault_type:"),
    ("a probability of 1.5", {"probability": 1.5}, "INVALID_PROBABILITY", "probability:"),
    ("a probability in words", {"probability": "often"}, "INVALID_PROBABILITY", "probability:"),
    ("a prefix of 33 bits", {"target": {"interface": "lo", "cidr": "10.0.0.0/33"}}, "INVALID_PARAMETER",
     "target.cidr:"),
    ("a negative duration", {"duration_seconds": -1}, "INVALID_PARAMETER", "duration_seconds:"),
    ("an unknown field", {"blast": True}, "INVALID_PARAMETER", "blast:"),
    ("an unknown field of the target", {"target": {"interface": "lo", "iface": "lo"}}, "INVALID_PARAMETER", "target:"),
]


# An experiment: its name, and how long its fault lasts, in seconds.
WATCHED, LASTS = "python-client-run", 3


def experiment(port):
    """The document of WATCHED: nothing listens at PEER, so that nobody misses what is cut off, nor meets it."""
    chaosctl = lambda arguments: {"type": "process", "path": "chaosctl", "arguments": arguments}
    probe = {"type": "probe", "name": "port", "tolerance": 0, "provider": chaosctl(["probe", "tcp", f"127.0.0.1:{port}"])}
    cut = chaosctl({"inject": "network-partition", "--interface": "lo", "--cidr": PEER, "--for": f"{LASTS}s"})
    return {"title": WATCHED, "steady-state-hypothesis": {"title": "it listens", "probes": [probe]},
            "method": [{"type": "action", "name": "cut", "may_be_idle": True, "provider": cut}], "rollbacks": []}


class Checks:
    """Counts what held and what did not, a line each."""

    def __init__(self):
        self.passed = self.failed = 0
        self.era = ""

    def __call__(self, name, held, seen=""):
        self.passed += bool(held)
        self.failed += not held
        label = f"{self.era}: {name}"
        print(f"ok: {label}" if held else f"FAILED: {label}: {json.dumps(seen, default=repr)}", flush=True)


class Tools:
    """The tools of one session: each call gives the structured result, and whether it is an error."""

    def __init__(self, client):
        self.client = client

    async def call(self, tool, **arguments):
        result = await self.client.call_tool(tool, arguments)
        return result.structured_content or {}, bool(result.is_error)

    async def fault(self, action, **more):
        return await self.call("chaos_inject_fault", fault_name=FAULT, action=action, **more)

    async def status(self):
        """Our fault as `chaos_status` shows it; None when it does not."""
        answer, _ = await self.call("chaos_status")
        return next((fault for fault in answer.get("active_faults", []) if fault["name"] == FAULT), None)


async def listing(check, tools):
    offered = (await tools.client.list_tools()).tools
    check("tools are listed", TOOLS <= {tool.name for tool in offered}, [tool.name for tool in offered])
    check("every tool has an output schema", all(tool.output_schema for tool in offered))
    answer, error = await tools.call("chaos_doctor")
    check("doctor names the kernel", not error and answer.get("kernel"), answer)


async def partition(check, tools, echo):
    # Off the event loop, which has the session to keep.
    answers = lambda address, *patience: asyncio.to_thread(echo.answers, address, *patience)
    check("before, the peer answers", await answers(PEER))
    answer, error = await tools.fault("register", **PARTITION)
    check("register", not error and answer.get("status") == "registered", answer)
    check("registering alone does nothing", await answers(PEER))
    answer, error = await tools.fault("inject")
    check("inject", not error and answer.get("status") == "injected" and answer.get("was_triggered") is True, answer)
    check("during, the peer does not answer", not await answers(PEER, node.SILENCE))
    check("during, a bystander answers", await answers(BYSTANDER))
    seen = await tools.status()
    met = seen and seen["active"] and seen["state"] == "effective" and seen["evidence"]["packets_affected"] > 0
    check("status shows what it has met", met, seen)
    answer, error = await tools.fault("inject")
    check("a second inject is an error", error and answer["error"]["code"] == "FAULT_ACTIVE", answer)
    for time in ("", " again"):
        answer, error = await tools.fault("remove")
        clean = answer.get("status") == "removed" and not answer.get("residue")
        check(f"remove{time}", not error and clean, answer)
    check("after, the peer answers", await answers(PEER))


async def dice(check, tools):
    answer, error = await tools.fault("register", **{**PARTITION, "probability": 0.0})
    check("register with probability 0", not error, answer)
    answer, error = await tools.fault("inject")
    untriggered = answer.get("status") == "injected" and answer.get("was_triggered") is False
    check("inject rolls the probability", not error and untriggered, answer)
    await tools.fault("remove")


async def errors(check, tools):
    for name, change, code, start in BAD:
        arguments = {key: value for key, value in {**PARTITION, **change}.items() if value is not None}
        answer, error = await tools.fault("register", **arguments)
        failure = answer.get("error", {})
        named = failure.get("code") == code and failure.get("message", "").startswith(start)
        check(f"{name} is refused by name", error and named, answer)
    check("nothing of that is registered", await tools.status() is None, await tools.status())
    answer, error = await tools.fault("inject")
    check("inject of an unknown fault is an error", error and answer["error"]["code"] == "FAULT_NOT_FOUND", answer)
    answer, error = await tools.call("chaos_run_experiment", experiment_name=FAULT)
    check("an unknown experiment is an error", error and answer.get("error_code") == "EXPERIMENT_NOT_FOUND", answer)


async def experiments(check, tools):
    """The pages of a list, one experiment each, are the list."""
    whole, error = await tools.call("chaos_list_experiments")
    listed = whole.get("experiments", [])
    built_in = [found["experiment_name"] for found in listed if found["origin"] == "built-in"]
    check("experiments are listed", not error and "process-death" in built_in and built_in == sorted(built_in), whole)
    pages, cursor = [], {}
    while len(pages) <= len(listed):
        page, error = await tools.call("chaos_list_experiments", limit=1, **cursor)
        pages += page.get("experiments", [])
        if error or "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}
    check("page by page, they are the same", pages == listed, pages)
    answer, error = await tools.call("chaos_list_experiments", cursor="elsewhere")
    refused = answer.get("error", {}).get("message", "").startswith("cursor:")
    check("a cursor that is none is refused by name", error and refused, answer)
    answer, error = await tools.call("chaos_describe_experiment", experiment_name="process-death")
    injects = [fault["fault_type"] for fault in answer.get("faults", [])]
    check("an experiment is described", not error and answer.get("document") and injects == ["process_kill"], answer)
    answer, error = await tools.call("chaos_describe_experiment", experiment_name=FAULT)
    unknown = answer.get("error", {}).get("code") == "EXPERIMENT_NOT_FOUND"
    check("an experiment that is not there cannot be described", error and unknown, answer)


async def progress(check, tools):
    """A run tells how it goes to who wants to hear it, and a wait for its end ends with it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answer, error = await tools.call("chaos_register_experiment", **experiment(listener.getsockname()[1]))
        check("register an experiment", not error, answer)
        heard = []

        async def hear(progress, total, message):
            heard.append((progress, total, message))

        result = await tools.client.call_tool("chaos_run_experiment", {"experiment_name": WATCHED}, progress_callback=hear)
        verdict = (result.structured_content or {}).get("verdict")
        check("an experiment is run", verdict == "held", result.structured_content)
        values = [progress for progress, _, _ in heard]
        rises = all(one < next for one, next in zip(values, values[1:]))
        check("its progress rises", len(values) >= 2 and rises, heard)
        check("its progress is told in words", any(message.startswith("lasting (cut), ") for _, _, message in heard), heard)
        totals = [total >= progress for progress, total, _ in heard if total is not None]
        check("its progress has a total", totals and all(totals), heard)

        run, error = await tools.call("chaos_run_experiment", experiment_name=WATCHED, wait_seconds=0)
        check("a run is begun", not error and "verdict" not in run, run)
        start = time.monotonic()
        answer, error = await tools.call("chaos_get_run", run_id=run["run_id"], wait_seconds=WAIT)
        ended = answer.get("ended") is True and answer["run"].get("verdict") == "held"
        check("a wait ends with the run", not error and ended and time.monotonic() - start < WAIT, answer)
    for tool, named in (("chaos_run_experiment", {"experiment_name": WATCHED}), ("chaos_get_run", {"run_id": "0"})):
        answer, error = await tools.call(tool, wait_seconds=WAIT + 1, **named)
        check(f"{tool} does not wait too long", error and f"wait_seconds: {WAIT + 1} is not from 0 to {WAIT}" in json.dumps(answer), answer)


async def session(check, mode, parameters, echo):
    before = node.queues()
    async with Client(parameters, mode=mode) as client:
        tools = Tools(client)
        await listing(check, tools)
        await partition(check, tools, echo)
        await dice(check, tools)
        await errors(check, tools)
        await experiments(check, tools)
        await progress(check, tools)
        answer, error = await tools.call("chaos_doctor")
        check("doctor finds nothing left behind", not error and answer.get("residue") == [], answer)
    check("the queues of lo are as they were", node.queues() == before, node.queues())


async def behind_proxy(check, mode, parameters):
    """The same server behind `chaosctl mcp-proxy`: calls fail or come late, and the session goes on."""
    def proxied(*options):
        arguments = ["mcp-proxy", *options, "--", parameters.command, *parameters.args]
        return StdioServerParameters(command=parameters.command, args=arguments)

    async with Client(proxied("--fail", "1"), mode=mode) as client:
        try:
            answer = await client.call_tool("chaos_status", {})
        except MCPError as error:
            answer = error.error
        check("behind the proxy, a call fails", getattr(answer, "code", None) == -32603, answer)
        check("behind the proxy, listing goes on", (await client.list_tools()).tools)
    async with Client(proxied("--delay", "300ms"), mode=mode) as client:
        start = time.monotonic()
        _, error = await Tools(client).call("chaos_status")
        check("behind the proxy, a call is late", not error and time.monotonic() - start >= 0.3)


def probe(programs, server, *options, kind="mcp"):
    """Exit code and answer of `chaosctl probe mcp`, or of another probe that speaks with an MCP server."""
    command = [str(programs / "chaosctl"), "--json", "probe", kind, *PATIENT, *options, *server]
    done = subprocess.run(command, capture_output=True, text=True, timeout=node.HANG, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def probed(check, programs, server):
    """What `chaosctl probe mcp` tells of the server of the official library."""
    code, answer, said = probe(programs, server, "--tool", "add")
    told = answer.get("answer") or {}
    check("an MCP server is probed", code == 0 and told.get("tools") == ["add", "fail"], answer or said)
    check("its name is told", told.get("server") == "probed", answer)
    for name, options, expected, word in (
        ("a call that succeeds", ("--call", "add", "--arguments", '{"a": 1, "b": 2}'), 0, "add answered"),
        ("a call that fails", ("--call", "fail"), 1, "fail failed"),
        ("a tool that is not there", ("--tool", "subtract"), 1, "no tool"),
    ):
        code, answer, _ = probe(programs, server, *options)
        check(f"{name} is told", code == expected and word in answer.get("detail", ""), answer)


def probes(check, programs):
    """`chaosctl probe mcp` against a server of the official library: over HTTP, in either of the two ways to answer and without the
    revisions that have a handshake, and over stdio."""
    for check.era, more in (("events", []), ("json", ["json"]), ("no handshake", ["modern"])):
        with subprocess.Popen([sys.executable, str(SERVER), str(PORT), *more], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) as server:
            try:
                url, end = f"http://127.0.0.1:{PORT}/mcp", time.monotonic() + node.HANG
                while probe(programs, [url])[0] and time.monotonic() < end:
                    time.sleep(0.2)
                probed(check, programs, [url])
                _, answer, said = probe(programs, [url])
                revision = "2026-07-28" if "modern" in more else "2025-06-18"
                check("its revision is told", (answer.get("answer") or {}).get("revision") == revision, answer or said)
                code, answer, _ = probe(programs, [f"http://127.0.0.1:{PORT}/elsewhere"])
                check("another path is no MCP server", code == 1 and "404" in answer.get("detail", ""), answer)
                code, answer, said = probe(programs, ["--mcp", url], "--max", "10000", kind="latency")
                check("its latency is a percentile", code == 0 and answer["value"] > 0 and "p95" in answer["detail"], answer or said)
            finally:
                server.kill()
    check.era = "stdio"
    server = ["--", sys.executable, str(SERVER), "stdio"]
    probed(check, programs, server)
    proxied = ["--", str(programs / "chaosctl"), "mcp-proxy", "--delay", "700ms", *server]
    code, answer, _ = probe(programs, proxied, "--call", "add", "--arguments", '{"a": 1, "b": 2}')
    late = (answer.get("answer") or {}).get("call_ms", 0)
    check("behind the proxy, a call is late", code == 0 and late >= 700, answer)


async def every_session(check, parameters, echo):
    for check.era in ("legacy", "2026-07-28", "auto"):
        try:
            await asyncio.wait_for(session(check, check.era, parameters, echo), SESSION)
            await asyncio.wait_for(behind_proxy(check, check.era, parameters), SESSION)
        except Exception as error:  # whatever it is, the other revisions are still worth a look
            check("the session", False, repr(error))


def give_up(number, _):
    """Ends the checks with what was started, whoever asks."""
    raise SystemExit(f"ended by {signal.Signals(number).name}; there are {ALL} s for everything")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", type=Path, help="directory of chaos-daemon and chaosctl")
    parser.add_argument("outside", help="the host's network namespace, as /proc/self/ns/net says")
    options = parser.parse_args()
    node.enter(options.outside)
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, give_up)
    signal.alarm(ALL)
    check = Checks()
    with node.Daemon(options.programs) as daemon, node.Echo() as echo:
        arguments = ["--socket", str(daemon.socket), "mcp"]
        parameters = StdioServerParameters(command=str(options.programs / "chaosctl"), args=arguments)
        asyncio.run(every_session(check, parameters, echo))
        probes(check, options.programs)
        if check.failed:
            print(f"log of the daemon:\n{daemon.log.read_text()}")
    print(f"{check.passed} passed, {check.failed} failed, 0 skipped", flush=True)
    return int(check.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
