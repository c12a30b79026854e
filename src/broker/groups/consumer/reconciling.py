"""One step of a member from what it owns to what it is to own (KIP-848, "Reconciliation").

Pure. A member gives back before it gets: it stays at its epoch until it has reported that it holds
nothing of what it is to give back, then it comes to the target's epoch and gets what is free; what
others still hold it gets with later heartbeats, at the same epoch.
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
    """The member's next assignment; equal to `current` where it can go no further.

    `owned` is what the member reports to hold, None: it does not say, so it may hold anything.
    `owner` says who has a partition, None: nobody. `is_forced`: the target is no more the one that
    the member knows at its epoch, since it wants other topics now.
    """
    if current.state is MemberState.STABLE and current.epoch == target_epoch and not is_forced:
        return current
    gives_back = current.state is MemberState.UNREVOKED_PARTITIONS and _holds(
        owned, current.pending_revocation
    )
    if gives_back and not is_forced:
        return current
    kept = _both(current.assigned, target)
    to_revoke = _without(current.assigned, kept)
    if gives_back:
        to_revoke = _either(current.pending_revocation, to_revoke)
    if gives_back or (to_revoke and _holds(owned, to_revoke)):
        return replace(
            current,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=to_revoke,
        )
    missing = _without(target, kept)
    free = {
        topic_id: released
        for topic_id, indices in missing.items()
        if (released := _free(topic_id, indices, current.member_id, owner))
    }
    return replace(
        current,
        epoch=target_epoch,
        # The epoch with which it may still come, when this answer is lost.
        previous_epoch=current.previous_epoch if current.epoch == target_epoch else current.epoch,
        state=MemberState.STABLE if free == missing else MemberState.UNRELEASED_PARTITIONS,
        assigned=_either(kept, free),
        pending_revocation={},
    )


def is_within(owned: Partitions | None, assigned: Partitions) -> bool:
    """Whether a member reports what it holds, and nothing that it was not given."""
    return owned is not None and all(
        indices <= assigned.get(topic_id, frozenset()) for topic_id, indices in owned.items()
    )


def _holds(owned: Partitions | None, partitions: Partitions) -> bool:
    """Whether a member may still hold some of these."""
    return owned is None or any(
        not indices.isdisjoint(partitions.get(topic_id, ())) for topic_id, indices in owned.items()
    )


def _free(
    topic_id: TopicId,
    indices: frozenset[int],
    member_id: str,
    owner: Callable[[TopicId, int], str | None],
) -> frozenset[int]:
    """Those that nobody else holds. What the member itself held it has given back by now."""
    return frozenset(index for index in indices if owner(topic_id, index) in (None, member_id))


def _both(left: Partitions, right: Partitions) -> dict[TopicId, frozenset[int]]:
    found = {topic_id: left[topic_id] & right[topic_id] for topic_id in left if topic_id in right}
    return {topic_id: indices for topic_id, indices in found.items() if indices}


def _without(left: Partitions, right: Partitions) -> dict[TopicId, frozenset[int]]:
    found = {
        topic_id: indices - right[topic_id] if topic_id in right else indices
        for topic_id, indices in left.items()
    }
    return {topic_id: indices for topic_id, indices in found.items() if indices}


def _either(left: Partitions, right: Partitions) -> dict[TopicId, frozenset[int]]:
    found = dict(left)
    for topic_id, indices in right.items():
        found[topic_id] = found[topic_id] | indices if topic_id in found else indices
    return found
