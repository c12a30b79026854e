"""Selection of the controller that a broker calls: the known leader, else the voters in turn."""

from collections.abc import Callable, Mapping

from ...errors import NotController
from ...ids import NO_NODE, NodeId


class ControllerLocator:
    """The addresses of the controllers and the next one to call.

    A hint of a controller about the leader applies to one attempt. Otherwise the leader is that of
    this node's own replica of the quorum's log; without one, controllers are called in turn. After
    a failed call to the leader, every other call goes to the next controller in turn: this node may
    be the last one to receive the new leader.
    """

    def __init__(
        self,
        addresses: Callable[[], Mapping[NodeId, str]],
        *,
        leader: Callable[[], NodeId | None] = lambda: None,
    ) -> None:
        """`addresses` returns "host:port" by node id of the current voters."""
        self._addresses = addresses
        self._leader = leader
        self._hint: NodeId | None = None
        self._turn = NO_NODE
        self._failed: NodeId | None = None  # the last one called, if the call failed

    @classmethod
    def fixed(cls, addresses: Mapping[NodeId, str]) -> "ControllerLocator":
        """Return a locator with constant addresses."""
        return cls(lambda: addresses)

    def choose(self) -> tuple[NodeId, str]:
        """Return the node id and address of the next controller; raise NotController if none is
        known."""
        known = self._addresses()
        leader = self._leader()
        for candidate in (self._hint, None if leader == self._failed else leader, self._turn):
            if candidate is not None and (address := known.get(candidate)):
                return candidate, address
        first = min((node for node, address in known.items() if address), default=None)
        if first is None:
            raise NotController("no controller is known yet; retry")
        return first, known[first]

    def failed(self, node_id: NodeId, *, hint: NodeId = NO_NODE) -> None:
        """Record that a call to a controller failed; `hint` is the leader that it reported."""
        self._failed = node_id
        self._hint = None if hint in (NO_NODE, node_id) else hint
        if node_id == self._leader() and self._turn not in (NO_NODE, node_id):
            return  # it was called out of turn
        ids = sorted(node for node, address in self._addresses().items() if address)
        self._turn = next((node for node in ids if node > node_id), ids[0] if ids else NO_NODE)
