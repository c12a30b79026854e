"""The service `Transactions`, as far as it is implemented: producer ids for idempotent
producers."""

from collections.abc import Mapping

from ...api.request_context import RequestContext
from ...api.transactions import ProducerAdmin
from ...ids import ProducerIdentity
from ...proto import transactions_pb2 as pb
from ...runtime import CallContext, Handler
from ...services import TRANSACTIONS_INIT_PRODUCER_ID


class TransactionsService:
    """Handlers of `quorumlog.v1.Transactions`."""

    def __init__(self, producers: ProducerAdmin) -> None:
        self._producers = producers

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (Handler(TRANSACTIONS_INIT_PRODUCER_ID, self.init_producer_id),)
        return {handler.method.path: handler for handler in table}

    async def init_producer_id(
        self, request: pb.InitProducerIdRequest, context: CallContext
    ) -> pb.InitProducerIdResponse:
        """Return a new producer id, or the next epoch of the producer's present id."""
        current = None
        if request.HasField("current"):
            current = ProducerIdentity(request.current.producer_id, request.current.producer_epoch)
        given = await self._producers.init_producer_id(
            request.transactional_id, current, RequestContext(context.deadline_ms)
        )
        producer = pb.ProducerIdentity(
            producer_id=given.producer_id, producer_epoch=given.producer_epoch
        )
        return pb.InitProducerIdResponse(producer=producer)
