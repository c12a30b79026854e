"""Producer ids for idempotent producers; there are no transactions yet.

An id without transactions suffices to detect duplicates. A transactional id is rejected, since
there is no transaction coordinator.
"""

from typing import Final

from ..broker.shell.producer_ids import ProducerIds
from ..errors import InvalidRequest, NotImplementedHere
from ..ids import ProducerIdentity
from .metadata_access import MetadataAccess
from .request_context import RequestContext

PRODUCER_EPOCH_MAX: Final = 2**15 - 1  # a 16-bit field of batches
NO_PRODUCER_ID: Final = -1


class ProducerAdmin:
    """The operations of idempotent producers."""

    def __init__(self, metadata: MetadataAccess, ids: ProducerIds) -> None:
        self._metadata = metadata
        self._ids = ids

    async def init_producer_id(
        self, transactional_id: str, current: ProducerIdentity | None, context: RequestContext
    ) -> ProducerIdentity:
        """Return a new producer id with epoch 0. For a producer with an id (`current`), return its
        next epoch, or a new id once the epochs are used up."""
        if transactional_id:
            raise NotImplementedHere(
                "transactional_id: transactions are not supported; leave it empty for an idempotent"
                " producer's id"
            )
        if current is not None and current.producer_id != NO_PRODUCER_ID:
            _check(current)
            if current.producer_epoch < PRODUCER_EPOCH_MAX:
                return ProducerIdentity(current.producer_id, current.producer_epoch + 1)
        # the caller gets the controller's error
        timeout_ms = self._metadata.relay_ms(context)
        return ProducerIdentity(await self._ids.take(timeout_ms=timeout_ms), 0)


def _check(current: ProducerIdentity) -> None:
    if current.producer_id < 0:
        raise InvalidRequest(
            f"current.producer_id: {current.producer_id}; give the id of an earlier response, or"
            " -1 for none"
        )
    if not 0 <= current.producer_epoch <= PRODUCER_EPOCH_MAX:
        raise InvalidRequest(
            f"current.producer_epoch: {current.producer_epoch}; give 0..{PRODUCER_EPOCH_MAX}"
        )
