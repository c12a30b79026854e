"""The port of a state machine that is replicated by the log. The metadata is the first one."""

from collections.abc import Iterator
from typing import Protocol

from ...ids import NodeId


class StateMachine(Protocol):
    """A state that is replayed from the log. Called on the event loop, in order, never
    concurrently.

    No call may take longer than 10 ms, since heartbeats wait for it. An error that it raises ends
    the node, because a replica must not skip an entry.
    """

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        """Apply the values of one committed batch.

        Each batch is delivered once and in the log's order, after a restart again from the newest
        snapshot on. Proposals made together are in one batch.
        """

    def leadership(self, leader_id: NodeId | None, epoch: int) -> None:
        """Record the leader of the epoch as known to this node; None if there is none.

        This node's own leadership is reported after everything before it was committed and
        delivered. Its end is reported at once, before any entry that another leader committed.
        """

    def snapshot(self) -> Iterator[list[bytes]] | None:
        """Return the state after all entries applied so far, in slices of record values.

        Return None if no snapshot is possible now; ask again after more commits. The state must not
        change while it is iterated, and equal states must yield equal slices.
        """

    def begin_restore(self) -> None:
        """Start to replace the whole state by a snapshot."""

    def restore(self, values: list[bytes]) -> None:
        """Load one slice of the snapshot, in order."""

    def end_restore(self, end_offset: int, epoch: int) -> None:
        """Complete the snapshot: the state is the one after [0, end_offset), whose last batch has
        this epoch."""
