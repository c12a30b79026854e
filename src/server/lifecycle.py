"""What of a node is open: closed newest first, each before what it relies on."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from ..errors import AddressInUse
from ..runtime import ByteConnection, ByteProtocol, CallListener, Handler, Listener, Runtime, Scope

Closer = Callable[[], Awaitable[None]]


class Lifecycle:
    """Opens listeners and tasks of a node and closes them in their turn."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        grace_ms: int,
        counted: Callable[[Mapping[str, Handler]], Mapping[str, Handler]],
    ) -> None:
        """`grace_ms` is how long calls under way may go on when a listener closes; `counted` puts
        counting around what listeners answer."""
        self._counted = counted
        self._runtime = runtime
        self._grace_ms = grace_ms
        self._closers: list[Closer] = []  # oldest first

    def opened(self, closer: Closer) -> None:
        """Close this before everything that was opened earlier."""
        self._closers.append(closer)

    async def listen(
        self, address: str, handlers: Mapping[str, Handler], *, is_ready: bool = True
    ) -> CallListener:
        """Serve calls on an address; raises AddressInUse."""
        try:
            listener = await self._runtime.network.serve(
                address, self._counted(handlers), is_ready=is_ready
            )
        except OSError as error:
            raise AddressInUse(f"cannot listen on {address}: {error.strerror or error}") from error
        self.opened(lambda: listener.close(self._grace_ms))
        return listener

    async def listen_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> Listener:
        """Take byte connections on an address; raises AddressInUse."""
        try:
            listener = await self._runtime.network.listen_bytes(address, factory)
        except OSError as error:
            raise AddressInUse(f"cannot listen on {address}: {error.strerror or error}") from error
        self.opened(lambda: listener.close(0))
        return listener

    def run(
        self,
        scope: Scope,
        name: str,
        work: Callable[[], Coroutine[Any, Any, None]],
        close: Callable[[], None],
    ) -> None:
        """Run a component until it is closed in its turn."""
        task = scope.spawn(work(), name=name)

        async def end() -> None:
            close()
            await task

        self.opened(end)

    async def close(self) -> None:
        """Close what is open, newest first."""
        while self._closers:
            await self._closers.pop()()
