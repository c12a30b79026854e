"""Delays of single calls between machines.

A delayed frame arrives later than frames that other connections carry in the same direction, so
calls overtake each other. The later frames of its own connection wait behind it, as in TCP.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from quorumlog.simulation.byte_network import BytesFrame
from quorumlog.simulation.frames import Open, Result
from quorumlog.simulation.links import LinkEnd
from quorumlog.simulation.loop import NS_PER_MS

BYTES: Final = ""  # in place of a path: connections without calls, as of followers to leaders

DrawDelay: TypeAlias = Callable[[LinkEnd, str, bool], int]
"""Returns the delay in milliseconds of a frame, by its sender and the method's path, or `BYTES`;
True: it is an answer."""


class CallDelays:
    """Delays requests and answers of unary calls, and bytes; for `Fabric.delay_ns`."""

    def __init__(self, draw: DrawDelay) -> None:
        self._draw = draw
        self._paths: dict[tuple[int, int], str] = {}  # of calls without an answer, by link, number

    def delay_ns(self, sender: LinkEnd, frame: Any) -> int:
        """Return the delay of a frame that leaves a process."""
        if isinstance(frame, Open):
            self._paths[sender.link.number, frame.call] = frame.path
            return self._draw(sender, frame.path, False) * NS_PER_MS
        if isinstance(frame, Result):
            path = self._paths.pop((sender.link.number, frame.call), "")
            return self._draw(sender, path, True) * NS_PER_MS if path else 0
        if isinstance(frame, BytesFrame):
            return self._draw(sender, BYTES, sender is sender.link.ends[1]) * NS_PER_MS
        return 0
