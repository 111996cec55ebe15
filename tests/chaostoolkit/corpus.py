#!/usr/bin/env python3
"""What `chaosctl` makes of Chaos Toolkit's own documents: a table of who accepts them, and how many are understood.

`corpus.py CHAOSCTL FOLDER...`, where each folder is a checkout of a repository with experiments. It reads every file that is JSON or
YAML and has a method, and the dictionaries of `tests/fixtures/experiments.py`, which are those of chaostoolkit-lib. Nothing is run. It
runs in the venv of `run.py`, whose `chaos validate` it asks; without that program the column is empty.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import yaml

PATIENCE = 60
# What a document may need of its environment is set to this, so that it is judged by what it says.
ANYTHING = "1"


def documents(folder):
    """The experiments of a checkout: a name and a document each."""
    for path in sorted(Path(folder).rglob("*")):
        if path.suffix not in (".json", ".yaml", ".yml") or not path.is_file():
            continue
        try:
            document = yaml.safe_load(path.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            continue
        if isinstance(document, dict) and isinstance(document.get("method"), list):
            yield str(path.relative_to(folder)), document
    yield from fixtures(Path(folder))


def fixtures(folder):
    """The dictionaries of chaostoolkit-lib's tests."""
    if not (folder / "tests" / "fixtures" / "experiments.py").is_file():
        return
    sys.path.insert(0, str(folder / "tests"))
    for name, value in sorted(vars(importlib.import_module("fixtures.experiments")).items()):
        if isinstance(value, dict) and "method" in value:
            yield f"fixtures.{name}", json.loads(json.dumps(value, default=str))


def environment(document):
    """Every variable of the environment that a document reads."""
    found = dict(os.environ)
    waiting = [document.get("configuration"), document.get("secrets")]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            if part.get("type") == "env" and isinstance(part.get("key"), str):
                kind = part.get("env_var_type")
                found.setdefault(part["key"], "{}" if kind == "json" else ANYTHING)
            waiting.extend(part.values())
    return found


def run(command, variables):
    """How a program ends, and what it writes to its standard output."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=PATIENCE, check=False,
                          env=variables, cwd="/")
    return done.returncode, done.stdout


def problems(chaosctl, path, variables):
    """Every problem of a document."""
    _, said = run([chaosctl, "--json", "validate", "--all", path], variables)
    return json.loads(said)["files"][0]["problems"]


def has_steady_state(document):
    """Whether there is a probe of a steady state."""
    hypothesis = document.get("steady-state-hypothesis")
    return isinstance(hypothesis, dict) and bool(hypothesis.get("probes"))


def uses_python(document):
    """Whether a probe of the steady state is Python."""
    probes = document["steady-state-hypothesis"]["probes"]
    return any(isinstance(probe, dict) and '"python"' in json.dumps(probe) for probe in probes)


def look(chaosctl, chaos, document, count):
    """Counts what becomes of one document."""
    with tempfile.TemporaryDirectory(prefix="chaos-corpus-") as folder:
        path = Path(folder) / "experiment.json"
        path.write_text(json.dumps(document))
        variables = environment(document)
        found = problems(chaosctl, path, variables)
        theirs = None
        if chaos:
            theirs = run([chaos, "--no-version-check", "validate", path], variables)[0] == 0
        count[("agree", theirs, not found)] += 1
        count["documents"] += 1
        if has_steady_state(document):
            count["steady states"] += 1
            understood = not any(one["path"].startswith(("steady-state", "configuration", "secrets")) for one in found)
            count["steady states understood, with Python by policy"] += understood
            count["steady states understood without Python"] += understood and not uses_python(document)
        count["valid as they are"] += not found
        converted = Path(folder) / "converted.yaml"
        code, text = run([chaosctl, "convert", path], variables)
        if code == 0:
            converted.write_text(text)
            left = problems(chaosctl, converted, variables)
            count["valid after convert"] += not left
            count["valid after convert but for marked gaps"] += bool(left) and all(one["code"] == "gap" for one in left)
            count.update({f"left after convert: {one['code']}": 1 for one in left if one["code"] != "gap"})
    for one in found:
        count[f"problem: {one['code']}"] += 1


def main():
    chaosctl, folders = Path(sys.argv[1]).resolve(), sys.argv[2:]
    chaos = shutil.which("chaos", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    whole = Counter()
    for folder in folders:
        count, seen = Counter(), set()
        for name, document in documents(folder):
            text = json.dumps(document, sort_keys=True, default=str)
            if text in seen:
                continue
            seen.add(text)
            try:
                look(chaosctl, chaos, json.loads(text), count)
            except (OSError, ValueError, KeyError, IndexError, subprocess.TimeoutExpired) as error:
                print(f"FAILED: {name}: {type(error).__name__}: {error}")
                count["failed"] += 1
        print(f"{Path(folder).name}: {count['documents']} documents")
        whole.update(count)
    words = {True: "accepts", False: "refuses", None: "was not asked"}
    for key in [key for key in whole if isinstance(key, tuple)]:
        print(f"{whole.pop(key):6} chaos {words[key[1]]}, chaosctl {words[key[2]]}")
    for key in sorted(whole):
        of = whole["steady states"] if key.startswith("steady states u") else whole["documents"]
        share = f" ({100 * whole[key] / of:.0f} %)" if of and not key.startswith("problem") and key != "documents" else ""
        print(f"{whole[key]:6} {key}{share}")
    sys.exit(int(whole["failed"] > 0))


if __name__ == "__main__":
    main()
