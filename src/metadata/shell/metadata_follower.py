"""The metadata of a node that is not a controller: follows the quorum's log as an observer."""

import logging
from collections.abc import Callable, Iterator

from ...errors import InvalidRequest
from ...ids import NodeId
from ...raftlog.shell import RaftNode
from .publisher import MetadataPublisher

_LOG = logging.getLogger("quorumlog.metadata")


class MetadataFollower:
    """The state machine of the log of a node without the controller role: passes committed records
    to the publisher, and changes of the leader to listeners."""

    def __init__(self, publisher: MetadataPublisher) -> None:
        self._publisher = publisher
        self._node: RaftNode | None = None
        self._leadership_listeners: list[Callable[[NodeId | None], None]] = []

    def attach(self, node: RaftNode) -> None:
        """Follow this node's log; call before node.start()."""
        self._node = node

    def on_leadership(self, listener: Callable[[NodeId | None], None]) -> None:
        """Call the listener with the quorum's leader (None: unknown) after each change."""
        self._leadership_listeners.append(listener)

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        """See StateMachine."""
        self._publisher.committed(base_offset, epoch, values)

    def leadership(self, leader_id: NodeId | None, epoch: int) -> None:
        """See StateMachine. Raise InvalidRequest if this node itself was elected: it is a voter
        without the controller role, and stopping lets another voter lead."""
        if self._node is not None and leader_id == self._node.node_id:
            raise InvalidRequest(
                f"node {leader_id} was elected controller, but its node.roles is broker; remove it"
                " with `quorumlog quorum remove-voter`, or add the role controller"
            )
        for listener in self._leadership_listeners:
            listener(leader_id)

    def snapshot(self) -> Iterator[list[bytes]] | None:
        """See StateMachine."""
        return self._publisher.snapshot()

    def begin_restore(self) -> None:
        """See StateMachine."""
        self._publisher.begin_restore()

    def restore(self, values: list[bytes]) -> None:
        """See StateMachine."""
        self._publisher.restore(values)

    def end_restore(self, end_offset: int, epoch: int) -> None:
        """See StateMachine."""
        self._publisher.end_restore(end_offset, epoch)
