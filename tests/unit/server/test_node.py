"""One node from start to stop: refused starts, orderly stop, crash, full disk.

The tests run on both runtimes.
"""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import AMPLE_MS, AMPLE_S, run_patiently

from quorumlog import simulation
from quorumlog.errors import (
    AddressInUse,
    CorruptionError,
    DirectoryInUse,
    DirectoryMismatch,
    DirectoryNotFormatted,
    QuorumlogError,
    Stopping,
    StreamBroken,
    TransportError,
)
from quorumlog.ids import Epoch, Offset
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.raftlog.shell.proposal_queue import ProposalQueue
from quorumlog.records import Record, decode_all, encode_batch
from quorumlog.runtime import Channel, Runtime, Stream
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory, is_formatted
from quorumlog.server.quorum import METADATA_BATCH_BYTES
from quorumlog.services import (
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_TOPIC,
    LOG_FETCH,
    LOG_PRODUCE,
    LOG_SUBSCRIBE,
)
from quorumlog.simulation import Faults, SimWorld

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]
WAIT_MS = AMPLE_MS


def config_of(folder: str, **settings: Any) -> NodeConfig:
    places = {"grpc_listener": "127.0.0.1:0", "controller_listener": "127.0.0.1:0"}
    return NodeConfig(**({"data_dir": folder} | places | settings))


async def create(channel: Channel, name: str, **configs: str) -> None:
    request = admin_pb2.CreateTopicRequest(name=name)
    for key, value in configs.items():
        request.configs.add(name=key.replace("_", "."), value=value)
    await channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)


async def produce(
    channel: Channel, value: bytes, *, topic: str = "t", acks: int = 0
) -> log_pb2.ProduceResult:
    stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
    request = log_pb2.ProduceRequest(acks=log_pb2.Acks.Name(acks))
    records = encode_batch([Record(0, 1, None, value)])
    request.partitions.add(topic=topic, partition=0, records=records)
    await stream.send(request)
    await stream.finish()
    response = await stream.receive()
    assert response is not None
    return response.results[0]


async def fetch(
    channel: Channel, *, topic: str = "t", offset: int = 0, max_wait_ms: int = 0
) -> log_pb2.FetchResult:
    request = log_pb2.FetchRequest(max_wait_ms=max_wait_ms)
    request.partitions.add(topic=topic, partition=0, offset=offset)
    return (await channel.call(LOG_FETCH, request, timeout_ms=WAIT_MS)).results[0]


def values(result: log_pb2.FetchResult) -> list[bytes | None]:
    return [record.value for record in decode_all(result.records)]


# --- start and stop ----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fsync", "replicated"])
def test_after_a_restart_everything_reads_the_same(run: Run, folder: str, policy: str) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(folder)
        await format_directory(runtime, config)
        before = b""
        for life in range(3):
            async with Node(runtime, config) as node:
                channel = runtime.network.channel(node.addresses.grpc)
                if life == 0:
                    await create(channel, "t", flush_policy=policy)
                result = await fetch(channel)
                assert (result.records, result.high_watermark) == (before, life * 2)
                for number in range(2):
                    produced = await produce(channel, b"%d.%d" % (life, number))
                    assert produced.base_offset == life * 2 + number
                before = (await fetch(channel)).records
                await channel.close()

    run(main)


def test_a_stop_ends_streams_and_long_polls_without_waiting_for_them(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(folder, shutdown_grace_ms=60_000)
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            await create(channel, "t")
            producing = await channel.stream(LOG_PRODUCE, timeout_ms=0)
            subscribed = await channel.stream(LOG_SUBSCRIBE, timeout_ms=0)
            await subscribed.send(log_pb2.SubscribeRequest(topic="t", offset=0))
            async with runtime.tasks.scope("test") as scope:
                poll = scope.spawn(fetch(channel, max_wait_ms=60_000), name="poll")
                await produce(channel, b"x", topic="t")  # the node serves the streams by now
                assert (await poll).records
                poll = scope.spawn(fetch(channel, offset=1, max_wait_ms=60_000), name="poll")
                assert (await subscribed.receive()) is not None
                await fetch(channel)  # and the poll, which was sent before
                started = runtime.clock.now_ms()
                stopping = scope.spawn(node.stop(), name="stop")
                assert (await poll).records == b""
                with pytest.raises((Stopping, StreamBroken)):
                    await producing.receive()
                with pytest.raises((Stopping, StreamBroken)):
                    await received_all(subscribed)
                await stopping
                assert runtime.clock.now_ms() - started < 45_000
            await channel.close()

    run(main)


def test_records_acknowledged_before_a_stop_survive_it(run: Run, folder: str) -> None:
    """The stop comes in the middle of a stream of requests."""

    async def main(runtime: Runtime) -> None:
        config = config_of(folder)
        await format_directory(runtime, config)
        acknowledged: dict[int, bytes] = {}
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            await create(channel, "t")
            async with runtime.tasks.scope("test") as scope:
                scope.spawn(keep_producing(channel, acknowledged), name="produce")
                async with asyncio.timeout(AMPLE_S):
                    while len(acknowledged) < 20:  # noqa: ASYNC110 - no event to wait for
                        await asyncio.sleep(0.001)
                await node.stop()
            await channel.close()
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            stored = values(await fetch(channel))
            assert len(stored) >= len(acknowledged) >= 20
            assert all(stored[offset] == value for offset, value in acknowledged.items())
            await channel.close()

    run(main)


async def received_all(stream: Stream[Any, Any]) -> None:
    """Receive until the stream's end, clean or not."""
    while await stream.receive() is not None:
        pass


async def keep_producing(channel: Channel, acknowledged: dict[int, bytes]) -> None:
    """Produce requests one after another until the node ends the stream."""
    stream = await channel.stream(LOG_PRODUCE, timeout_ms=0)
    number = 0
    try:
        while True:
            value = b"%d" % number
            request = log_pb2.ProduceRequest(correlation_id=number)
            records = encode_batch([Record(0, 1, None, value)])
            request.partitions.add(topic="t", partition=0, records=records)
            await stream.send(request)
            response = await stream.receive()
            assert response is not None
            assert not response.results[0].HasField("error"), response
            acknowledged[response.results[0].base_offset] = value
            number += 1
    except (Stopping, TransportError):
        return


# --- refused starts ----------------------------------------------------------------------------


def test_a_directory_that_was_never_formatted_is_refused(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        assert not is_formatted(runtime, config_of(folder))
        with pytest.raises(DirectoryNotFormatted, match="storage format"):
            await Node(runtime, config_of(folder)).start()
        assert not runtime.files.exists(folder)

    run(main)


def test_a_directory_of_another_cluster_or_node_is_refused(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(folder)
        meta = await format_directory(runtime, config)
        assert is_formatted(runtime, config)
        with pytest.raises(DirectoryMismatch, match=meta.cluster_id):
            await Node(runtime, config_of(folder, cluster_id="x" * 22)).start()
        with pytest.raises(DirectoryMismatch, match="node 1"):
            await Node(runtime, config_of(folder, node_id=2)).start()
        with pytest.raises(DirectoryMismatch):
            await format_directory(runtime, config, cluster_id="y" * 22)
        assert await format_directory(runtime, config) == meta, "repeating it changes nothing"
        async with Node(runtime, config):
            pass  # the refusals left the directory usable

    run(main)


def test_a_node_that_lost_its_metadata_log_touches_no_partition(run: Run, folder: str) -> None:
    """It would treat every partition as one of a deleted topic and delete it."""

    async def main(runtime: Runtime) -> None:
        config = config_of(folder)
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            await create(channel, "t")
            await produce(channel, b"kept")
            await channel.close()
        log, points = f"{folder}/__cluster_metadata-0", f"{folder}/recovery-point-offset-checkpoint"
        runtime.files.rename(log, f"{folder}/elsewhere")
        runtime.files.rename(points, f"{points}.elsewhere")
        for _ in range(2):
            with pytest.raises(CorruptionError, match="t-0 holds a partition"):
                await Node(runtime, config).start()
        if runtime.files.exists(log):
            remove_folder(runtime, log)
        runtime.files.rename(f"{folder}/elsewhere", log)
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            assert values(await fetch(channel)) == [b"kept"]
            await channel.close()

    run(main)


def remove_folder(runtime: Runtime, path: str) -> None:
    for name in runtime.files.names(path):
        runtime.files.remove(f"{path}/{name}")
    runtime.files.remove(path)


def test_a_directory_in_use_is_refused(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(folder)
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            with pytest.raises(DirectoryInUse):
                await Node(runtime, config).start()
            channel = runtime.network.channel(node.addresses.grpc)
            await create(channel, "t")
            await channel.close()

    run(main)


@pytest.mark.parametrize("which", ["grpc_listener", "controller_listener", "raft_listener"])
def test_a_port_in_use_is_refused_and_undone(run: Run, tmp_path: Path, which: str) -> None:
    async def main(runtime: Runtime) -> None:
        first = config_of(str(tmp_path / "first"))
        await format_directory(runtime, first)
        async with Node(runtime, first) as node:
            taken = {which: node.addresses.grpc}
            second = config_of(str(tmp_path / "second"), **taken)
            await format_directory(runtime, second)
            with pytest.raises(AddressInUse, match=node.addresses.grpc):
                await Node(runtime, second).start()
        async with Node(runtime, config_of(str(tmp_path / "second"))):
            pass

    run(main)


# --- faults ------------------------------------------------------------------------------------


def test_full_disk_refuses_records_until_there_is_space(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(folder)
        await format_directory(runtime, config)
        disk = node_handle.device.disk
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            await create(channel, "t", flush_policy="replicated")
            assert (await produce(channel, b"before")).base_offset == 0
            disk.capacity_bytes = used(disk)
            refused = await produce(channel, bytes(5000))
            assert refused.error.name == "DISK_FULL"
            assert refused.error.retriable
            assert values(await fetch(channel)) == [b"before"]
            disk.capacity_bytes = None
            await asyncio.sleep(1.1)  # free space is checked every second
            assert (await produce(channel, b"after")).base_offset == 1
            assert values(await fetch(channel)) == [b"before", b"after"]
            await channel.close()

    with SimWorld(7) as world:
        node_handle = world.node("n1")
        task = node_handle.spawn(main)
        world.run_until(task, virtual_ms=60_000)
        task.result()


def used(disk: Any) -> int:
    """Return the bytes in use: a large capacity minus the free bytes."""
    disk.capacity_bytes = 1 << 40
    return int((1 << 40) - disk.free_bytes())


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_acknowledged_records_survive_a_crash_at_their_offsets(
    folder: str, power: bool, seed: int
) -> None:
    """`flush.policy=fsync` (the default of a single replica) survives even a power cut."""
    acknowledged: dict[int, bytes] = {}
    config = config_of(folder)

    async def first_life(runtime: Runtime) -> None:
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            await create(channel, "t")
            await keep_producing(channel, acknowledged)

    async def second_life(runtime: Runtime) -> None:
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            stored = values(await fetch(channel))
            assert all(stored[offset] == value for offset, value in acknowledged.items())
            assert (await produce(channel, b"next")).base_offset == len(stored)

    with SimWorld(seed) as world:
        node = world.node("n1")
        node.spawn(first_life)
        world.run_until(lambda: len(acknowledged) >= 10 + seed, virtual_ms=60_000)
        if power:
            node.power_cut()
        else:
            node.crash()
        task = node.restart(second_life)
        world.run_until(task, virtual_ms=60_000)
        task.result()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_topic_deleted_just_before_a_crash_leaves_nothing(
    folder: str, again: bool, seed: int
) -> None:
    """R29: neither the folder stays, nor do its records appear in a new topic of that name."""
    config = config_of(folder)
    deleted: list[int] = []

    async def first_life(runtime: Runtime) -> None:
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            await create(channel, "t")
            await produce(channel, b"old")
            request = admin_pb2.DeleteTopicRequest(name="t")
            await channel.call(ADMIN_DELETE_TOPIC, request, timeout_ms=WAIT_MS)
            if again:
                await create(channel, "t")
            deleted.append(1)
            await asyncio.sleep(60)

    async def second_life(runtime: Runtime) -> None:
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            if not again:
                assert not runtime.files.exists(f"{folder}/t-0")
                await create(channel, "t")
            assert (await fetch(channel)).records == b""
            assert (await produce(channel, b"new")).base_offset == 0

    with SimWorld(seed, faults=Faults(lane_us=(20_000, 50_000))) as world:
        node = world.node("n1")
        node.spawn(first_life)
        world.run_until(lambda: bool(deleted), virtual_ms=60_000)
        if seed % 2:
            node.power_cut()
        else:
            node.crash()
        task = node.restart(second_life)
        world.run_until(task, virtual_ms=60_000)
        task.result()


@pytest.mark.parametrize("policy", ["fsync", "replicated"])
@pytest.mark.parametrize("seed", range(6))
def test_a_stop_while_a_topic_is_deleted_reports_no_failed_log(
    folder: str, policy: str, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(folder)

    async def main(runtime: Runtime) -> None:
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            await create(channel, "t", flush_policy=policy)
            for _ in range(3):
                await produce(channel, b"old")
            request = admin_pb2.DeleteTopicRequest(name="t")
            deletion = asyncio.create_task(
                channel.call(ADMIN_DELETE_TOPIC, request, timeout_ms=WAIT_MS)
            )
            await asyncio.sleep(seed * 0.024)  # each step of the deletion takes 20 to 50 ms
        with suppress(QuorumlogError):
            await deletion
        async with Node(runtime, config):
            pass

    with SimWorld(seed, faults=Faults(lane_us=(20_000, 50_000))) as world:
        task = world.node("n1").spawn(main)
        world.run_until(task, virtual_ms=60_000)
        task.result()
    assert [each for each in caplog.messages if "storage.log_failed" in each] == []


def test_a_folder_of_another_topic_is_not_taken_over(tmp_path: Path) -> None:
    """R29: the folder has the right name and another topic id."""
    folder = tmp_path / "data"

    async def main(runtime: Runtime) -> None:
        config = config_of(str(folder))
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            await create(channel, "t")
            await create(channel, "u")
            await produce(channel, b"of t")
            await channel.close()
        shutil.copytree(folder / "t-0", folder / "u-0")
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            assert (await fetch(channel, topic="u")).records == b""
            assert (await produce(channel, b"of u", topic="u")).base_offset == 0
            assert values(await fetch(channel, topic="t")) == [b"of t"]
            await channel.close()

    run_patiently(main)


def test_foreign_folder_stays(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(str(tmp_path / "data"))
        await format_directory(runtime, config)
        (tmp_path / "data" / "backup-2024").mkdir()
        (tmp_path / "data" / "backup-2024" / "notes.txt").write_text("mine")
        async with Node(runtime, config):
            pass

    run_patiently(main)
    assert (tmp_path / "data" / "backup-2024" / "notes.txt").read_text() == "mine"


def test_client_gets_the_error_class_of_the_server(folder: str) -> None:
    """The typed detail is transmitted: not every error becomes an OutcomeUnknown."""

    async def main(runtime: Runtime) -> None:
        config = config_of(folder)
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            channel = runtime.network.channel(node.addresses.grpc)
            stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
            await stream.finish()
            with pytest.raises(QuorumlogError, match="send one first"):
                await stream.receive()
            await channel.close()

    simulation.run(main)


def test_batch_of_commands_is_replayed_within_one_step_of_the_loop() -> None:
    gathering = ProposalQueue(bytes_max=2**30, batch_bytes_max=METADATA_BATCH_BYTES)
    for _ in range(1_000):
        gathering.add([b"x" * 20], log_end_offset=Offset(0), epoch=Epoch(1))
    assert len(gathering.next_batch().values) <= 300
