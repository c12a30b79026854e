"""Batches in their envelopes without the copies that a message object would make.

A protobuf message copies every `bytes` field on its way in, on access, on assignment and on its way
out. For the three messages that carry whole batches that is most of the work, so their batches
are taken by hand: a produce request is a view of the bytes that arrived, a fetch or subscribe
response is joined once from its parts. Everything around the batches is still protobuf's, and
property tests hold both directions against the generated messages. Pure.

The classes here stand where the network expects a message class: they have the one method of it
that their direction needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from google.protobuf.message import DecodeError

from ...broker import FetchOutcome
from ...proto import log_pb2
from ...runtime import Buffer
from .translation import fill_fetch_result

M = TypeVar("M")

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2
_FIXED32: Final = 5
_INT32: Final = 1 << 32
_INT64: Final = 1 << 64


def _number(message: Any, field: str) -> int:
    """Return a field's number as the .proto has it."""
    number: int = message.DESCRIPTOR.fields_by_name[field].number
    return number


_CORRELATION_ID: Final = _number(log_pb2.ProduceRequest, "correlation_id")
_ACKS: Final = _number(log_pb2.ProduceRequest, "acks")
_TIMEOUT_MS: Final = _number(log_pb2.ProduceRequest, "timeout_ms")
_PARTITIONS: Final = _number(log_pb2.ProduceRequest, "partitions")
_TOPIC: Final = _number(log_pb2.PartitionRecords, "topic")
_PARTITION: Final = _number(log_pb2.PartitionRecords, "partition")
_LEADER_EPOCH: Final = _number(log_pb2.PartitionRecords, "leader_epoch")
_RECORDS: Final = _number(log_pb2.PartitionRecords, "records")
_TOPIC_ID: Final = _number(log_pb2.PartitionRecords, "topic_id")
_RESULTS: Final = _number(log_pb2.FetchResponse, "results")
_RESULT_RECORDS: Final = _number(log_pb2.FetchResult, "records")
_BATCHES: Final = _number(log_pb2.SubscribeResponse, "batches")


# --- in ------------------------------------------------------------------------------------------


@dataclass(slots=True)
class PartitionBatches:
    """One partition of a produce request."""

    topic: str = ""
    partition: int = 0
    leader_epoch: int | None = None  # None: not checked
    records: Buffer = b""  # a view of the request's bytes
    topic_id: bytes = b""  # empty: not checked


class ProduceBatches:
    """A `ProduceRequest` whose batches are views of the bytes that arrived."""

    __slots__ = ("acks", "correlation_id", "partitions", "timeout_ms")

    def __init__(self) -> None:
        self.correlation_id = 0
        self.acks = 0
        self.timeout_ms = 0
        self.partitions: list[PartitionBatches] = []

    @classmethod
    def FromString(cls, raw: bytes) -> "ProduceBatches":
        """Parse; raises DecodeError as the message would."""
        request = cls()
        view = memoryview(raw)
        at, end = 0, len(raw)
        while at < end:
            field, kind, value, at = _field(raw, at, end)
            if kind == _VARINT:
                if field == _CORRELATION_ID:
                    request.correlation_id = _signed(value, _INT64)
                elif field == _ACKS:
                    request.acks = _signed(value, _INT32)
                elif field == _TIMEOUT_MS:
                    request.timeout_ms = _signed(value, _INT32)
            elif kind == _LENGTH and field == _PARTITIONS:
                request.partitions.append(_partition(raw, view, value, at))
        return request


def _partition(raw: bytes, view: memoryview, at: int, end: int) -> PartitionBatches:
    part = PartitionBatches()
    while at < end:
        field, kind, value, at = _field(raw, at, end)
        if kind == _LENGTH:
            if field == _RECORDS:
                part.records = view[value:at]
            elif field == _TOPIC:
                part.topic = _text(raw[value:at])
            elif field == _TOPIC_ID:
                part.topic_id = raw[value:at]
        elif kind == _VARINT:
            if field == _PARTITION:
                part.partition = _signed(value, _INT32)
            elif field == _LEADER_EPOCH:
                part.leader_epoch = _signed(value, _INT32)
    return part


def _field(raw: bytes, at: int, end: int) -> tuple[int, int, int, int]:
    """Return (field number, wire type, value, position behind it).

    The value of a varint is its unsigned number, of anything else the position of its first byte.
    """
    tag, at = _varint(raw, at, end)
    field, kind = tag >> 3, tag & 7
    if not 1 <= field < 1 << 29:
        raise DecodeError(f"field number {field}")
    if kind == _VARINT:
        value, behind = _varint(raw, at, end)
        return field, kind, value, behind
    if kind == _LENGTH:
        size, at = _varint(raw, at, end)
    elif kind == _FIXED64:
        size = 8
    elif kind == _FIXED32:
        size = 4
    else:
        raise DecodeError(f"wire type {kind} of field {field}")
    if size > end - at:
        raise DecodeError(f"field {field} runs off the end")
    return field, kind, at, at + size


def _varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value % _INT64, at
        shift += 7
    raise DecodeError("a varint does not end")


def _signed(value: int, modulus: int) -> int:
    value %= modulus
    return value - modulus if value >= modulus >> 1 else value


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"a text is not UTF-8: {error}") from None


# --- out -----------------------------------------------------------------------------------------


class Encoded(Generic[M]):
    """A message of class M as the parts of its encoding; joined once, when it leaves."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Sequence[Buffer]) -> None:
        self._parts = parts

    def SerializeToString(self, *, deterministic: bool = False) -> bytes:
        """Return the message's bytes; they are the same either way."""
        return b"".join(self._parts)


def encode_fetch(
    outcomes: Sequence[FetchOutcome], *, metadata_offset: int
) -> Encoded[log_pb2.FetchResponse]:
    """Encode a `FetchResponse`."""
    parts: list[Buffer] = []
    for outcome in outcomes:
        result = log_pb2.FetchResult()
        fill_fetch_result(result, outcome)
        head = result.SerializeToString(deterministic=True)
        if outcome.error is None and outcome.records:
            head += _prefix(_RESULT_RECORDS, len(outcome.records))
            parts.append(_prefix(_RESULTS, len(head) + len(outcome.records)) + head)
            parts.append(outcome.records)
        else:
            parts.append(_prefix(_RESULTS, len(head)) + head)
    rest = log_pb2.FetchResponse(metadata_offset=metadata_offset)
    parts.append(rest.SerializeToString(deterministic=True))
    return Encoded(parts)


def encode_batches(
    rest: log_pb2.SubscribeResponse, batches: bytes
) -> Encoded[log_pb2.SubscribeResponse]:
    """Encode a `SubscribeResponse` that is `rest` with these batches."""
    head = rest.SerializeToString(deterministic=True)
    return Encoded((head + _prefix(_BATCHES, len(batches)), batches))


def _prefix(field: int, size: int) -> bytes:
    """Return the tag and length in front of `size` bytes of a field."""
    return _encode_varint(field << 3 | _LENGTH) + _encode_varint(size)


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
