"""The rules of a target assignment of KIP-848, by topics, members and the target before.

- Each partition of a subscribed topic belongs to one member, which is subscribed to the topic.
- `range`: each topic is split in order of the members, the first ones get one partition more.
- `uniform`: the partition counts of members with the same subscription differ by at most one, and
  no partition moves unless that needs it. With several subscriptions, no single move to another
  subscriber may make two counts more equal; a target that is balanced already does not change.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from quorumlog.ids import TopicId

from ...checkers.violation import Violation

Shares = Mapping[TopicId, frozenset[int]]
Place = tuple[TopicId, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignee:
    """A member in an assignment."""

    member_id: str
    sort_key: str  # the static name, or else the id
    topics: frozenset[TopicId]
    before: frozenset[Place]  # its target before
    after: frozenset[Place]


def places(shares: Shares) -> frozenset[Place]:
    """Return partitions one by one."""
    return frozenset((topic, index) for topic, indices in shares.items() for index in indices)


def check_target(assignor: str, members: Sequence[Assignee], counts: Mapping[TopicId, int]) -> None:
    """Raise Violation for a target that breaks a rule."""
    _check_cover(members, counts)
    if assignor == "range":
        _check_ranges(members, counts)
    elif len({each.topics for each in members}) <= 1:
        _check_uniform(members, counts)
    else:
        _check_balance(members, counts)


def _check_cover(members: Sequence[Assignee], counts: Mapping[TopicId, int]) -> None:
    wanted = frozenset[TopicId]().union(*(each.topics for each in members))
    expected = sorted((topic, index) for topic in wanted for index in range(counts[topic]))
    found = sorted(place for each in members for place in each.after)
    if found != expected:
        raise Violation("Assignment", f"{found} are assigned in place of {expected}")
    for each in members:
        foreign = [place for place in each.after if place[0] not in each.topics]
        if foreign:
            raise Violation("Assignment", f"{each.member_id} gets {foreign} without a subscription")


def _check_ranges(members: Sequence[Assignee], counts: Mapping[TopicId, int]) -> None:
    for topic, count in counts.items():
        ordered = sorted(
            (each for each in members if topic in each.topics), key=lambda each: each.sort_key
        )
        free = list(range(count))
        for rank, each in enumerate(ordered):
            size = count // len(ordered) + (rank < count % len(ordered))
            share = {index for name, index in each.after if name == topic}
            if share != set(free[:size]):
                raise Violation("Range", f"{each.member_id} gets {share}, not {free[:size]}")
            free = free[size:]


def _kept(each: Assignee, counts: Mapping[TopicId, int]) -> frozenset[Place]:
    """Return the part of the target before that a member may keep."""
    return frozenset(
        (topic, index)
        for topic, index in each.before
        if topic in each.topics and index < counts.get(topic, 0)
    )


def _check_uniform(members: Sequence[Assignee], counts: Mapping[TopicId, int]) -> None:
    sizes = [len(each.after) for each in members]
    if not sizes:
        return
    if max(sizes) - min(sizes) > 1:
        raise Violation("Uniform", f"the members get {sizes} partitions")
    least = sum(sizes) // len(sizes)
    above = 0
    for each in members:
        kept = _kept(each, counts)
        above += len(kept) > least
        if not (kept <= each.after or each.after <= kept):
            raise Violation(
                "Sticky", f"{each.member_id} had {sorted(kept)} and gets {sorted(each.after)}"
            )
    with_more = sum(len(each.after) > least < len(_kept(each, counts)) for each in members)
    if with_more != min(above, sum(sizes) % len(sizes)):
        raise Violation("Sticky", f"{with_more} of {above} members keep more than {least}")


def _check_balance(members: Sequence[Assignee], counts: Mapping[TopicId, int]) -> None:
    after = {each.member_id: each.after for each in members}
    if (move := _better_move(members, after)) is not None:
        raise Violation("Balance", f"{move} would make the counts more equal: {after}")
    kept = {each.member_id: _kept(each, counts) for each in members}
    is_whole = sum(map(len, kept.values())) == sum(map(len, after.values()))
    if is_whole and kept != after and _better_move(members, kept) is None:
        raise Violation("Sticky", f"the balanced {kept} became {after}")


def _better_move(
    members: Sequence[Assignee], shares: Mapping[str, frozenset[Place]]
) -> tuple[Place, str, str] | None:
    for owner in members:
        for place in sorted(shares[owner.member_id]):
            for other in members:
                if place[0] in other.topics and (
                    len(shares[owner.member_id]) - len(shares[other.member_id]) > 1
                ):
                    return place, owner.member_id, other.member_id
    return None
