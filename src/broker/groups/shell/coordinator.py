"""The groups that this broker coordinates: those in the partitions of `__consumer_offsets` that it
leads."""

from typing import TypeVar

from ....ids import NodeId
from ..requests import GroupListing, GroupRequest

R = TypeVar("R")


class GroupCoordinator:
    """What the front doors ask of groups. Belongs to the loop's thread."""

    async def ask(self, request: GroupRequest[R], *, deadline_ms: int) -> R:
        """Have a request decided and stored; returns its answer once that is committed.

        `deadline_ms` is by the runtime's clock. Raises InvalidGroupId; NotCoordinator,
        CoordinatorLoading, CoordinatorNotAvailable (also at the deadline: the outcome is then
        unknown), Overloaded; and what the request is refused with.
        """
        raise NotImplementedError

    def partition_of(self, group: str) -> int:
        """Return the partition of `__consumer_offsets` that a group lives in; raises
        InvalidGroupId, and CoordinatorNotAvailable while there is no such topic."""
        raise NotImplementedError

    async def coordinator_of(self, group: str, *, deadline_ms: int) -> NodeId:
        """Return the broker that coordinates a group; makes the topic at first use. Raises
        InvalidGroupId, and CoordinatorNotAvailable: nobody does now, ask again."""
        raise NotImplementedError

    def list_groups(self) -> list[GroupListing]:
        """Return the groups that this broker coordinates, by ascending name; raises
        CoordinatorLoading while some of them are being read."""
        raise NotImplementedError
