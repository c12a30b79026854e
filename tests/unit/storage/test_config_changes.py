"""A running log changes its config without loss of acknowledged records.

A crash at any point of the change leaves a log that opens under either config.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from quorumlog.errors import CorruptionError, MessageTooLarge
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records.codec import decode_all, encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime
from quorumlog.simulation import CrashPoint, SimWorld, run
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.checkpoints import decode_partition_metadata
from quorumlog.storage.shell import DataDirectory
from quorumlog.storage.small_files import read_file

DATA = "/data"
TOPIC = TopicId(b"t" * 16)
SMALL = DirectoryConfig(write_group_bytes_max=500, checkpoint_interval_ms=60_000)
FAST = LogConfig(flush_policy=FlushPolicy.REPLICATED, message_bytes_max=500)
SURE = LogConfig(flush_policy=FlushPolicy.FSYNC, message_bytes_max=500)
WIDE = LogConfig(flush_policy=FlushPolicy.FSYNC, message_bytes_max=4_000)


def one(value: bytes, *, size: int = 300) -> bytes:
    """Build a batch of one record."""
    record = Record(offset=0, timestamp_ms=1, key=None, value=value.ljust(size), headers=())
    return encode_batch([record])


@dataclass
class Workload:
    """The steps that one process runs on the log, and its acknowledgements."""

    changes: Sequence[LogConfig]  # the first step opens the log
    wanted: LogConfig = FAST  # the newest requested config, durable in the metadata log
    durable: dict[int, bytes] = field(default_factory=dict)
    is_done: bool = False

    async def live(self, runtime: Runtime) -> None:
        await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c"), node_id=NodeId(1))
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA, config=SMALL)
            self.wanted = self.changes[0]
            log = await directory.open_log("t-0", self.wanted, topic_id=TOPIC)
            for number, config in enumerate(self.changes):
                self.wanted = config
                directory.configure(log, config)
                for step in range(12):
                    await self.append(directory, log, b"%d/%d" % (number, step))
            self.is_done = True
            await asyncio.Event().wait()  # for the power cut

    async def append(self, directory: DataDirectory, log: Log, value: bytes) -> None:
        is_sure = self.wanted.flush_policy is FlushPolicy.FSYNC
        size = min(self.wanted.message_bytes_max, log.config.message_bytes_max) - 200
        appended = await directory.append(
            log, one(value, size=size), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=is_sure
        )
        if is_sure:
            self.durable[appended.base_offset] = value

    async def look(self, runtime: Runtime) -> None:
        """Open the log under the durable config. Check that acknowledged records are there."""
        async with runtime.tasks.scope("look") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA, config=SMALL)
            log = await directory.open_log("t-0", self.wanted, topic_id=TOPIC)
            found = await values(directory, log)
            missing = {o: v for o, v in self.durable.items() if found.get(o) != v}
            assert missing == {}, f"acknowledged and lost: {missing}"
            await directory.append(
                log, one(b"more"), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True
            )
            await directory.close()


async def values(directory: DataDirectory, log: Log) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        taken = log.read(offset, max_bytes=1 << 20)
        assert taken is not None, f"no record at {offset}"
        records = decode_all(await directory.reader.read(taken))
        found |= {record.offset: (record.value or b"").rstrip() for record in records}
        offset = taken.next_offset
    return found


def crash(seed: int, changes: Sequence[LogConfig], point: CrashPoint | None) -> int:
    """Run until the crash, then check. Return the number of file operations of the run."""
    with SimWorld(seed) as world:
        node, life = world.node("n"), Workload(changes)

        def go(main: Any) -> None:
            life.is_done = False
            node.spawn(main)
            world.run_until(lambda: not node.alive or life.is_done, virtual_ms=600_000)
            assert node.exit_error is None, f"seed {seed}, {point}: {node.exit_error!r}"

        node.crash_at(point)
        go(life.live)
        operations = node.device.operations
        node.crash_at(None)
        if node.alive:
            node.power_cut()
        if node.device.disk.exists(f"{DATA}/meta.properties"):
            go(life.look)
        return operations


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param((FAST, SURE), id="to-fsync"),
        pytest.param((SURE, FAST, SURE), id="there-and-back"),
        pytest.param((WIDE, SURE), id="smaller-groups"),
        pytest.param((SURE, WIDE), id="larger-groups"),
    ],
)
def test_a_power_cut_at_any_point_of_a_change_loses_nothing_and_is_no_damage(
    changes: Sequence[LogConfig],
) -> None:
    """The unsynced batches were written under the old config and are read under the new one."""
    operations = crash(0, changes, None)
    assert operations > 40, f"only {operations} operations"
    for number in range(1, operations + 1):
        for seed in range(3):
            point = CrashPoint(operations=number, power=True, moment="inside")
            crash(number * 10 + seed, changes, point)


def test_log_opened_under_fsync_accepts_torn_batches_of_the_old_policy() -> None:
    """The change is committed, and the process dies before it reaches the log."""

    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c"), node_id=NodeId(1))
        async with runtime.tasks.scope("first") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA, config=SMALL)
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            for step in range(20):
                await directory.append(
                    log, one(b"%d" % step), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
                )
            await directory.close()
        files = runtime.files
        files.remove(f"{DATA}/.kafka_cleanshutdown")
        files.remove(f"{DATA}/recovery-point-offset-checkpoint")
        file = files.open(f"{DATA}/t-0/{0:020}.log")
        file.write(400, [b"\xff" * 20])  # a hole left by the writeback, in the second batch
        file.close()
        async with runtime.tasks.scope("second") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA, config=SMALL)
            log = await directory.open_log("t-0", SURE, topic_id=TOPIC)
            assert log.log_end_offset == 1
            await directory.close()

    run(main)


def test_log_that_was_always_fsync_accepts_at_most_two_torn_groups() -> None:
    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c"), node_id=NodeId(1))
        async with runtime.tasks.scope("first") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA, config=SMALL)
            log = await directory.open_log("t-0", SURE, topic_id=TOPIC)
            for step in range(20):
                await directory.append(
                    log, one(b"%d" % step), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True
                )
            await directory.close()
        files = runtime.files
        files.remove(f"{DATA}/.kafka_cleanshutdown")
        files.remove(f"{DATA}/recovery-point-offset-checkpoint")
        file = files.open(f"{DATA}/t-0/{0:020}.log")
        file.write(400, [b"\xff" * 20])
        file.close()
        async with runtime.tasks.scope("second") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA, config=SMALL)
            with pytest.raises(CorruptionError):
                await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await directory.close()

    run(main)


def test_folder_stores_the_unsynced_bound_before_writes_under_it() -> None:
    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c"), node_id=NodeId(1))

        def bound() -> int | None:
            content = read_file(runtime.files, f"{DATA}/t-0/partition.metadata")
            return decode_partition_metadata(content).unsynced_bytes_max

        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA, config=SMALL)
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            for config, said in ((FAST, None), (SURE, 1_000), (WIDE, 8_000), (FAST, None)):
                directory.configure(log, config)
                await directory.append(
                    log, one(b"x"), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
                )
                assert (bound(), log.config) == (said, config)
            await directory.close()

    run(main)


def test_newest_of_many_concurrent_changes_applies() -> None:
    async def main(runtime: Runtime) -> None:
        await DataDirectory.format(runtime, DATA, cluster_id=ClusterId("c"), node_id=NodeId(1))
        async with runtime.tasks.scope("life") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA, config=SMALL)
            log = await directory.open_log("t-0", FAST, topic_id=TOPIC)
            await directory.append(
                log, one(b"x"), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
            )
            newest = LogConfig(flush_policy=FlushPolicy.FSYNC, message_bytes_max=450)
            for config in (SURE, FAST, WIDE, newest):
                directory.configure(log, config)
            await directory.append(  # it runs behind the change that is queued before it
                log, one(b"y"), leader_epoch=0, origin=AppendOrigin.CLIENT, flush=True
            )
            with pytest.raises(MessageTooLarge):
                await directory.append(
                    log,
                    one(b"y", size=440),
                    leader_epoch=0,
                    origin=AppendOrigin.CLIENT,
                    flush=False,
                )
            assert log.config == newest
            await directory.close()

    run(main)
