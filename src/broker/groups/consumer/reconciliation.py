"""Reconciliation: one step of a member from its current to its target assignment (KIP-848).

Pure. A member revokes before it gets partitions: it stays at its epoch until it has reported that
it holds none of those to revoke. Then it moves to the target's epoch and gets the partitions that
are free. It gets the rest with later heartbeats, at the same epoch, once other members have revoked
them.
"""

from collections.abc import Callable
from dataclasses import replace

from ....ids import TopicId
from ..records import CurrentAssignment, MemberState, Partitions


def reconcile(
    current: CurrentAssignment,
    *,
    target: Partitions,
    target_epoch: int,
    owned: Partitions | None,
    owner: Callable[[TopicId, int], str | None],
    is_forced: bool = False,
) -> CurrentAssignment:
    """Return the member's next assignment; equal to `current` if no progress is possible.

    `owned`: the partitions that the member reports; None: not reported, so it may hold any. `owner`
    returns the owner of a partition, or None. `is_forced`: the subscription has changed, so the
    target of the member's epoch has changed as well.
    """
    if current.state is MemberState.STABLE and current.epoch == target_epoch and not is_forced:
        return current
    is_revoking = current.state is MemberState.UNREVOKED_PARTITIONS and _holds(
        owned, current.pending_revocation
    )
    if is_revoking and not is_forced:
        return current
    kept = _intersection(current.assigned, target)
    to_revoke = _difference(current.assigned, kept)
    if is_revoking:
        to_revoke = _union(current.pending_revocation, to_revoke)
    if is_revoking or (to_revoke and _holds(owned, to_revoke)):
        return replace(
            current,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=to_revoke,
        )
    missing = _difference(target, kept)
    free = {
        topic_id: released
        for topic_id, indices in missing.items()
        if (released := _free(topic_id, indices, current.member_id, owner))
    }
    return replace(
        current,
        epoch=target_epoch,
        # The member may send this epoch if this answer is lost.
        previous_epoch=current.previous_epoch if current.epoch == target_epoch else current.epoch,
        state=MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS,
        assigned=_union(kept, free),
        pending_revocation={},
    )


def is_within(owned: Partitions | None, assigned: Partitions) -> bool:
    """Return True if the member reports its partitions, and none beyond its assignment."""
    return owned is not None and all(
        indices <= assigned.get(topic_id, frozenset()) for topic_id, indices in owned.items()
    )


def _holds(owned: Partitions | None, partitions: Partitions) -> bool:
    """Return True if the member may still hold some of these partitions."""
    return owned is None or any(
        not indices.isdisjoint(partitions.get(topic_id, ())) for topic_id, indices in owned.items()
    )


def _free(
    topic_id: TopicId,
    indices: frozenset[int],
    member_id: str,
    owner: Callable[[TopicId, int], str | None],
) -> frozenset[int]:
    """Return the partitions without another owner; those the member held itself, it has revoked."""
    return frozenset(index for index in indices if owner(topic_id, index) in (None, member_id))


def _intersection(left: Partitions, right: Partitions) -> dict[TopicId, frozenset[int]]:
    found = {topic_id: left[topic_id] & right[topic_id] for topic_id in left if topic_id in right}
    return {topic_id: indices for topic_id, indices in found.items() if indices}


def _difference(left: Partitions, right: Partitions) -> dict[TopicId, frozenset[int]]:
    found = {
        topic_id: indices - right[topic_id] if topic_id in right else indices
        for topic_id, indices in left.items()
    }
    return {topic_id: indices for topic_id, indices in found.items() if indices}


def _union(left: Partitions, right: Partitions) -> dict[TopicId, frozenset[int]]:
    found = dict(left)
    for topic_id, indices in right.items():
        found[topic_id] = found[topic_id] | indices if topic_id in found else indices
    return found
