"""The format of `__consumer_offsets`: Kafka's own keys and values, so that Kafka's tools read them.

A key starts with its type, a value with its version. Every version that Kafka ever wrote is
decoded. Encoding is that of Kafka 4.x: version 3 of offsets and classic groups, version 1 of
offsets with an expiry time of their own, and version 4 of offsets with a known topic id.
Unsupported key types (share and streams groups, the partition metadata of early KIP-848) are
skipped.

The schemas are those of Kafka's group coordinator.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, TypeAlias

from ...ids import TopicId
from ...records import Record, encode_plain_batch
from ...records.batch import HEADER_SIZE
from ...records.checksum import crc32c
from ..coordinator.fields import (
    INT32,
    INT64,
    FieldReader,
    FieldWriter,
    MalformedField,
    malformed_record,
)
from .config import OFFSETS_TOPIC
from .records import (
    NO_TIME_MS,
    ClassicGroup,
    ClassicGroupForgotten,
    ClassicMemberMetadata,
    ConsumerGroup,
    ConsumerGroupForgotten,
    ConsumerMember,
    ConsumerMemberForgotten,
    CurrentAssignment,
    CurrentAssignmentForgotten,
    GroupRecord,
    MemberState,
    OffsetCommitted,
    OffsetForgotten,
    Partitions,
    ResolvedPattern,
    ResolvedPatternForgotten,
    StoredMember,
    TargetAssignment,
    TargetAssignmentForgotten,
    TargetEpoch,
    TargetEpochForgotten,
)
from .requests import PlainCommit

Encoded: TypeAlias = tuple[bytes, bytes | None]

OFFSET_OLD: Final = 0
OFFSET: Final = 1
CLASSIC_GROUP: Final = 2
CONSUMER_GROUP: Final = 3
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
PATTERN: Final = 16

TEXTS_OF_KEY: Final = {
    OFFSET_OLD: 2,
    OFFSET: 2,
    CLASSIC_GROUP: 1,
    CONSUMER_GROUP: 1,
    MEMBER: 2,
    TARGET_EPOCH: 1,
    TARGET: 2,
    CURRENT: 2,
    PATTERN: 2,
}
"""The number of strings in a key of each type; the partition number follows them in offset keys."""

OFFSET_VERSIONS: Final = range(5)
CLASSIC_VERSIONS: Final = range(5)
FLEXIBLE_FROM: Final = 4
TOPIC_ID_TAG: Final = 0
HASH_TAG: Final = 0
CLASSIC_FACE_TAG: Final = 0
NO_TOPIC: Final = bytes(16)

CACHED_LENGTH_MAX: Final = 256
"""The encoded key prefix of shorter names is cached: a group commits the same topics repeatedly."""
_PLAIN_OFFSET: Final = Struct(">hqibq3s16s")
"""An offset without metadata, in version 4, with its only tagged field."""
_TOPIC_ID_FOLLOWS: Final = bytes((1, TOPIC_ID_TAG, len(NO_TOPIC)))


PLAIN_OFFSETS_MAX: Final = 64
"""The limit of records in a `PlainOffsetBatch`: their offset deltas take one byte."""
CRC_POSITION: Final = 17
TIMES_POSITION: Final = 27
"""The position of the base timestamp, which the largest timestamp follows."""
_CRC: Final = Struct(">I")


def encode(record: GroupRecord) -> Encoded:
    """Return key and value; the value of a tombstone is None.

    Raises ValueError if a string or a number does not fit into its field.
    """
    return _ENCODERS[type(record)](record)


def decode(
    key: bytes | None, value: bytes | None, *, offset: int = -1, partition: int | None = None
) -> GroupRecord | None:
    """Return the decoded record, or None for an unsupported key type.

    Raises CorruptionError with the record's `offset` if the bytes are malformed.
    """
    if key is None:
        return None
    try:
        return _decode(key, value)
    except (MalformedField, ValueError) as error:
        raise malformed_record(OFFSETS_TOPIC, error, offset=offset, partition=partition) from None


def _decode(key: bytes, value: bytes | None) -> GroupRecord | None:
    reader = FieldReader(key)
    kind = reader.int16()
    count = TEXTS_OF_KEY.get(kind)
    if count is None:
        return None
    texts = [reader.text() for _ in range(count)]
    group = texts[0]
    if kind in (OFFSET_OLD, OFFSET):
        partition = reader.int32()
        if partition < 0:
            raise MalformedField(f"partition {partition}")
        if value is None:
            return OffsetForgotten(group=group, topic=texts[1], partition=partition)
        return _offset(group, texts[1], partition, FieldReader(value))
    if value is None:
        return _forgotten(kind, texts)
    body = FieldReader(value)
    if kind == CLASSIC_GROUP:
        return _classic_group(group, body)
    version = body.int16()
    if version != 0:
        raise MalformedField(
            f"version {version} of key type {kind} is unknown; the known version is 0"
        )
    body.flexible = True
    return _VALUES[kind](texts, body)


def _forgotten(kind: int, texts: list[str]) -> GroupRecord:
    match kind:
        case 2:
            return ClassicGroupForgotten(group=texts[0])
        case 3:
            return ConsumerGroupForgotten(group=texts[0])
        case 5:
            return ConsumerMemberForgotten(group=texts[0], member_id=texts[1])
        case 6:
            return TargetEpochForgotten(group=texts[0])
        case 7:
            return TargetAssignmentForgotten(group=texts[0], member_id=texts[1])
        case 8:
            return CurrentAssignmentForgotten(group=texts[0], member_id=texts[1])
        case _:
            return ResolvedPatternForgotten(group=texts[0], pattern=texts[1])


# --- offsets --------------------------------------------------------------------------------------


def _key(kind: int, *texts: str) -> bytes:
    writer = FieldWriter(kind, flexible=False)
    for text in texts:
        writer.text(text)
    return bytes(writer.out)


def _offset_key(group: str, topic: str, partition: int) -> bytes:
    is_short = len(group) <= CACHED_LENGTH_MAX
    names = _cached_names(group, topic) if is_short else _key(OFFSET, group, topic)
    return names + INT32.pack(partition)


@lru_cache(maxsize=4_096)
def _cached_names(group: str, topic: str) -> bytes:
    return _key(OFFSET, group, topic)


def _encode_offset(record: OffsetCommitted) -> Encoded:
    key = _offset_key(record.group, record.topic, record.partition)
    topic_id = record.topic_id
    if topic_id is not None and record.expire_ms == NO_TIME_MS and not record.note:
        return key, _PLAIN_OFFSET.pack(
            4, record.offset, record.leader_epoch, 1, record.commit_ms, _TOPIC_ID_FOLLOWS, topic_id
        )
    return key, _any_offset(record)


def _any_offset(record: OffsetCommitted) -> bytes:
    version = 3
    if record.expire_ms != NO_TIME_MS:
        version = 1
    elif record.topic_id is not None:
        version = 4
    writer = FieldWriter(version, flexible=version >= FLEXIBLE_FROM)
    writer.int64(record.offset)
    if version >= 3:
        writer.int32(record.leader_epoch)
    writer.text(record.note)
    writer.int64(record.commit_ms)
    if version == 1:
        writer.int64(record.expire_ms)
    writer.end([] if record.topic_id is None else [(TOPIC_ID_TAG, record.topic_id)])
    return bytes(writer.out)


class PlainOffsetBatch:
    """The record batches of commits of the same group, topics and numbers of partitions. They
    differ only in partitions, offsets, leader epochs and times, at fixed positions."""

    __slots__ = ("_count", "_head", "_layout", "_values")

    def __init__(self, group: str, topics: Sequence[tuple[str, TopicId, int]]) -> None:
        """`topics` are names, ids and numbers of partitions, together at most PLAIN_OFFSETS_MAX."""
        records: list[Record] = []
        sizes: list[int] = []
        for topic, topic_id, count in topics:
            offset = OffsetCommitted(
                group=group, topic=topic, partition=0, offset=0, commit_ms=0, topic_id=topic_id
            )
            record = Record(0, 0, *_encode_offset(offset))
            records += [record] * count
            sizes += [len(encode_plain_batch([record])) - HEADER_SIZE] * count
        batch = encode_plain_batch(records)
        assert len(batch) == HEADER_SIZE + sum(sizes), f"records of {sizes} bytes in {len(batch)}"
        self._count = len(records)
        self._head = batch[:CRC_POSITION]
        at = CRC_POSITION + _CRC.size
        layout = [f">{TIMES_POSITION - at}sqq"]
        self._values: list[bytes | int] = [batch[at:TIMES_POSITION], 0, 0]
        at, end = TIMES_POSITION + 16, HEADER_SIZE
        for size in sizes:
            end += size
            value = end - 1 - _PLAIN_OFFSET.size  # a count of headers follows it
            key_end = value - 1  # before the size of the value
            before = batch[at : key_end - INT32.size]
            layout.append(f"{len(before)}si3sqi1sq")
            version = batch[key_end : value + 2]
            self._values += [before, 0, version, 0, 0, batch[value + 14 : value + 15], 0]
            at = value + 23
        layout.append(f"{len(batch) - at}s")
        self._values.append(batch[at:])
        self._layout = Struct("".join(layout))

    def encode(self, commit: PlainCommit, now_ms: int) -> bytes:
        """Return the batch of a commit, equal to `encode_plain_batch` of its records."""
        if len(commit.topics) == 1:
            _, partitions, offsets, leader_epochs = commit.topics[0]
        else:
            partitions = tuple([each for topic in commit.topics for each in topic.partitions])
            offsets = tuple([each for topic in commit.topics for each in topic.offsets])
            leader_epochs = tuple([each for topic in commit.topics for each in topic.leader_epochs])
        values = self._values.copy()
        values[1] = values[2] = now_ms
        values[4::7] = partitions
        values[6::7] = offsets
        values[7::7] = leader_epochs
        values[9::7] = (now_ms,) * self._count
        rest = self._layout.pack(*values)
        return self._head + _CRC.pack(crc32c(rest)) + rest


@lru_cache(maxsize=1_024)  # a group commits the same topics repeatedly
def plain_offset_batch(
    group: str, topics: tuple[tuple[str, TopicId, int], ...]
) -> PlainOffsetBatch:
    """Return `PlainOffsetBatch(group, topics)`."""
    return PlainOffsetBatch(group, topics)


def encode_plain_commit(commit: PlainCommit, topic_ids: tuple[TopicId, ...], now_ms: int) -> bytes:
    """Return the batch of a commit of at most PLAIN_OFFSETS_MAX offsets."""
    counted = tuple(
        [
            (topic.topic, topic_id, len(topic.partitions))
            for topic, topic_id in zip(commit.topics, topic_ids, strict=True)
        ]
    )
    is_short = len(commit.group) <= CACHED_LENGTH_MAX
    batch = (plain_offset_batch if is_short else PlainOffsetBatch)(commit.group, counted)
    return batch.encode(commit, now_ms)


def _encode_offset_forgotten(record: OffsetForgotten) -> Encoded:
    return _offset_key(record.group, record.topic, record.partition), None


def _offset(group: str, topic: str, partition: int, body: FieldReader) -> OffsetCommitted:
    version = body.int16()
    if version not in OFFSET_VERSIONS:
        raise MalformedField(f"version {version} of an offset is unknown; known versions are 0..4")
    body.flexible = version >= FLEXIBLE_FROM
    offset = body.int64()
    leader_epoch = body.int32() if version >= 3 else -1
    note = body.text()
    commit_ms = body.int64()
    expire_ms = body.int64() if version == 1 else NO_TIME_MS
    topic_id = body.end().get(TOPIC_ID_TAG, NO_TOPIC)
    if len(topic_id) != len(NO_TOPIC):
        raise MalformedField(f"the topic id has {len(topic_id)} bytes, must have 16")
    return OffsetCommitted(
        group=group,
        topic=topic,
        partition=partition,
        offset=offset,
        leader_epoch=leader_epoch,
        note=note,
        commit_ms=commit_ms,
        expire_ms=expire_ms,
        topic_id=None if topic_id == NO_TOPIC else TopicId(topic_id),
    )


# --- classic groups -------------------------------------------------------------------------------


def _encode_classic(record: ClassicGroup) -> Encoded:
    writer = FieldWriter(3, flexible=False)
    writer.text(record.protocol_type)
    writer.int32(record.generation)
    writer.text(record.protocol)
    writer.text(record.leader)
    writer.int64(record.state_ms)

    def put(member: StoredMember) -> None:
        writer.text(member.member_id)
        writer.text(member.instance_id)
        writer.text(member.client_id)
        writer.text(member.client_host)
        writer.int32(member.rebalance_timeout_ms)
        writer.int32(member.session_timeout_ms)
        writer.content(member.subscription)
        writer.content(member.assignment)

    writer.items(record.members, put)
    return _key(CLASSIC_GROUP, record.group), bytes(writer.out)


def _classic_group(group: str, body: FieldReader) -> ClassicGroup:
    version = body.int16()
    if version not in CLASSIC_VERSIONS:
        raise MalformedField(
            f"version {version} of a classic group is unknown; known versions are 0..4"
        )
    body.flexible = version >= FLEXIBLE_FROM

    def take() -> StoredMember:
        member_id = body.text()
        instance_id = body.maybe_text() if version >= 3 else None
        client_id = body.text()
        client_host = body.text()
        rebalance_ms = body.int32() if version >= 1 else -1
        session_ms = body.int32()
        member = StoredMember(
            member_id=member_id,
            instance_id=instance_id,
            client_id=client_id,
            client_host=client_host,
            rebalance_timeout_ms=session_ms if version < 1 else rebalance_ms,
            session_timeout_ms=session_ms,
            subscription=body.content(),
            assignment=body.content(),
        )
        body.end()
        return member

    protocol_type, generation = body.text(), body.int32()
    protocol, leader = body.maybe_text(), body.maybe_text()
    state_ms = body.int64() if version >= 2 else NO_TIME_MS
    members = tuple(body.items(take))
    body.end()
    return ClassicGroup(
        group=group,
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        state_ms=state_ms,
        members=members,
    )


# --- groups of KIP-848 ----------------------------------------------------------------------------


def _flexible() -> FieldWriter:
    return FieldWriter(0, flexible=True)


def _encode_group(record: ConsumerGroup) -> Encoded:
    writer = _flexible()
    writer.int32(record.epoch)
    known = record.metadata_hash
    writer.end([(HASH_TAG, INT64.pack(known))] if known else [])
    return _key(CONSUMER_GROUP, record.group), bytes(writer.out)


def _group(texts: list[str], body: FieldReader) -> GroupRecord:
    epoch = body.int32()
    stored = body.end().get(HASH_TAG)
    found = 0 if stored is None else FieldReader(stored).int64()
    return ConsumerGroup(group=texts[0], epoch=epoch, metadata_hash=found)


def _encode_member(record: ConsumerMember) -> Encoded:
    writer = _flexible()
    writer.text(record.instance_id)
    writer.text(record.rack)
    writer.text(record.client_id)
    writer.text(record.client_host)
    writer.items(sorted(record.topics), writer.text)
    writer.text(record.pattern)
    writer.int32(record.rebalance_timeout_ms)
    writer.text(record.assignor)
    face = record.classic
    writer.end([] if face is None else [(CLASSIC_FACE_TAG, _face_bytes(face))])
    return _key(MEMBER, record.group, record.member_id), bytes(writer.out)


def _face_bytes(face: ClassicMemberMetadata) -> bytes:
    writer = _flexible()
    writer.out.clear()
    writer.int8(1)  # marks a nullable structure as present
    writer.int32(face.session_timeout_ms)

    def put(protocol: tuple[str, bytes]) -> None:
        writer.text(protocol[0])
        writer.content(protocol[1])
        writer.end()

    writer.items(face.protocols, put)
    writer.end()
    return bytes(writer.out)


def _face(stored: bytes) -> ClassicMemberMetadata | None:
    body = FieldReader(stored)
    body.flexible = True
    if body.int8() < 0:
        return None

    def take() -> tuple[str, bytes]:
        protocol = body.text(), body.content()
        body.end()
        return protocol

    session_ms = body.int32()
    return ClassicMemberMetadata(session_timeout_ms=session_ms, protocols=tuple(body.items(take)))


def _member(texts: list[str], body: FieldReader) -> GroupRecord:
    instance_id, rack = body.maybe_text(), body.maybe_text()
    client_id, client_host = body.text(), body.text()
    topics = frozenset(body.items(body.text))
    pattern = body.maybe_text()
    rebalance_ms = body.int32()
    assignor = body.maybe_text()
    stored = body.end().get(CLASSIC_FACE_TAG)
    return ConsumerMember(
        group=texts[0],
        member_id=texts[1],
        instance_id=instance_id,
        rack=rack,
        client_id=client_id,
        client_host=client_host,
        topics=topics,
        pattern=pattern,
        assignor=assignor,
        rebalance_timeout_ms=rebalance_ms,
        classic=None if stored is None else _face(stored),
    )


def _encode_target_epoch(record: TargetEpoch) -> Encoded:
    writer = _flexible()
    writer.int32(record.epoch)
    writer.end()
    return _key(TARGET_EPOCH, record.group), bytes(writer.out)


def _target_epoch(texts: list[str], body: FieldReader) -> GroupRecord:
    return TargetEpoch(group=texts[0], epoch=body.int32())


def _encode_target(record: TargetAssignment) -> Encoded:
    writer = _flexible()
    _put_partitions(writer, record.partitions)
    writer.end()
    return _key(TARGET, record.group, record.member_id), bytes(writer.out)


def _target(texts: list[str], body: FieldReader) -> GroupRecord:
    return TargetAssignment(group=texts[0], member_id=texts[1], partitions=_partitions(body))


def _encode_current(record: CurrentAssignment) -> Encoded:
    writer = _flexible()
    writer.int32(record.epoch)
    writer.int32(record.previous_epoch)
    writer.int8(record.state)
    _put_partitions(writer, record.assigned)
    _put_partitions(writer, record.pending_revocation)
    writer.end()
    return _key(CURRENT, record.group, record.member_id), bytes(writer.out)


def _current(texts: list[str], body: FieldReader) -> GroupRecord:
    return CurrentAssignment(
        group=texts[0],
        member_id=texts[1],
        epoch=body.int32(),
        previous_epoch=body.int32(),
        state=MemberState(body.int8()),
        assigned=_partitions(body),
        pending_revocation=_partitions(body),
    )


def _put_partitions(writer: FieldWriter, partitions: Partitions) -> None:
    def put(topic_id: TopicId) -> None:
        writer.raw(topic_id)
        writer.items(sorted(partitions[topic_id]), writer.int32)
        writer.end()

    writer.items(sorted(partitions), put)


def _partitions(body: FieldReader) -> Partitions:
    def take() -> tuple[TopicId, frozenset[int]]:
        found = TopicId(body.raw(16)), frozenset(body.items(body.int32))
        body.end()
        return found

    return dict(body.items(take))


def _encode_pattern(record: ResolvedPattern) -> Encoded:
    writer = _flexible()
    writer.items(sorted(record.topics), writer.text)
    writer.int64(record.version)
    writer.int64(record.resolved_ms)
    writer.end()
    return _key(PATTERN, record.group, record.pattern), bytes(writer.out)


def _pattern(texts: list[str], body: FieldReader) -> GroupRecord:
    return ResolvedPattern(
        group=texts[0],
        pattern=texts[1],
        topics=frozenset(body.items(body.text)),
        version=body.int64(),
        resolved_ms=body.int64(),
    )


_VALUES: Final[dict[int, Callable[[list[str], FieldReader], GroupRecord]]] = {
    CONSUMER_GROUP: _group,
    MEMBER: _member,
    TARGET_EPOCH: _target_epoch,
    TARGET: _target,
    CURRENT: _current,
    PATTERN: _pattern,
}

_ENCODERS: Final[dict[type, Callable[..., Encoded]]] = {
    OffsetCommitted: _encode_offset,
    OffsetForgotten: _encode_offset_forgotten,
    ClassicGroup: _encode_classic,
    ClassicGroupForgotten: lambda record: (_key(CLASSIC_GROUP, record.group), None),
    ConsumerGroup: _encode_group,
    ConsumerGroupForgotten: lambda record: (_key(CONSUMER_GROUP, record.group), None),
    ConsumerMember: _encode_member,
    ConsumerMemberForgotten: lambda record: (_key(MEMBER, record.group, record.member_id), None),
    TargetEpoch: _encode_target_epoch,
    TargetEpochForgotten: lambda record: (_key(TARGET_EPOCH, record.group), None),
    TargetAssignment: _encode_target,
    TargetAssignmentForgotten: lambda record: (_key(TARGET, record.group, record.member_id), None),
    CurrentAssignment: _encode_current,
    CurrentAssignmentForgotten: lambda record: (
        _key(CURRENT, record.group, record.member_id),
        None,
    ),
    ResolvedPattern: _encode_pattern,
    ResolvedPatternForgotten: lambda record: (_key(PATTERN, record.group, record.pattern), None),
}
