"""The service `Transactions`, as far as it is implemented: producer ids for idempotent
producers."""

from collections.abc import Mapping

from ...api.request_context import RequestContext
from ...api.transactions import NO_PRODUCER_ID, TransactionAdmin
from ...errors import NotImplementedHere
from ...ids import ProducerIdentity
from ...proto import transactions_pb2 as pb
from ...runtime import CallContext, Handler
from ...services import TRANSACTIONS_INIT_PRODUCER_ID


class TransactionsService:
    """Handlers of `quorumlog.v1.Transactions`."""

    def __init__(self, transactions: TransactionAdmin) -> None:
        self._transactions = transactions

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (Handler(TRANSACTIONS_INIT_PRODUCER_ID, self.init_producer_id),)
        return {handler.method.path: handler for handler in table}

    async def init_producer_id(
        self, request: pb.InitProducerIdRequest, context: CallContext
    ) -> pb.InitProducerIdResponse:
        """Return a new producer id, or the next epoch of the producer's present id."""
        if request.transactional_id:
            raise NotImplementedHere(
                "transactional_id: transactions are not supported; leave it empty for an idempotent"
                " producer's id"
            )
        current = None
        if request.HasField("current") and request.current.producer_id != NO_PRODUCER_ID:
            current = ProducerIdentity(request.current.producer_id, request.current.producer_epoch)
        given = await self._transactions.init_producer_id(
            "", 0, current, RequestContext(context.deadline_ms)
        )
        producer = pb.ProducerIdentity(
            producer_id=given.producer_id, producer_epoch=given.producer_epoch
        )
        return pb.InitProducerIdResponse(producer=producer)
