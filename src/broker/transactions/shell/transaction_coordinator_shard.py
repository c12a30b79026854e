"""The coordinator of the transactional ids of one partition of `__transaction_state`."""

import logging
from collections.abc import Callable
from typing import Any, Final

from ....errors import MessageTooLarge
from ....ids import Epoch
from ....records import Record
from ...coordinator.shell.coordinator_shard import BatchLimits, CoordinatorDeps, CoordinatorShard
from ...coordinator.shell.internal_topic import CoordinatorNames
from ..config import TransactionConfig
from ..formats import decode, encode
from ..records import TransactionRecord
from ..requests import DescribeStage, DescribeTransaction, VerifyPartitions, WriteMarkers
from ..shard import TransactionShard
from .marker_sender import MarkerSender
from .metrics import TransactionMetrics

_LOG = logging.getLogger("quorumlog.transactions")

READ_ONLY: Final = (DescribeStage, DescribeTransaction, VerifyPartitions)


class TransactionCoordinatorShard(CoordinatorShard[TransactionShard]):
    """Stores the decisions of a `TransactionShard`, and has the markers of its decided transactions
    written."""

    def __init__(
        self,
        deps: CoordinatorDeps,
        names: CoordinatorNames,
        partition: int,
        leader_epoch: Epoch,
        *,
        config: TransactionConfig,
        figures: TransactionMetrics,
        sender: MarkerSender,
        draw_producer_id: Callable[[], int | None],
    ) -> None:
        """`draw_producer_id` returns an unused producer id, None if none is at hand."""
        super().__init__(deps, names, partition, leader_epoch)
        self._config = config
        self._figures = figures
        self._sender = sender
        self._draw_producer_id = draw_producer_id

    def _new_state(self, limits: BatchLimits) -> TransactionShard:
        return TransactionShard(self._config, self._draw_producer_id)

    def _encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        return encode(record)

    def _decode(self, record: Record) -> TransactionRecord | None:
        return decode(record.key, record.value, offset=record.offset, partition=self.partition)

    def _check_request(self, request: Any) -> None:
        pass

    def _is_read_only(self, request: Any) -> bool:
        return isinstance(request, READ_ONLY)

    def _skips_damage(self) -> bool:
        return False  # a lost record could decide a transaction differently in its partitions

    def _log_loaded(self, state: TransactionShard, records: int, took_ms: int) -> None:
        _LOG.info(
            "transactions.loaded partition=%d leader_epoch=%d records=%d ids=%d took_ms=%d",
            self.partition,
            self.leader_epoch,
            records,
            state.id_count,
            took_ms,
        )

    def _too_large(self, size: int, limit: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"the state of the transaction has {size} bytes, the limit is {limit}; write to fewer"
            " partitions in one transaction"
        )

    def _start(self, effect: WriteMarkers) -> None:
        figures = self._figures
        if effect.abort_reason is not None:
            reason = effect.abort_reason.value
            figures.aborts[reason] = figures.aborts.get(reason, 0) + 1
        elif effect.is_commit:
            figures.commits += 1
        if effect.partitions:
            self._sender.start(self.partition, self.leader_epoch, effect)

    def _state_dropped(self) -> None:
        self._sender.drop(self.partition, self.leader_epoch)
