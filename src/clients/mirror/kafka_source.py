"""A Kafka cluster as a source, read with librdkafka (the extra `kafka`).

librdkafka delivers records one by one, so batches are encoded again: offsets, timestamps, keys,
values, headers and gaps are preserved. Only committed records are read; aborted records and
transaction markers become gaps. confluent_kafka is imported when the source is created.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from ...errors import (
    EnvironmentUnusable,
    OffsetOutOfRange,
    OutcomeUnknown,
    QuorumlogError,
    TimedOut,
    UnknownTopicOrPartition,
)
from ...records import Record
from ...runtime import Runtime
from ...runtime.tls import secret_of
from ..credentials import SCRAM, TLS, Token
from ..offsets import PartitionLike
from .batches import encode_at_offsets
from .source import PartitionData, PartitionFetch, SourceTopic

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
"""Configs that a copy takes from its source if they are set for the source's topic."""

SET_FOR_TOPIC: Final = 1  # Kafka's config source DYNAMIC_TOPIC_CONFIG
MESSAGES_MAX: Final = 10_000  # of one read
MESSAGES_AT_ONCE: Final = 16  # per call of librdkafka: bounds the excess over READ_BYTES
READ_BYTES: Final = 8 << 20  # size at which a read ends: it is appended in one request
BATCH_BYTES: Final = 512 << 10  # size of the encoded batches
SPAN_MAX: Final = 2**31 - 1  # between the offsets of a batch's first and last record
CALL_S: Final = 15.0
PEEK_S: Final = 5.0
START_S: Final = 1.0  # time limit of a query of a log start offset, between two reads
ADDRESS: Final = "kafka"  # librdkafka finds the leaders itself
TOKEN_S: Final = 60.0  # after which a token is read again


class KafkaSource:
    """A Kafka cluster; see `MirrorSource`. `close` closes its connections."""

    def __init__(
        self,
        runtime: Runtime,
        bootstrap: str,
        *,
        tls: TLS | None = None,
        credentials: SCRAM | Token | None = None,
    ) -> None:
        """`bootstrap` is "host:port,...". Raises EnvironmentUnusable without confluent-kafka."""
        try:
            import confluent_kafka
            import confluent_kafka.admin
        except ImportError as error:
            raise EnvironmentUnusable(
                f"reading from Kafka needs the package confluent-kafka ({error}): install"
                " quorumlog[kafka]"
            ) from None
        self._kafka: Any = confluent_kafka
        self._runtime = runtime
        security = security_settings(runtime, tls, credentials)
        reader = {**reader_settings(bootstrap), **security}
        self._admin: Any = confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": bootstrap, **security}
        )
        self._reader: Any = confluent_kafka.Consumer(reader)  # on its own lane, one job at a time
        self._peeker: Any = confluent_kafka.Consumer(reader)
        self._peeking = asyncio.Lock()
        self._positions: dict[PartitionLike, int] = {}  # the reader's positions; empty: unknown
        self._ended: dict[PartitionLike, tuple[int, int]] = {}  # offsets without records: from, to
        self._starts: dict[PartitionLike, int] = {}  # log start offsets as last queried
        self._asked = 0  # number of those queries

    async def close(self) -> None:
        """Close the connections."""
        await self._offload("side:kafka", self._reader.close)
        await self._offload("read", self._peeker.close)

    async def _offload(self, lane: str, job: Callable[[], T]) -> T:
        def run() -> T:
            try:
                return job()
            except self._kafka.KafkaException as error:
                raise self._failure(error.args[0]) from None

        return await self._runtime.tasks.offload(lane, run)

    async def cluster_id(self) -> str:
        """See `MirrorSource`."""
        return await self._offload(
            "read", lambda: str(self._admin.list_topics(timeout=CALL_S).cluster_id or "")
        )

    async def topics(self) -> Sequence[SourceTopic]:
        """See `MirrorSource`."""
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

    async def leadership(self, place: PartitionLike) -> tuple[str, int]:
        """See `MirrorSource`; librdkafka tracks leaders and epochs itself."""
        return ADDRESS, 0

    async def bounds(self, place: PartitionLike) -> tuple[int, int]:
        """See `MirrorSource`."""
        partition = self._kafka.TopicPartition(*place)
        async with self._peeking:
            low, high = await self._offload(
                "read", lambda: self._peeker.get_watermark_offsets(partition, timeout=CALL_S)
            )
        return low, high

    async def fetch(
        self, address: str, wants: Sequence[PartitionFetch], *, max_wait_ms: int
    ) -> list[PartitionData]:
        """See `MirrorSource`."""
        if max_wait_ms == 0:
            async with self._peeking:
                return await self._offload("read", lambda: [self._peek(want) for want in wants])
        return await self._offload("side:kafka", lambda: self._read(wants, max_wait_ms / 1000))

    def _peek(self, want: PartitionFetch) -> PartitionData:
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
            raise TimedOut("Kafka did not answer in time", topic=want.place[0])
        if message.error() is None:
            records = _batches([message])
        elif message.error().code() == self._kafka.KafkaError._PARTITION_EOF:
            records = b""  # the last offsets are transaction markers
        else:
            raise self._failure(message.error())
        return PartitionData(place=want.place, records=records, start=low, end=high)

    def _read(self, wants: Sequence[PartitionFetch], wait_s: float) -> list[PartitionData]:
        self._assign_reader({want.place: want.offset for want in wants})
        self._positions = {}  # set after a success: the records of a failed read are read again
        places = sorted(want.place for want in wants)  # the order of `wants` varies
        self._query_log_start(places[self._asked % len(places)])
        found: defaultdict[PartitionLike, list[Any]] = defaultdict(list)
        ends: dict[PartitionLike, int] = {}
        errors: dict[PartitionLike, QuorumlogError] = {}
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

    def _query_log_start(self, place: PartitionLike) -> None:
        """Query the log start offset of one partition; the cached one is not updated."""
        self._asked += 1
        try:
            low, _ = self._reader.get_watermark_offsets(
                self._kafka.TopicPartition(*place), timeout=START_S
            )
        except self._kafka.KafkaException:
            return  # queried again soon
        self._starts[place] = low

    def _assign_reader(self, wanted: dict[PartitionLike, int]) -> None:
        """Assign exactly these partitions at these offsets to the reader."""
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
        want: PartitionFetch,
        messages: list[Any],
        ends: dict[PartitionLike, int],
        errors: dict[PartitionLike, QuorumlogError],
    ) -> PartitionData:
        place = want.place
        if place in errors:  # without its position, the next read assigns all partitions again
            return PartitionData(place=place, error=errors[place])
        messages = [each for each in messages if each.offset() >= want.offset]
        next_offset = messages[-1].offset() + 1 if messages else want.offset
        _, high = self._reader.get_watermark_offsets(
            self._kafka.TopicPartition(*place), cached=True
        )
        self._positions[place] = next_offset
        end = -1 if high < 0 else max(high, next_offset)  # negative: unknown
        if place in ends:  # librdkafka reports it once
            self._ended[place] = (next_offset, ends[place])
        behind, ended = self._ended.get(place, (-1, -1))
        if behind == next_offset and high <= ended:
            end = next_offset  # only transaction markers follow, which are not copied
        start = self._starts.get(place, -1)
        return PartitionData(place=place, records=_batches(messages), start=start, end=end)

    def _failure(self, error: Any) -> QuorumlogError:
        """Convert an error of librdkafka."""
        codes = self._kafka.KafkaError
        sentence = f"Kafka: {error.str()}"
        if error.code() in (codes._AUTO_OFFSET_RESET, codes.OFFSET_OUT_OF_RANGE):
            return OffsetOutOfRange(sentence)
        if error.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_PARTITION):
            return UnknownTopicOrPartition(sentence)
        return OutcomeUnknown(sentence)

    def leader_failed(self, place: PartitionLike, error: QuorumlogError | None = None) -> None:
        """Do nothing: librdkafka tracks leaders."""


def reader_settings(bootstrap: str) -> dict[str, Any]:
    """Return the settings of librdkafka's consumer.

    `check.crcs` is off by default; batches encoded here would hide corruption behind a valid
    checksum.
    """
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "quorumlog-mirror",  # mandatory, not used
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "queued.max.messages.kbytes": 16 << 10,
    }


def security_settings(
    runtime: Runtime, tls: TLS | None, credentials: SCRAM | Token | None
) -> dict[str, Any]:
    """Return the settings of librdkafka for a client's security.

    A password is read here; a token is read again after TOKEN_S, so that it may be renewed.
    """
    sasl = "" if credentials is None else "SASL_"
    found: dict[str, Any] = {"security.protocol": sasl + ("PLAINTEXT" if tls is None else "SSL")}
    if tls is not None:
        files = {
            "ssl.ca.location": tls.ca,
            "ssl.certificate.location": tls.certificate,
            "ssl.key.location": tls.key,
        }
        found |= {name: path for name, path in files.items() if path}
        if tls.key_password:
            found["ssl.key.password"] = secret_of(tls.key_password)
    if isinstance(credentials, Token):
        found["sasl.mechanism"] = "OAUTHBEARER"
        found["oauth_cb"] = lambda _: (
            credentials.value(),
            runtime.clock.wall_ms() / 1000 + TOKEN_S,
        )
    elif credentials is not None:
        found["sasl.mechanism"] = credentials.mechanism
        found["sasl.username"] = credentials.user
        found["sasl.password"] = credentials.secret()
    return found


def _record(message: Any) -> Record:
    kind, time_ms = message.timestamp()
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Record(
        message.offset(), time_ms if kind else -1, message.key(), message.value(), headers
    )


def _batches(messages: list[Any]) -> bytes:
    """Encode messages as batches, each of one leader epoch."""
    parts: list[bytes] = []
    batch: list[Record] = []
    size, epoch = 0, -1
    for message in messages:
        leader_epoch = message.leader_epoch()
        its_epoch = -1 if leader_epoch is None else leader_epoch
        is_far = bool(batch) and message.offset() - batch[0].offset > SPAN_MAX
        if batch and (size >= BATCH_BYTES or its_epoch != epoch or is_far):
            parts.append(encode_at_offsets(batch, leader_epoch=epoch))
            batch, size = [], 0
        record = _record(message)
        batch.append(record)
        size += len(record.key or b"") + len(record.value or b"") + 32
        epoch = its_epoch
    if batch:
        parts.append(encode_at_offsets(batch, leader_epoch=epoch))
    return b"".join(parts)
