#!/usr/bin/env python3
"""The official Python client (PyPI `mcp`) against chaos-daemon, through `chaosctl mcp`.

Lists the tools and calls them, in a session of the older revisions and in revision 2026-07-28. The client checks every
structured result against the tool's output schema. Prints one line per check; exits with 0 if all held.
No fault is injected: the fault it registers has the probability 0.
"""

import argparse
import asyncio
import sys

from mcp.client import Client
from mcp.client.stdio import StdioServerParameters

FAULT = "python-client-check"
# A call that takes longer than this has failed.
PATIENCE = 30
TOOLS = {"chaos_inject_fault", "chaos_run_experiment", "chaos_status"}


class Checks:
    """Counts what held and what did not, a line each."""

    def __init__(self):
        self.failed = 0

    def __call__(self, name, held, seen=""):
        self.failed += not held
        print(f"{'ok' if held else 'FAILED'}  {name}" + ("" if held else f": {seen}"), flush=True)


async def session(check, era, mode, parameters):
    async with Client(parameters, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        check(f"{era}: tools are listed", TOOLS <= tools.keys(), sorted(tools))
        check(f"{era}: every tool has an output schema", all(tool.output_schema for tool in tools.values()))

        async def call(tool, **arguments):
            result = await client.call_tool(tool, arguments)
            return result.structured_content or {}, bool(result.is_error)

        async def fault(action, **more):
            return await call("chaos_inject_fault", fault_name=FAULT, action=action, **more)

        # resource_exhaustion needs no target, and with probability 0 it never starts.
        answer, error = await fault("register", fault_type="resource_exhaustion", probability=0.0)
        check(f"{era}: register", not error and answer.get("status") == "registered", answer)
        answer, error = await call("chaos_status", include_results=True)
        names = [entry["name"] for entry in answer.get("active_faults", [])]
        check(f"{era}: status shows it", not error and FAULT in names, answer)
        answer, error = await fault("inject")
        untriggered = answer.get("status") == "injected" and answer.get("was_triggered") is False
        check(f"{era}: inject rolls the probability", not error and untriggered, answer)
        for time in ("", " again"):
            answer, error = await fault("remove")
            check(f"{era}: remove{time}", not error and answer.get("status") == "removed", answer)
        answer, error = await fault("inject")
        check(f"{era}: inject of an unknown fault is an error",
              error and answer.get("error", {}).get("code") == "FAULT_NOT_FOUND", answer)
        answer, error = await fault("register", fault_type="latency", probability=1.5)
        check(f"{era}: a probability of 1.5 is an error",
              error and answer.get("error", {}).get("code") == "INVALID_PROBABILITY", answer)
        answer, error = await call("chaos_run_experiment", experiment_name=FAULT)
        check(f"{era}: an unknown experiment is an error",
              error and answer.get("error_code") == "EXPERIMENT_NOT_FOUND", answer)
        answer, error = await call("chaos_doctor")
        check(f"{era}: doctor", not error and answer.get("kernel"), answer)


async def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chaosctl", required=True, metavar="PATH")
    parser.add_argument("--socket", required=True, metavar="PATH")
    options = parser.parse_args()
    parameters = StdioServerParameters(command=options.chaosctl, args=["--socket", options.socket, "mcp"])
    check = Checks()
    for era, mode in (("legacy", "legacy"), ("2026-07-28", "2026-07-28"), ("auto", "auto")):
        try:
            await asyncio.wait_for(session(check, era, mode, parameters), PATIENCE)
        except Exception as error:  # whatever it is, the other eras are still worth a look
            check(f"{era}: the session", False, repr(error))
    print(f"{check.failed} failed")
    return 1 if check.failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
