"""Admission of client batches to the queue of a log, on the loop or in a lane.

This module decides when and where `ingest.admit` runs, and counts the queued bytes. An append keeps
its position in the queue while a lane processes it: the order of a log is the order of calls. A
queued append uses the config at the time of admission, unless a config change is queued before it:
then it uses the changed one.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from ...errors import QuorumlogError
from ...runtime.ports import Buffer, Runtime, Scope
from ..config import DirectoryConfig, LogConfig
from ..conversion import TooMuchWork, admit, growth_max, is_plain, is_worth_a_lane
from ..origin import Origin
from .append_queue import Channel, Exclusive, PendingAppend

LANE: Final = "cpu"


class Admission:
    """Admits the appends queued for the logs of one directory."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        *,
        config: DirectoryConfig,
        on_admitted: Callable[[Channel], None],
    ) -> None:
        # of all queued appends; one in the lane counts with its largest possible result
        self.held_bytes = 0
        self._runtime = runtime
        self._scope = scope
        self._bytes_min = config.cpu_lane_bytes_min
        self._on_admitted = on_admitted

    def enter(self, channel: Channel, item: PendingAppend) -> None:
        """Queue an append. A client's append that needs the lane goes there at once, or after a
        config change queued before it."""
        channel.queue.append(item)
        channel.queued_bytes += len(item.batches)
        self._hold(item, len(item.batches))
        if item.origin is not Origin.CLIENT:
            return
        if is_worth_a_lane(item.batches, channel.log.config, self._bytes_min):
            if channel.is_configuring:
                item.is_ready, item.is_postponed = False, True
            else:
                self._send_to_lane(channel, item)

    def leave(self, channel: Channel, item: PendingAppend) -> None:
        """Remove an append that left the queue from the counts."""
        channel.queued_bytes -= len(item.batches)
        self._hold(item, 0)

    def resume(self, channel: Channel) -> None:
        """Send postponed appends to the lane after exclusive work has ended."""
        for item in channel.queue:
            if isinstance(item, Exclusive):
                if item.is_barrier:
                    continue
                return
            if item.is_postponed:
                item.is_postponed = False
                self._send_to_lane(channel, item)

    def is_admitted(self, channel: Channel, item: PendingAppend) -> bool:
        """Return True if the append may be prepared now. It is admitted here if that is quick, else
        sent to the lane. `error` is set if it is rejected."""
        if not item.is_ready:
            return False
        if item.admitted_by is not None or item.error is not None:
            return True
        config = channel.log.config
        if item.origin is not Origin.CLIENT or is_plain(item.batches, config):
            return True
        wall_ms = self._runtime.clock.wall_ms()
        try:
            batches = admit(item.batches, config, wall_ms=wall_ms, bytes_min=self._bytes_min)
        except TooMuchWork:
            self._send_to_lane(channel, item)
            return item.is_ready
        except QuorumlogError as error:
            item.error = error
        else:
            self._admitted(channel, item, batches, config)
        return True

    def _send_to_lane(self, channel: Channel, item: PendingAppend) -> None:
        item.is_ready = False
        config = channel.log.config
        try:
            self._hold(item, len(item.batches) + growth_max(item.batches, config))
        except QuorumlogError as error:  # malformed batches
            item.error, item.is_ready = error, True
            return
        self._scope.spawn(self._admit_in_lane(channel, item, config), name="storage.admit")

    async def _admit_in_lane(
        self, channel: Channel, item: PendingAppend, config: LogConfig
    ) -> None:
        size = len(item.batches)
        job = partial(admit, item.batches, config, wall_ms=self._runtime.clock.wall_ms())
        try:
            batches = await self._runtime.tasks.offload(LANE, job, cost_bytes=size)
        except QuorumlogError as error:
            batches, item.error = item.batches, error
        if item.held_bytes:  # otherwise the log failed before, and the append is answered
            self._admitted(channel, item, batches, config)
        item.is_ready = True
        self._on_admitted(channel)

    def _admitted(
        self, channel: Channel, item: PendingAppend, batches: Buffer, config: LogConfig
    ) -> None:
        """Apply the result of an admission to a queued append."""
        channel.queued_bytes += len(batches) - len(item.batches)
        item.batches, item.admitted_by = batches, config
        self._hold(item, len(batches))

    def _hold(self, item: PendingAppend, size: int) -> None:
        self.held_bytes += size - item.held_bytes
        item.held_bytes = size
