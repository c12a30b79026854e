"""The state machine of a consumer group member (KIP-848). Pure.

`beat` returns the next heartbeat to send; the caller reports responses. `AssignmentReconciler` has
the partitions; a completed revocation is reported at once, since another member waits for it.

A member that the coordinator does not have any more has lost all partitions at once: other members
may own them. It joins again. The same holds for a member without a response for its session
(`check_deadlines`), which cannot tell. A member that left because the application did not poll, or
did not complete a revocation in time, first raises `error` in a poll; the next poll joins again.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from ...errors import (
    FencedInstance,
    FencedMemberEpoch,
    InvalidRequest,
    PollTooLate,
    QuorumlogError,
    UnknownMember,
    UnreleasedInstance,
)
from ..offsets import PartitionLike
from .reconciler import AssignmentReconciler, ReconcilerMode

FOREVER_MS: Final = 2**62
SESSION_MS: Final = 45_000  # group.consumer.session.timeout.ms if the broker does not return it
CERTAIN: Final = 0.95
"""Share of a time span that is safe to use: the coordinator's clock may be faster than this one."""


class MemberLease:
    """The lease of a member on its partitions.

    The coordinator removes a member, and assigns its partitions to others, after a session without
    a heartbeat, or if a revocation takes longer than the rebalance timeout. The member may not be
    informed: it may be cut off or stopped. It therefore keeps its own deadlines, each counted from
    the earliest moment at which the coordinator can have started:

    - the session from the sending of the last heartbeat that was answered;
    - a revocation from the sending of the first heartbeat after the last response that did not
      request it.

    Times are on one monotonic clock that also advances while code runs.
    """

    __slots__ = ("_asked_ms", "_back_ms", "_session_end_ms", "_wanted_back", "heard_ms")

    def __init__(self, *, back_ms: int) -> None:
        self._back_ms = int(back_ms * CERTAIN)  # time limit of a revocation
        self._asked_ms = FOREVER_MS  # sending of the first heartbeat after the last response
        self._session_end_ms = FOREVER_MS
        self.heard_ms = 0  # sending of the last heartbeat that was answered
        self._wanted_back: dict[PartitionLike, int] = {}  # revocations, with their earliest start

    @property
    def session_end_ms(self) -> int:
        """The time from which other members may own all partitions."""
        return self._session_end_ms

    @property
    def back_end_ms(self) -> int:
        """The same, unless all pending revocations are reported before."""
        return min(self._wanted_back.values(), default=FOREVER_MS) + self._back_ms

    def asks(self, now_ms: int) -> None:
        """Record that a heartbeat is about to be sent."""
        self._asked_ms = min(self._asked_ms, now_ms)

    def answered(
        self,
        *,
        sent_ms: int,
        session_ms: int,
        reported: Iterable[PartitionLike],
        target: Collection[PartitionLike],
    ) -> None:
        """Record the response to a heartbeat sent at `sent_ms`.

        `reported` are the partitions that the member reported to own, `target` its target
        assignment. `session_ms` 0: not returned.
        """
        self.heard_ms = sent_ms
        self._session_end_ms = sent_ms + int((session_ms or SESSION_MS) * CERTAIN)
        asked_ms, self._asked_ms = min(self._asked_ms, sent_ms), FOREVER_MS
        self._wanted_back = {
            place: self._wanted_back.get(place, asked_ms)
            for place in reported
            if place not in target
        }

    def end(self) -> None:
        """Clear the deadlines: the member owns nothing."""
        self._asked_ms = self._session_end_ms = FOREVER_MS
        self._wanted_back = {}


JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
INSTANCE_WAIT_MS: Final = 60_000
"""Maximum wait for an instance id in use: if its former process failed, its session (45 s) ends
within this time."""


@dataclass(frozen=True, slots=True)
class GroupSubscription:
    """The subscription of a member: topics by name, or by a pattern (RE2) of names."""

    topics: tuple[str, ...] = ()  # ascending
    pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHeartbeat:
    """A heartbeat to send; None: unchanged since the last one."""

    epoch: int
    owned: tuple[PartitionLike, ...] | None = None
    subscription: GroupSubscription | None = None
    is_first: bool = False  # contains all fields, constant ones too

    @property
    def is_leave(self) -> bool:
        """True if the member leaves with it."""
        return self.epoch < 0


class Phase(Enum):
    """The phase of a member."""

    JOINING = "joining"  # sends join heartbeats; owns nothing
    JOINED = "joined"
    FENCED = "fenced"  # gives up its partitions, then joins
    AWAY = "away"  # no poll came in time: left or leaving; the next poll joins
    FAILED = "failed"  # refused; a poll raises the error and, if possible, joins again
    LEAVING = "leaving"
    GONE = "gone"


class MemberStateMachine:
    """The state machine; see the module.

    `now_ms` is on one monotonic clock that also advances while code runs.
    """

    def __init__(
        self,
        subscription: GroupSubscription,
        reconciler: AssignmentReconciler,
        *,
        is_static: bool,
        poll_interval_ms: int,
        backoff_ms: Callable[[int], int],
        now_ms: int,
    ) -> None:
        self.phase = Phase.JOINING
        self.epoch = JOIN_EPOCH
        self.error: QuorumlogError | None = None  # raised by the next poll
        self.failure: QuorumlogError | None = None  # of the last heartbeat, which is retried
        self.is_polling = False  # a poll waits: the poll interval does not run
        self.joins = 0  # number of successful joins
        self.rebalances = 0  # number of changed assignments
        self.holds_until_ms = FOREVER_MS  # from then on call `check_deadlines` before a delivery
        self.holds_until_us = FOREVER_MS  # the same, for the check before each record
        self._subscription = subscription
        self._reconciler = reconciler
        reconciler.on_done = self._settle
        self._is_static = is_static
        self._poll_interval_ms = poll_interval_ms
        self._backoff_ms = backoff_ms
        self._sent: GroupHeartbeat | None = None  # in flight
        self._said_owned: tuple[PartitionLike, ...] | None = (
            None  # last acknowledged; None: unknown
        )
        self._said_subscription: GroupSubscription | None = None
        self._next_ms = now_ms  # of the next heartbeat, if nothing changes before
        self._failures = 0  # of heartbeats, consecutive
        self._unreleased_ms = FOREVER_MS  # first refusal because the instance id is in use
        self._polled_ms = now_ms
        self._lease = MemberLease(back_ms=poll_interval_ms)

    @property
    def topics(self) -> tuple[str, ...]:
        """The subscribed topic names."""
        return self._subscription.topics

    # --- heartbeats --------------------------------------------------------------------------

    def beat(self, now_ms: int) -> GroupHeartbeat | None:
        """Return the heartbeat to send now, if one is due; report its outcome."""
        self.check_deadlines(now_ms)
        if self._sent is not None or self.due_ms() > now_ms:
            return None
        self._sent = self._next_beat()
        self._lease.asks(now_ms)
        return self._sent

    def due_ms(self) -> int:
        """Return the time of the next call of `beat`."""
        if self._sent is not None:
            return self._poll_deadline_ms()
        match self.phase:
            case Phase.JOINING:
                return self._next_ms
            case Phase.JOINED:
                due_ms = 0 if self._has_news() else self._next_ms
                return min(max(due_ms, self._not_before_ms()), self._poll_deadline_ms())
            case Phase.AWAY | Phase.LEAVING if self.epoch > 0:
                return self._not_before_ms()
            case _:
                return FOREVER_MS

    def _not_before_ms(self) -> int:
        return self._next_ms if self._failures else 0

    def _next_beat(self) -> GroupHeartbeat:
        if self.phase in (Phase.AWAY, Phase.LEAVING):
            return GroupHeartbeat(epoch=LEAVE_STATIC_EPOCH if self._is_static else LEAVE_EPOCH)
        if self.phase is Phase.JOINING:
            return GroupHeartbeat(
                epoch=JOIN_EPOCH, owned=(), subscription=self._subscription, is_first=True
            )
        held = self._reconciler.owned_or_assigned()
        is_whole = self._said_owned is None
        return GroupHeartbeat(
            epoch=self.epoch,
            owned=held if is_whole or held != self._said_owned else None,
            subscription=self._subscription
            if is_whole or self._subscription != self._said_subscription
            else None,
            is_first=is_whole,
        )

    def retry_of(self, beat: GroupHeartbeat) -> GroupHeartbeat:
        """Return the heartbeat to send in a retry after an attempt of unknown outcome.

        It contains all fields, to which the coordinator responds with the whole assignment.
        """
        if beat.is_leave:
            return beat
        return GroupHeartbeat(
            epoch=beat.epoch,
            owned=self._said_owned if beat.owned is None else beat.owned,
            subscription=beat.subscription or self._said_subscription,
            is_first=True,
        )

    def _has_news(self) -> bool:
        if self._said_owned is None:
            return False  # the next retry contains all fields
        is_held_new = self._reconciler.owned_or_assigned() != self._said_owned
        return is_held_new or self._subscription != self._said_subscription

    def answered(
        self,
        beat: GroupHeartbeat,
        *,
        epoch: int,
        interval_ms: int,
        assignment: Mapping[PartitionLike, bytes] | None,
        session_ms: int,
        sent_ms: int,
        now_ms: int,
    ) -> None:
        """Process the response to a heartbeat; `sent_ms` is the time of its last attempt.

        `assignment` None: unchanged; `session_ms` 0: not returned.
        """
        self._sent = None
        self._failures = 0
        self.failure = None
        self._unreleased_ms = FOREVER_MS
        is_of_before = self.phase in (Phase.JOINING, Phase.FENCED) and beat.epoch != JOIN_EPOCH
        if beat.is_leave:
            self._left()
            return
        if is_of_before:
            # sometimes: a heartbeat of a former membership is answered
            return  # the member has left, or joined again, since it was sent
        self.epoch = epoch
        self._next_ms = now_ms + interval_ms
        if self.phase is Phase.JOINING:
            self._enter(Phase.JOINED)
            self.joins += 1
        self._said_owned = beat.owned if beat.owned is not None else self._said_owned
        self._said_subscription = beat.subscription or self._said_subscription
        if assignment is not None and self.phase is Phase.JOINED:
            self.rebalances += assignment != self._reconciler.target
            self._reconciler.target = dict(assignment)
        if self.phase is Phase.JOINED:
            self._lease.answered(
                sent_ms=sent_ms,
                session_ms=session_ms,
                reported=self._said_owned or (),
                target=self._reconciler.target or {},
            )
            self.holds_until_ms = min(self._lease.session_end_ms, self._lease.back_end_ms)
            self.holds_until_us = 1_000 * self.holds_until_ms
            self.check_deadlines(now_ms)

    def refused(self, beat: GroupHeartbeat, error: QuorumlogError, now_ms: int) -> None:
        """Process an error or a missing response of a heartbeat."""
        self._sent = None
        self._failures += 1
        self.failure = error
        self._said_owned = self._said_subscription = None
        self._next_ms = now_ms + self._backoff_ms(self._failures)
        if beat.is_leave:
            if not error.retriable:
                self._left()
        elif isinstance(error, FencedMemberEpoch | UnknownMember):
            if beat.epoch != JOIN_EPOCH:
                self._fenced(str(error))
        elif isinstance(error, UnreleasedInstance):
            self._unreleased_ms = min(self._unreleased_ms, now_ms)
            if now_ms - self._unreleased_ms >= INSTANCE_WAIT_MS:
                self._failed(error)
        elif not error.retriable:
            self._failed(error)
        if self.phase is Phase.LEAVING and self.epoch <= JOIN_EPOCH:
            self._enter(Phase.GONE)

    def check_deadlines(self, now_ms: int) -> None:
        """Check the deadlines: session, revocation, poll interval.

        Call it before a delivery from `holds_until_ms` on.
        """
        if self.phase is not Phase.JOINED:
            return
        if now_ms >= self._lease.session_end_ms:
            # sometimes: a session lapses at the member
            silent_ms = now_ms - self._lease.heard_ms
            because = "" if self.failure is None else f" ({self.failure})"
            self._fenced(f"no heartbeat was answered for {silent_ms} ms{because}")
        elif now_ms >= self._lease.back_end_ms:
            # sometimes: a revocation takes too long
            self._miss_poll(
                f"a revocation was not completed within {self._poll_interval_ms} ms "
                "(max_poll_interval_ms)"
            )
        elif now_ms >= self._poll_deadline_ms():
            self._miss_poll(f"no poll came for {self._poll_interval_ms} ms (max_poll_interval_ms)")

    def request_heartbeat(self) -> None:
        """Send a heartbeat at once: another request was refused with UnknownMember."""
        if self.phase is Phase.JOINED:
            self._next_ms = 0

    def _fenced(self, why: str) -> None:
        """Give up everything: the coordinator does not have this member or epoch, or may not."""
        self._reconciler.why_lost = why
        self._end_lease()
        self.epoch = JOIN_EPOCH
        self._failures = 0
        self._next_ms = 0
        self._reconciler.target = {}
        if self.phase is Phase.LEAVING:
            self._enter(Phase.GONE)
        elif self.phase is Phase.JOINED:
            self._enter(Phase.FENCED)
            self._settle()

    def _end_lease(self) -> None:
        self._lease.end()
        self.holds_until_ms = self.holds_until_us = FOREVER_MS

    def _failed(self, error: QuorumlogError) -> None:
        self._reconciler.why_lost = str(error)
        self._end_lease()
        self.epoch = JOIN_EPOCH
        self._reconciler.target = {}
        if self.phase is Phase.LEAVING:
            self._enter(Phase.GONE)
        else:
            self._enter(Phase.FAILED)
            self.error = error

    def _left(self) -> None:
        self.epoch = JOIN_EPOCH
        self._said_owned = self._said_subscription = None
        if self.phase is Phase.LEAVING:
            self._enter(Phase.GONE)

    def _enter(self, phase: Phase) -> None:
        self.phase = phase
        match phase:
            case Phase.JOINED:
                self._reconciler.mode = ReconcilerMode.TARGET
            case Phase.FENCED | Phase.AWAY | Phase.FAILED:
                self._reconciler.mode = ReconcilerMode.LOSS
            case _:
                self._reconciler.mode = ReconcilerMode.STOPPED

    def _settle(self) -> None:
        """Join again once everything is given up."""
        if (
            self.phase is Phase.FENCED
            and not self._reconciler.owned
            and self._reconciler.has_no_step
        ):
            self._join()

    def _join(self) -> None:
        self._enter(Phase.JOINING)
        self.epoch = JOIN_EPOCH
        self._reconciler.target = None
        self._said_owned = self._said_subscription = None

    # --- calls of the application --------------------------------------------------------------

    def subscribe(self, subscription: GroupSubscription) -> None:
        """Replace the subscription."""
        self._subscription = subscription
        if self.phase is Phase.FAILED and not isinstance(self.error, FencedInstance):
            self.error = None
            self._rejoin()

    def polled(self, now_ms: int) -> None:
        """Record that the application polls, or has taken records since the last call."""
        self._polled_ms = now_ms

    def error_raised(self) -> None:
        """Record that `error` was raised: the next poll joins again, unless the member is fenced
        for good."""
        if not isinstance(self.error, FencedInstance):
            self.error = None

    def poll_started(self, now_ms: int) -> None:
        """Record a poll; join again if the error was raised before."""
        self._polled_ms = now_ms
        if self.error is None and self.phase in (Phase.AWAY, Phase.FAILED):
            self._rejoin()

    def _rejoin(self) -> None:
        self.epoch = JOIN_EPOCH
        self._enter(Phase.FENCED)
        self._settle()

    def leave(self) -> None:
        """Leave for good; `beat` returns the leave heartbeat."""
        if self.phase is Phase.GONE:
            return
        self._end_lease()
        is_known = self.epoch > 0 or self._sent is not None
        self._enter(Phase.LEAVING if is_known else Phase.GONE)

    def _poll_deadline_ms(self) -> int:
        """Return the deadline of the next poll."""
        if self.is_polling or self.phase is not Phase.JOINED:
            return FOREVER_MS
        return self._polled_ms + self._poll_interval_ms

    def _miss_poll(self, why: str) -> None:
        self._reconciler.why_lost = why
        self._end_lease()
        self._enter(Phase.AWAY)
        self._reconciler.target = {}
        self._failures = 0
        self.error = PollTooLate(
            f"{why}; the consumer left its group and its partitions were assigned to others. The "
            "next poll joins again. Raise max_poll_interval_ms, lower max_poll_records, or do less "
            "in on_revoked"
        )


def check_group(group: Any, instance_id: Any) -> None:
    """Raise InvalidRequest if a group name or instance id is invalid."""
    if not isinstance(group, str) or not group:
        raise InvalidRequest(f"group is {group!r}: give the group's name as a str")
    if instance_id is not None and (not isinstance(instance_id, str) or not instance_id):
        raise InvalidRequest(f"instance_id is {instance_id!r}: give a name as a str, or None")
