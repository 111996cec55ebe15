"""Calls one function of a module by chaostoolkit-lib, and says what came of it.

The question is JSON at the standard input: activity, configuration, secrets, and a tolerance if there is one. The answer is one object
of JSON at the standard output: `value` and, with a tolerance, `met`; or `error`. What the function prints goes to the standard error.
"""

import importlib
import json
import sys

LARGEST = 32 * 1024


def own(provider):
    """Refuses what a module has only borrowed from another: a function is one of those that it offers, or that it defines."""
    module, name = importlib.import_module(provider["module"]), provider["func"]
    found, offered = getattr(module, name), getattr(module, "__all__", None)
    is_own = name in offered if offered is not None else getattr(found, "__module__", None) == module.__name__
    if not callable(found) or name.startswith("_") or not is_own:
        raise ValueError(f"{name} is no function of {provider['module']}")


def said(value):
    """The value as JSON has it, or as text where JSON has nothing for it; only its beginning if it is long."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        text = json.dumps(str(value))
    return text if len(text) <= LARGEST else json.dumps(text[:LARGEST // 2])


def main():
    answers, sys.stdout = sys.stdout, sys.stderr
    asked = json.load(sys.stdin)
    try:
        from chaoslib.hypothesis import within_tolerance
        from chaoslib.provider.python import run_python_activity
    except ImportError as error:
        json.dump({"error": f"{error}: install chaostoolkit-lib for {sys.executable}"}, answers)
        return
    try:
        configuration, secrets, tolerance = asked["configuration"], asked["secrets"], asked["tolerance"]
        own(asked["activity"]["provider"])
        value = run_python_activity(asked["activity"], configuration, secrets)
        met = None
        if tolerance is not None:
            if isinstance(tolerance, dict) and tolerance.get("type") == "probe":
                own(tolerance["provider"])
                tolerance["provider"].setdefault("arguments", {})
            met = bool(within_tolerance(tolerance, value, configuration, secrets))
        answers.write('{"value": %s, "met": %s}' % (said(value), json.dumps(met)))
    except BaseException as error:  # Whatever a module raises is what was seen.
        json.dump({"error": f"{type(error).__name__}: {error}"[:LARGEST // 8]}, answers)


main()
