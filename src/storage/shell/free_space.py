"""The free-space monitor of a data directory's disk, so that appends need no system call.

One check is a system call of some microseconds. It runs after a part of the reserve was written,
every second while there are appends, and every second while the reserve is in use, so that client
appends resume soon after space was freed. An idle node does not check.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from ...runtime.ports import Runtime, Scope
from ..reserve import Reserve

_LOG: Final = logging.getLogger("quorumlog.storage")

LOOK_INTERVAL_MS: Final = 1_000


class FreeSpace:
    """The free space of one disk compared to its reserve; its task runs in `scope`."""

    def __init__(self, runtime: Runtime, scope: Scope, path: str, *, reserve_bytes: int) -> None:
        self.reserve = Reserve(path, reserve_bytes)
        # called when free space falls below the reserve
        self.on_low: Callable[[], None] | None = None
        self.written_bytes = 0  # since the opening
        self._files = runtime.files
        self._path = path
        self._unchecked_bytes = 0  # written since the last check
        self._used = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        if reserve_bytes > 0:
            self.look()
            self._watch = scope.spawn(self._keep_looking(), name="storage.free_space")

    @property
    def is_low(self) -> bool:
        """True if client appends are rejected."""
        return self.reserve.is_low

    def wrote(self, size: int) -> None:
        """Count written bytes, and check when due."""
        self.written_bytes += size
        if self._watch is None:
            return
        self._unchecked_bytes += size
        if self._unchecked_bytes >= self.reserve.unchecked_bytes_max:
            self.look()
        elif not self._used.is_set():
            self._used.set()

    def measure(self) -> tuple[int, int]:
        """Measure (free bytes, size) of the disk now; raises OSError."""
        return self._files.free_bytes(self._path), self._files.capacity_bytes(self._path)

    def look(self) -> None:
        """Check now; also called when a write found the disk full."""
        self._unchecked_bytes = 0
        reserve = self.reserve
        try:
            free, capacity = self.measure()
            changed = reserve.look(free_bytes=free, capacity_bytes=capacity)
        except OSError as error:  # writes report the error of the disk
            _LOG.warning("storage.space_unknown path=%s error=%s", self._path, error)
            return
        if not changed:
            return
        say, what = (_LOG.warning, "low") if reserve.is_low else (_LOG.info, "enough")
        say(
            "storage.space_%s path=%s free_bytes=%d reserve_bytes=%d",
            what,
            self._path,
            free,
            reserve.bytes,
        )
        if reserve.is_low and self.on_low is not None:
            self.on_low()

    def stop(self) -> None:
        """Stop the checks."""
        if self._watch is not None:
            self._watch.cancel()

    async def _keep_looking(self) -> None:
        while True:
            if not self.is_low:
                await self._used.wait()
            self._used.clear()
            self.look()
            await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
