"""A member of a consumer group as the member itself sees it (KIP-848); pure.

It says which heartbeat to send (`beat`) and which partitions to give back, to take or to take for
lost (`step`), one step after the other; whoever carries that out tells it of answers and of steps
that are done. What is to be given back goes first. What was given back is reported at once, since
others wait for it; what is taken is taken only where the coordinator has said so, and it says so
only when nobody else has it any more. What stays is touched by no step.

A member that the coordinator does not know any more has lost everything at once: others may read
its partitions already. It joins again by itself. The same holds for one that was not answered for
its session (`look`): it cannot know. One that left since nobody polled, or that gave nothing back
in time, joins again at the next poll, which is told by `error`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from ....errors import (
    FencedInstance,
    FencedMemberEpoch,
    InvalidRequest,
    PollTooLate,
    QuorumlogError,
    UnknownMember,
    UnreleasedInstance,
)
from ...offsets import Place
from .lease import FOREVER_MS, Lease

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
INSTANCE_WAIT_MS: Final = 60_000
"""A static name that another process has is waited for so long: that one may have died a moment
ago, and its session (45 s) ends within it."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member wants to read: topics by name, or those whose names match a pattern (RE2)."""

    topics: tuple[str, ...] = ()  # ascending
    pattern: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat to send; None: as was said before."""

    epoch: int
    owned: tuple[Place, ...] | None = None
    subscription: Subscription | None = None
    is_first: bool = False  # everything is said, what never changes too

    @property
    def is_leave(self) -> bool:
        """Whether the member goes with it."""
        return self.epoch < 0


class Act(Enum):
    """What to do with partitions."""

    GIVE = "give"  # hand out no more, commit, tell, drop
    TAKE = "take"  # find where to begin, tell, read
    LOSE = "lose"  # drop at once, commit nothing, tell


@dataclass(frozen=True, slots=True)
class Step:
    """Partitions to do something with, by topic and number."""

    act: Act
    places: tuple[Place, ...]
    topic_ids: Mapping[Place, bytes] = field(default_factory=dict)  # to take: of which topics


class Phase(Enum):
    """Where a member stands."""

    JOINING = "joining"  # asks to be let in; owns nothing
    JOINED = "joined"
    FENCED = "fenced"  # loses what it has, then joins
    AWAY = "away"  # nobody polled: has left, or is about to; the next poll joins
    FAILED = "failed"  # refused; told by a poll, which joins again where that may help
    LEAVING = "leaving"
    GONE = "gone"


class GroupMember:
    """See the module. `now_ms` is of one monotonic clock, which also moves while code runs."""

    def __init__(
        self,
        subscription: Subscription,
        *,
        is_static: bool,
        poll_interval_ms: int,
        backoff_ms: Callable[[int], int],
        now_ms: int,
    ) -> None:
        self.phase = Phase.JOINING
        self.epoch = JOIN_EPOCH
        self.owned: dict[Place, bytes] = {}  # with the id of the topic that it is in
        self.why_lost = ""  # what it had, the last time
        self.error: QuorumlogError | None = None  # for the next poll to raise
        self.failure: QuorumlogError | None = None  # of the newest heartbeat, which is repeated
        self.is_polling = False  # a poll waits: nobody can be late with the next one
        self.joins = 0  # how often it was let in
        self.rebalances = 0  # assignments that differed from the one before
        self.holds_until_ms = FOREVER_MS  # `look` is to be asked before anything is handed out then
        self.holds_until_us = FOREVER_MS  # the same, at hand for whoever looks often
        self._subscription = subscription
        self._is_static = is_static
        self._poll_interval_ms = poll_interval_ms
        self._backoff_ms = backoff_ms
        self._target: Mapping[Place, bytes] | None = None  # None: not told yet
        self._step: Step | None = None  # under way
        self._sent: Beat | None = None  # under way
        self._said_owned: tuple[Place, ...] | None = None  # None: it is unknown what arrived
        self._said_subscription: Subscription | None = None
        self._next_ms = now_ms  # of the next heartbeat, unless there is news
        self._failures = 0  # of heartbeats, in a row
        self._unreleased_ms = FOREVER_MS  # since when another member has the static name
        self._polled_ms = now_ms
        self._lease = Lease(back_ms=poll_interval_ms)

    @property
    def topics(self) -> tuple[str, ...]:
        """What it wants by name."""
        return self._subscription.topics

    # --- heartbeats --------------------------------------------------------------------------

    def beat(self, now_ms: int) -> Beat | None:
        """Return the heartbeat that is to be sent now; its outcome is awaited."""
        self.look(now_ms)
        if self._sent is not None or self.due_ms() > now_ms:
            return None
        self._sent = self._next_beat()
        self._lease.asks(now_ms)
        return self._sent

    def due_ms(self) -> int:
        """Return when `beat` is to be asked next."""
        if self._sent is not None:
            return self._late_ms()
        match self.phase:
            case Phase.JOINING:
                return self._next_ms
            case Phase.JOINED:
                due_ms = 0 if self._has_news() else self._next_ms
                return min(max(due_ms, self._not_before_ms()), self._late_ms())
            case Phase.AWAY | Phase.LEAVING if self.epoch > 0:
                return self._not_before_ms()
            case _:
                return FOREVER_MS

    def _not_before_ms(self) -> int:
        return self._next_ms if self._failures else 0

    def _next_beat(self) -> Beat:
        if self.phase in (Phase.AWAY, Phase.LEAVING):
            return Beat(epoch=LEAVE_STATIC_EPOCH if self._is_static else LEAVE_EPOCH)
        if self.phase is Phase.JOINING:
            return Beat(epoch=JOIN_EPOCH, owned=(), subscription=self._subscription, is_first=True)
        held = self._held()
        is_whole = self._said_owned is None
        return Beat(
            epoch=self.epoch,
            owned=held if is_whole or held != self._said_owned else None,
            subscription=self._subscription
            if is_whole or self._subscription != self._said_subscription
            else None,
            is_first=is_whole,
        )

    def again(self, beat: Beat) -> Beat:
        """Return what is sent in place of a heartbeat that may have arrived, and whose answer has
        not: the coordinator tells all it has told before to who says all that it has said before.
        """
        if beat.is_leave:
            return beat
        return Beat(
            epoch=beat.epoch,
            owned=self._said_owned if beat.owned is None else beat.owned,
            subscription=beat.subscription or self._said_subscription,
            is_first=True,
        )

    def _has_news(self) -> bool:
        if self._said_owned is None:
            return False  # it is repeated as a whole, at its time
        is_held_new = self._held() != self._said_owned
        return is_held_new or self._subscription != self._said_subscription

    def _held(self) -> tuple[Place, ...]:
        """Return what the member has, or may come to have before it is answered: what it does not
        report the coordinator gives to others at once."""
        held = self.owned.keys() | set(self._target or ())
        if self._step is not None:
            held |= set(self._step.places)
        return tuple(sorted(held))

    def answered(
        self,
        beat: Beat,
        *,
        epoch: int,
        interval_ms: int,
        assignment: Mapping[Place, bytes] | None,
        session_ms: int,
        sent_ms: int,
        now_ms: int,
    ) -> None:
        """The coordinator has taken a heartbeat, sent at `sent_ms` (if repeated, the last time);
        `assignment` None: as it was told before; `session_ms` 0: it was not said."""
        self._sent = None
        self._failures = 0
        self.failure = None
        self._unreleased_ms = FOREVER_MS
        is_of_before = self.phase in (Phase.JOINING, Phase.FENCED) and beat.epoch != JOIN_EPOCH
        if beat.is_leave:
            self._left()
            return
        if is_of_before:
            return  # it has left since, or come back
        self.epoch = epoch
        self._next_ms = now_ms + interval_ms
        if self.phase is Phase.JOINING:
            self.phase = Phase.JOINED
            self.joins += 1
        self._said_owned = beat.owned if beat.owned is not None else self._said_owned
        self._said_subscription = beat.subscription or self._said_subscription
        if assignment is not None and self.phase is Phase.JOINED:
            self.rebalances += assignment != self._target
            self._target = dict(assignment)
        if self.phase is Phase.JOINED:
            self._lease.answered(
                sent_ms=sent_ms,
                session_ms=session_ms,
                reported=self._said_owned or (),
                target=self._target or {},
            )
            self.holds_until_ms = min(self._lease.session_end_ms, self._lease.back_end_ms)
            self.holds_until_us = 1_000 * self.holds_until_ms
            self.look(now_ms)

    def refused(self, beat: Beat, error: QuorumlogError, now_ms: int) -> None:
        """A heartbeat has failed, or was not answered."""
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
            self.phase = Phase.GONE

    def look(self, now_ms: int) -> None:
        """Time has passed: others may have the member's partitions by now, or the next poll is too
        late. Whoever hands out records asks from `holds_until_ms` on."""
        if self.phase is not Phase.JOINED:
            return
        if now_ms >= self._lease.session_end_ms:
            silent_ms = now_ms - self._lease.heard_ms
            because = "" if self.failure is None else f" ({self.failure})"
            self._fenced(f"nobody has answered a heartbeat for {silent_ms} ms{because}")
        elif now_ms >= self._lease.back_end_ms:
            self._late(
                f"partitions that the group wants back were not given back in time, within "
                f"{self._poll_interval_ms} ms (max_poll_interval_ms)"
            )
        elif now_ms >= self._late_ms():
            self._late(f"no poll came for {self._poll_interval_ms} ms (max_poll_interval_ms)")

    def doubt(self) -> None:
        """Somebody says that it is no member: ask the coordinator at once."""
        if self.phase is Phase.JOINED:
            self._next_ms = 0

    def _fenced(self, why: str) -> None:
        """The coordinator knows nothing of this member, or of this epoch of it, or may by now."""
        self.why_lost = why
        self._end_lease()
        self.epoch = JOIN_EPOCH
        self._failures = 0
        self._next_ms = 0
        self._target = {}
        if self.phase is Phase.LEAVING:
            self.phase = Phase.GONE
        elif self.phase is Phase.JOINED:
            self.phase = Phase.FENCED
            self._settle()

    def _end_lease(self) -> None:
        self._lease.end()
        self.holds_until_ms = self.holds_until_us = FOREVER_MS

    def _failed(self, error: QuorumlogError) -> None:
        self.why_lost = str(error)
        self._end_lease()
        self.epoch = JOIN_EPOCH
        self._target = {}
        if self.phase is Phase.LEAVING:
            self.phase = Phase.GONE
        else:
            self.phase = Phase.FAILED
            self.error = error

    def _left(self) -> None:
        self.epoch = JOIN_EPOCH
        self._said_owned = self._said_subscription = None
        if self.phase is Phase.LEAVING:
            self.phase = Phase.GONE

    # --- partitions --------------------------------------------------------------------------

    def step(self) -> Step | None:
        """Return what is to be done with partitions now; the next one comes when it is `done`."""
        if self._step is not None:
            return None
        self._step = self._next_step()
        return self._step

    def _next_step(self) -> Step | None:
        if self.phase in (Phase.FENCED, Phase.AWAY, Phase.FAILED):
            return Step(Act.LOSE, tuple(sorted(self.owned))) if self.owned else None
        if self.phase is not Phase.JOINED or self._target is None:
            return None
        target, owned = self._target, self.owned
        gone = [place for place in owned if target.get(place, owned[place]) != owned[place]]
        if gone:  # their topic was deleted, and made anew
            self.why_lost = "their topic was deleted and made anew"
            return Step(Act.LOSE, tuple(sorted(gone)))
        given = tuple(place for place in sorted(owned) if place not in target)
        if given:
            return Step(Act.GIVE, given)
        taken = {place: target[place] for place in sorted(target) if place not in owned}
        return Step(Act.TAKE, tuple(taken), taken) if taken else None

    def done(self, step: Step, *, has_failed: bool = False) -> None:
        """A step has been carried out; `has_failed`: nothing was taken, or given back."""
        assert step is self._step, f"{step} is not under way"
        self._step = None
        if has_failed:
            pass
        elif step.act is Act.TAKE:
            self.owned.update(step.topic_ids)
        else:
            for place in step.places:
                self.owned.pop(place, None)
        self._settle()

    def wants(self, step: Step) -> bool:
        """Whether a step that is being carried out is one still: it is not for who was fenced
        meanwhile."""
        return self.phase is Phase.JOINED or step.act is Act.LOSE

    @property
    def leaving_places(self) -> tuple[Place, ...]:
        """Return what is being given back, or taken for lost, right now."""
        step = self._step
        return () if step is None or step.act is Act.TAKE else step.places

    @property
    def step_is_over(self) -> bool:
        """Whether no step is under way."""
        return self._step is None

    @property
    def is_settled(self) -> bool:
        """Whether the member has what it shall have, as far as it was told."""
        return (
            self.phase is Phase.JOINED
            and self._target is not None
            and self._step is None
            and len(self._target) == len(self.owned)
            and self._next_step() is None
        )

    def _settle(self) -> None:
        """Join again once everything is given up."""
        if self.phase is Phase.FENCED and not self.owned and self._step is None:
            self._join()

    def _join(self) -> None:
        self.phase = Phase.JOINING
        self.epoch = JOIN_EPOCH
        self._target = None
        self._said_owned = self._said_subscription = None

    # --- what the application does -------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Want something else from now on."""
        self._subscription = subscription
        if self.phase is Phase.FAILED and not isinstance(self.error, FencedInstance):
            self.error = None
            self._come_back()

    def polled(self, now_ms: int) -> None:
        """The application reads on, or has read on since the call before."""
        self._polled_ms = now_ms

    def told(self) -> None:
        """The application has heard of `error`: its next poll joins again, where that may help."""
        if not isinstance(self.error, FencedInstance):
            self.error = None

    def come_back(self, now_ms: int) -> None:
        """The application polls: join again after what it was told."""
        self._polled_ms = now_ms
        if self.error is None and self.phase in (Phase.AWAY, Phase.FAILED):
            self._come_back()

    def _come_back(self) -> None:
        self.epoch = JOIN_EPOCH
        self.phase = Phase.FENCED
        self._settle()

    def leave(self) -> None:
        """Go for good; `beat` says it as soon as there is something to say."""
        if self.phase is Phase.GONE:
            return
        self._end_lease()
        is_known = self.epoch > 0 or self._sent is not None
        self.phase = Phase.LEAVING if is_known else Phase.GONE

    def _late_ms(self) -> int:
        """Return when the next poll is too late."""
        if self.is_polling or self.phase is not Phase.JOINED:
            return FOREVER_MS
        return self._polled_ms + self._poll_interval_ms

    def _late(self, why: str) -> None:
        self.why_lost = why
        self._end_lease()
        self.phase = Phase.AWAY
        self._target = {}
        self._failures = 0
        self.error = PollTooLate(
            f"{why}, so that the consumer has left its group and others read its partitions; the "
            "next poll joins again. Give a longer max_poll_interval_ms, take fewer records a poll "
            "(poll_records_max), or do less in on_revoked"
        )


def check_group(group: Any, instance_id: Any) -> None:
    """Raise InvalidRequest for what is no name of a group."""
    if not isinstance(group, str) or not group:
        raise InvalidRequest(f"group is {group!r}: give the group's name, as str")
    if not isinstance(instance_id, str):
        raise InvalidRequest(f"instance_id is {instance_id!r}: give a name, as str")
