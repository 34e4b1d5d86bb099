"""Keyfast, a server that speaks the Redis protocol: its program, and servers for tests.

    python -m keyfast --port 7000

runs the program. In Python, a server lives as long as a block:

    import keyfast

    with keyfast.Server() as url:
        ...  # redis://127.0.0.1:PORT

For pytest there are the fixtures `keyfast` and `keyfast_server` (see pytest_plugin.py).
"""

from ._program import ProgramNotFound, find
from ._server import Server, StartError

__all__ = ["ProgramNotFound", "Server", "StartError", "find"]
