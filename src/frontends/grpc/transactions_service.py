"""The service `Transactions`. Its methods are imported at the first call, so that a broker without
producers with an id starts without them (`transaction_calls`)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...api.transactions import TransactionAdmin
from ...broker.groups.shell.coordinator import GroupCoordinator
from ...broker.shell.log_admin import LogAdmin
from ...ids import NodeId
from ...metadata.shell.publisher import MetadataPublisher
from ...runtime import CallContext, Handler, Runtime
from ...services import (
    TRANSACTIONS_ABORT,
    TRANSACTIONS_ABORT_HANGING,
    TRANSACTIONS_ADD_OFFSETS,
    TRANSACTIONS_ADD_PARTITIONS,
    TRANSACTIONS_DESCRIBE,
    TRANSACTIONS_DESCRIBE_PRODUCERS,
    TRANSACTIONS_END,
    TRANSACTIONS_INIT_PRODUCER_ID,
    TRANSACTIONS_LIST,
)

if TYPE_CHECKING:
    from .transaction_calls import TransactionCalls


class TransactionsService:
    """Handlers of `quorumlog.v1.Transactions`."""

    def __init__(
        self,
        runtime: Runtime,
        transactions: TransactionAdmin,
        groups: GroupCoordinator,
        metadata: MetadataPublisher,
        log_admin: LogAdmin,
        *,
        node_id: NodeId,
    ) -> None:
        self._runtime = runtime
        self._transactions = transactions
        self._groups = groups
        self._metadata = metadata
        self._log_admin = log_admin
        self._node_id = node_id
        self._calls: TransactionCalls | None = None

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(TRANSACTIONS_INIT_PRODUCER_ID, self._later("init_producer_id")),
            Handler(TRANSACTIONS_ADD_PARTITIONS, self._later("add_partitions")),
            Handler(TRANSACTIONS_ADD_OFFSETS, self._later("add_offsets")),
            Handler(TRANSACTIONS_END, self._later("end_transaction")),
            Handler(TRANSACTIONS_LIST, self._later("list_transactions")),
            Handler(TRANSACTIONS_DESCRIBE, self._later("describe_transactions")),
            Handler(TRANSACTIONS_ABORT, self._later("abort_transaction")),
            Handler(TRANSACTIONS_DESCRIBE_PRODUCERS, self._later("describe_producers")),
            Handler(TRANSACTIONS_ABORT_HANGING, self._later("abort_hanging_transaction")),
        )
        return {handler.method.path: handler for handler in table}

    def _later(self, name: str) -> Callable[[Any, CallContext], Awaitable[Any]]:
        """Return a handler that looks up the method of `TransactionCalls` when it is called."""

        async def handle(request: Any, context: CallContext) -> Any:
            return await getattr(self._loaded(), name)(request, context)

        return handle

    def _loaded(self) -> "TransactionCalls":
        if self._calls is None:
            from .transaction_calls import TransactionCalls

            self._calls = TransactionCalls(
                self._runtime,
                self._transactions,
                self._groups,
                self._metadata,
                self._log_admin,
                node_id=self._node_id,
            )
        return self._calls
