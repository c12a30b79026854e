"""Reads snapshot files, to load them or only to prove them; waits for the lane that all reads of a
machine share."""

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
"""How long a read waits whose lane is full, of consumers' reads above all."""
SNAPSHOT_STEP_BYTES: Final = 256 * 1024
"""Bytes of a snapshot proven, decoded or encoded in one step of the loop."""

T = TypeVar("T")


class SnapshotReader:
    """Reads the values of a snapshot in the order in which they were written."""

    def __init__(self, files: SideFiles, snapshot: SnapshotId) -> None:
        """Use MetadataLog.open_snapshot()."""
        self.snapshot = snapshot
        self._files = files
        self._decoder = SnapshotDecoder(snapshot, with_values=True)
        self._position = 0
        self._found: list[list[bytes]] = []  # decoded and not asked for yet, last first

    @property
    def voters(self) -> VoterSet:
        """The voters in force where the snapshot ends."""
        assert self._decoder.voters is not None, "it is opened with its header read"
        return self._decoder.voters

    async def next(self) -> list[bytes] | None:
        """Return the next values, None at the end; raises SnapshotDamaged when it is not whole."""
        while not self._found:
            if not await self._advance():
                return None
        return self._found.pop()

    async def begin(self) -> None:
        """Read the header."""
        while self._decoder.voters is None:
            await self._advance()

    async def _advance(self) -> bool:
        """Read one step; false at the end of the file, which is proven then."""
        name = checkpoint_name(self.snapshot)
        content = await _read_piece(self._files, name, self._position)
        if content is None:
            raise SnapshotDamaged(f"the snapshot {name} is gone", path=name)
        self._position += len(content)
        self._found = [*reversed(self._decoder.feed(content)), *self._found]
        await asyncio.sleep(0)
        if not content:
            self._decoder.finish()
        return bool(content)


async def prove(files: SideFiles, snapshot: SnapshotId, *, name: str) -> VoterSet:
    """Read a whole snapshot file, return its voters; raises SnapshotDamaged."""
    decoder = SnapshotDecoder(snapshot, with_values=False)
    position = 0
    while content := await _read_piece(files, name, position):
        decoder.feed(content)
        position += len(content)
        await asyncio.sleep(0)
    return decoder.finish()


async def admitted(read: Callable[[], Awaitable[T]]) -> T:
    """Read once the lane has room: that others fill it is no failure of this member's disk."""
    while True:
        try:
            return await read()
        except Overloaded:
            await asyncio.sleep(READ_LATER_S)


async def _read_piece(files: SideFiles, name: str, position: int) -> bytes | None:
    """Read one step of a snapshot, b"" at its end; None when there is no such file."""
    return await admitted(partial(files.read, name, position, SNAPSHOT_STEP_BYTES))
