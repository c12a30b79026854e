"""What a mirror reads and sends, without the copies that message objects would make of batches.

A mirror looks at headers alone: what it read stays where it arrived, until it is joined once into
what is sent on. Pure. Held against the generated messages by property tests.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from ...proto import log_pb2
from ...proto import mirror_pb2 as pb
from ...runtime import Buffer, Method
from ...runtime.protobuf_fields import Encoded, Parts, number_of, prefix
from ...services import LOG_FETCH, MIRROR_APPEND

_RESULTS: Final = Parts(log_pb2.FetchResponse, "results", log_pb2.FetchResult, "records")
_PARTITIONS: Final = number_of(pb.MirrorAppendRequest, "partitions")
_RECORDS: Final = number_of(pb.MirrorPartition, "records")


class FetchedBatches:
    """A `FetchResponse` whose batches are views of the bytes that arrived."""

    __slots__ = ("results",)

    def __init__(self, results: list[tuple[log_pb2.FetchResult, memoryview]]) -> None:
        self.results = results

    @classmethod
    def FromString(cls, raw: bytes) -> "FetchedBatches":
        """Parse; raises DecodeError as the message would."""
        return cls(_RESULTS.split(raw)[1])


def encode_append(
    timeout_ms: int, partitions: Iterable[tuple[pb.MirrorPartition, Sequence[Buffer]]]
) -> Encoded[pb.MirrorAppendRequest]:
    """Encode a `MirrorAppendRequest` of partitions without records, each with its batches."""
    parts: list[Buffer] = [
        pb.MirrorAppendRequest(timeout_ms=timeout_ms).SerializeToString(deterministic=True)
    ]
    for partition, batches in partitions:
        head = partition.SerializeToString(deterministic=True)
        size = sum(map(len, batches))
        if size:
            head += prefix(_RECORDS, size)
        parts.append(prefix(_PARTITIONS, len(head) + size) + head)
        parts += batches
    return Encoded(parts)


FETCH: Final[Method[log_pb2.FetchRequest, Any]] = Method(
    LOG_FETCH.path, LOG_FETCH.request, cast("Any", FetchedBatches)
)
APPEND: Final[Method[Any, pb.MirrorAppendResponse]] = Method(
    MIRROR_APPEND.path, cast("Any", Encoded), MIRROR_APPEND.response
)
