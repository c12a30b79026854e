"""The services `Transactions` and `StagedCommits`. Their methods are imported at the first call, so
that a broker without producers with an id starts without them (`transaction_calls`,
`staged_commit_calls`)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...api.transactions import TransactionAdmin
from ...broker.groups.shell.coordinator import GroupCoordinator
from ...broker.shell.log_admin import LogAdmin
from ...broker.transactions.shell import TransactionCoordinator
from ...ids import NodeId
from ...metadata.shell.publisher import MetadataPublisher
from ...runtime import CallContext, Handler, Runtime
from ...services import (
    STAGED_COMMITS_ABORT,
    STAGED_COMMITS_ADD_PARTITIONS,
    STAGED_COMMITS_BEGIN,
    STAGED_COMMITS_COMMIT,
    STAGED_COMMITS_DELETE,
    STAGED_COMMITS_DESCRIBE,
    STAGED_COMMITS_KEEP_ALIVE,
    STAGED_COMMITS_LIST,
    STAGED_COMMITS_OPEN_WRITE,
    STAGED_COMMITS_RESET,
    STAGED_COMMITS_SEAL,
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
    from .staged_commit_calls import StagedCommitCalls
    from .transaction_calls import TransactionCalls


class TransactionsService:
    """Handlers of `quorumlog.v1.Transactions` and `quorumlog.v1.StagedCommits`."""

    def __init__(
        self,
        runtime: Runtime,
        transactions: TransactionAdmin,
        coordinator: TransactionCoordinator,
        groups: GroupCoordinator,
        metadata: MetadataPublisher,
        log_admin: LogAdmin,
        *,
        node_id: NodeId,
    ) -> None:
        self._runtime = runtime
        self._transactions = transactions
        self._coordinator = coordinator
        self._groups = groups
        self._metadata = metadata
        self._log_admin = log_admin
        self._node_id = node_id
        self._calls: TransactionCalls | None = None
        self._staged: StagedCommitCalls | None = None

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            Handler(
                TRANSACTIONS_INIT_PRODUCER_ID,
                self._later(self._transaction_calls, "init_producer_id"),
            ),
            Handler(
                TRANSACTIONS_ADD_PARTITIONS, self._later(self._transaction_calls, "add_partitions")
            ),
            Handler(TRANSACTIONS_ADD_OFFSETS, self._later(self._transaction_calls, "add_offsets")),
            Handler(TRANSACTIONS_END, self._later(self._transaction_calls, "end_transaction")),
            Handler(TRANSACTIONS_LIST, self._later(self._transaction_calls, "list_transactions")),
            Handler(
                TRANSACTIONS_DESCRIBE, self._later(self._transaction_calls, "describe_transactions")
            ),
            Handler(TRANSACTIONS_ABORT, self._later(self._transaction_calls, "abort_transaction")),
            Handler(
                TRANSACTIONS_DESCRIBE_PRODUCERS,
                self._later(self._transaction_calls, "describe_producers"),
            ),
            Handler(
                TRANSACTIONS_ABORT_HANGING,
                self._later(self._transaction_calls, "abort_hanging_transaction"),
            ),
            Handler(
                STAGED_COMMITS_ADD_PARTITIONS,
                self._later(self._transaction_calls, "add_partitions"),
            ),
            Handler(STAGED_COMMITS_OPEN_WRITE, self._later(self._staged_calls, "open_write")),
            Handler(STAGED_COMMITS_BEGIN, self._later(self._staged_calls, "begin")),
            Handler(STAGED_COMMITS_KEEP_ALIVE, self._later(self._staged_calls, "keep_alive")),
            Handler(STAGED_COMMITS_SEAL, self._later(self._staged_calls, "seal")),
            Handler(STAGED_COMMITS_COMMIT, self._later(self._staged_calls, "commit")),
            Handler(STAGED_COMMITS_ABORT, self._later(self._staged_calls, "abort")),
            Handler(STAGED_COMMITS_LIST, self._later(self._staged_calls, "list_names")),
            Handler(STAGED_COMMITS_DESCRIBE, self._later(self._staged_calls, "describe")),
            Handler(STAGED_COMMITS_RESET, self._later(self._staged_calls, "reset")),
            Handler(STAGED_COMMITS_DELETE, self._later(self._staged_calls, "delete")),
        )
        return {handler.method.path: handler for handler in table}

    def _later(
        self, load: Callable[[], object], name: str
    ) -> Callable[[Any, CallContext], Awaitable[Any]]:
        """Return a handler that looks up the method of the loaded service when it is called."""

        async def handle(request: Any, context: CallContext) -> Any:
            return await getattr(load(), name)(request, context)

        return handle

    def _staged_calls(self) -> "StagedCommitCalls":
        if self._staged is None:
            from .staged_commit_calls import StagedCommitCalls

            self._staged = StagedCommitCalls(
                self._runtime,
                self._transactions,
                self._coordinator,
                self._metadata,
                node_id=self._node_id,
            )
        return self._staged

    def _transaction_calls(self) -> "TransactionCalls":
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
