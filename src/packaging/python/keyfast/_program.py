"""Finds the program that was installed with this package."""

from __future__ import annotations

import os
import sys
import sysconfig
from typing import Iterator

NAME = "keyfast"

# Names another program than the installed one, for those who build their own.
VARIABLE = "KEYFAST_BIN"


class ProgramNotFound(FileNotFoundError):
    """There is no program where installers put it."""


def find() -> str:
    """Returns the path of the program."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        if not os.path.isfile(chosen):
            raise ProgramNotFound(f"{VARIABLE} names {chosen}, which is no file")
        return os.path.abspath(chosen)
    tried = []
    for folder in _folders():
        path = os.path.join(folder, NAME)
        if os.path.isfile(path):
            return path
        if path not in tried:
            tried.append(path)
    places = "".join(f"\n  {path}" for path in tried)
    raise ProgramNotFound(
        f"the program of the package {NAME} is not installed here; it is at none of:{places}"
    )


def _folders() -> Iterator[str]:
    # What lies beside this module belongs to the same installation, also if that is not the one of the
    # interpreter: `pip install --target T` makes T/keyfast and T/bin, `--prefix P` makes
    # P/lib/pythonX/site-packages/keyfast and P/bin, as virtual environments do.
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    yield os.path.join(root, "bin")
    yield os.path.normpath(os.path.join(root, *[os.pardir] * 3, "bin"))
    yield sysconfig.get_path("scripts")
    if sys.version_info >= (3, 10):
        user_scheme = sysconfig.get_preferred_scheme("user")
    else:
        user_scheme = "posix_user"
    yield sysconfig.get_path("scripts", scheme=user_scheme)
