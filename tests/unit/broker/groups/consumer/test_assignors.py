"""Assignors: balance, stickiness, and the guarantees of each one."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.growth import grows_with_size

from quorumlog.broker.groups.consumer.assignors import (
    ASSIGNORS,
    BALANCING_ROUNDS_MAX,
    MemberSpec,
    Target,
    range_assignor,
    uniform,
)
from quorumlog.broker.groups.records import Partitions
from quorumlog.ids import TopicId

T, U, V = (TopicId(letter * 16) for letter in (b"t", b"u", b"v"))


def spec(name: str, *topics: TopicId, current: Partitions | None = None) -> MemberSpec:
    return MemberSpec(
        member_id=name, sort_key=name, topics=frozenset(topics), current=current or {}
    )


def again(specs: Iterable[MemberSpec], target: Target) -> list[MemberSpec]:
    """Return the same members with a target as their current assignment."""
    return [spec(each.member_id, *each.topics, current=target[each.member_id]) for each in specs]


def sizes(target: Target) -> list[int]:
    return [sum(map(len, target[name].values())) for name in sorted(target)]


def moved(before: Target, after: Target) -> int:
    """Return the partitions that changed their owner."""
    return sum(
        len(indices - after.get(name, {}).get(topic, frozenset()))
        for name, partitions in before.items()
        for topic, indices in partitions.items()
    )


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_assignment_without_members_is_empty(name: str) -> None:
    assert ASSIGNORS[name]([], {}) == {}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_each_partition_of_a_subscribed_topic_has_one_owner(name: str) -> None:
    specs = [spec("a", T, U), spec("b", T), spec("c", U), spec("d")]
    target = ASSIGNORS[name](specs, {T: 7, U: 5, V: 3})
    given = sorted(
        (topic, index)
        for partitions in target.values()
        for topic, indices in partitions.items()
        for index in indices
    )
    assert given == [(T, index) for index in range(7)] + [(U, index) for index in range(5)]
    assert target["d"] == {}
    assert set(target["b"]) == {T}


def test_uniform_differs_by_one_partition_at_most() -> None:
    target = uniform([spec(name, T, U) for name in "abc"], {T: 5, U: 5})
    assert sizes(target) == [4, 3, 3]
    assert all(len(target[name][topic]) in (1, 2) for name in "abc" for topic in (T, U))


def test_new_member_takes_only_its_share() -> None:
    specs = [spec(name, T) for name in "abc"]
    before = uniform(specs, {T: 12})
    after = uniform([*again(specs, before), spec("d", T)], {T: 12})
    assert sizes(after) == [3, 3, 3, 3]
    assert moved(before, after) == 3


def test_removed_member_moves_no_partition_of_the_others() -> None:
    specs = [spec(name, T) for name in "abcd"]
    before = uniform(specs, {T: 12})
    left = again(specs, before)[1:]
    after = uniform(left, {T: 12})
    assert sizes(after) == [4, 4, 4]
    assert moved({name: before[name] for name in "bcd"}, after) == 0


def test_member_with_one_extra_partition_keeps_it() -> None:
    current: Partitions = {T: frozenset({0, 1})}
    specs = [spec("a", T, current={T: frozenset({2})}), spec("b", T, current=current)]
    assert uniform(specs, {T: 3})["b"] is current


def test_removed_and_unsubscribed_partitions_are_revoked() -> None:
    current: Partitions = {T: frozenset({0, 5}), U: frozenset({0})}
    assert uniform([spec("a", T, current=current)], {T: 2}) == {"a": {T: frozenset({0, 1})}}


def test_uniform_balances_members_with_different_subscriptions() -> None:
    specs = [spec("a", T), spec("b", T, U), spec("c", U)]
    before = uniform(specs, {T: 6, U: 6})
    assert sizes(before) == [4, 4, 4]
    assert uniform(again(specs, before), {T: 6, U: 6}) == before


def test_excess_partitions_go_to_a_subscribed_member() -> None:
    alone = spec("b", T, U, current={T: frozenset(range(6)), U: frozenset(range(6))})
    a, b, c = sizes(uniform([spec("a", T), alone, spec("c", U)], {T: 6, U: 6}))
    assert abs(a - b) <= 1
    assert abs(b - c) <= 1


class SimpleUniform:
    """A simple model of `uniform` for mixed subscriptions. It visits all members for each
    partition."""

    def __init__(self, specs: list[MemberSpec], counts: dict[TopicId, int]) -> None:
        self.counts = counts
        self.owners = {
            (topic, index): each.member_id
            for each in specs
            for topic, indices in each.current.items()
            for index in indices
        }
        held = list(self.owners.values())
        self.loads = {each.member_id: held.count(each.member_id) for each in specs}
        wanting = {t: [each.member_id for each in specs if t in each.topics] for t in counts}
        self.wanting = {topic: names for topic, names in wanting.items() if names}

    def target(self) -> Target:
        topics = sorted(self.wanting, key=lambda t: (len(self.wanting[t]), t))
        for topic in topics:
            for index in range(self.counts[topic]):
                if (topic, index) not in self.owners:
                    self.give(topic, index)
        for _ in range(BALANCING_ROUNDS_MAX):
            for topic in topics:
                self.even_out(topic)
        found: dict[str, dict[TopicId, set[int]]] = {name: {} for name in self.loads}
        for (topic, index), name in self.owners.items():
            found[name].setdefault(topic, set()).add(index)
        return {
            name: {topic: frozenset(indices) for topic, indices in sets.items()}
            for name, sets in found.items()
        }

    def even_out(self, topic: TopicId) -> None:
        loads, of_topic = self.loads, range(self.counts[topic])
        for index in sorted(of_topic, key=lambda i: (-loads[self.owners[topic, i]], i)):
            giver = self.owners[topic, index]
            if loads[giver] - min(loads[name] for name in self.wanting[topic]) >= 2:
                loads[giver] -= 1
                self.give(topic, index)

    def give(self, topic: TopicId, index: int) -> None:
        taker = min(self.wanting[topic], key=self.loads.__getitem__)
        self.owners[topic, index] = taker
        self.loads[taker] += 1


@given(st.data())
def test_uniform_equals_the_simple_model_for_mixed_subscriptions(data: st.DataObject) -> None:
    """The assignor skips members without a subscription and lists the subscribed ones."""
    topics = [TopicId(bytes([number]) * 16) for number in range(6)]
    counts = {topic: data.draw(st.integers(1, 20)) for topic in topics}
    names = [f"{number:02}" for number in range(data.draw(st.integers(2, 40)))]
    missing = st.sets(st.sampled_from(topics), min_size=1)
    odd = data.draw(st.dictionaries(st.sampled_from(names), missing, min_size=1, max_size=8))
    if all(set(topics) == unwanted for unwanted in odd.values()) and len(odd) == len(names):
        return  # no member has a subscription
    specs = [spec(name, *(t for t in topics if t not in odd.get(name, ()))) for name in names]
    first = uniform(specs, counts)
    if len({each.topics for each in specs}) > 1:
        assert first == SimpleUniform(specs, counts).target()
    left = again(specs, first)[data.draw(st.integers(0, len(names) - 1)) :]
    if len({each.topics for each in left}) > 1:
        assert uniform(left, counts) == SimpleUniform(left, counts).target()


def test_range_co_partitions_topics() -> None:
    target = range_assignor([spec(name, T, U) for name in "bac"], {T: 4, U: 4})
    assert target == {
        "a": {T: frozenset({0, 1}), U: frozenset({0, 1})},
        "b": {T: frozenset({2}), U: frozenset({2})},
        "c": {T: frozenset({3}), U: frozenset({3})},
    }


def test_range_sorts_members_by_instance_id() -> None:
    late = MemberSpec(member_id="a", sort_key="z", topics=frozenset({T}), current={})
    assert range_assignor([late, spec("b", T)], {T: 1}) == {"a": {}, "b": {T: frozenset({0})}}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_a_thousand_members_share_five_thousand_partitions(name: str) -> None:
    def share(members: int) -> None:
        topics = [TopicId(b"%016d" % number) for number in range(100)]
        counts = dict.fromkeys(topics, members // 20)
        specs = [spec(f"m{number:04}", *topics) for number in range(members)]
        specs[0] = spec("m0000", *topics[1:])  # mixed subscriptions as well
        target = ASSIGNORS[name](specs, counts)
        again_target = ASSIGNORS[name](again(specs, target), counts)
        assert sum(sizes(target)) == 100 * (members // 20)
        assert again_target == target

    grows_with_size(share, 1_000)
