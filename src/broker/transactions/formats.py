"""The format of `__transaction_state`: Kafka's own key and value, so that Kafka's tools read them.

The key starts with its type, the value with its version. Values are written in version 1, which has
tagged fields; both versions are read. Other key types are skipped, as Kafka's readers do. The
schemas are `TransactionLogKey` and `TransactionLogValue` of Kafka's transaction coordinator.
"""

from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

from ...errors import CorruptionError
from ..coordinator.fields import INT16, INT64, FieldReader, FieldWriter, MalformedField
from .config import EPOCH_BUMP_VERSION, TRANSACTIONS_TOPIC
from .records import (
    CLIENT_EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionalIdForgotten,
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)

Encoded: TypeAlias = tuple[bytes, bytes | None]

TRANSACTION: Final = 0
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
_STORED: Final = (TransactionState.EMPTY, TransactionState.ONGOING, *_ENDED)


def encode(record: TransactionRecord) -> Encoded:
    """Return key and value; the value of a tombstone is None.

    Raises ValueError if a string or a number does not fit into its field.
    """
    key = FieldWriter(TRANSACTION, flexible=False)
    key.text(record.transactional_id)
    if isinstance(record, TransactionalIdForgotten):
        return bytes(key.out), None
    return bytes(key.out), _value(record)


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
        raise CorruptionError(
            f"{TRANSACTIONS_TOPIC}: record {offset} is malformed: {error}; the record is skipped",
            position=offset,
            topic=TRANSACTIONS_TOPIC,
            partition=partition,
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
    if reader.int16() != TRANSACTION:
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
    producer_id = body.int64()
    epoch = body.int16()
    timeout_ms = body.int32()
    state = TransactionState(body.int8())
    if state not in _STORED:
        raise MalformedField(f"state {state.kafka_name} is never stored")
    topics = body.maybe_items(lambda: _topic(body)) or []
    updated_ms = body.int64()
    started_ms = body.int64()
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
