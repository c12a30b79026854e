"""The service `Mirror`: appends of a mirror to partitions that this node leads."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

from ...api.authorizer import Authorizer
from ...api.validation import (
    check_partition,
    check_place_count,
    check_places,
    check_topic_id,
    read_timeout_ms,
)
from ...broker.shell.mirror import MirrorSpec, MirrorWriter
from ...errors import QuorumlogError
from ...metadata.acls import AclOperation, AclResourceType
from ...metadata.shell.publisher import MetadataPublisher
from ...proto import mirror_pb2 as pb
from ...records.batch import BATCHES_A_STEP, count_batches
from ...runtime import CallContext, Handler, Method, Runtime
from ...runtime.protobuf_fields import Parts
from ...runtime.steps import step_counter
from ...services import MIRROR_APPEND
from .translation import fill_error

_PARTITIONS: Final = Parts(pb.MirrorAppendRequest, "partitions", pb.MirrorPartition, "records")


class MirrorBatches:
    """A `MirrorAppendRequest` with its batches as views of the received bytes."""

    __slots__ = ("partitions", "timeout_ms")

    def __init__(
        self, timeout_ms: int, partitions: list[tuple[pb.MirrorPartition, memoryview]]
    ) -> None:
        self.timeout_ms = timeout_ms
        self.partitions = partitions

    @classmethod
    def FromString(cls, raw: bytes) -> "MirrorBatches":
        """Parse the message; raises DecodeError as the generated class does."""
        rest, partitions = _PARTITIONS.split(raw)
        return cls(pb.MirrorAppendRequest.FromString(rest).timeout_ms, partitions)


# The method MIRROR_APPEND with a request class that has batches as views.
_APPEND: Final[Method[Any, pb.MirrorAppendResponse]] = Method(
    MIRROR_APPEND.path,
    cast("Any", MirrorBatches),
    MIRROR_APPEND.response,
    request_bytes_max=MIRROR_APPEND.request_bytes_max,
)


_WRITE_TOPIC: Final = (AclOperation.WRITE, AclResourceType.TOPIC)


class MirrorService:
    """Handlers of `quorumlog.v1.Mirror`."""

    def __init__(
        self,
        runtime: Runtime,
        mirroring: MirrorWriter,
        metadata: MetadataPublisher,
        authorizer: Authorizer,
    ) -> None:
        self._runtime = runtime
        self._mirroring = mirroring
        self._metadata = metadata
        self._authorizer = authorizer
        self._take_turn = step_counter(BATCHES_A_STEP)  # of all calls

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (Handler(_APPEND, self.append),)
        return {handler.method.path: handler for handler in table}

    async def append(self, request: MirrorBatches, context: CallContext) -> pb.MirrorAppendResponse:
        """Append to all partitions concurrently; return each one's offsets or error."""
        timeout_ms = read_timeout_ms(request.timeout_ms)
        check_place_count("partitions", len(request.partitions))
        check_places("partitions", [(part.topic, part.partition) for part, _ in request.partitions])
        deadline_ms = self._runtime.clock.now_ms() + timeout_ms

        async def one(part: pb.MirrorPartition, records: memoryview) -> pb.MirrorResult:
            result = pb.MirrorResult(
                topic=part.topic,
                partition=part.partition,
                log_start_offset=-1,
                log_end_offset=-1,
                high_watermark=-1,
            )
            try:
                check_partition(part.topic, part.partition)
                check_topic_id(part.topic_id)
                self._authorizer.check(context.client, *_WRITE_TOPIC, part.topic)
                await self._take_turn(count_batches(records))
                self._authorizer.check(context.client, *_WRITE_TOPIC, part.topic)
            except QuorumlogError as error:
                fill_error(result.error, error, part.topic, part.partition)
                return result
            spec = MirrorSpec(
                topic=part.topic,
                partition=part.partition,
                topic_id=part.topic_id,
                source=part.source,
                log_end_offset=part.log_end_offset,
                records=records,
            )
            outcome = await self._mirroring.append(spec, deadline_ms)
            result.log_start_offset = outcome.log_start_offset
            result.log_end_offset = outcome.log_end_offset
            result.high_watermark = outcome.high_watermark
            if outcome.error is not None:
                fill_error(result.error, outcome.error, part.topic, part.partition)
            return result

        results = await asyncio.gather(*(one(*each) for each in request.partitions))
        return pb.MirrorAppendResponse(results=results, metadata_offset=self._metadata.image.offset)
