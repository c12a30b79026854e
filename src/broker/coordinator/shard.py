"""The pure state machine of one partition of an internal topic, as the shell uses it."""

from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar

from ...ids import ProducerIdentity
from ...metadata.image import MetadataImage, TopicImage
from ...records.control import TransactionMarker
from .decision import ShardDecision, Ticket

R = TypeVar("R")
Rec = TypeVar("Rec")


class CoordinatorRequest(Generic[R]):
    """A request to a coordinator; `R` is the type of its answer."""

    __slots__ = ()

    @property
    def key(self) -> str:
        """The group id or transactional id."""
        raise NotImplementedError


class Shard(Protocol[Rec]):
    """The state of one partition; times are in milliseconds of the wall clock.

    To load it, call `replay` for each stored record and `replay_marker` for each control batch, in
    log order, and then `loaded`.
    """

    def handle(
        self, ticket: Ticket, request: Any, image: MetadataImage, now_ms: int
    ) -> ShardDecision[Rec]:
        """Decide a request; a refusal is a `Failed` reply of the decision."""
        ...

    def deadline_ms(self) -> int | None:
        """Return the time of the next `expire`, never too late; None: no deadline."""
        ...

    def expire(self, now_ms: int, image: MetadataImage) -> ShardDecision[Rec]:
        """Handle expired deadlines; call it again at once if `deadline_ms` is still in the past."""
        ...

    def restart_sessions(self, now_ms: int) -> None:
        """Restart all sessions after requests were refused for a while."""
        ...

    def image_changed(
        self, image: MetadataImage, now_ms: int, *, deleted: Iterable[TopicImage] = ()
    ) -> ShardDecision[Rec]:
        """Apply a metadata change with these deleted topics."""
        ...

    def replay(self, record: Rec, producer: ProducerIdentity | None = None) -> None:
        """Apply a stored record. `producer` has the id and epoch of its batch if that is
        transactional."""
        ...

    def replay_marker(self, marker: TransactionMarker) -> None:
        """Apply a stored control batch. The transaction version is 0: it is not stored."""
        ...

    def loaded(self, image: MetadataImage, now_ms: int) -> ShardDecision[Rec]:
        """Finish loading; return the effects that this leader must resume."""
        ...
