"""The connections between the nodes of a test's cluster.

There is a relay for each pair of a dialling node and a dialled address, so that each direction
between two nodes can be cut separately.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from .loop_thread import LoopThread
from .relay import Direction, Relay

CutDirection: TypeAlias = tuple[int, int]  # (source, target): bytes in this direction do not arrive


class ClusterLinks:
    """All relays between nodes, in a thread of their own; `close` ends it."""

    def __init__(self, dialled: Mapping[int, Sequence[str]]) -> None:
        """Start the relays to the addresses in `dialled`, by node."""
        self._relays: dict[CutDirection, list[Relay]] = {
            (source, target): [Relay(address) for address in addresses]
            for source in dialled
            for target, addresses in dialled.items()
            if source != target
        }
        self._thread = LoopThread("cluster-links")
        try:
            self._thread.run(self._listen())
        except BaseException:
            self.close()
            raise

    def routes(self, source: int) -> dict[str, str]:
        """Return the relay's address for each address that a node dials."""
        return {
            relay.target: relay.address
            for (dialler, _), relays in self._relays.items()
            if dialler == source
            for relay in relays
        }

    def cut(self, cuts: Iterable[CutDirection]) -> None:
        """Hold the bytes of these directions and forward all others."""
        held = set(cuts)  # membership only

        def change() -> None:
            for (source, target), relays in self._relays.items():
                ways = {
                    Direction.TO_SERVER: (source, target),
                    Direction.TO_CLIENT: (target, source),
                }
                for relay in relays:
                    relay.flow(*(way for way, cut in ways.items() if cut not in held))

        self._thread.call(change)

    def close(self) -> None:
        """End every connection."""
        self._thread.call(self._close)
        self._thread.stop()

    async def _listen(self) -> None:
        for relays in self._relays.values():
            for relay in relays:
                await relay.listen()

    def _close(self) -> None:
        for relays in self._relays.values():
            for relay in relays:
                relay.close()
