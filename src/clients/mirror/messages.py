"""Fetch and append messages of a mirror, without copies of the batches.

Generated message classes would copy every batch. Here batches stay views of the received bytes
until they are joined once into the append request. Pure. Property tests compare the encoding with
the generated messages.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

from ...proto import log_pb2
from ...proto import mirror_pb2 as pb
from ...runtime import Buffer, Method
from ...runtime.protobuf_fields import EncodedMessage, Parts
from ...services import LOG_FETCH, MIRROR_APPEND

_RESULTS: Final = Parts(log_pb2.FetchResponse, "results", log_pb2.FetchResult, "records")
_PARTITIONS: Final = Parts(pb.MirrorAppendRequest, "partitions", pb.MirrorPartition, "records")


class FetchedBatches:
    """A `FetchResponse` with its batches as views of the received bytes."""

    __slots__ = ("results",)

    def __init__(self, results: list[tuple[log_pb2.FetchResult, memoryview]]) -> None:
        self.results = results

    @classmethod
    def FromString(cls, raw: bytes) -> "FetchedBatches":
        """Parse; raise DecodeError as the message class does."""
        return cls(_RESULTS.split(raw)[1])


def encode_append(
    timeout_ms: int, partitions: Iterable[tuple[pb.MirrorPartition, Sequence[Buffer]]]
) -> EncodedMessage[pb.MirrorAppendRequest]:
    """Encode a `MirrorAppendRequest`: partitions without records, each with its batches."""
    return _PARTITIONS.join(pb.MirrorAppendRequest(timeout_ms=timeout_ms), partitions)


FETCH: Final[Method[log_pb2.FetchRequest, Any]] = Method(
    LOG_FETCH.path, LOG_FETCH.request, cast("Any", FetchedBatches)
)
APPEND: Final[Method[Any, pb.MirrorAppendResponse]] = Method(
    MIRROR_APPEND.path, cast("Any", EncodedMessage), MIRROR_APPEND.response
)
