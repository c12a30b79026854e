"""Which event loop a process runs on: uvloop where it is installed, asyncio's own elsewhere."""

import asyncio
from typing import Final

from ..errors import InvalidConfig
from .system import environment

LOOP_VARIABLE: Final = "QUORUMLOG_LOOP"
"""Environment variable: `uvloop`, `asyncio`, or empty for uvloop where it is installed."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop of the kind that the environment asks for; raises InvalidConfig.

    asyncio's is the one that watches descriptors (not Windows' proactor): byte connections live
    on that.
    """
    wanted = environment(LOOP_VARIABLE)
    if wanted not in ("", "uvloop", "asyncio"):
        raise InvalidConfig(f"{LOOP_VARIABLE}={wanted} is no event loop; say uvloop or asyncio")
    if wanted != "asyncio":
        try:
            import uvloop
        except ImportError:
            if wanted:
                raise InvalidConfig(
                    f"{LOOP_VARIABLE}=uvloop, but uvloop is not installed; install it or unset "
                    f"{LOOP_VARIABLE}"
                ) from None
        else:
            return uvloop.new_event_loop()
    return asyncio.SelectorEventLoop()
