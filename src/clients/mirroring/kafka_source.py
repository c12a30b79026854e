"""A Kafka cluster as a source, read by librdkafka (the extra `kafka`).

Records come one by one, so batches are built anew from them: offsets, times, keys, values and
headers stay, and gaps stay gaps. Only what is committed is read; what a transaction aborted and the
markers of one are gaps, too. The package is imported when the source is made.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ...errors import (
    EnvironmentUnusable,
    Lost,
    OffsetOutOfRange,
    QuorumlogError,
    TimedOut,
    UnknownTopicOrPartition,
)
from ...records import Record
from ...runtime import Runtime
from ..offsets import Place
from .batches import batch_of
from .source import Piece, SourceTopic, Want

T = TypeVar("T")

FOLLOWED: Final = (
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
)
"""Configs that a copy takes over where the source's topic has them set."""

SET_FOR_TOPIC: Final = 1  # who set a config, as Kafka counts them
MESSAGES_MAX: Final = 10_000  # of one read
MESSAGES_AT_ONCE: Final = 16  # taken of librdkafka: what is too much is too much by few
READ_BYTES: Final = 8 << 20  # then a read ends: it is sent on in one request
BATCH_BYTES: Final = 512 << 10  # of the batches that are built
SPAN_MAX: Final = 2**31 - 1  # between the offsets of a batch's first and last record
CALL_S: Final = 15.0
PEEK_S: Final = 5.0
START_S: Final = 1.0  # to ask where a partition starts, between two reads
ADDRESS: Final = "kafka"  # librdkafka finds the leaders itself


class KafkaSource:
    """A Kafka cluster; see `Source`. `close` ends its connections."""

    def __init__(self, runtime: Runtime, bootstrap: str) -> None:
        """`bootstrap` is "host:port,...". Raises EnvironmentUnusable without confluent-kafka."""
        try:
            import confluent_kafka
            import confluent_kafka.admin
        except ImportError as error:
            raise EnvironmentUnusable(
                f"to read from Kafka the package confluent-kafka is needed, and {error}: install"
                " quorumlog[kafka]"
            ) from None
        self._kafka: Any = confluent_kafka
        self._runtime = runtime
        reader = reader_settings(bootstrap)
        self._admin: Any = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
        self._reader: Any = confluent_kafka.Consumer(reader)  # in its own lane, one job at a time
        self._peeker: Any = confluent_kafka.Consumer(reader)
        self._peeking = asyncio.Lock()
        self._positions: dict[Place, int] = {}  # where the reader goes on; none: it is not known
        self._ended: dict[Place, tuple[int, int]] = {}  # behind a last record, up to where: nothing
        self._starts: dict[Place, int] = {}  # as last asked for
        self._asked = 0  # times that one was asked for

    async def close(self) -> None:
        """End its connections."""
        await self._offload("side:kafka", self._reader.close)
        await self._offload("read", self._peeker.close)

    async def _offload(self, lane: str, job: Callable[[], T]) -> T:
        def told() -> T:
            try:
                return job()
            except self._kafka.KafkaException as error:
                raise self._failure(error.args[0]) from None

        return await self._runtime.tasks.offload(lane, told)

    async def cluster_id(self) -> str:
        """See `Source`."""
        return await self._offload(
            "read", lambda: str(self._admin.list_topics(timeout=CALL_S).cluster_id or "")
        )

    async def topics(self) -> Sequence[SourceTopic]:
        """See `Source`."""
        return await self._offload("read", self._topics)

    def _topics(self) -> list[SourceTopic]:
        listed = self._admin.list_topics(timeout=CALL_S).topics
        names = sorted(
            name for name, topic in listed.items() if not name.startswith("__") and not topic.error
        )
        if not names:
            return []
        admin: Any = self._kafka.admin
        resources = [admin.ConfigResource(admin.ResourceType.TOPIC, name) for name in names]
        asked = self._admin.describe_configs(resources, request_timeout=CALL_S)
        ids = self._admin.describe_topics(
            self._kafka.TopicCollection(names), request_timeout=CALL_S
        )
        found = []
        for resource, future in asked.items():
            name = resource.name
            configs = {
                entry.name: entry.value
                for entry in future.result().values()
                if entry.name in FOLLOWED and int(entry.source) == SET_FOR_TOPIC
            }
            topic_id = str(ids[name].result().topic_id or "")
            found.append(
                SourceTopic(
                    name=name,
                    topic_id=topic_id.replace("+", "-").replace("/", "_").rstrip("="),
                    partitions=len(listed[name].partitions),
                    configs=configs,
                )
            )
        return found

    async def leadership(self, place: Place) -> tuple[str, int]:
        """See `Source`; librdkafka follows the leaders, and compares epochs itself."""
        return ADDRESS, 0

    async def bounds(self, place: Place) -> tuple[int, int]:
        """See `Source`."""
        partition = self._kafka.TopicPartition(*place)
        async with self._peeking:
            low, high = await self._offload(
                "read", lambda: self._peeker.get_watermark_offsets(partition, timeout=CALL_S)
            )
        return low, high

    async def fetch(self, address: str, wants: Sequence[Want], *, max_wait_ms: int) -> list[Piece]:
        """See `Source`."""
        if max_wait_ms == 0:
            async with self._peeking:
                return await self._offload("read", lambda: [self._peek(want) for want in wants])
        return await self._offload("side:kafka", lambda: self._read(wants, max_wait_ms / 1000))

    def _peek(self, want: Want) -> Piece:
        place = self._kafka.TopicPartition(*want.place, want.offset)
        low, high = self._peeker.get_watermark_offsets(place, timeout=CALL_S)
        self._peeker.assign([place])
        try:
            message = self._peeker.poll(PEEK_S)
            while (
                message is not None and message.error() is None and message.offset() < want.offset
            ):
                message = self._peeker.poll(PEEK_S)
        finally:
            self._peeker.unassign()
        if message is None:
            raise TimedOut("Kafka has not answered in time", topic=want.place[0])
        if message.error() is None:
            records = _batches([message])
        elif message.error().code() == self._kafka.KafkaError._PARTITION_EOF:
            records = b""  # the last offsets are markers
        else:
            raise self._failure(message.error())
        return Piece(place=want.place, records=records, start=low, end=high)

    def _read(self, wants: Sequence[Want], wait_s: float) -> list[Piece]:
        self._go_to({want.place: want.offset for want in wants})
        self._positions = {}  # until all is well: what a failed read has taken comes again
        places = sorted(want.place for want in wants)  # their order is another in each read
        self._ask_a_start(places[self._asked % len(places)])
        found: defaultdict[Place, list[Any]] = defaultdict(list)
        ends: dict[Place, int] = {}
        errors: dict[Place, QuorumlogError] = {}
        for message in self._consume(wait_s):
            place = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                found[place].append(message)
                ends.pop(place, None)
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                ends[place] = message.offset()
            elif place[0] is None:
                raise self._failure(error)
            else:
                errors[place] = self._failure(error)
        return [self._piece(want, found[want.place], ends, errors) for want in wants]

    def _consume(self, wait_s: float) -> list[Any]:
        found: list[Any] = []
        size = 0
        while size < READ_BYTES and len(found) < MESSAGES_MAX:
            news = self._reader.consume(MESSAGES_AT_ONCE, wait_s)
            if not news:
                break
            found += news
            size += sum(
                len(each.key() or b"") + len(each.value() or b"")
                for each in news
                if each.error() is None
            )
            wait_s = 0
        return found

    def _ask_a_start(self, place: Place) -> None:
        """Ask where one partition starts, each in its turn: what is cached does not say."""
        self._asked += 1
        try:
            low, _ = self._reader.get_watermark_offsets(
                self._kafka.TopicPartition(*place), timeout=START_S
            )
        except self._kafka.KafkaException:
            return  # asked again soon
        self._starts[place] = low

    def _go_to(self, wanted: dict[Place, int]) -> None:
        """Have the reader read just these partitions from these offsets on."""
        partitions = [
            self._kafka.TopicPartition(*place, offset) for place, offset in wanted.items()
        ]
        if wanted.keys() != self._positions.keys():
            self._ended.clear()
            self._starts.clear()
            self._reader.assign(partitions)
        else:
            for partition in partitions:
                place = (partition.topic, partition.partition)
                if self._positions[place] != partition.offset:
                    self._reader.seek(partition)

    def _piece(
        self,
        want: Want,
        messages: list[Any],
        ends: dict[Place, int],
        errors: dict[Place, QuorumlogError],
    ) -> Piece:
        place = want.place
        if place in errors:  # it has no position, so all are assigned anew
            return Piece(place=place, error=errors[place])
        messages = [each for each in messages if each.offset() >= want.offset]
        next_offset = messages[-1].offset() + 1 if messages else want.offset
        _, high = self._reader.get_watermark_offsets(
            self._kafka.TopicPartition(*place), cached=True
        )
        self._positions[place] = next_offset
        end = -1 if high < 0 else max(high, next_offset)  # below 0: not told yet
        if place in ends:  # it is told once
            self._ended[place] = (next_offset, ends[place])
        behind, ended = self._ended.get(place, (-1, -1))
        if behind == next_offset and high <= ended:
            end = next_offset  # only markers follow, of which no copy has anything
        start = self._starts.get(place, -1)
        return Piece(place=place, records=_batches(messages), start=start, end=end)

    def _failure(self, error: Any) -> QuorumlogError:
        """Return what an error of librdkafka is here."""
        codes = self._kafka.KafkaError
        sentence = f"Kafka: {error.str()}"
        if error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            return OffsetOutOfRange(sentence)
        if error.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_PARTITION):
            return UnknownTopicOrPartition(sentence)
        return Lost(sentence)

    def learn(self, place: Place, error: QuorumlogError) -> None:
        """See `Source`; librdkafka does it."""

    def doubt(self, place: Place) -> None:
        """See `Source`; librdkafka does it."""


def reader_settings(bootstrap: str) -> dict[str, Any]:
    """Return how librdkafka is to read. It looks at checksums only when told to, and the batches
    that are built here would get sound ones whatever came."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "quorumlog-mirror",  # demanded, and never used
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "queued.max.messages.kbytes": 16 << 10,
    }


def _record(message: Any) -> Record:
    kind, time_ms = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(
        message.offset(), time_ms if kind else -1, message.key(), message.value(), headers
    )


def _batches(messages: list[Any]) -> bytes:
    """Return messages as batches, each of one leader epoch, as those of any log."""
    parts: list[bytes] = []
    batch: list[Record] = []
    size, epoch = 0, -1
    for message in messages:
        told = message.leader_epoch()
        its_epoch = -1 if told is None else told
        is_far = bool(batch) and message.offset() - batch[0].offset > SPAN_MAX
        if batch and (size >= BATCH_BYTES or its_epoch != epoch or is_far):
            parts.append(batch_of(batch, leader_epoch=epoch))
            batch, size = [], 0
        record = _record(message)
        batch.append(record)
        size += len(record.key or b"") + len(record.value or b"") + 32
        epoch = its_epoch
    if batch:
        parts.append(batch_of(batch, leader_epoch=epoch))
    return b"".join(parts)
