"""Which controller a broker asks: the one that leads as far as is known here, else all in turn."""

from collections.abc import Callable, Mapping

from ...errors import NotController
from ...ids import NO_NODE, NodeId


class Controllers:
    """The controllers' addresses and whose turn it is.

    What a controller said of another's leadership counts for one attempt; after that what this
    node's own member of the quorum knows; where that knows none, they take turns. A leader that was
    of no use is asked every other time: this node may be the last to learn that another leads.
    """

    def __init__(
        self,
        addresses: Callable[[], Mapping[NodeId, str]],
        *,
        leader: Callable[[], NodeId | None] = lambda: None,
    ) -> None:
        """`addresses` gives "host:port" by node id, of whoever votes at present."""
        self._addresses = addresses
        self._leader = leader
        self._hint: NodeId | None = None
        self._turn = NO_NODE
        self._failed: NodeId | None = None  # the last one asked, where that was of no use

    @classmethod
    def fixed(cls, addresses: Mapping[NodeId, str]) -> "Controllers":
        """Controllers that never change."""
        return cls(lambda: addresses)

    def choose(self) -> tuple[NodeId, str]:
        """Return who is to be asked now, and where; raises NotController when none is known."""
        known = self._addresses()
        leader = self._leader()
        for candidate in (self._hint, None if leader == self._failed else leader, self._turn):
            if candidate is not None and (address := known.get(candidate)):
                return candidate, address
        first = min((node for node, address in known.items() if address), default=None)
        if first is None:
            raise NotController("no controller is known yet: repeat")
        return first, known[first]

    def failed(self, asked: NodeId, *, hint: NodeId = NO_NODE) -> None:
        """The one that was asked is of no use now; `hint` is who leads, if it said so."""
        self._failed = asked
        self._hint = None if hint in (NO_NODE, asked) else hint
        if asked == self._leader() and self._turn not in (NO_NODE, asked):
            return  # it was asked out of turn
        ids = sorted(node for node, address in self._addresses().items() if address)
        self._turn = next((node for node in ids if node > asked), ids[0] if ids else NO_NODE)
