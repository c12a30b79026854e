"""Blocking clients: `connect` returns a `Log`, which runs the asyncio client on one I/O thread.

`io_thread` owns that thread and handles forks and process exit.
"""

from .log import Log, connect

__all__ = ["Log", "connect"]
