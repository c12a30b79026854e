"""The ways between the nodes of a test's cluster: a relay for each address that a node dials, and
for each node that dials it, so that any two can be parted, each way by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from .loop_thread import LoopThread
from .relay import Direction, Relay

Cut: TypeAlias = tuple[int, int]  # from a node to another one: what goes this way does not arrive


class Wires:
    """All ways between nodes, in a thread of their own; `close` ends it."""

    def __init__(self, dialled: Mapping[int, Sequence[str]]) -> None:
        """`dialled` has the addresses at which others reach each node."""
        self._relays: dict[Cut, list[Relay]] = {
            (source, target): [Relay(address) for address in addresses]
            for source in dialled
            for target, addresses in dialled.items()
            if source != target
        }
        self._thread = LoopThread("wires")
        self._thread.start()
        try:
            self._thread.run(self._listen())
        except BaseException:
            self.close()
            raise

    def routes(self, source: int) -> dict[str, str]:
        """Return where a node gets to, in place of each address that it dials."""
        return {
            relay.target: relay.address
            for (dialler, _), relays in self._relays.items()
            if dialler == source
            for relay in relays
        }

    def cut(self, cuts: Iterable[Cut]) -> None:
        """Hold what goes these ways, and let all else through."""
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
