"""The control batch that ends a transaction: one record, a marker, hidden from applications.

Its key is (version int16 = 0, type int16: 0 abort, 1 commit), its value (version int16 = 0,
coordinator epoch int32), both big endian. Newer writers may append fields and raise the version, so
bytes after these fields are ignored. Other types of control records exist (a quorum's snapshots
contain them); they end no transaction.
"""

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from ..errors import CorruptionError, MessageTooLarge, UnsupportedCompression
from ..ids import ProducerIdentity
from .batch import BatchHeader
from .codec import decode_batch, encode_batch
from .compression import Buffer
from .record import Record

KEY: Final = Struct(">hh")
VALUE: Final = Struct(">hi")
VERSION: Final = 0

INFLATE_MAX: Final = 64 * 1024
"""Bytes a control batch may inflate to; a marker has 6 bytes of value."""


class MarkerType(IntEnum):
    """The outcome of a transaction; the number in the record's key."""

    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """The end of a transaction of the batch's producer."""

    kind: MarkerType
    coordinator_epoch: int  # of the writer; an older epoch than the last one is fenced


EPOCH_BUMP_VERSION: Final = 2
"""The first transaction version in which the end of a transaction raises the producer's epoch, so
that each transaction, and its marker, has an epoch of its own (KIP-890)."""


class TransactionMarker(NamedTuple):
    """The decision of a transaction coordinator that a partition is to store as a marker."""

    producer: ProducerIdentity  # of the marker's batch
    coordinator_epoch: int  # the leader epoch of the coordinator's partition
    is_commit: bool
    transaction_version: int  # see EPOCH_BUMP_VERSION

    @property
    def kind(self) -> MarkerType:
        """The type of the marker."""
        return MarkerType.COMMIT if self.is_commit else MarkerType.ABORT


def encode_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    kind: MarkerType,
    coordinator_epoch: int,
    timestamp_ms: int,
    leader_epoch: int = -1,
    base_offset: int = 0,
) -> bytes:
    """Return the control batch that ends a producer's transaction."""
    record = Record(
        offset=base_offset,
        timestamp_ms=timestamp_ms,
        key=KEY.pack(VERSION, kind),
        value=VALUE.pack(VERSION, coordinator_epoch),
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def parse_marker(batch: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """Return the marker in the control batch at `position`; None for another control record, or an
    empty batch left by compaction.

    Raises CorruptionError if the batch is torn, its CRC is wrong, its codec is unknown, it inflates
    to more than INFLATE_MAX or the record is too short.
    """
    if header.record_count == 0:
        return None
    view = memoryview(batch)[position : position + header.size]
    try:
        record = decode_batch(view, inflate_limit=INFLATE_MAX)[0]
    except (MessageTooLarge, UnsupportedCompression) as error:
        raise CorruptionError(
            f"the control batch cannot be read: {error.message}", position=position
        ) from None
    key, value = record.key or b"", record.value or b""
    if len(key) < KEY.size:
        raise CorruptionError(
            f"the key of a control record has {len(key)} bytes; {KEY.size} are needed",
            position=position,
        )
    _, kind = KEY.unpack_from(key)
    if kind not in (MarkerType.ABORT, MarkerType.COMMIT):
        return None
    if len(value) < VALUE.size:
        raise CorruptionError(
            f"the value of a marker has {len(value)} bytes; {VALUE.size} are needed",
            position=position,
        )
    _, coordinator_epoch = VALUE.unpack_from(value)
    return Marker(MarkerType(kind), coordinator_epoch)
