"""What hangs on the quorum's log: a port with one implementation a log, the metadata the first."""

from collections.abc import Iterator
from typing import Protocol

from ...ids import NodeId


class StateMachine(Protocol):
    """A state that is replayed from the log; called on the loop, in order, never concurrently.

    No call may take longer than 10 ms: heartbeats wait meanwhile. An error that it raises ends the
    node, since a replica with a gap must not go on.
    """

    def committed(self, base_offset: int, epoch: int, values: list[bytes]) -> None:
        """The values of one committed batch, once each, in the log's order: after a restart again
        from the newest snapshot on. Proposals made together come in one batch."""

    def leadership(self, leader_id: NodeId | None, epoch: int) -> None:
        """Who leads the epoch as far as this node knows; None: nobody, or it gave up.

        This node's own leadership is told once everything before it was committed and delivered;
        its end at once, before anything that another leader committed.
        """

    def snapshot(self) -> Iterator[list[bytes]] | None:
        """The state after all that was committed so far, in slices of record values; None: not
        here, ask again when more is committed.

        It stays that state while it is iterated, and equal states give equal slices.
        """

    def begin_restore(self) -> None:
        """A snapshot follows: it replaces the whole state."""

    def restore(self, values: list[bytes]) -> None:
        """One slice of the snapshot, in order."""

    def end_restore(self, end_offset: int, epoch: int) -> None:
        """The snapshot is complete: the state is the one after [0, end_offset), whose last batch
        is of this epoch."""
