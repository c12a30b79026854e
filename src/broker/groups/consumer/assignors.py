"""The assignors of KIP-848, as functions of the members and the topics.

Both are deterministic. `uniform`, the default, balances partition counts and moves as few
partitions as that allows. `range` assigns each member a contiguous range of each topic, the same
range of topics with equal partition counts, so that such topics can be joined. Racks are ignored.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from ....ids import TopicId
from ..records import Partitions

Target: TypeAlias = dict[str, Partitions]
Counts: TypeAlias = Mapping[TopicId, int]
"""The number of partitions of each topic: they are `[0, count)`."""

BALANCING_ROUNDS_MAX: Final = 8
"""Maximum number of passes in which `uniform` balances members with different subscriptions."""
BROAD_SHARE: Final = 16
"""A topic is broad if at most one member in this many is not subscribed to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSpec:
    """A member's subscription and its current target assignment."""

    member_id: str
    sort_key: str  # its instance id, or else its member id
    topics: frozenset[TopicId]  # the topics it is subscribed to; each has a count
    current: Partitions  # its previous target; the targets of members are disjoint


Assignor: TypeAlias = Callable[[Sequence[MemberSpec], Counts], Target]


# --- uniform --------------------------------------------------------------------------------------


def uniform(specs: Sequence[MemberSpec], counts: Counts) -> Target:
    """Assign equal numbers of partitions; members keep as much of their target as that allows.

    If all members have the same subscription, their counts differ by at most one. Otherwise, a
    partition moves if that reduces the difference between its old and new owner.
    """
    ordered = sorted(specs, key=lambda spec: spec.sort_key)
    if not ordered:
        return {}
    if all(spec.topics == ordered[0].topics for spec in ordered):
        return _uniform_homogeneous(ordered, counts)
    return _uniform_heterogeneous(ordered, counts)


def _uniform_homogeneous(specs: Sequence[MemberSpec], counts: Counts) -> Target:
    """Assign to members with the same subscription: O(members + partitions)."""
    topics = sorted(specs[0].topics)
    base, extra = divmod(sum(counts[topic_id] for topic_id in topics), len(specs))
    retained = {spec.member_id: _still_valid(spec, counts) for spec in specs}
    sizes = {member_id: _size(partitions) for member_id, partitions in retained.items()}
    # Members that already have more than `base` partitions get the remainder first.
    above_base = [spec.member_id for spec in specs if sizes[spec.member_id] > base]
    at_most_base = [spec.member_id for spec in specs if sizes[spec.member_id] <= base]
    quotas = {
        member_id: base + (1 if rank < extra else 0)
        for rank, member_id in enumerate(above_base + at_most_base)
    }
    target: Target = {}
    for spec in specs:
        kept, quota = retained[spec.member_id], quotas[spec.member_id]
        target[spec.member_id] = _at_most(kept, quota) if sizes[spec.member_id] > quota else kept
    open_slots = [
        [spec.member_id] * (quotas[spec.member_id] - _size(target[spec.member_id]))
        for spec in specs
        if _size(target[spec.member_id]) < quotas[spec.member_id]
    ]
    _assign_slots(target, _unassigned(topics, counts, target), _round_robin(open_slots))
    return target


def _assign_slots(
    target: Target, partitions: Sequence[tuple[TopicId, int]], members: Sequence[str]
) -> None:
    """Assign each partition to the member at the same position."""
    assert len(partitions) == len(members), f"{len(partitions)} partitions for {len(members)} slots"
    added: dict[str, dict[TopicId, set[int]]] = {}
    for member_id, (topic_id, index) in zip(members, partitions, strict=True):
        added.setdefault(member_id, {}).setdefault(topic_id, set()).add(index)
    for member_id, more in added.items():
        whole = dict(target[member_id])
        for topic_id, indices in more.items():
            whole[topic_id] = whole.get(topic_id, frozenset()) | indices
        target[member_id] = whole


def _round_robin(slots: Sequence[Sequence[str]]) -> list[str]:
    """Return the first slot of each member, then the second of each, and so on, so that
    neighbouring partitions go to different members."""
    ordered = [
        (turn, rank, member_id)
        for rank, of_member in enumerate(slots)
        for turn, member_id in enumerate(of_member)
    ]
    ordered.sort()
    return [member_id for _, _, member_id in ordered]


def _at_most(partitions: Partitions, quota: int) -> Partitions:
    """Return `quota` of the partitions, about as many of each topic."""
    ranked = sorted(
        (rank, topic_id, index)
        for topic_id, indices in partitions.items()
        for rank, index in enumerate(sorted(indices))
    )
    kept: dict[TopicId, set[int]] = {}
    for _, topic_id, index in ranked[:quota]:
        kept.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indices) for topic_id, indices in kept.items()}


def _uniform_heterogeneous(specs: Sequence[MemberSpec], counts: Counts) -> Target:
    """Assign to members with different subscriptions: topics with few subscribers first, then
    balance.

    O(subscriptions) once, and O(topics x subscribers) for each of at most `BALANCING_ROUNDS_MAX`
    rounds. For a broad topic, the number of members without it counts instead of them.
    """
    target: Target = {spec.member_id: _still_valid(spec, counts) for spec in specs}
    members = _MemberLoads(specs, target)
    owners = members.owners(target)
    for topic_id in members.topics:
        of_topic = owners.setdefault(topic_id, {})
        free = [index for index in range(counts[topic_id]) if index not in of_topic]
        if free:
            queue = members.queue(topic_id)
            for index in free:
                destination = of_topic[index] = queue.least(topic_id)
                members.change(destination, 1, queue)
    for _ in range(BALANCING_ROUNDS_MAX):
        moved = [_balance_topic(owners[each], members, each) for each in members.topics]
        if not any(moved):
            break
    return _by_member(owners, [spec.member_id for spec in specs], target)


class _MemberLoads:
    """Subscriptions and partition counts of the members; a member is its index in sort order."""

    def __init__(self, specs: Sequence[MemberSpec], target: Target) -> None:
        self.loads = [_size(target[spec.member_id]) for spec in specs]
        self._numbers = {spec.member_id: number for number, spec in enumerate(specs)}
        self._subscriptions = [spec.topics for spec in specs]
        wanted: Counter[TopicId] = Counter()
        for topics in self._subscriptions:
            wanted.update(topics)
        self.topics = sorted(wanted, key=lambda topic_id: (wanted[topic_id], topic_id))
        few = [each for each in self.topics if not self._is_broad(wanted[each])]
        self._subscribers: dict[TopicId, list[int]] = {each: [] for each in few}
        if few:
            for number, topics in enumerate(self._subscriptions):
                for topic_id in topics.intersection(self._subscribers):
                    self._subscribers[topic_id].append(number)
        self._has_broad = len(few) < len(self.topics)
        self._all = _Queue(range(len(specs)), self.loads, self._subscriptions)

    def _is_broad(self, subscribers: int) -> bool:
        """Return True if skipping the members without the topic is cheaper than listing its
        subscribers."""
        count = len(self._subscriptions)
        return (count - subscribers) * BROAD_SHARE <= count

    def queue(self, topic_id: TopicId) -> "_Queue":
        """Return the queue of a topic's subscribers; for a broad topic, that of all members."""
        subscribers = self._subscribers.get(topic_id)
        return (
            self._all
            if subscribers is None
            else _Queue(subscribers, self.loads, self._subscriptions)
        )

    def change(self, number: int, by: int, queue: "_Queue") -> None:
        """Change the load of a member of a queue."""
        self.loads[number] += by
        queue.put(number)
        if self._has_broad and queue is not self._all:
            self._all.put(number)

    def owners(self, target: Target) -> dict[TopicId, dict[int, int]]:
        """Return the owner of each assigned partition."""
        found: dict[TopicId, dict[int, int]] = {}
        for member_id, partitions in target.items():
            number = self._numbers[member_id]
            for topic_id, indices in partitions.items():
                found.setdefault(topic_id, {}).update(dict.fromkeys(indices, number))
        return found

    def least_load(self, topic_id: TopicId) -> int:
        """Return the load of the least loaded subscriber of a topic."""
        subscribers = self._subscribers.get(topic_id)
        if subscribers is None:
            return self.loads[self._all.least(topic_id)]
        return min(map(self.loads.__getitem__, subscribers))


class _Queue:
    """Members by ascending load. An entry is valid while its load is the member's load; a change of
    load adds an entry."""

    __slots__ = ("_heap", "_loads", "_subscriptions")

    def __init__(
        self, numbers: Iterable[int], loads: Sequence[int], wants: Sequence[frozenset[TopicId]]
    ) -> None:
        self._loads = loads
        self._subscriptions = wants
        self._heap = [(loads[number], number) for number in numbers]
        heapify(self._heap)

    def put(self, number: int) -> None:
        """Add an entry for a member's new load."""
        heappush(self._heap, (self._loads[number], number))

    def least(self, topic_id: TopicId) -> int:
        """Return the least loaded subscriber of a topic; there must be one."""
        heap, passed = self._heap, []
        while True:
            load, number = heap[0]
            if load == self._loads[number]:
                if topic_id in self._subscriptions[number]:
                    break
                passed.append(heap[0])
            heappop(heap)
        for each in passed:
            heappush(heap, each)
        return number


def _balance_topic(of_topic: dict[int, int], members: _MemberLoads, topic_id: TopicId) -> bool:
    """Move partitions of one topic from more to less loaded members; return True if any moved."""
    loads = members.loads
    if not of_topic:
        return False
    if max(map(loads.__getitem__, of_topic.values())) - members.least_load(topic_id) < 2:
        return False
    queue = members.queue(topic_id)
    moved = False
    for index, source in sorted(of_topic.items(), key=lambda item: (-loads[item[1]], item[0])):
        destination = queue.least(topic_id)
        if loads[source] - loads[destination] < 2:
            continue
        of_topic[index] = destination
        members.change(source, -1, queue)
        members.change(destination, 1, queue)
        moved = True
    return moved


def _by_member(
    owners: dict[TopicId, dict[int, int]], member_ids: Sequence[str], before: Target
) -> Target:
    """Return the partitions by member; an unchanged value is the same object as before."""
    found: dict[str, dict[TopicId, set[int]]] = {member_id: {} for member_id in before}
    for topic_id, of_topic in owners.items():
        for index, number in of_topic.items():
            found[member_ids[number]].setdefault(topic_id, set()).add(index)
    target: Target = {}
    for member_id, sets in found.items():
        partitions = {topic_id: frozenset(indices) for topic_id, indices in sets.items()}
        target[member_id] = before[member_id] if partitions == before[member_id] else partitions
    return target


# --- range ----------------------------------------------------------------------------------------


def range_assignor(specs: Sequence[MemberSpec], counts: Counts) -> Target:
    """Assign each subscriber a contiguous range of each topic, in sort order."""
    ordered = sorted(specs, key=lambda spec: spec.sort_key)
    subscribers: dict[TopicId, list[str]] = {}
    for spec in ordered:
        for topic_id in spec.topics:
            subscribers.setdefault(topic_id, []).append(spec.member_id)
    found: dict[str, dict[TopicId, frozenset[int]]] = {spec.member_id: {} for spec in ordered}
    for topic_id in sorted(subscribers):
        members = subscribers[topic_id]
        base, extra = divmod(counts[topic_id], len(members))
        start = 0
        for rank, member_id in enumerate(members):
            end = start + base + (1 if rank < extra else 0)
            if start == end:
                break
            found[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return {
        spec.member_id: spec.current
        if found[spec.member_id] == spec.current
        else found[spec.member_id]
        for spec in ordered
    }


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_assignor}


# --- shared by both -------------------------------------------------------------------------------


def _still_valid(spec: MemberSpec, counts: Counts) -> Partitions:
    """Return the part of the member's target that is still valid; the same object if all is."""
    if all(
        topic_id in spec.topics and max(indices) < counts[topic_id]
        for topic_id, indices in spec.current.items()
    ):
        return spec.current
    kept = {
        topic_id: frozenset(index for index in indices if index < counts[topic_id])
        for topic_id, indices in spec.current.items()
        if topic_id in spec.topics
    }
    return {topic_id: indices for topic_id, indices in kept.items() if indices}


def _unassigned(
    topics: Sequence[TopicId], counts: Counts, target: Target
) -> list[tuple[TopicId, int]]:
    """Return the unassigned partitions, by topic and index."""
    taken: dict[TopicId, set[int]] = {}
    for partitions in target.values():
        for topic_id, indices in partitions.items():
            taken.setdefault(topic_id, set()).update(indices)
    return [
        (topic_id, index)
        for topic_id in topics
        for index in sorted(set(range(counts[topic_id])) - taken.get(topic_id, set()))
    ]


def _size(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))
