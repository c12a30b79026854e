"""A member's durable state on a simulated disk: processes, entries, chunks."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from quorumlog.ids import ClusterId, DirectoryId, Epoch, NodeId, Offset
from quorumlog.raftlog.control_records import LeaderChange, control_batch
from quorumlog.raftlog.log_view import Entry, EntryKind, SnapshotId
from quorumlog.raftlog.messages import SnapshotChunk
from quorumlog.raftlog.shell.metadata_log import METADATA_LOG_CONFIG, MetadataLog
from quorumlog.raftlog.snapshot_format import SnapshotEncoder
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.storage import LogConfig
from quorumlog.storage.shell.data_directory import DataDirectory

T = TypeVar("T")
DATA = "/data"
CLUSTER = ClusterId("c" * 22)
ME = Voter(NodeId(1), DirectoryId(b"1" * 16))
TWO = Voter(NodeId(2), DirectoryId(b"2" * 16))
ALONE = VoterSet.of([(ME, "")])
PAIR = VoterSet.of([(ME, "one:9093"), (TWO, "two:9093")])

Work = Callable[[MetadataLog], Coroutine[Any, Any, T]]


@asynccontextmanager
async def opened(
    runtime: Runtime, config: LogConfig = METADATA_LOG_CONFIG, *, path: str = DATA
) -> AsyncIterator[MetadataLog]:
    """Open the durable state, formatted without voters if there is none yet."""
    if not runtime.files.exists(f"{path}/meta.properties"):
        await DataDirectory.format(
            runtime,
            path,
            cluster_id=CLUSTER,
            node_id=ME.node_id,
            directory_id=ME.directory_id,
        )
    async with runtime.tasks.scope("life") as scope:
        directory = await DataDirectory.open(runtime, scope, path)
        try:
            yield await MetadataLog.open(runtime, directory, me=ME, config=config)
        finally:
            await directory.close()


def live(
    world: SimWorld, node: SimNode, work: Work[T], config: LogConfig = METADATA_LOG_CONFIG
) -> T:
    """Run `work` in one process. Return its result or raise its error."""
    made: list[T] = []

    async def main(runtime: Runtime) -> None:
        async with opened(runtime, config) as log:
            made.append(await work(log))

    node.spawn(main)
    world.run_until(lambda: not node.alive, virtual_ms=600_000)
    if node.exit_error is not None:
        raise node.exit_error
    return made[0]


def data(base_offset: int, *values: bytes, epoch: int = 1) -> Entry:
    """Build an entry of these values."""
    records = [Record(offset=0, timestamp_ms=1, key=None, value=v, headers=()) for v in values]
    payload = encode_batch(records, base_offset=base_offset, leader_epoch=epoch)
    return Entry(
        kind=EntryKind.DATA,
        epoch=Epoch(epoch),
        base_offset=Offset(base_offset),
        count=len(values),
        payload=payload,
    )


def control(base_offset: int, *, epoch: int = 1, voters: VoterSet | None = None) -> Entry:
    """Build a voter set entry, or without a set the no-op that opens the epoch."""
    record = LeaderChange(ME.node_id, (ME,), (ME,)) if voters is None else voters
    return Entry(
        kind=EntryKind.LEADER_CHANGE if voters is None else EntryKind.VOTERS,
        epoch=Epoch(epoch),
        base_offset=Offset(base_offset),
        count=1,
        payload=control_batch(record, base_offset=base_offset, epoch=epoch, timestamp_ms=1),
        voters=voters,
    )


def snapshot_id(end_offset: int, *, epoch: int = 1) -> SnapshotId:
    return SnapshotId(Offset(end_offset), Epoch(epoch))


def snapshot_bytes(snapshot: SnapshotId, *slices: list[bytes], voters: VoterSet = PAIR) -> bytes:
    """Return the snapshot file that another member would send."""
    encoder = SnapshotEncoder(snapshot, voters)
    made = [encoder.header(), *(encoder.batches(values) for values in slices)]
    return b"".join(made) + encoder.footer()


def chunks(
    snapshot: SnapshotId, content: bytes, *, size: int = 200, voters: VoterSet = PAIR
) -> list[SnapshotChunk]:
    """Return the file in chunks."""
    return [
        SnapshotChunk(
            sender=TWO,
            receiver=ME,
            epoch=Epoch(9),
            snapshot=snapshot,
            voters=voters,
            size=len(content),
            position=position,
            content=content[position : position + size],
        )
        for position in range(0, len(content), size)
    ]


async def values_of(log: MetadataLog, snapshot: SnapshotId) -> list[bytes]:
    """Return all values of a snapshot."""
    reader = await log.open_snapshot(snapshot)
    found: list[bytes] = []
    while (values := await reader.next()) is not None:
        found += values
    return found
