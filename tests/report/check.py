#!/usr/bin/env python3
"""Reports on real runs: their page as Chromium draws it, and their journal as Chaos Toolkit's own reports read it.

The faults go to 127.0.0.2 on the loopback of a network namespace that `run.py` made.
"""

import json
import socket
import sys
import tempfile
from pathlib import Path

from selenium import webdriver

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "mcp"))

import checks  # noqa: E402
import node  # noqa: E402

# Of a screen, and of a narrow one, in CSS pixels.
WIDTHS = (1280, 420)
# A name that would be mark-up, and is longer than there is place for.
NAME = "<script>document.title='taken'</script><b onclick=\"x\">the shop & its 'database'</b>"
BROWSER = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]

# What is drawn, and where: every mark of the chart by its class, the names of its rows, and the rows.
DRAWN = """
const box = node => { const r = node.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
const boxes = wanted => [...document.querySelectorAll('svg ' + wanted)].map(box);
const marks = {};
for (const kind of ['fault', 'met', 'unmet', 'blind', 'breach']) marks[kind] = boxes('.' + kind);
return {
  chart: box(document.querySelector('svg')), marks, names: boxes('.name'), rows: boxes('.row'), times: boxes('.time'),
  broken: [...document.querySelectorAll('th')].filter(node => {
    const range = document.createRange(); range.selectNodeContents(node);
    return range.getClientRects().length > node.innerText.trim().split(/\\s+/).length; }).map(node => node.innerText),
  page: document.documentElement.clientWidth, content: document.documentElement.scrollWidth,
  asked: performance.getEntriesByType('resource').map(entry => entry.name),
  scripts: document.querySelectorAll('script').length, text: document.body.innerText, title: document.title,
  colours: ['fault', 'met', 'unmet', 'blind'].map(kind => {
    const node = document.querySelector('svg .' + kind); return node && getComputedStyle(node).fill; }),
};
"""


def process(*arguments):
    return {"type": "process", "path": "chaosctl", "arguments": [str(argument) for argument in arguments]}


def document(title, port, gate):
    """An experiment that cuts 127.0.0.2 off for two seconds, or for long, and a gate that watches it ends that sooner."""
    method = [{"type": "action", "name": "cut", "may_be_idle": True, "pauses": {"after": 1},
               "provider": process("inject", "timeout", "--name", "cut", "--interface", "lo", "--cidr", "127.0.0.2",
                                   "--for", "1m" if gate else "2s")},
              {"type": "probe", "name": "for the record", "provider": process("probe", "tcp", f"127.0.0.1:{port}")}]
    steady = [{"type": "probe", "name": NAME, "tolerance": 200,
               "provider": {"type": "http", "url": f"http://127.0.0.1:{port}/health", "timeout": 30}}]
    told = {"title": title, "description": "Of a page.", "tags": ["page"],
            "steady-state-hypothesis": {"title": "up", "probes": steady}, "method": method, "rollbacks": []}
    if gate:
        reach = process("probe", "tcp", f"127.0.0.2:{port}", "--timeout", "3s")
        told["extensions"] = [{"name": "chaos-daemon", "rollback_on": [
            {"name": "the far side answers", "provider": reach, "op": "gt", "value": 2500, "interval": "200ms"}]}]
    return told


def inside(part, whole, slack=1):
    return all(part[at] >= whole[at] - slack for at in (0, 1)) and all(part[at] <= whole[at] + slack for at in (2, 3))


def look(check, browser, path, title, wanted):
    """The page, at every width."""
    browser.get(path.as_uri())
    for width in WIDTHS:
        browser.set_window_size(width, 900)
        seen = browser.execute_script(DRAWN)
        what = f"the page of \"{title}\" at {width} pixels"
        marks = seen["marks"]
        there = {kind: bool(boxes) for kind, boxes in marks.items()}
        check(f"{what} shows {', '.join(kind for kind in wanted if wanted[kind])}", there == wanted, there)
        boxes = [box for boxes in marks.values() for box in boxes]
        # The box of an upright line has no width.
        small = [box for kind, boxes_of in marks.items() for box in boxes_of
                 if box[3] - box[1] < 0.5 or kind != "breach" and box[2] - box[0] < 0.5]
        outside = [box for box in boxes + seen["rows"] + seen["times"] if not inside(box, seen["chart"])]
        check(f"{what} draws every mark within its chart and to be seen", not small and not outside, (small, outside))
        left = min(row[0] for row in seen["rows"])
        check(f"{what} has a name beside each row, and over none",
              len(seen["names"]) == len(seen["rows"]) and all(name[2] <= left for name in seen["names"]),
              (left, seen["names"]))
        check(f"{what} breaks no word of a heading", not seen["broken"], seen["broken"])
        check(f"{what} is no wider than the screen", seen["content"] <= seen["page"], seen["content"])
    told = {part: seen[part] for part in ("asked", "scripts", "title")}
    check(f"the page of \"{title}\" asks for nothing, and runs nothing",
          not seen["asked"] and not seen["scripts"] and seen["title"].startswith(f"{title}: "), told)
    check(f"the page of \"{title}\" has names as they are", NAME in seen["text"], seen["text"])
    colours = [colour for colour in seen["colours"] if colour]
    check(f"the page of \"{title}\" has a colour for each thing", len(set(colours)) == len(colours), colours)
    # What it says of its own first page is not about ours.
    complaints = [said for said in browser.get_log("browser") if not said["message"].startswith("chrome:")]
    check(f"Chromium has nothing to say against the page of \"{title}\"", not complaints, complaints)
    browser.set_window_size(WIDTHS[0], 1400)
    browser.save_screenshot(str(path.with_suffix(".png")))


def read(check, programs, journal, title, status):
    """The journal, by Chaos Toolkit's own reports."""
    told = json.loads(journal.read_text())
    check(f"the journal of \"{title}\" says {status}", told["status"] == status, told["status"])
    check(f"the journal of \"{title}\" names the host", told["node"] == socket.gethostname(), told["node"])
    written = journal.with_suffix(".md")
    code, said = programs("chaos", "--no-version-check", "report", "--export-format", "markdown", journal, written)
    text = written.read_text() if written.is_file() else ""
    named = all(part in text for part in (title, "Action - cut", "for the record"))
    check(f"chaos report reads the journal of \"{title}\"", code == 0 and named, said + text)


def browse(programs):
    options = webdriver.ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    for argument in [*BROWSER, f"--user-data-dir={programs.folder / 'browser'}"]:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    browser.set_page_load_timeout(node.HANG)
    return browser


def main():
    programs, outside = Path(sys.argv[1]).resolve(), sys.argv[2]
    node.enter(outside)
    check = checks.Checks()
    # What was drawn stays, for whoever wants to see it.
    drawn = HERE.parent.parent / "target" / "report-pages"
    drawn.mkdir(parents=True, exist_ok=True)
    with checks.service() as (port, _), node.Daemon(programs) as daemon, \
            tempfile.TemporaryDirectory(prefix="chaos-report-") as folder:
        tools = checks.Programs(programs, daemon.socket, Path(folder))
        browser = browse(tools)
        try:
            for title, gate, code, status in [("held", False, 0, "completed"), ("tripped", True, 4, "aborted")]:
                path = tools.folder / "experiment.json"
                path.write_text(json.dumps(document(title, port, gate)))
                registered = tools("chaosctl", "experiment", "register", path)
                check(f"\"{title}\" is registered", registered[0] == 0, registered)
                ended, said = tools("chaosctl", "run", title)
                check(f"\"{title}\" ends with exit code {code}", ended == code, (ended, said))
                _, runs = tools("chaosctl", "--json", "runs")
                run = json.loads(runs)["results"][-1]["run_id"]
                page, journal = drawn / f"{title}.html", drawn / f"{title}.json"
                for kind, file in (("html", page), ("journal", journal)):
                    wrote = tools("chaosctl", "report", run, "--format", kind, "--output", file)
                    check(f"a report on \"{title}\" is written as {kind}", wrote[0] == 0, wrote)
                look(check, browser, page, title,
                     {"fault": True, "met": True, "unmet": False, "blind": gate, "breach": gate})
                read(check, tools, journal, title, status)
        finally:
            browser.quit()
    print(f"{check.passed} passed, {check.failed} failed, 0 skipped", flush=True)
    sys.exit(int(check.failed > 0))


if __name__ == "__main__":
    main()
