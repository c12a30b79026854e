"""The disk effects of the core's rounds, and the installation of received snapshots.

One write is performed at a time, in the order of the fields.

A storage failure ends the node, because the state on disk is unknown. A full disk is not a failure:
the incomplete write was undone, and the round is retried.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

from ...errors import DiskFull, QuorumlogError, SnapshotDamaged
from ...ids import NodeId
from ..log_view import SnapshotId
from ..ready import Ready
from ..voters import VoterSet
from .applier import Applier
from .metadata_log import MetadataLog
from .snapshot_writer import SnapshotWriter

_LOG = logging.getLogger("quorumlog.raftlog")

DISK_FULL_RETRY_S: Final = 0.5
"""The pause before a round is retried on a full disk."""

_Step: TypeAlias = Callable[[], Awaitable[None]]


class WriteAbandoned(Exception):
    """The storage failed, or the node ended while a round waited for space on the disk."""


class Persister:
    """Performs the durable effects of rounds."""

    def __init__(
        self,
        node_id: NodeId,
        log: MetadataLog,
        *,
        applier: Applier,
        snapshot_writer: SnapshotWriter,
        disk_full: Callable[[DiskFull], bool],
    ) -> None:
        """`disk_full` is called for each attempt on a full disk and returns True if the round may
        wait."""
        self._node_id = node_id
        self._log = log
        self._applier = applier
        self._snapshot_writer = snapshot_writer
        self._disk_full = disk_full
        self._received_voters = VoterSet(())  # in force at the end of the received snapshot

    async def persist(self, ready: Ready) -> bool:
        """Perform effects 1 to 5 of a round. Return False if its snapshot is corrupt and the rest
        is durable.

        Raise the storage's errors and WriteAbandoned.
        """
        steps: deque[_Step] = deque()
        if ready.hard_state is not None:
            steps.append(partial(self._log.store_hard_state, ready.hard_state))
        for chunk in ready.chunks:
            self._received_voters = chunk.voters
            steps.append(partial(self._log.write_snapshot_chunk, chunk))
        if ready.truncate_to is not None:
            steps.append(partial(self._log.truncate_to, ready.truncate_to))
        if ready.append:
            steps.append(partial(self._log.append, ready.append))
        await self._run_steps(steps)
        return ready.install is None or await self._install_snapshot(ready.install)

    async def clean_to(self, snapshot: SnapshotId) -> None:
        """Remove the log before the snapshot's end."""
        await self._run_steps(deque([partial(self._log.clean_to, snapshot)]))

    async def _run_steps(self, steps: deque[_Step]) -> None:
        """Perform the steps in order. Repeat a step while the disk is full."""
        is_logged = False
        while steps:
            try:
                await steps[0]()
            except DiskFull as error:
                if not is_logged:
                    _LOG.error("raft.disk_full node=%d error=%s", self._node_id, error)
                    is_logged = True
                if not self._disk_full(error):
                    raise WriteAbandoned(str(error)) from error
                await asyncio.sleep(DISK_FULL_RETRY_S)
            else:
                steps.popleft()

    async def _install_snapshot(self, snapshot: SnapshotId) -> bool:
        """Replace the log by a received snapshot and load the state from it."""
        await self._snapshot_writer.hold()
        self._applier.pause()
        try:
            await self._run_steps(
                deque([partial(self._log.install_snapshot, snapshot, self._received_voters)])
            )
        except SnapshotDamaged as error:
            _LOG.warning("raft.snapshot_refused node=%d error=%s", self._node_id, error)
            self._resume()
            return False
        await self._applier.restore(snapshot)
        _LOG.info(
            "raft.snapshot_installed node=%d end_offset=%d epoch=%d",
            self._node_id,
            snapshot.end_offset,
            snapshot.epoch,
        )
        return True

    def _resume(self) -> None:
        self._applier.resume()
        self._snapshot_writer.resume()

    def snapshot_installed(self) -> None:
        """Resume deliveries and snapshots after the core has registered the install."""
        self._resume()


STORAGE_FAILURES: Final = (QuorumlogError, OSError)
"""The errors of a write. After any of them the state on disk is unknown."""
