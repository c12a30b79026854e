"""The durable state of one Raft node: epoch and vote, the log and its snapshots.

It makes no protocol decision and is independent of other nodes. Calls that change state run one
after the other, except that `write_snapshot` may run concurrently; reads may run at any time. After
a failure, unless documented otherwise, the state on disk is unknown: open it again.

A crash leaves the state before a call or after it:

- The quorum-state file is replaced atomically.
- A snapshot gets its name when it is complete and fsynced. A received one counts from then on: if
  the log does not have the snapshot's last batch, `open` replaces the log, as `install_snapshot`
  would have.
- A truncation may be partial.
- Cleaning first moves the log's start, durably, and then deletes older snapshots.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

from ...errors import (
    CorruptionError,
    DirectoryMismatch,
    DiskFailed,
    DiskFull,
    Overloaded,
    QuorumlogError,
    SnapshotDamaged,
)
from ...ids import Epoch, Offset
from ...records.batch import BatchHeader, check_crc, iterate_batches
from ...runtime import Runtime
from ...storage import AppendOrigin, FlushPolicy, Log, LogConfig
from ...storage.shell.data_directory import DataDirectory
from ...storage.shell.reader import LogReader
from ...storage.shell.side_files import SideFiles
from ..config import METADATA_LOG_NAME
from ..control_records import entry_kind
from ..hard_state import QUORUM_STATE_NAME, HardState, decode_hard_state, encode_hard_state
from ..log_view import LOG_START, Entry, LogEnd, LogView, SnapshotId
from ..messages import SnapshotChunk
from ..snapshot_format import (
    BOOTSTRAP,
    CHECKPOINT_SUFFIX,
    PART_SUFFIX,
    SnapshotDecoder,
    SnapshotEncoder,
    checkpoint_name,
    snapshot_of_name,
)
from ..voters import Voter, VoterHistory, VoterSet

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


SEGMENT_BYTES: Final = 64 * 1024 * 1024
"""The segment size: cleaning deletes whole segments."""
SCAN_BYTES: Final = 1024 * 1024
"""Bytes of the log that are read in one step."""
READ_TRIES: Final = 3
"""Attempts of one read of the log before it fails."""
SNAPSHOT_SYNC_BYTES: Final = 8 * 1024 * 1024
"""Bytes written between two syncs of a snapshot, so that no sync blocks the disk for long."""
TEMPORARY_SUFFIX: Final = ".checkpoint.tmp"
"""The suffix of a snapshot that this node is writing."""

_REJOIN: Final = "format a new data directory and join with it as a new voter"
METADATA_LOG_CONFIG: Final = LogConfig(flush_policy=FlushPolicy.FSYNC, segment_bytes=SEGMENT_BYTES)


class MetadataLog:
    """The durable state of one node.

    `view`, `hard_state`, `voters` and `snapshots` are the state that `open` read; the core
    continues with them.
    """

    def __init__(
        self,
        directory: DataDirectory,
        log: Log,
        files: SideFiles,
        *,
        view: LogView,
        hard_state: HardState,
        voters: VoterHistory,
        snapshots: tuple[SnapshotId, ...],
    ) -> None:
        self.log = log
        self.view = view
        self.hard_state = hard_state  # always the state on disk
        self.voters = voters
        self.snapshots = snapshots  # ascending, each with its file, without the bootstrap snapshot
        self._directory = directory
        self._files = files
        # (snapshot, bytes) of the unfinished file
        self._received: tuple[SnapshotId, int] | None = None
        self._published: SnapshotId | None = None  # received and named; the log is not reset yet
        self._uncut = asyncio.Event()  # set while no truncation is in progress
        self._uncut.set()

    @classmethod
    async def open(
        cls,
        runtime: Runtime,
        directory: DataDirectory,
        *,
        me: Voter,
        config: LogConfig = METADATA_LOG_CONFIG,
    ) -> "MetadataLog":
        """Read and verify all state, and complete operations that a crash interrupted.

        Raise DirectoryMismatch if the directory is not `me`'s, CorruptionError if the log, a
        snapshot or quorum-state is damaged (nothing is changed), or DiskFailed.
        """
        meta = directory.meta
        if me != Voter(meta.node_id, meta.directory_id):
            raise DirectoryMismatch(
                f"{directory.path}: belongs to node {meta.node_id} with directory id"
                f" {meta.directory_id.hex()}, not to node {me.node_id} with"
                f" {me.directory_id.hex()}; start the node that it was formatted for"
            )
        found = await _Opening(directory).run(me, config)
        state = _load_hard_state(directory, found.view, found.snapshots)
        if directory.small_files.load(QUORUM_STATE_NAME) is not None and not directory.was_clean:
            # The sync of the file's name may have failed before the restart: make the read state
            # durable.
            await directory.small_files.store(QUORUM_STATE_NAME, encode_hard_state(state))
        # After a process was killed the log's tail may be only in the page cache. This voter counts
        # itself for it, so it must be durable.
        await directory.flush(found.log)
        return cls(
            directory,
            found.log,
            found.files,
            view=found.view,
            hard_state=state,
            voters=found.voters,
            snapshots=found.snapshots,
        )

    # --- epoch and vote ------------------------------------------------------------------------

    async def store_hard_state(self, state: HardState) -> None:
        """Store epoch and vote.

        Neither goes back: not to an older epoch, and within an epoch not to another vote or none.
        """
        last = self.hard_state
        assert state.epoch >= last.epoch, f"epoch {state.epoch} after epoch {last.epoch}"
        assert state.epoch > last.epoch or last.vote in (None, state.vote), (
            f"vote for {state.vote} after one for {last.vote} in epoch {state.epoch}"
        )
        await self._directory.small_files.store(QUORUM_STATE_NAME, encode_hard_state(state))
        self.hard_state = state

    # --- log -----------------------------------------------------------------------------------

    async def append(self, entries: tuple[Entry, ...]) -> None:
        """Append entries that continue the log, with one fsync.

        DiskFull means that nothing was appended and the log is usable.
        """
        if not entries:
            return
        first, last = entries[0], entries[-1]
        batches = first.payload if first is last else b"".join(e.payload for e in entries)
        appended = await self._directory.append(
            self.log, batches, leader_epoch=last.epoch, origin=AppendOrigin.REPLICATED, flush=True
        )
        assert appended.base_offset == first.base_offset, f"{appended} is not at {first}"
        assert appended.next_offset == last.next_offset, f"{appended} does not end at {last}"

    async def truncate_to(self, offset: Offset) -> None:
        """Remove everything from a batch boundary on."""
        self._uncut.clear()
        try:
            await self._directory.truncation.truncate(self.log, offset)
        finally:
            self._uncut.set()
        assert self.log.log_end_offset <= offset, f"{self.log.log_end_offset} after {offset}"

    async def read_entries(self, start: Offset, end: Offset) -> tuple[Entry, ...]:
        """Return the entries [start, end), both batch boundaries.

        Raise OffsetOutOfRange if they are not all in the log.
        """
        entries: list[Entry] = []
        reading = _Reading(self._directory.reader, self.log, start, end, uncut=self._uncut)
        while (found := await reading.next()) is not None:
            content, batches = found
            entries += [_entry(content, position, header) for position, header in batches]
        return tuple(entries)

    async def clean_to(self, snapshot: SnapshotId) -> None:
        """Start the log at a snapshot's end and delete older snapshots.

        Segments below are deleted later.
        """
        assert snapshot in self.snapshots, f"{snapshot} is not kept"
        offset = snapshot.end_offset
        assert offset <= self.log.log_end_offset, f"{snapshot} beyond {self.log.log_end_offset}"
        self.log.note_high_watermark(offset)
        await self._directory.truncation.delete_records(self.log, offset)
        self.snapshots = tuple(kept for kept in self.snapshots if kept >= snapshot)
        # Only older ones: a concurrent write_snapshot() may have named one that is not listed yet.
        names = [n for n in await self._files.names() if n.endswith(CHECKPOINT_SUFFIX)]
        older = [n for n in names if n < checkpoint_name(snapshot)]
        await self._files.remove(older)

    # --- snapshots received --------------------------------------------------------------------

    async def write_snapshot_chunk(self, chunk: SnapshotChunk) -> None:
        """Write a chunk of a snapshot to its unfinished file; position 0 starts a new file.

        It is not durable before `install_snapshot`: an unfinished file is deleted at the next
        start. After DiskFull the same chunk may be written again.
        """
        name = checkpoint_name(chunk.snapshot, PART_SUFFIX)
        if chunk.position == 0:
            await self._drop_received(besides=chunk.snapshot)
            self._received = (chunk.snapshot, 0)
        assert self._received is not None, (
            f"chunk at {chunk.position} of {chunk.snapshot} without a start"
        )
        snapshot, end = self._received
        assert snapshot == chunk.snapshot, f"chunk of {chunk.snapshot} after one of {snapshot}"
        assert chunk.position <= end, f"chunk at {chunk.position} after {end} bytes"
        await self._files.write(name, chunk.position, [chunk.content])
        self._received = (snapshot, max(end, chunk.position + len(chunk.content)))

    async def install_snapshot(self, snapshot: SnapshotId, voters: VoterSet) -> None:
        """Verify a received snapshot, make it durable, and replace the log by an empty one at its
        end.

        Older snapshots are deleted. SnapshotDamaged means that the unfinished file was deleted and
        nothing else changed. After DiskFull repeat the call; the log is not readable before.
        """
        if self._published != snapshot:
            await self._publish(snapshot, voters)
            self._published = snapshot
        await self._directory.truncation.reset(self.log, snapshot.end_offset)
        self.snapshots = (snapshot,)
        await _remove_checkpoints(self._files, keep=self.snapshots)
        self._published = None

    async def _publish(self, snapshot: SnapshotId, voters: VoterSet) -> None:
        """Verify the received file and give it its name."""
        name = checkpoint_name(snapshot, PART_SUFFIX)
        received, self._received = self._received, None
        assert received is not None, f"install of {snapshot} without a received file"
        assert received[0] == snapshot, f"{received} was received, not {snapshot}"
        try:
            await self._sync_received(name)
            found = await prove(self._files, snapshot, name=name)
            if found != voters:
                raise SnapshotDamaged(
                    f"snapshot {name}: its voters differ from the sender's", path=name
                )
        except SnapshotDamaged:
            await self._files.remove([name])
            raise
        await _finally(self._files.publish(name, checkpoint_name(snapshot)))

    async def _sync_received(self, name: str) -> None:
        try:
            await self._files.sync(name)
        except DiskFull as error:  # a later sync would not cover the bytes that this one omitted
            raise SnapshotDamaged(f"snapshot {name}: {error.message}", path=name) from error

    async def _drop_received(self, *, besides: SnapshotId) -> None:
        if self._received is not None and self._received[0] != besides:
            await self._files.remove([checkpoint_name(self._received[0], PART_SUFFIX)])
        self._received = None

    # --- snapshots of this node ----------------------------------------------------------------

    async def write_snapshot(
        self, snapshot: SnapshotId, voters: VoterSet, slices: Iterator[list[bytes]]
    ) -> int:
        """Write the state's values, one slice per step of the event loop, and return the file's
        size.

        Return 0 if a snapshot with a higher end was installed during the write; this one is then
        deleted. The write is atomic: the snapshot exists, complete and durable, or not at all.
        After DiskFull it does not exist and the state is usable.
        """
        name = checkpoint_name(snapshot, TEMPORARY_SUFFIX)
        encoder = SnapshotEncoder(snapshot, voters)
        try:
            await self._write_slices(name, encoder, slices)
            if snapshot.end_offset < self.log.log_start_offset:
                await self._files.remove([name])
                return 0
            await self._files.publish(name, checkpoint_name(snapshot))
        except QuorumlogError:
            await self._files.remove([name])
            raise
        self.snapshots = tuple(sorted({*self.snapshots, snapshot}))
        return encoder.size

    async def _write_slices(
        self, name: str, encoder: SnapshotEncoder, slices: Iterator[list[bytes]]
    ) -> None:
        written, synced, pieces = 0, 0, [encoder.header()]
        for values in slices:
            pieces.append(encoder.batches(values))
            await asyncio.sleep(0)
            if encoder.size - written >= SNAPSHOT_STEP_BYTES:
                await self._files.write(name, written, pieces)
                written, pieces = encoder.size, []
            if written - synced >= SNAPSHOT_SYNC_BYTES:
                await self._files.sync(name)
                synced = written
        pieces.append(encoder.footer())
        await self._files.write(name, written, pieces)
        await self._files.sync(name)

    async def read_snapshot_chunk(
        self, snapshot: SnapshotId, position: int, bytes_max: int
    ) -> tuple[bytes, int] | None:
        """Return a chunk of a snapshot's file and the file's size, or None if it was deleted."""
        if snapshot not in self.snapshots:
            return None
        name = checkpoint_name(snapshot)
        size = await admitted(partial(self._files.size, name))
        content = await admitted(partial(self._files.read, name, position, bytes_max))
        return None if size is None or content is None else (content, size)

    async def open_snapshot(self, snapshot: SnapshotId) -> SnapshotReader:
        """Return a reader at the snapshot's start. Raise SnapshotDamaged."""
        reader = SnapshotReader(self._files, snapshot)
        await reader.begin()
        return reader


# --- opening -----------------------------------------------------------------------------------


class _Opening:
    """Reads and verifies the durable state at the start. Use it once."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._at_start: dict[SnapshotId, VoterSet] = {}  # every valid snapshot with its voters
        self.log: Log
        self.files: SideFiles
        self.view: LogView
        self.voters: VoterHistory
        self.snapshots: tuple[SnapshotId, ...]

    async def run(self, me: Voter, config: LogConfig) -> "_Opening":
        """Verify the log and the snapshots and make them consistent."""
        self.log = await self._directory.open_log(METADATA_LOG_NAME, config, topic_id=None)
        self.files = self._directory.side_files(self.log)
        await self._prove_snapshots()
        newest = max(self._at_start, default=BOOTSTRAP)
        start = self._start(newest)
        if start is not None:
            await self._scan(start, me)
        if start is None or not _holds_end_of(self.view, newest):
            await self._directory.truncation.reset(self.log, newest.end_offset)
            self.view = LogView(newest.log_end)
            self._begin_voters(newest.log_end, me)
        first = self.view.start_offset
        kept = sorted(one for one in self._at_start if one.end_offset >= first)
        await _remove_checkpoints(self.files, keep=kept)
        self.snapshots = tuple(one for one in kept if one != BOOTSTRAP)
        return self

    async def _prove_snapshots(self) -> None:
        names = await self.files.names()
        # An unfinished file is useless after a restart.
        await self.files.remove(n for n in names if n.endswith((PART_SUFFIX, TEMPORARY_SUFFIX)))
        for name in names:
            snapshot = snapshot_of_name(name)
            if snapshot is None:
                continue
            try:
                self._at_start[snapshot] = await prove(self.files, snapshot, name=name)
            except SnapshotDamaged as error:
                raise CorruptionError(
                    f"{error.message}. If other snapshots exist beside it, keep a copy of the"
                    f" directory, delete this file and start again; otherwise {_REJOIN}",
                    path=error.path,
                    position=error.position,
                ) from error

    def _start(self, newest: SnapshotId) -> LogEnd | None:
        """Return the log's start, or None if the log ends below the newest snapshot, which replaces
        it."""
        if self.log.log_end_offset < newest.end_offset:
            return None
        offset = self.log.log_start_offset
        if offset == 0:
            return LOG_START
        for snapshot in self._at_start:
            if snapshot.end_offset == offset:
                return snapshot.log_end
        raise CorruptionError(
            f"metadata log: it starts at offset {offset}, where no snapshot ends, so the state"
            f" before is lost; {_REJOIN}",
            path=METADATA_LOG_NAME,
        )

    def _begin_voters(self, start: LogEnd, me: Voter) -> None:
        """Set the voters at the log's start; this node is the only one if formatting stored
        none."""
        lone = VoterSet.of([(me, "")])
        voters = self._at_start.get(SnapshotId(start.offset, start.epoch), lone)
        self.voters = VoterHistory(voters, start_offset=start.offset)

    async def _scan(self, start: LogEnd, me: Voter) -> None:
        self.view = LogView(start)
        self._begin_voters(start, me)
        end = Offset(self.log.log_end_offset)
        reading = _Reading(self._directory.reader, self.log, start.offset, end)
        while (found := await reading.next()) is not None:
            content, batches = found
            for position, header in batches:
                self._take_batch(content, position, header)

    def _take_batch(self, content: bytes, position: int, header: BatchHeader) -> None:
        """Verify a batch and add it to the view."""
        view = self.view
        check_crc(content, position, header)
        base, epoch = Offset(header.base_offset), Epoch(header.leader_epoch)
        if base != view.end_offset or epoch < view.last_epoch:
            raise CorruptionError(
                f"batch at offset {base} of epoch {epoch}: expected offset {view.end_offset} of"
                f" epoch {view.last_epoch} or later",
                path=METADATA_LOG_NAME,
                position=position,
            )
        view.append(base, Offset(header.next_offset), epoch, header.size)
        _, voters = entry_kind(content, position, header)
        if voters is not None:
            self.voters.append(base, voters)


def _entry(content: bytes, position: int, header: BatchHeader) -> Entry:
    kind, voters = entry_kind(content, position, header)
    return Entry(
        kind=kind,
        epoch=Epoch(header.leader_epoch),
        base_offset=Offset(header.base_offset),
        count=header.next_offset - header.base_offset,
        payload=content[position : position + header.size],
        voters=voters,
    )


async def _finally(work: Awaitable[None]) -> None:
    """Await work that cannot be repeated after DiskFull."""
    try:
        await work
    except DiskFull as error:
        raise DiskFailed(f"snapshot: not made durable; {error.message}") from error


def _holds_end_of(view: LogView, snapshot: SnapshotId) -> bool:
    """Return True if the log has the snapshot's last batch. It then has all entries before it (log
    matching, Raft §5.3)."""
    end = snapshot.end_offset
    if end <= view.start_offset:
        return True
    return view.is_boundary(end) and view.epoch_before(end) == snapshot.epoch


async def _remove_checkpoints(files: SideFiles, *, keep: Sequence[SnapshotId]) -> None:
    """Delete all snapshots except these, oldest first."""
    kept = {checkpoint_name(snapshot) for snapshot in keep}
    names = await files.names()
    await files.remove(n for n in names if n.endswith(CHECKPOINT_SUFFIX) and n not in kept)


class _Reading:
    """Reads the batches of [start, end), both batch boundaries, in steps."""

    def __init__(
        self,
        reader: LogReader,
        log: Log,
        start: Offset,
        end: Offset,
        *,
        uncut: asyncio.Event | None = None,
    ) -> None:
        """`uncut` is set while no truncation is in progress; None if there is never one."""
        self._reader = reader
        self._log = log
        self._uncut = uncut
        self._next_offset = start
        self._end = end

    async def next(self) -> tuple[bytes, list[tuple[int, BatchHeader]]] | None:
        """Return bytes and the (position, header) of each batch in them, or None at the end."""
        if self._next_offset >= self._end:
            return None
        start = self._next_offset
        content = await self._read(start)
        batches = list(iterate_batches(content))
        if not batches:
            raise CorruptionError(
                f"metadata log: no batch at offset {start}; its end offset is"
                f" {self._log.log_end_offset}",
                path=METADATA_LOG_NAME,
            )
        self._next_offset = Offset(batches[-1][1].next_offset)
        await asyncio.sleep(0)
        return content, batches

    async def _read(self, start: Offset) -> bytes:
        """Read the next bytes. Retry after a concurrent truncation, since the read may extend
        beyond `end`."""
        for tries_left in reversed(range(READ_TRIES)):
            try:
                return await admitted(partial(self._read_once, start))
            except DiskFailed:
                if not tries_left:
                    raise
        raise AssertionError(f"{READ_TRIES} reads without a result")

    async def _read_once(self, start: Offset) -> bytes:
        """Read while no truncation is in progress, since a truncation removes bytes of the
        segment."""
        if self._uncut is not None:
            await self._uncut.wait()
        found = self._log.read(start, max_bytes=SCAN_BYTES, end_offset=self._end)
        return b"" if found is None else await self._reader.read(found)


def _load_hard_state(
    directory: DataDirectory, view: LogView, snapshots: tuple[SnapshotId, ...]
) -> HardState:
    content = directory.small_files.load(QUORUM_STATE_NAME)
    reached = max(view.last_epoch, *(snapshot.epoch for snapshot in snapshots), 0)
    if content is None:
        if view.end_offset > 0:
            raise CorruptionError(
                f"{QUORUM_STATE_NAME}: missing beside a log of {view.end_offset} offsets; this node"
                f" may have voted and must not vote again; {_REJOIN}",
                path=QUORUM_STATE_NAME,
            )
        return HardState(Epoch(0), None)
    state = decode_hard_state(content)
    if state.epoch < reached:
        raise CorruptionError(
            f"{QUORUM_STATE_NAME}: outdated; its epoch is {state.epoch}, the log reached {reached};"
            f" {_REJOIN}",
            path=QUORUM_STATE_NAME,
        )
    return state
