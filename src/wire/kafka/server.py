"""The listeners of the Kafka protocol and their connections."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from ...runtime import ByteConnection, ByteProtocol, Listener, Scope
from .api import Api, Door
from .apis import APIS
from .connection import KafkaConnection
from .headers import RequestHeader

T = TypeVar("T")


class KafkaServer:
    """Serves every listener of one broker; answers run in the scope that it is given."""

    def __init__(self, door: Door, scope: Scope, apis: Sequence[Api] = APIS) -> None:
        self.door = door
        self._scope = scope
        self._apis: Mapping[int, Api] = {api.key: api for api in apis}
        self._listeners: list[Listener] = []
        self._connections: dict[KafkaConnection, None] = {}

    async def listen(self, name: str, address: str) -> str:
        """Open the listener of a name on "host:port", port 0 picks one; returns the address.
        Raises AddressInUse."""

        def accept(connection: ByteConnection) -> ByteProtocol:
            accepted = KafkaConnection(connection, self, name)
            self._connections[accepted] = None
            return accepted

        listener = await self.door.runtime.network.listen_bytes(address, accept)
        self._listeners.append(listener)
        return listener.address

    async def close(self, grace_ms: int) -> None:
        """Take no more; answers under way have `grace_ms` to leave."""
        for listener in self._listeners:
            await listener.close(grace_ms)

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    # --- for connections -------------------------------------------------------------------------

    def api(self, header: RequestHeader) -> Api | None:
        """Return what is offered under a key; None: nothing."""
        return self._apis.get(header.key)

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run what a connection has to do."""
        return self._scope.spawn(work, name="kafka.request")

    def left(self, connection: KafkaConnection) -> None:
        """A connection ended."""
        self._connections.pop(connection, None)
