"""The service `Transactions`, as far as it is implemented: producer ids for idempotent producers.

An id without transactions suffices to detect duplicates. Requests with a transactional id are
rejected, since there is no transaction coordinator.
"""

from collections.abc import Mapping

from ...broker.shell.producer_ids import ProducerIds
from ...errors import InvalidRequest, NotImplementedHere
from ...proto import transactions_pb2 as pb
from ...runtime import CallContext, Handler, Runtime
from ...services import TRANSACTIONS_INIT_PRODUCER_ID
from .metadata_access import RELAY_ANSWER_MS
from .validation import left_ms

PRODUCER_EPOCH_MAX = 2**15 - 1  # a 16-bit field of batches


class TransactionsService:
    """Handlers of `quorumlog.v1.Transactions`."""

    def __init__(self, runtime: Runtime, ids: ProducerIds) -> None:
        self._runtime = runtime
        self._ids = ids

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (Handler(TRANSACTIONS_INIT_PRODUCER_ID, self.init_producer_id),)
        return {handler.method.path: handler for handler in table}

    async def init_producer_id(
        self, request: pb.InitProducerIdRequest, context: CallContext
    ) -> pb.InitProducerIdResponse:
        """Return a new producer id with epoch 0. For a producer with an id, return its next epoch,
        or a new id once the epochs are used up."""
        if request.transactional_id:
            raise NotImplementedHere(
                "transactional_id: transactions are not supported; leave it empty for an idempotent"
                " producer's id"
            )
        current = request.current
        if request.HasField("current") and current.producer_id != -1:
            _check(current)
            if current.producer_epoch < PRODUCER_EPOCH_MAX:
                return _answer(current.producer_id, current.producer_epoch + 1)
        left = left_ms(context, self._runtime.clock.now_ms())
        # the caller gets the controller's error
        timeout_ms = left - min(left // 4, RELAY_ANSWER_MS)
        return _answer(await self._ids.take(timeout_ms=timeout_ms), 0)


def _check(current: pb.ProducerIdentity) -> None:
    if current.producer_id < 0:
        raise InvalidRequest(
            f"current.producer_id: {current.producer_id}; give the id of an earlier response, or"
            " -1 for none"
        )
    if not 0 <= current.producer_epoch <= PRODUCER_EPOCH_MAX:
        raise InvalidRequest(
            f"current.producer_epoch: {current.producer_epoch}; give 0..{PRODUCER_EPOCH_MAX}"
        )


def _answer(producer_id: int, producer_epoch: int) -> pb.InitProducerIdResponse:
    producer = pb.ProducerIdentity(producer_id=producer_id, producer_epoch=producer_epoch)
    return pb.InitProducerIdResponse(producer=producer)
