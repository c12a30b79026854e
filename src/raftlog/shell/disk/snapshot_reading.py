"""Reading and verification of snapshot files.

Reads wait for the lane that all reads of a machine share.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from ....errors import Overloaded, SnapshotDamaged
from ....storage.shell.side_files import SideFiles
from ...core.log_view import SnapshotId
from ...core.voters import VoterSet
from ...formats.snapshot_file import SnapshotDecoder, checkpoint_name

READ_LATER_S: Final = 0.05
"""The pause before a read is retried because its lane is full, mostly of consumers' reads."""
SNAPSHOT_STEP_BYTES: Final = 256 * 1024
"""Bytes of a snapshot that are decoded or encoded in one step of the event loop."""

T = TypeVar("T")


class SnapshotReader:
    """Reads the values of a snapshot in order."""

    def __init__(self, files: SideFiles, snapshot: SnapshotId) -> None:
        """Use MetadataLog.open_snapshot()."""
        self.snapshot = snapshot
        self._files = files
        self._decoder = SnapshotDecoder(snapshot, with_values=True)
        self._position = 0
        # decoded values that next() has not returned, last first
        self._found: list[list[bytes]] = []

    @property
    def voters(self) -> VoterSet:
        """The voters in force at the snapshot's end."""
        assert self._decoder.voters is not None, f"snapshot {self.snapshot} without a header"
        return self._decoder.voters

    async def next(self) -> list[bytes] | None:
        """Return the next values, or None at the end. Raise SnapshotDamaged if it is incomplete."""
        while not self._found:
            if not await self._advance():
                return None
        return self._found.pop()

    async def begin(self) -> None:
        """Read the header."""
        while self._decoder.voters is None:
            await self._advance()

    async def _advance(self) -> bool:
        """Read one step. Return False at the end of the file, which is then verified."""
        name = checkpoint_name(self.snapshot)
        content = await _read_piece(self._files, name, self._position)
        if content is None:
            raise SnapshotDamaged(f"snapshot {name}: the file was deleted", path=name)
        self._position += len(content)
        self._found = [*reversed(self._decoder.feed(content)), *self._found]
        await asyncio.sleep(0)
        if not content:
            self._decoder.finish()
        return bool(content)


async def prove(files: SideFiles, snapshot: SnapshotId, *, name: str) -> VoterSet:
    """Verify a whole snapshot file and return its voters. Raise SnapshotDamaged."""
    decoder = SnapshotDecoder(snapshot, with_values=False)
    position = 0
    while content := await _read_piece(files, name, position):
        decoder.feed(content)
        position += len(content)
        await asyncio.sleep(0)
    return decoder.finish()


async def admitted(read: Callable[[], Awaitable[T]]) -> T:
    """Read when the lane has space. A full lane is not a disk failure."""
    while True:
        try:
            return await read()
        except Overloaded:
            await asyncio.sleep(READ_LATER_S)


async def _read_piece(files: SideFiles, name: str, position: int) -> bytes | None:
    """Read one step of a snapshot, b"" at its end. Return None if the file does not exist."""
    return await admitted(partial(files.read, name, position, SNAPSHOT_STEP_BYTES))
