"""The producer ids of a log."""

from ...storage import Log
from ..requests import ActiveProducer


def active_producers(log: Log) -> list[ActiveProducer]:
    """Return the producers of a log by ascending id."""
    return [
        ActiveProducer(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
            last_timestamp_ms=entry.batches[-1].timestamp if entry.batches else -1,
            coordinator_epoch=entry.coordinator_epoch,
            transaction_start=entry.transaction_start,
        )
        for producer_id, entry in sorted(log.producers.states.entries())
    ]
