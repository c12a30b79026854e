"""Appends that a lane converts keep their order, count their bytes, and obey the topic's config."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog.errors import CorruptionError, MessageTooLarge, Overloaded
from quorumlog.ids import TopicId
from quorumlog.records import Codec, Record, decode_all, encode_batch, iterate_batches
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.shell import DataDirectory
from quorumlog.storage.shell.append_queue import (
    AppendAdmission,
    AppendQueue,
    CompletedAppends,
    PendingAppend,
)

Main = Callable[[Runtime, str], Coroutine[Any, Any, Any]]
Run = Callable[[Main], Any]
Kit = Any  # conftest.Kit

TOPIC = TopicId(b"t" * 16)
SMALL = DirectoryConfig(cpu_lane_bytes_min=1_000, inline_write_bytes_max=3_000)


def one(value: bytes, *, size: int = 0, codec: Codec = Codec.NONE) -> bytes:
    """Build a batch of one record, padded to `size`."""
    return encode_batch([Record(0, 7, b"k", value.ljust(size, b"."))], codec=codec)


def queued(directory: DataDirectory, log: Log, batch: bytes) -> PendingAppend:
    return directory.append_nowait(
        log, batch, leader_epoch=0, origin=AppendOrigin.CLIENT, flush=False
    )


async def stored(directory: DataDirectory, log: Log) -> bytes:
    """Return all batches of a log."""
    content, offset = b"", 0
    while offset < log.log_end_offset:
        taken = log.read(offset, max_bytes=1 << 20)
        assert taken is not None, f"no batch at {offset}"
        content += bytes(await directory.reader.read(taken))
        offset = taken.next_offset
    return content


CONFIGS = [
    LogConfig(),
    LogConfig(compression_type=Codec.ZSTD),
    LogConfig(compression_type=Codec.NONE, flush_policy=FlushPolicy.FSYNC),
    LogConfig(compression_type=Codec.GZIP, log_append_time=True),
]


@pytest.mark.parametrize("config", CONFIGS, ids=["producer", "zstd", "uncompressed", "gzip"])
def test_the_order_of_a_log_is_the_order_of_calls_wherever_a_batch_was_worked_on(
    kit: Kit, run: Run, config: LogConfig
) -> None:
    """Large, small and highly compressed batches of every codec.

    They are converted on the loop, in the lane at once, or in the lane after decompression turned
    out large.
    """
    draw = random.Random(5)
    batches = [
        one(
            b"%d" % number,
            size=draw.choice([0, 900, 5_000, 60_000]),
            codec=draw.choice(list(Codec)),
        )
        for number in range(60)
    ]

    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path, config=SMALL) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            waiters = [queued(directory, log, batch) for batch in batches]
            placed = await asyncio.gather(*waiters)
            assert [appended.base_offset for appended in placed] == list(range(60))
            content = await stored(directory, log)
            assert [r.value for r in decode_all(content)] == [
                decode_all(batch)[0].value for batch in batches
            ]
            codecs = {header.codec for _, header in iterate_batches(content)}
            kept = config.compression_type
            assert codecs == (set(Codec) if kept is None else {kept})
            times = [record.timestamp_ms for record in decode_all(content)]
            if config.log_append_time:
                assert times == [appended.log_append_time_ms for appended in placed]
                assert times == sorted(times)
                assert times[0] > 7
            else:
                assert {appended.log_append_time_ms for appended in placed} == {-1}

    run(main)


def test_rejected_append_leaves_no_gap_and_delays_no_other(kit: Kit, run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path, config=SMALL) as directory:
            config = LogConfig(compression_type=Codec.NONE, message_bytes_max=20_000)
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            torn = bytearray(one(b"torn", size=5_000, codec=Codec.LZ4))
            torn[-1] ^= 1
            waiters = [
                queued(directory, log, one(b"a", size=5_000, codec=Codec.LZ4)),
                queued(directory, log, one(b"grows", size=30_000, codec=Codec.ZSTD)),
                queued(directory, log, bytes(torn)),
                queued(directory, log, one(b"b")),
            ]
            found = await asyncio.gather(*waiters, return_exceptions=True)
            assert isinstance(found[1], MessageTooLarge)
            assert isinstance(found[2], CorruptionError)
            records = decode_all(await stored(directory, log))
            assert [(r.offset, (r.value or b"")[:1]) for r in records] == [(0, b"a"), (1, b"b")]

    run(main)


def test_possible_size_of_a_batch_counts_while_a_lane_converts_it(kit: Kit, run: Run) -> None:
    """A hundred bytes that may grow to 20,000 fill a queue of 20,000 until their size is known."""
    config = DirectoryConfig(cpu_lane_bytes_min=10, queue_bytes_max=20_500)
    grows = LogConfig(compression_type=Codec.NONE, message_bytes_max=20_000)

    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path, config=config) as directory:
            log = await directory.open_log("t-0", grows, topic_id=TOPIC)
            bomb = one(b"z", size=9_000, codec=Codec.ZSTD)
            first = queued(directory, log, bomb)
            with pytest.raises(Overloaded, match="20000 bytes are queued"):
                queued(directory, log, one(b"v", size=600))
            assert (await first).base_offset == 0
            torn = bytearray(bomb)
            torn[-1] ^= 1
            for number in range(1, 4):  # and each is removed when it is answered
                second = queued(directory, log, bytes(torn))
                with pytest.raises(CorruptionError):
                    await second
                assert (await queued(directory, log, bomb)).base_offset == number

    run(main)


def test_converted_size_of_a_batch_counts_until_it_is_written(
    run: Run, bench: Callable[..., Any]
) -> None:
    config = LogConfig(compression_type=Codec.NONE, message_bytes_max=20_000)

    async def main(runtime: Runtime, _: str) -> None:
        channel = AppendQueue(bench(compression_type=Codec.NONE, message_bytes_max=20_000).log)
        assert channel.log.config == config
        ready = asyncio.Event()
        async with runtime.tasks.scope("admission") as scope:
            admission = AppendAdmission(
                runtime, scope, config=SMALL, on_admitted=lambda channel: ready.set()
            )
            sent = one(b"z", size=9_000, codec=Codec.ZSTD) * 20
            item = PendingAppend(CompletedAppends(), sent, 0, AppendOrigin.CLIENT, False)
            admission.enter(channel, item)
            assert not admission.is_admitted(channel, item)
            assert (channel.queued_bytes, admission.held_bytes) == (len(sent), 400_000)
            await ready.wait()
            assert admission.is_admitted(channel, item)
            size = len(item.batches)
            assert size > 180_000
            assert (channel.queued_bytes, admission.held_bytes) == (size, size)
            admission.leave(channel, item)
            assert (channel.queued_bytes, admission.held_bytes) == (0, 0)

    run(main)


def test_a_batch_queued_before_a_change_of_the_config_obeys_the_old_one(kit: Kit, run: Run) -> None:
    """Also if the change applies at once while a lane converts the batch."""
    configs = [LogConfig(compression_type=Codec.GZIP, log_append_time=True), LogConfig()]

    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path, config=SMALL) as directory:
            log = await directory.open_log("t-0", LogConfig(), topic_id=TOPIC)
            batch = one(random.Random(1).randbytes(3_000), codec=Codec.LZ4)
            waiters = []
            for config in configs:
                waiters.append(queued(directory, log, batch))
                directory.configure(log, config)
                assert log.config == config
            placed = await asyncio.gather(*waiters)
            assert [appended.log_append_time_ms > 0 for appended in placed] == [False, True]
            headers = [header for _, header in iterate_batches(await stored(directory, log))]
            assert [header.codec for header in headers] == [Codec.LZ4, Codec.GZIP]

    run(main)


def test_a_batch_queued_behind_a_change_of_the_config_obeys_the_new_one(kit: Kit, run: Run) -> None:
    """The change waits in the queue because it changes how much may be unsynced. Batches before it
    use the old config, batches behind it the new one."""
    old = LogConfig(flush_policy=FlushPolicy.REPLICATED)
    new = LogConfig(
        flush_policy=FlushPolicy.FSYNC, compression_type=Codec.ZSTD, log_append_time=True
    )
    draw = random.Random(3)
    value = draw.randbytes(3_000)

    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path, config=SMALL) as directory:
            log = await directory.open_log("t-0", old, topic_id=TOPIC)
            await queued(directory, log, one(b"first"))
            waiters = [queued(directory, log, one(value, codec=Codec.LZ4))]
            directory.configure(log, new)
            waiters += [queued(directory, log, one(value, codec=Codec.LZ4)) for _ in range(3)]
            waiters += [queued(directory, log, one(b"small"))]
            placed = await asyncio.gather(*waiters)
            content = await stored(directory, log)
            codecs = [header.codec for _, header in iterate_batches(content)]
            assert codecs == [Codec.NONE, Codec.LZ4, *[Codec.ZSTD] * 4]
            times = [appended.log_append_time_ms for appended in placed]
            assert [time > 7 for time in times] == [False, True, True, True, True]
            assert [record.timestamp_ms for record in decode_all(content)][1:] == [7, *times[1:]]

    run(main)


def test_changed_codec_applies_from_the_next_append(kit: Kit, run: Run) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path, config=SMALL) as directory:
            log = await directory.open_log("t-0", LogConfig(), topic_id=TOPIC)
            kept = []
            for codec in (None, *Codec, None):
                directory.configure(log, LogConfig(compression_type=codec))
                for size in (0, 5_000):
                    await queued(directory, log, one(b"v", size=size, codec=Codec.SNAPPY))
                    kept.append(Codec.SNAPPY if codec is None else codec)
            content = await stored(directory, log)
            assert [header.codec for _, header in iterate_batches(content)] == kept

    run(main)


def test_internal_and_replicated_batches_are_stored_unchanged(kit: Kit, run: Run) -> None:
    """The copy of a follower equals the leader's, byte by byte."""
    config = LogConfig(
        compression_type=Codec.ZSTD,
        log_append_time=True,
        timestamp_before_max_ms=0,
        message_bytes_max=61,
    )

    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path, config=SMALL) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            leaders = encode_batch(
                [Record(0, 7, None, bytes(5_000))], codec=Codec.LZ4, leader_epoch=0
            )
            for origin, batch in (
                (AppendOrigin.REPLICATED, leaders),
                (AppendOrigin.INTERNAL, one(b"v", size=5_000, codec=Codec.GZIP)),
            ):
                await directory.append(log, batch, leader_epoch=0, origin=origin, flush=True)
            content = await stored(directory, log)
            assert content.startswith(leaders)
            assert [r.timestamp_ms for r in decode_all(content)] == [7, 7]

    run(main)


@pytest.mark.parametrize("size", [0, 5_000], ids=["on the loop", "in the lane"])
def test_duplicate_of_a_converted_batch_is_detected(kit: Kit, run: Run, size: int) -> None:
    """The response has the offsets and the time of the first attempt. The batch is stored once."""
    config = LogConfig(compression_type=Codec.GZIP, log_append_time=True)

    async def main(runtime: Runtime, path: str) -> None:
        async with kit.opened(runtime, path, config=SMALL) as directory:
            log = await directory.open_log("t-0", config, topic_id=TOPIC)
            batches = [
                encode_batch(
                    [Record(0, 7, None, b"%d" % sequence + bytes(size))],
                    codec=Codec.LZ4 if sequence else Codec.NONE,
                    producer_id=1,
                    producer_epoch=0,
                    base_sequence=sequence,
                )
                for sequence in range(3)
            ]
            first = [await queued(directory, log, batch) for batch in batches]
            await asyncio.sleep(0.01)  # the simulated clock advances as well
            again = await asyncio.gather(*(queued(directory, log, batch) for batch in batches))
            assert [a.base_offset for a in again] == [a.base_offset for a in first] == [0, 1, 2]
            times = [appended.log_append_time_ms for appended in again]
            assert times == [appended.log_append_time_ms for appended in first]
            records = decode_all(await stored(directory, log))
            assert [record.timestamp_ms for record in records] == times

    run(main)
