"""The records that a public client writes into Apache Kafka, and Kafka's view of them: the expected
results of our reads.

The client is aiokafka. Every acknowledged record is stored with the offset and timestamp that Kafka
assigned.
"""

import asyncio
import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from quorumlog.records import Record

CODECS = ("gzip", "snappy", "lz4", "zstd")
T0 = 1_750_000_000_000
KEYS = 40
LOG_APPEND_TIME = 1
CLEANED_S = 120.0
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    **{f"codec.{codec}": {} for codec in CODECS},
    "segments": {"segment.bytes": str(1 << 20)},
    "trimmed": {},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "repacked": {"compression.type": "zstd"},
    "idempotent": {},
    "transactions": {},
    "compacted": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.bytes": str(1 << 20),
    },
    "empty": {},
}
PARTITIONS = {"plain": 3}


@dataclass
class Written:
    """The written records and Kafka's lookups, by log name."""

    records: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    starts: dict[str, int] = field(default_factory=dict)
    ends: dict[str, int] = field(default_factory=dict)
    stable_ends: dict[str, int] = field(default_factory=dict)
    committed: dict[str, list[Record]] = field(default_factory=dict)
    times: dict[str, dict[int, tuple[int, int] | None]] = field(default_factory=dict)

    def kept(self, name: str) -> list[Record]:
        """Return the written records at or above the log start offset."""
        return [record for record in self.records[name] if record.offset >= self.starts[name]]


def log_names() -> list[str]:
    """Return the names of all logs of `TOPICS`."""
    return [
        f"{topic}-{partition}" for topic in TOPICS for partition in range(PARTITIONS.get(topic, 1))
    ]


def unusual_records() -> list[Record]:
    """Return records with nulls, empty values, headers and decreasing timestamps."""
    return [
        Record(0, T0 + 500, b"key", b"value"),
        Record(0, T0 + 400, None, b"no key"),
        Record(0, T0 + 600, b"no value", None),
        Record(0, T0 + 100, b"", b""),
        Record(0, T0 + 600, b"k", b"v", (("h", b"1"), ("h", b"2"), ("", None), ("\u00fc", b""))),
        Record(0, 0, b"epoch", b"x" * 3000),
    ]


def rows(count: int, *, size: int = 100, step: int = 10) -> list[Record]:
    """Return `count` records of `size` bytes, `step` milliseconds apart."""
    return [
        Record(0, T0 + i * step, b"%d" % (i % 97), (b"%d " % i * size)[:size]) for i in range(count)
    ]


@contextlib.asynccontextmanager
async def producing(address: str, **options: Any) -> AsyncIterator[AIOKafkaProducer]:
    """Start a producer with acks=all and a short linger."""
    producer = AIOKafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5, **options)
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


async def send(
    producer: AIOKafkaProducer,
    written: Written,
    topic: str,
    records: Iterable[Record],
    *,
    partition: int = 0,
) -> None:
    """Send the records and store them as acknowledged."""
    sent = []
    for record in records:
        answer = await producer.send(
            topic,
            record.value,
            key=record.key,
            partition=partition,
            timestamp_ms=record.timestamp_ms,
            headers=list(record.headers),
        )
        sent.append((record, answer))
    for record, answer in sent:
        stored = await answer
        is_stamped = stored.timestamp_type == LOG_APPEND_TIME
        time_ms = stored.timestamp if is_stamped else record.timestamp_ms
        written.records[f"{topic}-{partition}"].append(
            Record(stored.offset, time_ms, record.key, record.value, record.headers)
        )


async def write_everything(address: str, data: Path) -> Written:
    """Create the topics and write to each; `data` is Kafka's data folder."""
    written = Written()
    admin = AIOKafkaAdminClient(bootstrap_servers=address)
    await admin.start()
    try:
        await admin.create_topics(
            [
                NewTopic(topic, PARTITIONS.get(topic, 1), 1, topic_configs=configs)
                for topic, configs in TOPICS.items()
            ]
        )
        await _write_plainly(address, written)
        await _write_transactions(address, written)
        await _write_compacted(address, written, data / "compacted-0")
        await admin.delete_records({TopicPartition("trimmed", 0): RecordsToDelete(150)})
    finally:
        await admin.close()
    await look(address, written)
    return written


async def _write_plainly(address: str, written: Written) -> None:
    async with producing(address) as producer:
        for partition in range(PARTITIONS["plain"]):
            await send(producer, written, "plain", unusual_records(), partition=partition)
            await send(producer, written, "plain", rows(partition * 500), partition=partition)
        await send(producer, written, "segments", rows(25_000))
        await send(producer, written, "trimmed", rows(300))
        await send(producer, written, "stamped", rows(1000))
        await send(producer, written, "stamped", unusual_records())
    for codec in CODECS:
        async with producing(address, compression_type=codec) as producer:
            await send(producer, written, f"codec.{codec}", unusual_records())
            await send(producer, written, f"codec.{codec}", rows(2000, size=300))
            await send(producer, written, "repacked", rows(200))
    async with producing(address, enable_idempotence=True) as producer:
        for _ in range(7):  # more batches than a broker keeps of a producer
            await send(producer, written, "idempotent", rows(50))


async def _write_transactions(address: str, written: Written) -> None:
    async with producing(address, transactional_id="first") as producer:
        for round_, is_committed in enumerate((True, False, False, True)):
            await producer.begin_transaction()
            await send(producer, written, "transactions", rows(20 + round_))
            await (producer.commit_transaction() if is_committed else producer.abort_transaction())


async def _write_compacted(address: str, written: Written, folder: Path) -> None:
    """Write the same keys repeatedly until Kafka has compacted a segment."""
    async with producing(address) as producer:
        for round_ in range(8):
            values = [
                Record(0, T0 + round_ * 1000 + key, b"%d" % key, b"%d" % round_ * 9000)
                for key in range(KEYS)
            ]
            values[round_].value = None  # a tombstone
            await send(producer, written, "compacted", values)
    await asyncio.get_running_loop().run_in_executor(None, _wait_until_cleaned, folder)


def _wait_until_cleaned(folder: Path) -> None:
    end = time.monotonic() + CLEANED_S
    while not list(folder.glob("*.deleted")):
        assert time.monotonic() < end, f"Kafka compacts no segment in {folder}"
        time.sleep(0.05)


async def write_more(address: str, written: Written) -> None:
    """Write to some topics once more, and query all of them."""
    async with producing(address) as producer:
        await send(producer, written, "plain", rows(700), partition=1)
        await send(producer, written, "segments", rows(12_000))
        await send(producer, written, "empty", unusual_records())
    await look(address, written)


async def look(address: str, written: Written) -> None:
    """Store Kafka's own results: ends, starts, lookups by time, and consumed records."""
    async with consuming(address, log_names(), isolation_level="read_committed") as consumer:
        written.stable_ends = _by_name(await consumer.end_offsets(consumer.assignment()))
        written.committed = await read_all(consumer, written.stable_ends)
    async with consuming(address, log_names()) as consumer:
        assignment = consumer.assignment()
        written.starts = _by_name(await consumer.beginning_offsets(assignment))
        written.ends = _by_name(await consumer.end_offsets(assignment))
        seen = await read_all(consumer, written.ends)
        written.records["compacted-0"] = seen["compacted-0"]
    async with consuming(address, ()) as consumer:  # its lookups do not wait for a fetch
        for where in assignment:
            name = f"{where.topic}-{where.partition}"
            assert seen[name] == written.kept(name), f"{name}: not the records that Kafka stored"
            written.times[name] = await _times(consumer, where, seen[name])


@contextlib.asynccontextmanager
async def consuming(
    address: str, names: Iterable[str], **options: Any
) -> AsyncIterator[AIOKafkaConsumer]:
    """Start a consumer of whole logs, without a group."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=address, enable_auto_commit=False, fetch_max_wait_ms=50, **options
    )
    await consumer.start()
    try:
        parts = [name.rpartition("-") for name in names]
        consumer.assign([TopicPartition(topic, int(number)) for topic, _, number in parts])
        if parts:
            await consumer.seek_to_beginning()
        yield consumer
    finally:
        await consumer.stop()


async def read_all(consumer: AIOKafkaConsumer, ends: dict[str, int]) -> dict[str, list[Record]]:
    """Consume every assigned log up to its end."""
    records: dict[str, list[Record]] = {name: [] for name in ends}
    for where in consumer.assignment():
        name = f"{where.topic}-{where.partition}"
        while await consumer.position(where) < ends[name]:
            for item in (await consumer.getmany(where, timeout_ms=500)).get(where, ()):
                records[name].append(
                    Record(item.offset, item.timestamp, item.key, item.value, tuple(item.headers))
                )
    return records


def _by_name(offsets: dict[TopicPartition, int]) -> dict[str, int]:
    return {f"{where.topic}-{where.partition}": offset for where, offset in offsets.items()}


async def _times(
    consumer: AIOKafkaConsumer, where: TopicPartition, records: list[Record]
) -> dict[int, tuple[int, int] | None]:
    """Return Kafka's lookups by several times: (offset, timestamp)."""
    wanted = {0, T0 + 10**9}
    for record in records[:: max(1, len(records) // 15)]:
        wanted |= {record.timestamp_ms + delta for delta in (-1, 0, 1) if record.timestamp_ms}
    times: dict[int, tuple[int, int] | None] = {}
    for timestamp in sorted(wanted):
        [found] = (await consumer.offsets_for_times({where: timestamp})).values()
        times[timestamp] = None if found is None else (found.offset, found.timestamp)
    return times
