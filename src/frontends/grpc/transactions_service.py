"""The services `Transactions` and `StagedCommits`. Their methods are imported at the first call, so
that a broker without producers with an id starts without them (`transaction_calls`,
`staged_commit_calls`)."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ...api.authorizer import Authorizer
from ...api.transactions import TransactionAdmin
from ...broker.groups.shell.coordinator import GroupCoordinator
from ...broker.shell.log_admin import LogAdmin
from ...broker.transactions.shell import TransactionCoordinator
from ...ids import NodeId
from ...metadata.shell.publisher import MetadataPublisher
from ...runtime import CallContext, Handler, Method, Runtime
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
    """Handlers of `quorumlog.v1.Transactions`."""

    def __init__(
        self,
        runtime: Runtime,
        transactions: TransactionAdmin,
        groups: GroupCoordinator,
        metadata: MetadataPublisher,
        log_admin: LogAdmin,
        authorizer: Authorizer,
        *,
        node_id: NodeId,
    ) -> None:
        self._runtime = runtime
        self._transactions = transactions
        self._groups = groups
        self._metadata = metadata
        self._log_admin = log_admin
        self._authorizer = authorizer
        self._node_id = node_id
        self._calls: TransactionCalls | None = None

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            _handler(TRANSACTIONS_INIT_PRODUCER_ID, self.calls, "init_producer_id"),
            _handler(TRANSACTIONS_ADD_PARTITIONS, self.calls, "add_partitions"),
            _handler(TRANSACTIONS_ADD_OFFSETS, self.calls, "add_offsets"),
            _handler(TRANSACTIONS_END, self.calls, "end_transaction"),
            _handler(TRANSACTIONS_LIST, self.calls, "list_transactions"),
            _handler(TRANSACTIONS_DESCRIBE, self.calls, "describe_transactions"),
            _handler(TRANSACTIONS_ABORT, self.calls, "abort_transaction"),
            _handler(TRANSACTIONS_DESCRIBE_PRODUCERS, self.calls, "describe_producers"),
            _handler(TRANSACTIONS_ABORT_HANGING, self.calls, "abort_hanging_transaction"),
        )
        return {handler.method.path: handler for handler in table}

    def calls(self) -> "TransactionCalls":
        """Return the methods, imported at the first call."""
        if self._calls is None:
            from .transaction_calls import TransactionCalls

            self._calls = TransactionCalls(
                self._runtime,
                self._transactions,
                self._groups,
                self._metadata,
                self._log_admin,
                self._authorizer,
                node_id=self._node_id,
            )
        return self._calls


class StagedCommitsService:
    """Handlers of `quorumlog.v1.StagedCommits`."""

    def __init__(
        self,
        runtime: Runtime,
        transactions: TransactionAdmin,
        coordinator: TransactionCoordinator,
        metadata: MetadataPublisher,
        authorizer: Authorizer,
        *,
        transaction_calls: "Callable[[], TransactionCalls]",
        node_id: NodeId,
    ) -> None:
        """`transaction_calls` returns the methods of the service `Transactions`: partitions are
        added to an attempt as to a transaction."""
        self._runtime = runtime
        self._transactions = transactions
        self._coordinator = coordinator
        self._metadata = metadata
        self._authorizer = authorizer
        self._transaction_calls = transaction_calls
        self._node_id = node_id
        self._loaded: StagedCommitCalls | None = None

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by method path, for `Network.serve`."""
        table = (
            _handler(STAGED_COMMITS_ADD_PARTITIONS, self._transaction_calls, "add_partitions"),
            _handler(STAGED_COMMITS_OPEN_WRITE, self._calls, "open_write"),
            _handler(STAGED_COMMITS_BEGIN, self._calls, "begin"),
            _handler(STAGED_COMMITS_KEEP_ALIVE, self._calls, "keep_alive"),
            _handler(STAGED_COMMITS_SEAL, self._calls, "seal"),
            _handler(STAGED_COMMITS_COMMIT, self._calls, "commit"),
            _handler(STAGED_COMMITS_ABORT, self._calls, "abort"),
            _handler(STAGED_COMMITS_LIST, self._calls, "list_names"),
            _handler(STAGED_COMMITS_DESCRIBE, self._calls, "describe"),
            _handler(STAGED_COMMITS_RESET, self._calls, "reset"),
            _handler(STAGED_COMMITS_DELETE, self._calls, "delete"),
        )
        return {handler.method.path: handler for handler in table}

    def _calls(self) -> "StagedCommitCalls":
        if self._loaded is None:
            from .staged_commit_calls import StagedCommitCalls

            self._loaded = StagedCommitCalls(
                self._runtime,
                self._transactions,
                self._coordinator,
                self._metadata,
                self._authorizer,
                node_id=self._node_id,
            )
        return self._loaded


def _handler(method: Method[Any, Any], calls: Callable[[], object], name: str) -> Handler:
    """Return a handler that looks up the method of `calls` when it is called."""

    async def handle(request: Any, context: CallContext) -> Any:
        return await getattr(calls(), name)(request, context)

    return Handler(method, handle)
