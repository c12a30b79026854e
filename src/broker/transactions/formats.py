"""The format of `__transaction_state`: Kafka's own key and value, so that Kafka's tools read them.

The key starts with its type, the value with its version. Values are written in version 1, which has
tagged fields; both versions are read. Other key types are skipped, as Kafka's readers do. The
schemas are `TransactionLogKey` and `TransactionLogValue` of Kafka's transaction coordinator. The
records of staged commits have key types that Kafka does not have.
"""

from itertools import chain, groupby
from operator import itemgetter
from struct import Struct
from typing import Final, TypeAlias

from ...ids import TopicId
from ...records.control import EPOCH_BUMP_VERSION
from ..coordinator.fields import (
    INT16,
    INT64,
    FieldReader,
    FieldWriter,
    MalformedField,
    malformed_record,
)
from .config import TRANSACTIONS_TOPIC
from .records import (
    CLIENT_EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    AttemptState,
    FreeProducerId,
    ProducerIdForgotten,
    StagedAttempt,
    StagedName,
    StagedNameForgotten,
    StagedPartition,
    StagedRecord,
    TransactionalIdForgotten,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)

Encoded: TypeAlias = tuple[bytes, bytes | None]

TRANSACTION: Final = 0
STAGED_NAME: Final = 1_000
STAGED_ID: Final = 1_001
STAGED_VERSION: Final = 0
FREE: Final = 0
"""The state of a producer id without an attempt; else it is an `AttemptState`."""
VERSIONS: Final = range(2)
VERSION: Final = 1
PREVIOUS_ID_TAG: Final = 0
NEXT_ID_TAG: Final = 1
CLIENT_VERSION_TAG: Final = 2
LAST_EPOCH_TAG: Final = 4
"""The epoch before the present one (KAFKA-20357); 3 is the next producer epoch (KIP-939)."""

_ENDED: Final = (
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
_STORED: Final = {
    int(state): state for state in (TransactionState.EMPTY, TransactionState.ONGOING, *_ENDED)
}
_HEAD: Final = Struct(">qhib")  # producer id and epoch, timeout, state
_TIMES: Final = Struct(">qq")  # of the update and the start


def encode(record: TransactionRecord) -> Encoded:
    """Return key and value; the value of a tombstone is None.

    Raises ValueError if a string or a number does not fit into its field.
    """
    if isinstance(record, TransactionalIdForgotten | TransactionMetadata):
        key = FieldWriter(TRANSACTION, flexible=False)
        key.text(record.transactional_id)
        value = _value(record) if isinstance(record, TransactionMetadata) else None
        return bytes(key.out), value
    return _encode_staged(record)


def decode(
    key: bytes | None, value: bytes | None, *, offset: int = -1, partition: int | None = None
) -> TransactionRecord | None:
    """Return the decoded record, or None for an unsupported key type.

    Raises CorruptionError with the record's `offset` if the bytes are malformed.
    """
    if key is None:
        return None
    try:
        return _decode(key, value)
    except (MalformedField, ValueError) as error:
        raise malformed_record(
            TRANSACTIONS_TOPIC, error, offset=offset, partition=partition
        ) from None


def _value(record: TransactionMetadata) -> bytes:
    writer = FieldWriter(VERSION, flexible=True)
    writer.int64(record.producer_id)
    writer.int16(record.producer_epoch)
    writer.int32(record.timeout_ms)
    writer.int8(record.state)
    if record.state is TransactionState.EMPTY:
        writer.varint(0)  # null
    else:
        topics = groupby(sorted(record.partitions), key=itemgetter(0))
        writer.items(
            ((topic, [partition for _, partition in group]) for topic, group in topics),
            lambda item: _put_topic(writer, *item),
        )
    writer.int64(record.updated_ms)
    writer.int64(record.started_ms)
    # Without the last epoch, readers derive it from a record of version 2.
    no_last_epoch = None if record.version >= EPOCH_BUMP_VERSION else NO_PRODUCER_EPOCH
    tagged = (
        (PREVIOUS_ID_TAG, record.previous_producer_id, NO_PRODUCER_ID, INT64),
        (NEXT_ID_TAG, record.next_producer_id, NO_PRODUCER_ID, INT64),
        (CLIENT_VERSION_TAG, record.version, 0, INT16),
        (LAST_EPOCH_TAG, record.last_producer_epoch, no_last_epoch, INT16),
    )
    writer.end([(tag, form.pack(number)) for tag, number, unset, form in tagged if number != unset])
    return bytes(writer.out)


def _put_topic(writer: FieldWriter, topic: str, partitions: list[int]) -> None:
    writer.text(topic)
    writer.items(partitions, writer.int32)
    writer.end()


def _decode(key: bytes, value: bytes | None) -> TransactionRecord | None:
    reader = FieldReader(key)
    kind = reader.int16()
    if kind in (STAGED_NAME, STAGED_ID):
        return _decode_staged(kind, reader, value)
    if kind != TRANSACTION:
        return None
    transactional_id = reader.text()
    if value is None:
        return TransactionalIdForgotten(transactional_id=transactional_id)
    return _metadata(transactional_id, FieldReader(value))


def _metadata(transactional_id: str, body: FieldReader) -> TransactionMetadata:
    version = body.int16()
    if version not in VERSIONS:
        raise MalformedField(f"version {version} is unknown; the known ones are 0 and 1")
    body.flexible = version == 1
    producer_id, epoch, timeout_ms, number = body.numbers(_HEAD)
    state = _STORED.get(number)
    if state is None:
        raise MalformedField(f"state {TransactionState(number).kafka_name} is never stored")
    topics = body.maybe_items(lambda: _topic(body)) or []
    updated_ms, started_ms = body.numbers(_TIMES)
    tagged = body.end()
    client_version = _tag(tagged, CLIENT_VERSION_TAG, 0)
    last_epoch = _tag(tagged, LAST_EPOCH_TAG, NO_PRODUCER_EPOCH)
    if LAST_EPOCH_TAG not in tagged and client_version >= EPOCH_BUMP_VERSION and state in _ENDED:
        # Kafka up to 4.3 does not store it; the end of the transaction raised the epoch by one.
        last_epoch = epoch - 1 if epoch > 0 else CLIENT_EPOCH_MAX
    previous_id = _tag(tagged, PREVIOUS_ID_TAG, NO_PRODUCER_ID)
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        # Kafka stores the present id unless the id was just replaced.
        previous_producer_id=NO_PRODUCER_ID if previous_id == producer_id else previous_id,
        next_producer_id=_tag(tagged, NEXT_ID_TAG, NO_PRODUCER_ID),
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset(
            (topic, partition) for topic, partitions in topics for partition in partitions
        ),
        updated_ms=updated_ms,
        started_ms=started_ms,
        version=client_version,
    )


def _topic(body: FieldReader) -> tuple[str, list[int]]:
    topic = body.text()
    partitions = body.items(body.int32)
    body.end()
    return topic, partitions


def _tag(tagged: dict[int, bytes], tag: int, unset: int) -> int:
    """Return the number of a tagged field of 2 or 8 bytes."""
    content = tagged.get(tag)
    if content is None:
        return unset
    form = INT64 if tag in (PREVIOUS_ID_TAG, NEXT_ID_TAG) else INT16
    if len(content) != form.size:
        raise MalformedField(f"tagged field {tag} has {len(content)} bytes instead of {form.size}")
    number: int = form.unpack(content)[0]
    return number


# --- staged commits -------------------------------------------------------------------------------


def _encode_staged(record: StagedRecord) -> Encoded:
    writer = FieldWriter(STAGED_VERSION, flexible=True)
    if isinstance(record, StagedName | StagedNameForgotten):
        key = FieldWriter(STAGED_NAME, flexible=False)
        key.text(record.transactional_id)
        if isinstance(record, StagedNameForgotten):
            return bytes(key.out), None
        _put_name(writer, record)
        return bytes(key.out), bytes(writer.out)
    key = FieldWriter(STAGED_ID, flexible=False)
    key.int64(record.producer_id)
    if isinstance(record, ProducerIdForgotten):
        return bytes(key.out), None
    writer.int16(record.producer_epoch)
    if isinstance(record, FreeProducerId):
        writer.int8(FREE)
    else:
        _put_attempt(writer, record)
    writer.end()
    return bytes(key.out), bytes(writer.out)


def _put_name(writer: FieldWriter, record: StagedName) -> None:
    writer.int64(record.last_committed)
    writer.int64(record.committed_write_id)
    writer.int64(record.committed_count)
    writer.int64(record.write_id)
    writer.int64(record.number)
    writer.int64(record.fenced_write_id)

    def put_producer(producer: tuple[int, int]) -> None:
        writer.int64(producer[0])
        writer.int16(producer[1])
        writer.end()

    writer.items(record.committing, put_producer)
    writer.int64(record.updated_ms)
    writer.end()


def _put_attempt(writer: FieldWriter, record: StagedAttempt) -> None:
    writer.int8(record.state)
    writer.text(record.transactional_id)
    writer.int64(record.number)
    writer.int64(record.write_id)
    writer.int64(record.task)
    writer.int64(record.attempt)
    writer.int32(record.timeout_ms)
    writer.int64(record.started_ms)

    topics: dict[tuple[str, TopicId], list[StagedPartition]] = {}
    for each in record.partitions:
        topics.setdefault((each.topic, each.topic_id), []).append(each)

    def put_partition(each: StagedPartition) -> None:
        writer.int32(each.partition)
        writer.int64(each.count)
        writer.int32(each.last_sequence)
        writer.end()

    def put_topic(topic: tuple[str, TopicId]) -> None:
        writer.text(topic[0])
        writer.raw(topic[1])
        writer.items(topics[topic], put_partition)
        writer.end()

    writer.items(topics, put_topic)


def _decode_staged(kind: int, key: FieldReader, value: bytes | None) -> StagedRecord:
    if kind == STAGED_NAME:
        name = key.text()
        if value is None:
            return StagedNameForgotten(transactional_id=name)
        return _staged_name(name, _staged_body(value))
    producer_id = key.int64()
    if value is None:
        return ProducerIdForgotten(producer_id=producer_id)
    body = _staged_body(value)
    epoch = body.int16()
    state = body.int8()
    if state == FREE:
        body.end()
        return FreeProducerId(producer_id=producer_id, producer_epoch=epoch)
    if state == AttemptState.COMMITTING:
        raise MalformedField("the state of an attempt is COMMITTING, which is never stored")
    attempt = StagedAttempt(
        producer_id=producer_id,
        producer_epoch=epoch,
        state=AttemptState(state),
        transactional_id=body.text(),
        number=body.int64(),
        write_id=body.int64(),
        task=body.int64(),
        attempt=body.int64(),
        timeout_ms=body.int32(),
        started_ms=body.int64(),
        partitions=tuple(sorted(chain(*body.items(lambda: _staged_topic(body))))),
    )
    body.end()
    return attempt


def _staged_body(value: bytes) -> FieldReader:
    body = FieldReader(value)
    version = body.int16()
    if version != STAGED_VERSION:
        raise MalformedField(f"version {version} is unknown; the known one is {STAGED_VERSION}")
    body.flexible = True
    return body


def _staged_name(name: str, body: FieldReader) -> StagedName:
    def producer() -> tuple[int, int]:
        found = body.int64(), body.int16()
        body.end()
        return found

    found = StagedName(
        transactional_id=name,
        last_committed=body.int64(),
        committed_write_id=body.int64(),
        committed_count=body.int64(),
        write_id=body.int64(),
        number=body.int64(),
        fenced_write_id=body.int64(),
        committing=tuple(body.items(producer)),
        updated_ms=body.int64(),
    )
    body.end()
    return found


def _staged_topic(body: FieldReader) -> list[StagedPartition]:
    topic = body.text()
    topic_id = TopicId(body.raw(16))

    def partition() -> StagedPartition:
        found = StagedPartition(
            topic=topic,
            topic_id=topic_id,
            partition=body.int32(),
            count=body.int64(),
            last_sequence=body.int32(),
        )
        body.end()
        return found

    partitions = body.items(partition)
    body.end()
    return partitions
