"""The process of a test's node: `python -m quorumlog.testing.node_program TASK`.

Its first line on stdout is a JSON object: the ready line, or the error that prevented the start.
All other output goes to stderr.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace

from ..errors import QuorumlogError
from ..runtime import (
    ByteConnection,
    ByteProtocol,
    CallListener,
    Channel,
    Handler,
    Listener,
    Network,
    Runtime,
)
from ..server.main import serve
from .node_arguments import NodeArguments


def routed(runtime: Runtime, routes: Mapping[str, str]) -> Runtime:
    """Return the runtime with a network that redirects the addresses in `routes`."""
    return replace(runtime, network=RoutedNetwork(runtime.network, routes))


class RoutedNetwork:
    """A network port on top of another one."""

    def __init__(self, below: Network, routes: Mapping[str, str]) -> None:
        self._below = below
        self._routes = dict(routes)  # "host:port" to "host:port"

    async def serve(
        self, address: str, handlers: Mapping[str, Handler], *, is_ready: bool = True
    ) -> CallListener:
        """Answer calls on an address by method path; raises AddressInUse."""
        return await self._below.serve(address, handlers, is_ready=is_ready)

    def channel(self, address: str) -> Channel:
        """Return a channel to the address; never fails."""
        return self._below.channel(self._routes.get(address, address))

    async def listen_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> Listener:
        """Accept byte connections; raises AddressInUse."""
        return await self._below.listen_bytes(address, factory)

    async def connect_bytes(
        self, address: str, factory: Callable[[ByteConnection], ByteProtocol]
    ) -> ByteConnection:
        """Connect; raises ConnectionFailed when refused, OutcomeUnknown otherwise.

        Through a relay a refused connection is made and then ends at once.
        """
        return await self._below.connect_bytes(self._routes.get(address, address), factory)

    async def refuses(self, address: str, timeout_ms: int) -> bool:
        """Return True if the address itself refuses a connection; a relay never does."""
        return await self._below.refuses(address, timeout_ms)


EXIT_ALONE = 3  # the parent process has ended


def run(task: NodeArguments) -> int:
    """Run the node until SIGTERM; returns the exit code."""
    if os.getppid() != task.parent:
        return EXIT_ALONE  # no process would end this node

    def over(runtime: Runtime) -> Runtime:
        return routed(runtime, task.routes) if task.routes else runtime

    return serve(task.config, as_json=True, tell=_tell, format_new=True, over=over)


def _tell(error: QuorumlogError) -> None:
    print(json.dumps({"error": error.name, "message": str(error)}), flush=True)


if __name__ == "__main__":
    sys.exit(run(NodeArguments.decode(sys.argv[1])))
