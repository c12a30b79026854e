"""The open parts of a node, for readers in the same process, and their closing in reverse order."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..broker.groups.shell import GroupCoordinator
from ..broker.shell.replica_manager import ReplicaManager
from ..broker.transactions.shell import TransactionCoordinator
from ..errors import AddressInUse
from ..frontends.grpc import LogService
from ..frontends.kafka import KafkaServer
from ..metadata.shell import BrokerSession, ControllerShell, MetadataPublisher, MetadataStateMachine
from ..raftlog.shell import RaftNode
from ..runtime import (
    PLAIN_CALLS,
    ByteConnection,
    ByteProtocol,
    CallListener,
    CallSecurity,
    Handler,
    Listener,
    Network,
    Scope,
)
from ..storage.shell.data_directory import DataDirectory

if TYPE_CHECKING:
    from ..api.audit import AuditLog

Closer = Callable[[], Awaitable[None]]


class Lifecycle:
    """Opens listeners and tasks of a node, and closes them in reverse order."""

    def __init__(
        self,
        *,
        grace_ms: int,
        counted: Callable[[Mapping[str, Handler]], Mapping[str, Handler]],
    ) -> None:
        """`grace_ms` is the time for calls in progress when a listener closes; `counted` wraps the
        handlers with call metrics."""
        self._counted = counted
        self._grace_ms = grace_ms
        self._closers: list[Closer] = []  # oldest first

    def opened(self, closer: Closer) -> None:
        """Register a function that closes a part before all parts that were opened earlier."""
        self._closers.append(closer)

    async def listen(
        self,
        network: Network,
        address: str,
        handlers: Mapping[str, Handler],
        *,
        is_ready: bool = True,
        security: CallSecurity = PLAIN_CALLS,
        plain: CallSecurity | None = None,
    ) -> CallListener:
        """Serve calls on an address, with `plain` also clients without TLS; raises AddressInUse."""
        counted = self._counted(handlers)
        try:
            if plain is None:
                listener = await network.serve(
                    address, counted, is_ready=is_ready, security=security
                )
            else:
                from ..runtime.tls_relay import serve_both

                listener = await serve_both(
                    network, address, counted, is_ready=is_ready, plain=plain, secure=security
                )
        except OSError as error:
            raise AddressInUse(f"{address}: cannot listen: {error.strerror or error}") from error
        self.opened(lambda: listener.close(self._grace_ms))
        return listener

    async def listen_bytes(
        self,
        network: Network,
        address: str,
        factory: Callable[[ByteConnection], ByteProtocol],
    ) -> Listener:
        """Accept byte connections on an address; raises AddressInUse."""
        try:
            listener = await network.listen_bytes(address, factory)
        except OSError as error:
            raise AddressInUse(f"{address}: cannot listen: {error.strerror or error}") from error
        self.opened(lambda: listener.close(0))
        return listener

    def run(
        self,
        scope: Scope,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        close: Callable[[], None],
    ) -> None:
        """Run a component until its turn to close."""
        task = scope.spawn(work(), name=name)

        async def end() -> None:
            close()
            await task

        self.opened(end)

    async def close(self) -> None:
        """Close the open parts, newest first."""
        while self._closers:
            await self._closers.pop()()


@dataclass(slots=True)
class NodeParts:
    """The open parts of a node. None: not open yet, or not a part of this node."""

    directory: DataDirectory | None = None
    metadata: MetadataStateMachine | None = None
    publisher: MetadataPublisher | None = None
    replicas: ReplicaManager | None = None
    groups: GroupCoordinator | None = None
    transactions: TransactionCoordinator | None = None
    raft: RaftNode | None = None
    controller: ControllerShell | None = None
    log: LogService | None = None
    kafka: KafkaServer | None = None
    session: BrokerSession | None = None
    audit: "AuditLog | None" = None
    is_ready: bool = False  # the start has completed
    is_stopping: bool = False
