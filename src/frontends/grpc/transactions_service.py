"""The service `Transactions`, as far as it is offered: producer ids for idempotent producers.

An id alone makes repeats known; what has a transactional id is refused, since nobody here could
end its transactions.
"""

from collections.abc import Mapping

from ...broker.shell.producer_ids import ProducerIds
from ...errors import InvalidRequest, NotImplementedHere
from ...proto import transactions_pb2 as pb
from ...runtime import CallContext, Handler, Runtime
from ...services import TRANSACTIONS_INIT_PRODUCER_ID
from .metadata_access import RELAY_ANSWER_MS
from .validation import left_ms

PRODUCER_EPOCH_MAX = 2**15 - 1  # batches carry it in 16 bits


class TransactionsService:
    """Handlers of `quorumlog.v1.Transactions`."""

    def __init__(self, runtime: Runtime, ids: ProducerIds) -> None:
        self._runtime = runtime
        self._ids = ids

    def handlers(self) -> Mapping[str, Handler]:
        """Return the table that `Network.serve` takes."""
        table = (Handler(TRANSACTIONS_INIT_PRODUCER_ID, self.init_producer_id),)
        return {handler.method.path: handler for handler in table}

    async def init_producer_id(
        self, request: pb.InitProducerIdRequest, context: CallContext
    ) -> pb.InitProducerIdResponse:
        """Give a producer an id of its own with epoch 0; one that has an id gets the next epoch of
        it, and another id once the epochs are used up."""
        if request.transactional_id:
            raise NotImplementedHere(
                "transactions are not offered yet: leave transactional_id empty for an id that "
                "makes repeats known"
            )
        current = request.current
        if request.HasField("current") and current.producer_id != -1:
            _check(current)
            if current.producer_epoch < PRODUCER_EPOCH_MAX:
                return _answer(current.producer_id, current.producer_epoch + 1)
        left = left_ms(context, self._runtime.clock.now_ms())
        timeout_ms = left - min(left // 4, RELAY_ANSWER_MS)  # the caller hears what is in the way
        return _answer(await self._ids.take(timeout_ms=timeout_ms), 0)


def _check(current: pb.ProducerIdentity) -> None:
    if current.producer_id < 0:
        raise InvalidRequest(
            f"current.producer_id is {current.producer_id}: give what an earlier call answered, or "
            "-1 for none"
        )
    if not 0 <= current.producer_epoch <= PRODUCER_EPOCH_MAX:
        raise InvalidRequest(
            f"current.producer_epoch is {current.producer_epoch}: give 0..{PRODUCER_EPOCH_MAX}"
        )


def _answer(producer_id: int, producer_epoch: int) -> pb.InitProducerIdResponse:
    producer = pb.ProducerIdentity(producer_id=producer_id, producer_epoch=producer_epoch)
    return pb.InitProducerIdResponse(producer=producer)
