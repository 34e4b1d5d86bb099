"""`python -m keyfast ARGUMENTS`: becomes the program, so that signals and the exit status are its own."""

import os
import sys

from ._program import ProgramNotFound, find

try:
    program = find()
except ProgramNotFound as error:
    sys.exit(f"keyfast: {error}")
os.execv(program, [program, *sys.argv[1:]])
