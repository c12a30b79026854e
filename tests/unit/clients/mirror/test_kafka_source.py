"""The Kafka source with a simulated librdkafka consumer, without a broker."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from quorumlog.clients.credentials import TLS
from quorumlog.clients.mirror.source import PartitionData, PartitionFetch
from quorumlog.errors import OutcomeUnknown
from quorumlog.records import decode_all, iterate_batches

kafka: Any = pytest.importorskip("confluent_kafka")

from quorumlog.clients.mirror.kafka_source import (  # noqa: E402
    READ_BYTES,
    KafkaSource,
    reader_settings,
    security_settings,
)

T = ("t", 0)


class Message:
    """A record, the end of a partition, or an error."""

    def __init__(
        self,
        offset: int,
        value: bytes = b"v",
        *,
        place: tuple[str | None, int] = T,
        error: int | None = None,
        epoch: int | None = 3,
    ) -> None:
        self._offset = offset
        self._value = value
        self._place = place
        self._epoch = epoch
        self._error = None if error is None else kafka.KafkaError(error)

    def topic(self) -> str | None:
        return self._place[0]

    def partition(self) -> int:
        return self._place[1]

    def offset(self) -> int:
        return self._offset

    def leader_epoch(self) -> int | None:
        return self._epoch

    def error(self) -> Any:
        return self._error

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes:
        return self._value

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000


class FakeConsumer:
    """A librdkafka consumer that returns messages in the order in which the test adds them."""

    def __init__(self) -> None:
        self.coming: list[list[Message]] = []
        self.moves: list[tuple[str, int]] = []
        self.marks = (-1001, -1001)  # the cached watermark offsets
        self.start = 0

    def assign(self, partitions: Sequence[Any]) -> None:
        self.moves += [("assign", each.offset) for each in partitions]

    def seek(self, partition: Any) -> None:
        self.moves.append(("seek", partition.offset))

    def consume(self, count: int, timeout: float) -> list[Message]:
        if not self.coming:
            return []
        taken, left = self.coming[0][:count], self.coming[0][count:]
        self.coming[:1] = [left] if left else []
        return taken

    def get_watermark_offsets(
        self, partition: Any, timeout: float = 0, cached: bool = False
    ) -> tuple[int, int]:
        return self.marks if cached else (self.start, self.marks[1])


@pytest.fixture
def reader() -> FakeConsumer:
    return FakeConsumer()


@pytest.fixture
def source(reader: FakeConsumer) -> Iterator[KafkaSource]:
    runtime: Any = None  # no work is offloaded
    made = KafkaSource(runtime, "127.0.0.1:9")
    real, made._reader = made._reader, reader
    yield made
    real.close()
    made._peeker.close()


def read(source: KafkaSource, offset: int) -> PartitionData:
    (piece,) = source._read([PartitionFetch(T, offset, 0)], 0.5)
    assert piece.error is None
    return piece


def offsets(piece: PartitionData) -> list[int]:
    return [record.offset for record in decode_all(piece.records)]


def test_messages_before_a_client_error_are_read_again(
    source: KafkaSource, reader: FakeConsumer
) -> None:
    """librdkafka's position is behind them: without a seek the copy would have a gap."""
    reader.coming = [[Message(0), Message(1), Message(-1, place=(None, -1), error=-187)]]
    with pytest.raises(OutcomeUnknown):
        read(source, 0)
    reader.coming = [[Message(0), Message(1), Message(2)]]
    assert offsets(read(source, 0)) == [0, 1, 2]
    assert reader.moves == [("assign", 0), ("assign", 0)]


def test_a_read_seeks_only_if_the_offset_changed(source: KafkaSource, reader: FakeConsumer) -> None:
    for first, wanted in ((0, 0), (1, 1), (1, 1)):
        reader.coming = [[Message(first)]]
        read(source, wanted)
    assert reader.moves == [("assign", 0), ("seek", 1)]


def test_a_partition_that_ends_in_markers_stays_at_its_end_until_more_comes(
    source: KafkaSource, reader: FakeConsumer
) -> None:
    """librdkafka reports the end once; with two such partitions, never both ends in one read."""
    reader.marks = (-1001, 4)
    reader.coming = [[Message(0), Message(1), Message(4, error=-191)]]
    assert read(source, 0).end == 2
    assert read(source, 2).end == 2
    reader.marks = (-1001, 6)
    assert read(source, 2).end == 6
    reader.coming = [[Message(4)]]
    assert read(source, 2).end == 6


def test_uncached_log_start_is_queried(source: KafkaSource, reader: FakeConsumer) -> None:
    reader.marks, reader.start = (-1001, 9), 5
    assert read(source, 9).start == 5


def test_records_too_far_apart_for_one_batch_become_two(
    source: KafkaSource, reader: FakeConsumer
) -> None:
    """Otherwise a strongly compacted partition would stop the whole mirror."""
    reader.coming = [[Message(0), Message(2**31 - 1), Message(2**31)]]
    piece = read(source, 0)
    assert offsets(piece) == [0, 2**31 - 1, 2**31]
    assert len(list(iterate_batches(piece.records))) == 2


def test_log_start_of_every_partition_is_queried_in_any_order(
    source: KafkaSource, reader: FakeConsumer
) -> None:
    """A mirror sorts partitions by their last data, so the order changes from read to read."""
    wants = [PartitionFetch(("t", number), 0, 0) for number in range(2)]
    for turn in range(4):
        source._read(wants if turn % 2 else wants[::-1], 0.5)
    assert source._starts.keys() == {("t", 0), ("t", 1)}


def test_checksums_are_checked_before_batches_get_new_ones() -> None:
    assert reader_settings("127.0.0.1:9")["check.crcs"] is True


def test_a_batch_has_records_of_one_leader_epoch(source: KafkaSource, reader: FakeConsumer) -> None:
    epochs = (None, 3, 3, 5)
    reader.coming = [[Message(offset, epoch=epoch) for offset, epoch in enumerate(epochs)]]
    piece = read(source, 0)
    found = [(head.base_offset, head.leader_epoch) for _, head in iterate_batches(piece.records)]
    assert found == [(0, -1), (1, 3), (3, 5)]


def test_read_is_bounded_by_the_size_of_one_response(
    source: KafkaSource, reader: FakeConsumer
) -> None:
    size = 1 << 20
    reader.coming = [[Message(offset, bytes(size)) for offset in range(100)]]
    piece = read(source, 0)
    assert READ_BYTES <= len(piece.records) < READ_BYTES + 20 * size
    assert offsets(read(source, offsets(piece)[-1] + 1))[0] == offsets(piece)[-1] + 1


def test_password_of_an_encrypted_key_is_read_from_its_source(tmp_path: Path) -> None:
    place = tmp_path / "password"
    place.write_text("secret\n")
    place.chmod(0o600)
    tls = TLS(ca="ca", certificate="own", key="own.key", key_password=f"file:{place}")
    no_clock: Any = None  # required with tokens
    assert security_settings(no_clock, tls, None) == {
        "security.protocol": "SSL",
        "ssl.ca.location": "ca",
        "ssl.certificate.location": "own",
        "ssl.key.location": "own.key",
        "ssl.key.password": "secret",
    }
