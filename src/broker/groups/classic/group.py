"""A classic group as a pure machine."""

from collections.abc import Callable, Mapping

from ....errors import QuorumlogError
from ..config import GroupConfig
from ..decision import Decision, Ticket
from ..records import ClassicGroup
from ..requests import (
    ClassicHeartbeat,
    CommitOffsets,
    GroupDescription,
    GroupListing,
    JoinGroup,
    LeaveGroup,
    SyncGroup,
)


class ClassicGroupMachine:
    """One group. Every method with a ticket answers it in its decision, or in a later one.

    `draw` gives a random text, new each time; a member's id is made from it. Times are in
    milliseconds of the wall clock.
    """

    def __init__(self, group: str, config: GroupConfig, draw: Callable[[], str]) -> None:
        self.group = group
        self._config = config
        self._draw = draw

    # --- what is asked ----------------------------------------------------------------------------

    def join(self, ticket: Ticket, request: JoinGroup, now_ms: int) -> Decision:
        """A member comes: answered when the generation it will be of has gathered."""
        raise NotImplementedError

    def sync(self, ticket: Ticket, request: SyncGroup, now_ms: int) -> Decision:
        """A member asks for its part: answered when the leader has brought it."""
        raise NotImplementedError

    def heartbeat(self, ticket: Ticket, request: ClassicHeartbeat, now_ms: int) -> Decision:
        """A member lives."""
        raise NotImplementedError

    def leave(self, ticket: Ticket, request: LeaveGroup, now_ms: int) -> Decision:
        """Members go; each has an error of its own."""
        raise NotImplementedError

    def check_commit(self, request: CommitOffsets, now_ms: int | None = None) -> None:
        """Raises what speaks against a commit; with a time, a commit counts as a sign of life.

        Raises: UnknownMember, IllegalGeneration, RebalanceInProgress, FencedInstance.
        """
        raise NotImplementedError

    # --- time -------------------------------------------------------------------------------------

    def deadline_ms(self) -> int | None:
        """When `expire` is to be called next; None: never."""
        raise NotImplementedError

    def expire(self, now_ms: int) -> Decision:
        """Do what is due: members that fell silent go, joins and syncs end."""
        raise NotImplementedError

    # --- looking on -------------------------------------------------------------------------------

    def describe(self) -> GroupDescription:
        """The group as it stands; subscriptions and assignments only while they are valid."""
        raise NotImplementedError

    def listing(self) -> GroupListing:
        """Its line in the list."""
        raise NotImplementedError

    @property
    def is_empty(self) -> bool:
        """It has no member (ids may have been given out)."""
        raise NotImplementedError

    @property
    def is_dead(self) -> bool:
        """It was dropped: throw it away."""
        raise NotImplementedError

    @property
    def is_blank(self) -> bool:
        """As new: no member, no id given out, no generation; forgetting it loses nothing."""
        raise NotImplementedError

    @property
    def state_ms(self) -> int:
        """When it came into its present state; -1: unknown. Offsets of an empty group expire."""
        raise NotImplementedError

    @property
    def protocol_type(self) -> str:
        """Such as "consumer"; empty: none yet."""
        raise NotImplementedError

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members read; None: not to be known."""
        raise NotImplementedError

    # --- storage, and the other face --------------------------------------------------------------

    def load(
        self,
        record: ClassicGroup,
        now_ms: int,
        protocols: Mapping[str, tuple[tuple[str, bytes], ...]] | None = None,
    ) -> None:
        """Become what was stored; its members have their whole session from now on.

        `protocols`: by member id, all that it offers, where that is known (a downgrade).
        """
        raise NotImplementedError

    def snapshot(self) -> ClassicGroup:
        """The record that `load` would make this group from."""
        raise NotImplementedError

    def protocols(self) -> Mapping[str, tuple[tuple[str, bytes], ...]]:
        """By member id, what each offers (an upgrade takes it along)."""
        raise NotImplementedError

    def take_over(self, now_ms: int) -> Decision:
        """All is loaded: every member has its whole session from now; too many of them rebalance.

        Call it once, when the coordinator begins to answer.
        """
        raise NotImplementedError

    def rebalance(self, now_ms: int) -> Decision:
        """Make the members join again (after a downgrade)."""
        raise NotImplementedError

    def drop(self, error: QuorumlogError | None = None) -> Decision:
        """The group ends: waiting joins and syncs fail with `error`, else UnknownMember."""
        raise NotImplementedError
