"""Writes on the loop: those that return at once, since they only copy into the page cache.

They are cheaper there. The bytes of an append lie in the cache of the processor that has received
and checked them; the thread of a lane may run on another one, which fetches them line by line and
takes several times as long as the write.
"""

from collections.abc import Sequence
from typing import Final

from ...runtime.ports import Buffer, Clock, File
from ..appending.appends import write_fully
from .channel import Channel

SMALL_BYTES: Final = 64 << 10
"""Smaller writes are done on the loop whatever the device does: handing them over takes longer."""

SLOW_US: Final = 20_000
"""A write on the loop that took longer has waited: for the device, or for a processor."""

SLOW_SHARE: Final = 20
"""For so many times as long the lane then does all but the small ones. The kernel holds up who
writes faster than the device takes it, and the loop may lose a twentieth of its time to that."""


class LoopWrites:
    """What one directory writes on the loop."""

    __slots__ = ("_bytes_max", "_clock", "_slow_until_ms", "_small_bytes")

    def __init__(self, clock: Clock, bytes_max: int) -> None:
        """`bytes_max` is `DirectoryConfig.inline_write_bytes_max`."""
        self._clock = clock
        self._bytes_max = bytes_max
        self._small_bytes = min(SMALL_BYTES, bytes_max)
        self._slow_until_ms = 0  # of the clock: until then the device is taken to be slow

    def is_too_much(self, channel: Channel) -> bool:
        """Whether what is queued for a log belongs in the lane."""
        queued = channel.queued_bytes
        return queued > self._small_bytes and (
            queued > self._bytes_max
            or channel.always_flushes  # it waits for the device anyway
            or self._clock.now_ms() < self._slow_until_ms
        )

    def write(self, file: File, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers, and see how long that takes; raises WriteFailed."""
        clock = self._clock
        began_us = clock.busy_us()
        try:
            write_fully(file, position, buffers)
        finally:
            took_us = clock.busy_us() - began_us
            if took_us > SLOW_US:
                self._slow_until_ms = clock.now_ms() + took_us * SLOW_SHARE // 1_000
