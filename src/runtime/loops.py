"""Selection of the event loop: uvloop if it is installed, otherwise asyncio's."""

import asyncio
from typing import Final

from ..errors import InvalidConfig
from .system import environment

LOOP_VARIABLE: Final = "QUORUMLOG_LOOP"
"""Environment variable: `uvloop`, `asyncio`, or empty for uvloop if it is installed."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop of the kind that the environment requests. Raise InvalidConfig.

    asyncio's loop is the selector loop (not Windows' proactor), since byte connections watch
    descriptors.
    """
    wanted = environment(LOOP_VARIABLE)
    if wanted not in ("", "uvloop", "asyncio"):
        raise InvalidConfig(f"{LOOP_VARIABLE}={wanted}: not an event loop; use uvloop or asyncio")
    if wanted != "asyncio":
        try:
            import uvloop
        except ImportError:
            if wanted:
                raise InvalidConfig(
                    f"{LOOP_VARIABLE}=uvloop: uvloop is not installed; install it or unset "
                    f"{LOOP_VARIABLE}"
                ) from None
        else:
            return uvloop.new_event_loop()
    return asyncio.SelectorEventLoop()
