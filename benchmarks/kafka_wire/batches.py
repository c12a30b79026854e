"""Encoded requests, and the positions in their responses that the generator reads.

Batches of one workload have one size, and so have their requests: a fetch can request a whole
number of them, and an offset identifies the batch at it.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.kafka_wire.wire import FETCH, PRODUCE, Leader, fetch_fields, frame_of

from quorumlog.records import Record, encode_batch

TIMESTAMP_MS = 1_750_000_000_000
DISTINCT_BYTES = 4 << 20  # of distinct batches of one partition
FETCH_BYTES = 1 << 20  # of a partition in one response, the default of consumers
OFFSET_MARK = 0x0123456789ABCDEF
TIMEOUT_MS = 30_000
ACKS = {"1": 1, "all": -1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Records of one size in batches of at most another."""

    value_bytes: int
    batch_bytes: int

    @property
    def name(self) -> str:
        """Return the name in rows."""
        size = self.batch_bytes
        return f"{self.value_bytes:,} B, {size >> 20 or size >> 10} {'MiB' if size >> 20 else 'KB'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Some batches of a workload, all of one size."""

    batches: tuple[bytes, ...]
    records: int  # in each

    @property
    def size(self) -> int:
        """Return the bytes of each."""
        return len(self.batches[0])


def batches_of(workload: Workload, *, distinct_bytes: int = DISTINCT_BYTES) -> Batches:
    """Return batches with as many records as fit, of so many bytes in total."""
    count = max(1, workload.batch_bytes // workload.value_bytes)
    while count > 1 and len(_batch(workload.value_bytes, count)) > workload.batch_bytes:
        over = len(_batch(workload.value_bytes, count)) - workload.batch_bytes
        count -= max(1, over // (workload.value_bytes + 16))
    return batches_with(
        count, workload.value_bytes, distinct=max(1, distinct_bytes // workload.batch_bytes)
    )


def batches_with(records: int, value_bytes: int, *, distinct: int) -> Batches:
    """Return so many batches of so many records."""
    made = tuple(_batch(value_bytes, records) for _ in range(distinct))
    assert len({len(batch) for batch in made}) == 1, "batches of one workload have one size"
    return Batches(batches=made, records=records)


def _batch(value_bytes: int, count: int) -> bytes:
    noise = os.urandom(value_bytes * count)
    return encode_batch(
        [
            Record(
                offset=number,
                timestamp_ms=TIMESTAMP_MS,
                key=None,
                value=noise[number * value_bytes : (number + 1) * value_bytes],
                headers=(),
            )
            for number in range(count)
        ]
    )


# --- positions in responses ----------------------------------------------------------------------


def produce_error_at(topic: str) -> int:
    """Return the position of the partition's error code in a response, from its correlation id."""
    return 4 + 1 + 1 + 1 + len(topic) + 1 + 4  # id, tags, topics, name, partitions, index


def fetch_error_at(topic: str) -> int:
    """Return the position in a fetch response, which begins with throttle time, error and
    session."""
    return produce_error_at(topic) + 4 + 2 + 4


def records_at(topic: str) -> int:
    """Return the position of the size of the records: after the error and three offsets."""
    return fetch_error_at(topic) + 2 + 3 * 8 + 1 + 4


# --- plans ---------------------------------------------------------------------------------------


class Plan:
    """The input of the generator: its lines, and the file of frames."""

    def __init__(self) -> None:
        self.frames = bytearray()
        self.lines: list[str] = []
        self._connections = 0

    def produce(
        self, topic: str, leader: Leader, batches: Batches, *, acks: str, window: int
    ) -> int:
        """Add a connection that writes a partition; return its number."""
        frames = [
            produce_frame(topic, leader.partition, batch, acks=acks, correlation_id=number)
            for number, batch in enumerate(batches.batches)
        ]
        size = len(frames[0])
        assert {len(frame) for frame in frames} == {size}, "requests of one plan have one size"
        return self._line(
            "produce",
            leader.port,
            self._place(b"".join(frames)),
            size,
            len(frames),
            batches.size,
            window,
            produce_error_at(topic),
        )

    def fetch(
        self, topic: str, leader: Leader, batches: Batches, *, first: int, end: int, most: int
    ) -> int:
        """Add a connection that reads the offsets [first, end) of a partition repeatedly, up to
        `most` bytes of whole batches at a time."""
        together = max(1, most // batches.size)
        step = together * batches.records
        frame, offset_at = fetch_frame(topic, leader.partition, max_bytes=together * batches.size)
        return self._line(
            "fetch",
            leader.port,
            self._place(frame),
            len(frame),
            fetch_error_at(topic),
            records_at(topic),
            offset_at,
            batches.records,
            batches.size,
            together * batches.size,
            first,
            first + (end - first) // step * step if end - first > step else end,
        )

    def tail(self, topic: str, leader: Leader, batches: Batches, *, producer: int) -> int:
        """Add a connection that fetches the records of connection `producer` from a new
        partition."""
        frame, offset_at = fetch_frame(topic, leader.partition, max_bytes=FETCH_BYTES)
        return self._line(
            "tail",
            leader.port,
            self._place(frame),
            len(frame),
            fetch_error_at(topic),
            records_at(topic),
            offset_at,
            batches.records,
            batches.size,
            producer,
        )

    def _place(self, frames: bytes) -> int:
        at = len(self.frames)
        self.frames += frames
        return at

    def _line(self, *words: str | int) -> int:
        self.lines.append(" ".join(map(str, words)))
        self._connections += 1
        return self._connections - 1


def produce_frame(
    topic: str, partition: int, batch: bytes, *, acks: str, correlation_id: int
) -> bytes:
    """Return a request that writes one batch."""
    fields = produce_fields(topic, partition, batch, acks=acks)
    return frame_of(PRODUCE, fields, correlation_id=correlation_id)


def produce_fields(topic: str, partition: int, batch: bytes, *, acks: str) -> dict[str, Any]:
    """Return its fields."""
    data = [{"index": partition, "records": batch}]
    return {
        "acks": ACKS[acks],
        "timeout": TIMEOUT_MS,
        "topic_data": [{"name": topic, "partition_data": data}],
    }


def fetch_frame(topic: str, partition: int, *, max_bytes: int) -> tuple[bytes, int]:
    """Return a request to fetch from offset 0, and the position of the offset in it."""
    fields = fetch_fields(topic, partition, OFFSET_MARK, max_bytes=max_bytes)
    frame = frame_of(FETCH, fields, correlation_id=0)
    mark = OFFSET_MARK.to_bytes(8, "big")
    assert frame.count(mark) == 1, "the offset occurs once"
    return frame.replace(mark, bytes(8)), frame.index(mark)


def produce_all(
    topic: str, leaders: Sequence[Leader], batches: Batches, *, acks: str, window: int
) -> Plan:
    """Return a plan that writes every partition, over one connection each."""
    plan = Plan()
    for leader in leaders:
        plan.produce(topic, leader, batches, acks=acks, window=window)
    return plan
