#!/usr/bin/env python3
"""Reports on real runs: their page as Chromium draws it, and their journal as Chaos Toolkit's own reports read it.

The faults go to 127.0.0.2 on the loopback of a network namespace that `run.py` made.
"""

import base64
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
WIDTHS = (1100, 480)
# A name that would be mark-up, and is longer than there is place for.
NAME = "<script>document.title='taken'</script><b onclick=\"x\">the shop & its 'database'</b>"
BROWSER = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]

# What is drawn, and where: every mark of the chart by its class, the names of its rows, and the rows.
DRAWN = """
const box = node => { const r = node.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
const boxes = wanted => [...document.querySelectorAll(wanted)].map(box);
const seen = node => { const r = node.getBoundingClientRect(); return r.width > 0 && r.height > 0; };
const marks = {};
for (const kind of ['fault', 'met', 'unmet', 'blind']) marks[kind] = boxes(`svg rect.${kind}, svg circle.${kind}, svg path.${kind}`);
for (const kind of ['breach', 'limit']) marks[kind] = boxes(`svg line.${kind}`);
for (const kind of ['failed', 'recovered']) marks[kind] = boxes(`svg path.${kind}`);
const fold = document.querySelector('details');
const shown = document.body.innerText.split(fold.innerText)[0];
return {
  marks, names: boxes('.lane .name').slice(0, -1), rows: boxes('svg .row'), times: boxes('svg .time'),
  broken: [...document.querySelectorAll('th')].filter(seen).filter(node => {
    const range = document.createRange(); range.selectNodeContents(node);
    return range.getClientRects().length > node.innerText.trim().split(/\\s+/).length; }).map(node => node.innerText),
  page: document.documentElement.clientWidth, content: document.documentElement.scrollWidth,
  asked: performance.getEntriesByType('resource').map(entry => entry.name),
  scripts: document.querySelectorAll('script').length, text: document.body.innerText, shown, title: document.title,
  colours: ['fault', 'met', 'unmet', 'blind'].map(kind => {
    const node = document.querySelector(`svg rect.${kind}, svg circle.${kind}`); return node && getComputedStyle(node).fill; }),
  back: getComputedStyle(document.body).backgroundColor, open: fold.open,
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
    """The page, at every width, on a light screen and on a dark one, and on paper."""
    backs = set()
    for scheme in ("light", "dark"):
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        for width in WIDTHS:
            size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(path.as_uri())
            seen = browser.execute_script(DRAWN)
            backs.add(seen["back"])
            drawn(check, seen, f"the {scheme} page of \"{title}\" at {width} pixels", wanted)
            height = browser.execute_script("return document.documentElement.scrollHeight")
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "height": min(height, 4000)})
            browser.save_screenshot(str(path.with_name(f"{path.stem}-{width}-{scheme}.png")))
    check(f"the page of \"{title}\" follows a dark screen", len(backs) == 2, backs)
    told = {part: seen[part] for part in ("asked", "scripts", "title")}
    check(f"the page of \"{title}\" asks for nothing, and runs nothing",
          not seen["asked"] and not seen["scripts"] and seen["title"].startswith(f"{title}: "), told)
    check(f"the page of \"{title}\" has names as they are", NAME in seen["text"], seen["text"])
    ours = json.loads(path.with_suffix(".json").read_text())["chaos-daemon"]
    hidden = [word for word in ("{", ours["digest"], ours["run_id"]) if word in seen["shown"]]
    check(f"the page of \"{title}\" shows no handle and no JSON", not hidden and not seen["open"], hidden)
    colours = [colour for colour in seen["colours"] if colour]
    check(f"the page of \"{title}\" has a colour for each thing", len(set(colours)) == len(colours), colours)
    # What it says of its own first page is not about ours.
    complaints = [said for said in browser.get_log("browser") if not said["message"].startswith("chrome:")]
    check(f"Chromium has nothing to say against the page of \"{title}\"", not complaints, complaints)
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    path.with_suffix(".pdf").write_bytes(printed)
    check(f"the page of \"{title}\" is printed", printed.startswith(b"%PDF"), printed[:20])


def drawn(check, seen, what, wanted):
    """What is drawn is there, in its place, and to be seen."""
    marks = seen["marks"]
    there = {kind: bool(marks[kind]) for kind in wanted}
    check(f"{what} shows {', '.join(kind for kind in wanted if wanted[kind])}", there == wanted, there)
    # The box of a line has no width, or no height.
    small = [box for kind, boxes_of in marks.items() for box in boxes_of
             if kind not in ("breach", "limit") and (box[3] - box[1] < 0.5 or box[2] - box[0] < 0.5)]
    left, right = min(row[0] for row in seen["rows"]), max(row[2] for row in seen["rows"])
    top, bottom = min(row[1] for row in seen["rows"]), max(row[3] for row in seen["rows"])
    # A sign at either end is as wide as it is.
    outside = [box for boxes in marks.values() for box in boxes if not inside(box, [left, top, right, bottom], 8)]
    outside += [box for box in seen["times"] if not inside(box, [left, top, right, bottom + 30], 2)]
    check(f"{what} draws every mark within its chart and to be seen", not small and not outside, (small, outside))
    beside = [(name, row) for name, row in zip(seen["names"], seen["rows"]) if not (name[2] <= row[0] or name[3] <= row[1] + 1)]
    check(f"{what} has a name beside each row, or above it", len(seen["names"]) == len(seen["rows"]) and not beside, beside)
    check(f"{what} breaks no word of a heading", not seen["broken"], seen["broken"])
    check(f"{what} is no wider than the screen", seen["content"] <= seen["page"], seen["content"])


def look_over(check, browser, path):
    """A page of several runs: as wide as the screen, and for itself."""
    for width in WIDTHS:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(path.as_uri())
        wide, asked = browser.execute_script(
            "return [document.documentElement.scrollWidth, performance.getEntriesByType('resource').map(one => one.name)];")
        check(f"{path.name} at {width} pixels is no wider than the screen, and asks for nothing",
              wide <= width and not asked, (wide, asked))
        browser.save_screenshot(str(path.with_name(f"{path.stem}-{width}.png")))


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
    pages = HERE.parent.parent / "target" / "report-pages"
    pages.mkdir(parents=True, exist_ok=True)
    with checks.service() as (port, _), node.Daemon(programs) as daemon, \
            tempfile.TemporaryDirectory(prefix="chaos-report-") as folder:
        tools = checks.Programs(programs, daemon.socket, Path(folder))
        browser, ran = browse(tools), []
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
                page, journal = pages / f"{title}.html", pages / f"{title}.json"
                ran.append(run)
                for kind, file in (("journal", journal), ("html", page)):
                    wrote = tools("chaosctl", "report", run, "--format", kind, "--output", file)
                    check(f"a report on \"{title}\" is written as {kind}", wrote[0] == 0, wrote)
                look(check, browser, page, title,
                     {"fault": True, "met": True, "unmet": False, "blind": gate, "breach": gate, "limit": gate})
                read(check, tools, journal, title, status)
            for name, of in (("compare", ran), ("trend", ["held"])):
                page = pages / f"{name}.html"
                wrote = tools("chaosctl", "report", f"--{name}", *of, "--format", "html", "--output", page)
                check(f"a page of --{name} is written", wrote[0] == 0, wrote)
                look_over(check, browser, page)
        finally:
            browser.quit()
    print(f"{check.passed} passed, {check.failed} failed, 0 skipped", flush=True)
    sys.exit(int(check.failed > 0))


if __name__ == "__main__":
    main()
