"""What the checks of a script have in common: they run one by one, and each prints `ok name` or `not ok name`."""

import sys
import time
import traceback

REPLY_SECONDS_MAX = 60  # on a machine that is busy with other things
EVENT_SECONDS_MAX = 60  # what must come soon, as an expiry of milliseconds, has come by then

PORTS = [int(port) for port in sys.argv[1:3]]  # of the two front-ends
_checks = []


def check(function):
    """A check by the name of its function; it fails by any exception."""
    _checks.append((function.__name__, function))
    return function


def check_each(*choices):
    """A check that runs once with each of these arguments."""

    def add(function):
        _checks.extend((f"{function.__name__}-{choice}", lambda choice=choice: function(choice)) for choice in choices)
        return function

    return add


def run(library, before_each):
    """Runs all checks, and ends the process."""
    failures = 0
    for name, function in _checks:
        before_each()
        try:
            function()
            print(f"ok {library}: {name}", flush=True)
        except Exception:
            failures += 1
            print(f"not ok {library}: {name}", flush=True)
            traceback.print_exc()
    sys.exit(1 if failures else 0)


def equal(got, wanted):
    assert got == wanted, f"{got!r} instead of {wanted!r}"


def within(value, low, high):
    assert low <= value <= high, f"{value} is not within {low} and {high}"


def raises(error, act):
    try:
        act()
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


def soon(holds, complaint):
    """Asks again and again, up to a limit, until something holds."""
    deadline = time.monotonic() + EVENT_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, complaint
