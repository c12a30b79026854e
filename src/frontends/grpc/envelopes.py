"""Codecs of messages with batches, without the copies of a protobuf message object.

A protobuf message copies every `bytes` field when it is parsed, read, assigned and serialized. For
messages that carry whole batches that is most of the work. So a produce request is a view of the
received bytes, and a fetch or subscribe response is joined once from its parts. All other fields
are encoded by protobuf, and property tests compare both directions with the generated messages.
Pure.

The classes here take the place of a message class in a `Method`: they have the one of its methods
that their direction needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...broker import FetchOutcome
from ...proto import log_pb2
from ...runtime import Buffer
from ...runtime.protobuf_fields import (
    INT32,
    INT64,
    LENGTH,
    VARINT,
    EncodedMessage,
    Parts,
    field_at,
    number_of,
    prefix,
    signed,
    text_of,
)
from .translation import fill_fetch_result

_CORRELATION_ID: Final = number_of(log_pb2.ProduceRequest, "correlation_id")
_ACKS: Final = number_of(log_pb2.ProduceRequest, "acks")
_TIMEOUT_MS: Final = number_of(log_pb2.ProduceRequest, "timeout_ms")
_PARTITIONS: Final = number_of(log_pb2.ProduceRequest, "partitions")
_TRANSACTIONAL_ID: Final = number_of(log_pb2.ProduceRequest, "transactional_id")
_TOPIC: Final = number_of(log_pb2.PartitionRecords, "topic")
_PARTITION: Final = number_of(log_pb2.PartitionRecords, "partition")
_LEADER_EPOCH: Final = number_of(log_pb2.PartitionRecords, "leader_epoch")
_RECORDS: Final = number_of(log_pb2.PartitionRecords, "records")
_TOPIC_ID: Final = number_of(log_pb2.PartitionRecords, "topic_id")
_RESULTS: Final = Parts(log_pb2.FetchResponse, "results", log_pb2.FetchResult, "records")
_BATCHES: Final = number_of(log_pb2.SubscribeResponse, "batches")


# --- decoding ------------------------------------------------------------------------------------


@dataclass(slots=True)
class PartitionBatches:
    """One partition of a produce request."""

    topic: str = ""
    partition: int = 0
    leader_epoch: int | None = None  # None: not checked
    records: Buffer = b""  # a view of the request's bytes
    topic_id: bytes = b""  # empty: not checked


class ProduceBatches:
    """A `ProduceRequest` with its batches as views of the received bytes."""

    __slots__ = ("acks", "correlation_id", "partitions", "timeout_ms", "transactional_id")

    def __init__(self) -> None:
        self.correlation_id = 0
        self.acks = 0
        self.timeout_ms = 0
        self.partitions: list[PartitionBatches] = []
        self.transactional_id = ""  # empty: not transactional

    @classmethod
    def FromString(cls, raw: bytes) -> "ProduceBatches":
        """Parse the message; raises DecodeError as the generated class does."""
        request = cls()
        view = memoryview(raw)
        at, end = 0, len(raw)
        while at < end:
            field, kind, value, at = field_at(raw, at, end)
            if kind == VARINT:
                if field == _CORRELATION_ID:
                    request.correlation_id = signed(value, INT64)
                elif field == _ACKS:
                    request.acks = signed(value, INT32)
                elif field == _TIMEOUT_MS:
                    request.timeout_ms = signed(value, INT32)
            elif kind == LENGTH and field == _PARTITIONS:
                request.partitions.append(_partition(raw, view, value, at))
            elif kind == LENGTH and field == _TRANSACTIONAL_ID:
                request.transactional_id = text_of(raw[value:at])
        return request


def _partition(raw: bytes, view: memoryview, at: int, end: int) -> PartitionBatches:
    part = PartitionBatches()
    while at < end:
        field, kind, value, at = field_at(raw, at, end)
        if kind == LENGTH:
            if field == _RECORDS:
                part.records = view[value:at]
            elif field == _TOPIC:
                part.topic = text_of(raw[value:at])
            elif field == _TOPIC_ID:
                part.topic_id = raw[value:at]
        elif kind == VARINT:
            if field == _PARTITION:
                part.partition = signed(value, INT32)
            elif field == _LEADER_EPOCH:
                part.leader_epoch = signed(value, INT32)
    return part


# --- encoding ------------------------------------------------------------------------------------


def encode_fetch(
    outcomes: Sequence[FetchOutcome], *, metadata_offset: int
) -> EncodedMessage[log_pb2.FetchResponse]:
    """Encode a `FetchResponse`."""
    results = []
    for outcome in outcomes:
        result = log_pb2.FetchResult()
        fill_fetch_result(result, outcome)
        results.append((result, (outcome.records,) if outcome.error is None else ()))
    return _RESULTS.join(log_pb2.FetchResponse(metadata_offset=metadata_offset), results)


def encode_batches(
    rest: log_pb2.SubscribeResponse, batches: bytes
) -> EncodedMessage[log_pb2.SubscribeResponse]:
    """Encode the `SubscribeResponse` `rest` with these batches."""
    head = rest.SerializeToString(deterministic=True)
    return EncodedMessage((head + prefix(_BATCHES, len(batches)), batches))
