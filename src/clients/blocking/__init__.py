"""The blocking face: `connect` gives a `Log`, whose asyncio twin works on one I/O thread.

`io_thread` keeps that thread, through forks and the process's end; `log`, `producer`, `consumer`,
`admin` and `scan` hand calls over to it.
"""

from .log import Log, connect

__all__ = ["Log", "connect"]
