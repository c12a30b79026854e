"""Writes on the loop, which return at once because they only copy into the page cache.

They are cheaper on the loop. The bytes of an append are in the cache of the processor that received
and checked them. The thread of a lane may run on another one, which fetches them line by line and
takes several times as long as the write.
"""

from collections.abc import Sequence
from typing import Final

from ...runtime.ports import Buffer, Clock, File
from ..append import write_fully
from .append_queue import Channel

SMALL_BYTES: Final = 64 << 10
"""Smaller writes are always done on the loop: handing them over takes longer."""

SLOW_US: Final = 20_000
"""A write on the loop that took longer has waited for the device or a processor."""

SLOW_SHARE: Final = 20
"""After a slow write, larger writes go to the lane for this many times its duration. The kernel
blocks writers that are faster than the device, and the loop may spend a twentieth of its time
so."""


class LoopWrites:
    """The writes of one directory on the loop."""

    __slots__ = ("_bytes_max", "_clock", "_slow_until_ms", "_small_bytes")

    def __init__(self, clock: Clock, bytes_max: int) -> None:
        """`bytes_max` is `DirectoryConfig.inline_write_bytes_max`."""
        self._clock = clock
        self._bytes_max = bytes_max
        self._small_bytes = min(SMALL_BYTES, bytes_max)
        self._slow_until_ms = 0  # of the clock: the device counts as slow until then

    def is_too_much(self, channel: Channel) -> bool:
        """Return True if the queued bytes of a log should be written in the lane."""
        queued = channel.queued_bytes
        return queued > self._small_bytes and (
            queued > self._bytes_max
            or channel.always_flushes  # it waits for the device anyway
            or self._clock.now_ms() < self._slow_until_ms
        )

    def write(self, file: File, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all buffers, and measure the time; raises WriteFailed."""
        clock = self._clock
        began_us = clock.busy_us()
        try:
            write_fully(file, position, buffers)
        finally:
            took_us = clock.busy_us() - began_us
            if took_us > SLOW_US:
                self._slow_until_ms = clock.now_ms() + took_us * SLOW_SHARE // 1_000
