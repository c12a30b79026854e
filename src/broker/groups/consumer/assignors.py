"""Who is to read what: the assignors of KIP-848, as functions of the members and the topics.

Both are deterministic. `uniform` moves as few partitions as a balanced share-out needs and is the
default; `range` gives each member neighbouring partitions, the same ones of each topic, so that
topics with as many partitions can be joined. Racks make no difference.
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
"""How many partitions each topic has: they are `[0, count)`."""

BALANCING_ROUNDS_MAX: Final = 8
"""How often `uniform` looks through the topics of members that want different ones."""
BROAD_SHARE: Final = 16
"""A topic is broad that all want but one member in so many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a member may be given."""

    member_id: str
    place: str  # its static name, else its id: what it is sorted by
    topics: frozenset[TopicId]  # each has its count
    current: Partitions  # what it was to own by now; no two have the same


Assignor: TypeAlias = Callable[[Sequence[Wish], Counts], Target]


# --- uniform --------------------------------------------------------------------------------------


def uniform(wishes: Sequence[Wish], counts: Counts) -> Target:
    """Equal numbers of partitions, and everybody keeps what that allows.

    Where all want the same topics, no two members differ by more than one partition; else a
    partition moves whenever that makes the two concerned more equal.
    """
    ordered = sorted(wishes, key=lambda wish: wish.place)
    if not ordered:
        return {}
    if all(wish.topics == ordered[0].topics for wish in ordered):
        return _uniform_alike(ordered, counts)
    return _uniform_mixed(ordered, counts)


def _uniform_alike(wishes: Sequence[Wish], counts: Counts) -> Target:
    """Of members that all want the same: O(members + partitions)."""
    topics = sorted(wishes[0].topics)
    base, extra = divmod(sum(counts[topic_id] for topic_id in topics), len(wishes))
    still = {wish.member_id: _still(wish, counts) for wish in wishes}
    sizes = {member_id: _size(partitions) for member_id, partitions in still.items()}
    # One more than the others have first those that have it already.
    greedy = [wish.member_id for wish in wishes if sizes[wish.member_id] > base]
    modest = [wish.member_id for wish in wishes if sizes[wish.member_id] <= base]
    quotas = {
        member_id: base + (1 if rank < extra else 0)
        for rank, member_id in enumerate(greedy + modest)
    }
    target: Target = {}
    for wish in wishes:
        kept, quota = still[wish.member_id], quotas[wish.member_id]
        target[wish.member_id] = _at_most(kept, quota) if sizes[wish.member_id] > quota else kept
    hungry = [
        [wish.member_id] * (quotas[wish.member_id] - _size(target[wish.member_id]))
        for wish in wishes
        if _size(target[wish.member_id]) < quotas[wish.member_id]
    ]
    _hand_out(target, _unassigned(topics, counts, target), _in_turns(hungry))
    return target


def _hand_out(
    target: Target, partitions: Sequence[tuple[TopicId, int]], members: Sequence[str]
) -> None:
    """Give the partitions to the members, one to one."""
    assert len(partitions) == len(members), f"{len(partitions)} for {len(members)} places"
    gifts: dict[str, dict[TopicId, set[int]]] = {}
    for member_id, (topic_id, index) in zip(members, partitions, strict=True):
        gifts.setdefault(member_id, {}).setdefault(topic_id, set()).add(index)
    for member_id, more in gifts.items():
        whole = dict(target[member_id])
        for topic_id, indices in more.items():
            whole[topic_id] = whole.get(topic_id, frozenset()) | indices
        target[member_id] = whole


def _in_turns(places: Sequence[Sequence[str]]) -> list[str]:
    """The first of each, the second of each, and so on: neighbours go to different members."""
    ordered = [
        (turn, rank, member_id)
        for rank, of_member in enumerate(places)
        for turn, member_id in enumerate(of_member)
    ]
    ordered.sort()
    return [member_id for _, _, member_id in ordered]


def _at_most(partitions: Partitions, quota: int) -> Partitions:
    """Some of the partitions, of each topic about as many."""
    ranked = sorted(
        (rank, topic_id, index)
        for topic_id, indices in partitions.items()
        for rank, index in enumerate(sorted(indices))
    )
    kept: dict[TopicId, set[int]] = {}
    for _, topic_id, index in ranked[:quota]:
        kept.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indices) for topic_id, indices in kept.items()}


def _uniform_mixed(wishes: Sequence[Wish], counts: Counts) -> Target:
    """Of members that want different topics: what few want is given first, then evened out.

    O(subscriptions) once, and O(topics x subscribers) for each of at most `BALANCING_ROUNDS_MAX`
    rounds; a topic that all want but a few costs what those few do.
    """
    target: Target = {wish.member_id: _still(wish, counts) for wish in wishes}
    members = _Members(wishes, target)
    owners = members.owners(target)
    for topic_id in members.topics:
        of_topic = owners.setdefault(topic_id, {})
        free = [index for index in range(counts[topic_id]) if index not in of_topic]
        if free:
            queue = members.queue(topic_id)
            for index in free:
                taker = of_topic[index] = queue.least(topic_id)
                members.change(taker, 1, queue)
    for _ in range(BALANCING_ROUNDS_MAX):
        moved = [_even_out(owners[each], members, each) for each in members.topics]
        if not any(moved):
            break
    return _of_owners(owners, [wish.member_id for wish in wishes], target)


class _Members:
    """Who wants what, and has how much so far; a member is its number in the order of places."""

    def __init__(self, wishes: Sequence[Wish], target: Target) -> None:
        self.loads = [_size(target[wish.member_id]) for wish in wishes]
        self._numbers = {wish.member_id: number for number, wish in enumerate(wishes)}
        self._wants = [wish.topics for wish in wishes]
        wanted: Counter[TopicId] = Counter()
        for topics in self._wants:
            wanted.update(topics)
        self.topics = sorted(wanted, key=lambda topic_id: (wanted[topic_id], topic_id))
        few = [each for each in self.topics if not self._is_broad(wanted[each])]
        self._subscribers: dict[TopicId, list[int]] = {each: [] for each in few}
        if few:
            for number, topics in enumerate(self._wants):
                for topic_id in topics.intersection(self._subscribers):
                    self._subscribers[topic_id].append(number)
        self._has_broad = len(few) < len(self.topics)
        self._all = _Queue(range(len(wishes)), self.loads, self._wants)

    def _is_broad(self, subscribers: int) -> bool:
        """Whether to pass over those who do not want a topic is cheaper than to list who does."""
        count = len(self._wants)
        return (count - subscribers) * BROAD_SHARE <= count

    def queue(self, topic_id: TopicId) -> "_Queue":
        """Who wants a topic, and of one that nearly all want everybody."""
        subscribers = self._subscribers.get(topic_id)
        return self._all if subscribers is None else _Queue(subscribers, self.loads, self._wants)

    def change(self, number: int, by: int, queue: "_Queue") -> None:
        """A member of a queue gets a partition, or gives one back."""
        self.loads[number] += by
        queue.put(number)
        if self._has_broad and queue is not self._all:
            self._all.put(number)

    def owners(self, target: Target) -> dict[TopicId, dict[int, int]]:
        """Who has each partition that somebody has."""
        found: dict[TopicId, dict[int, int]] = {}
        for member_id, partitions in target.items():
            number = self._numbers[member_id]
            for topic_id, indices in partitions.items():
                found.setdefault(topic_id, {}).update(dict.fromkeys(indices, number))
        return found

    def least_load(self, topic_id: TopicId) -> int:
        """What the least loaded has of those who want a topic."""
        subscribers = self._subscribers.get(topic_id)
        if subscribers is None:
            return self.loads[self._all.least(topic_id)]
        return min(map(self.loads.__getitem__, subscribers))


class _Queue:
    """Some members, the least loaded first. An entry counts while its load is its member's: who
    changes a load puts another one."""

    __slots__ = ("_heap", "_loads", "_wants")

    def __init__(
        self, numbers: Iterable[int], loads: Sequence[int], wants: Sequence[frozenset[TopicId]]
    ) -> None:
        self._loads = loads
        self._wants = wants
        self._heap = [(loads[number], number) for number in numbers]
        heapify(self._heap)

    def put(self, number: int) -> None:
        """A member's load has changed."""
        heappush(self._heap, (self._loads[number], number))

    def least(self, topic_id: TopicId) -> int:
        """The least loaded member that wants a topic; there is one."""
        heap, passed = self._heap, []
        while True:
            load, number = heap[0]
            if load == self._loads[number]:
                if topic_id in self._wants[number]:
                    break
                passed.append(heap[0])
            heappop(heap)
        for each in passed:
            heappush(heap, each)
        return number


def _even_out(of_topic: dict[int, int], members: _Members, topic_id: TopicId) -> bool:
    """Move partitions of one topic from the most to the least loaded; returns whether any moved."""
    loads = members.loads
    if not of_topic:
        return False
    if max(map(loads.__getitem__, of_topic.values())) - members.least_load(topic_id) < 2:
        return False
    queue = members.queue(topic_id)
    moved = False
    for index, giver in sorted(of_topic.items(), key=lambda item: (-loads[item[1]], item[0])):
        taker = queue.least(topic_id)
        if loads[giver] - loads[taker] < 2:
            continue
        of_topic[index] = taker
        members.change(giver, -1, queue)
        members.change(taker, 1, queue)
        moved = True
    return moved


def _of_owners(
    owners: dict[TopicId, dict[int, int]], member_ids: Sequence[str], before: Target
) -> Target:
    """The same by member; who has what it had before keeps the very value."""
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


def range_assignor(wishes: Sequence[Wish], counts: Counts) -> Target:
    """Of each topic, neighbouring partitions for each subscriber, in the order of their names."""
    ordered = sorted(wishes, key=lambda wish: wish.place)
    subscribers: dict[TopicId, list[str]] = {}
    for wish in ordered:
        for topic_id in wish.topics:
            subscribers.setdefault(topic_id, []).append(wish.member_id)
    found: dict[str, dict[TopicId, frozenset[int]]] = {wish.member_id: {} for wish in ordered}
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
        wish.member_id: wish.current
        if found[wish.member_id] == wish.current
        else found[wish.member_id]
        for wish in ordered
    }


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": range_assignor}


# --- shared by both -------------------------------------------------------------------------------


def _still(wish: Wish, counts: Counts) -> Partitions:
    """What of its current partitions a member may go on with: the very value where it is all."""
    if all(
        topic_id in wish.topics and max(indices) < counts[topic_id]
        for topic_id, indices in wish.current.items()
    ):
        return wish.current
    kept = {
        topic_id: frozenset(index for index in indices if index < counts[topic_id])
        for topic_id, indices in wish.current.items()
        if topic_id in wish.topics
    }
    return {topic_id: indices for topic_id, indices in kept.items() if indices}


def _unassigned(
    topics: Sequence[TopicId], counts: Counts, target: Target
) -> list[tuple[TopicId, int]]:
    """What nobody has, by topic and index."""
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
