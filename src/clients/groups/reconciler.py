"""Reconciliation of a member's partitions with its target assignment (KIP-848). Pure.

`step` returns the next partitions to revoke, assign or give up, one step at a time; the caller
reports completed steps. Revocations come before assignments. A partition is taken only after the
coordinator assigned it, which it does once no other member owns it. Partitions that stay assigned
are not affected by a step.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ..offsets import PartitionLike


class StepKind(Enum):
    """The kind of a step."""

    REVOKE = "give"  # revocation: stop delivery, commit, call back, drop
    ASSIGN = "take"  # assignment: fetch committed offsets, call back, start delivery
    LOSE = "lose"  # loss: drop at once, commit nothing, call back


@dataclass(frozen=True, slots=True)
class RebalanceStep:
    """An action on a set of partitions."""

    act: StepKind
    places: tuple[PartitionLike, ...]
    topic_ids: Mapping[PartitionLike, bytes] = field(
        default_factory=dict
    )  # of an assignment's topics


class ReconcilerMode(Enum):
    """The source of the next steps, set by the member's phase."""

    STOPPED = "stopped"  # no further step
    TARGET = "target"  # the target assignment
    LOSS = "loss"  # the member lost all partitions


class AssignmentReconciler:
    """Reconciles the owned partitions with the target assignment; see the module."""

    def __init__(self) -> None:
        self.mode = ReconcilerMode.STOPPED
        self.owned: dict[PartitionLike, bytes] = {}  # with topic ids
        self.why_lost = ""  # reason of the last loss
        self.target: Mapping[PartitionLike, bytes] | None = None  # None: not received yet
        self.on_done: Callable[[], None] = lambda: None  # called after each completed step
        self._step: RebalanceStep | None = None  # in progress

    def step(self) -> RebalanceStep | None:
        """Return the next step, if none is in progress; report it to `done`."""
        if self._step is not None:
            return None
        self._step = self._next_step()
        return self._step

    def _next_step(self) -> RebalanceStep | None:
        if self.mode is ReconcilerMode.LOSS:
            return RebalanceStep(StepKind.LOSE, tuple(sorted(self.owned))) if self.owned else None
        if self.mode is not ReconcilerMode.TARGET or self.target is None:
            return None
        target, owned = self.target, self.owned
        gone = [place for place in owned if target.get(place, owned[place]) != owned[place]]
        if gone:
            # sometimes: an owned topic is created again
            self.why_lost = "their topic was deleted and created again"
            return RebalanceStep(StepKind.LOSE, tuple(sorted(gone)))
        given = tuple(place for place in sorted(owned) if place not in target)
        if given:
            return RebalanceStep(StepKind.REVOKE, given)
        taken = {place: target[place] for place in sorted(target) if place not in owned}
        return RebalanceStep(StepKind.ASSIGN, tuple(taken), taken) if taken else None

    def done(self, step: RebalanceStep, *, has_failed: bool = False) -> None:
        """Record a completed step; `has_failed`: no partition was taken, or revoked."""
        assert step is self._step, f"{step} is not in progress"
        self._step = None
        if has_failed:
            pass
        elif step.act is StepKind.ASSIGN:
            self.owned.update(step.topic_ids)
        else:
            for place in step.places:
                self.owned.pop(place, None)
        self.on_done()

    def still_applies(self, step: RebalanceStep) -> bool:
        """Return True if a step in progress still applies: the member was not fenced during it."""
        return self.mode is ReconcilerMode.TARGET or step.act is StepKind.LOSE

    def owned_or_assigned(self) -> tuple[PartitionLike, ...]:
        """Return the partitions that the member owns or may own before the next response.

        The coordinator assigns unreported partitions to other members at once.
        """
        held = self.owned.keys() | set(self.target or ())
        if self._step is not None:
            held |= set(self._step.places)
        return tuple(sorted(held))

    @property
    def revoking(self) -> tuple[PartitionLike, ...]:
        """The partitions of a revocation or loss in progress."""
        step = self._step
        return () if step is None or step.act is StepKind.ASSIGN else step.places

    @property
    def has_no_step(self) -> bool:
        """True if no step is in progress."""
        return self._step is None

    @property
    def is_settled(self) -> bool:
        """True if the member owns exactly its target assignment."""
        return (
            self.mode is ReconcilerMode.TARGET
            and self.target is not None
            and self._step is None
            and len(self.target) == len(self.owned)
            and self._next_step() is None
        )
