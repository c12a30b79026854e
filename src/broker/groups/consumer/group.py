"""A group of KIP-848 as a pure machine."""

from collections.abc import Callable

from ....metadata.image import MetadataImage
from ..classic import ClassicGroupMachine
from ..config import GroupConfig
from ..decision import Decision, Ticket
from ..records import GroupRecord
from ..requests import (
    ClassicHeartbeat,
    CommitOffsets,
    ConsumerHeartbeat,
    FetchOffsets,
    GroupDescription,
    GroupListing,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)


class ConsumerGroupMachine:
    """One group. Every request with a ticket is answered in its own decision.

    A refusal is a `Failed` of the decision; `check_commit` and `check_fetch` raise. After each
    decision look at `downgraded`: where it is set, that machine is the group from now on, and this
    one is to be thrown away (the decision has its records). Times are in milliseconds.
    """

    def __init__(self, group: str, config: GroupConfig, draw: Callable[[], str]) -> None:
        self.group = group
        self.downgraded: ClassicGroupMachine | None = None
        self._config = config
        self._draw = draw

    # --- what is asked ----------------------------------------------------------------------------

    def heartbeat(
        self, ticket: Ticket, request: ConsumerHeartbeat, image: MetadataImage, now_ms: int
    ) -> Decision:
        """A member joins, stays or leaves."""
        raise NotImplementedError

    def join(
        self, ticket: Ticket, request: JoinGroup, image: MetadataImage, now_ms: int
    ) -> Decision:
        """A member of the classic protocol comes; answered at once, it waits for nobody."""
        raise NotImplementedError

    def sync(
        self, ticket: Ticket, request: SyncGroup, image: MetadataImage, now_ms: int
    ) -> Decision:
        """A member of the classic protocol asks for its part."""
        raise NotImplementedError

    def classic_heartbeat(
        self, ticket: Ticket, request: ClassicHeartbeat, image: MetadataImage, now_ms: int
    ) -> Decision:
        """A member of the classic protocol lives; RebalanceInProgress: it is to join again."""
        raise NotImplementedError

    def leave(
        self, ticket: Ticket, request: LeaveGroup, image: MetadataImage, now_ms: int
    ) -> Decision:
        """Members of the classic protocol go; each has an error of its own."""
        raise NotImplementedError

    def check_commit(self, request: CommitOffsets) -> None:
        """Raises what speaks against a commit: UnknownMember, StaleMemberEpoch (of a member of the
        classic protocol: IllegalGeneration)."""
        raise NotImplementedError

    def check_fetch(self, request: FetchOffsets) -> None:
        """Raises UnknownMember or StaleMemberEpoch (IllegalGeneration) where a member asks."""
        raise NotImplementedError

    # --- time, and the cluster --------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """When `expire` is to be called next, never too late; None: never. O(1)."""
        raise NotImplementedError

    def expire(self, now_ms: int, image: MetadataImage) -> Decision:
        """Do what is due: members that fell silent, or do not revoke, are fenced."""
        raise NotImplementedError

    def metadata_changed(self, image: MetadataImage) -> None:
        """The cluster has changed: looked at with the next heartbeat. Cheap; may be left out."""
        raise NotImplementedError

    # --- looking on -------------------------------------------------------------------------------

    def describe(self, image: MetadataImage) -> GroupDescription:
        """The group as it stands; what is read of topics that are gone is left out."""
        raise NotImplementedError

    def listing(self) -> GroupListing:
        """Its line in the list."""
        raise NotImplementedError

    @property
    def is_empty(self) -> bool:
        """It has no member."""
        raise NotImplementedError

    def subscribed_topics(self) -> frozenset[str]:
        """The topics that the members read, by name or by a pattern."""
        raise NotImplementedError

    # --- storage ----------------------------------------------------------------------------------

    def replay(self, record: GroupRecord) -> None:
        """Take in a stored record of this group (its KIP-848 kinds); nothing else changes."""
        raise NotImplementedError

    def loaded(self, now_ms: int) -> None:
        """All records have been replayed: every member has its whole session from now on."""
        raise NotImplementedError

    def forget_records(self) -> tuple[GroupRecord, ...]:
        """Tombstones of everything that is stored of it; this machine is to be thrown away."""
        raise NotImplementedError
