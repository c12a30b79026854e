"""The service `Mirror`: what a mirror copies into the partitions that this node leads."""

import asyncio
from collections.abc import Mapping

from ...broker.shell.mirroring import Mirroring, MirrorSpec
from ...errors import QuorumlogError
from ...metadata.shell.publisher import MetadataPublisher
from ...proto import mirror_pb2 as pb
from ...runtime import CallContext, Handler, Runtime
from ...services import MIRROR_APPEND
from .translation import fill_error
from .validation import check_partition, check_places, check_topic_id, read_timeout_ms


class MirrorService:
    """Handlers of `quorumlog.v1.Mirror`."""

    def __init__(self, runtime: Runtime, mirroring: Mirroring, metadata: MetadataPublisher) -> None:
        self._runtime = runtime
        self._mirroring = mirroring
        self._metadata = metadata

    def handlers(self) -> Mapping[str, Handler]:
        """Return the table that `Network.serve` takes."""
        table = (Handler(MIRROR_APPEND, self.append),)
        return {handler.method.path: handler for handler in table}

    async def append(
        self, request: pb.MirrorAppendRequest, context: CallContext
    ) -> pb.MirrorAppendResponse:
        """Append to each partition for itself, all at once; say of each how far it is."""
        timeout_ms = read_timeout_ms(request.timeout_ms)
        check_places("partitions", request.partitions)
        deadline_ms = self._runtime.clock.now_ms() + timeout_ms

        async def one(part: pb.MirrorPartition) -> pb.MirrorResult:
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
            except QuorumlogError as error:
                fill_error(result.error, error, part.topic, part.partition)
                return result
            spec = MirrorSpec(
                topic=part.topic,
                partition=part.partition,
                topic_id=part.topic_id,
                source=part.source,
                log_end_offset=part.log_end_offset,
                records=part.records,
            )
            outcome = await self._mirroring.append(spec, deadline_ms)
            result.log_start_offset = outcome.log_start_offset
            result.log_end_offset = outcome.log_end_offset
            result.high_watermark = outcome.high_watermark
            if outcome.error is not None:
                fill_error(result.error, outcome.error, part.topic, part.partition)
            return result

        results = await asyncio.gather(*map(one, request.partitions))
        return pb.MirrorAppendResponse(results=results, metadata_offset=self._metadata.image.offset)
