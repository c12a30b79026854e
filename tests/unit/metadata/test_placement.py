"""The placement rules of replicas, on every shape of a cluster."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorumlog.errors import InvalidReplicationFactor
from quorumlog.ids import DirectoryId, NodeId, Offset
from quorumlog.metadata import BrokerImage
from quorumlog.metadata.decisions.placement import Placer, check_replication_factor

SEEDS = st.integers(0, 2**64 - 1)


def broker(node: int, rack: str = "") -> BrokerImage:
    return BrokerImage(
        id=NodeId(node),
        epoch=Offset(0),
        incarnation_id=bytes(16),
        directory_id=DirectoryId(bytes(16)),
        grpc_address="localhost:1",
        rack=rack,
        boot_id="",
        fenced=False,
        stopping=False,
    )


def spread(counts: Counter[int], nodes: int) -> int:
    """Return the difference between the largest and the smallest value."""
    return max(counts[node] for node in range(nodes)) - min(counts[node] for node in range(nodes))


def leads(placed: Sequence[Sequence[int]]) -> Counter[int]:
    return Counter(replicas[0] for replicas in placed)


def takes(placed: Sequence[Sequence[int]]) -> Counter[int]:
    return Counter(node for replicas in placed for node in replicas)


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 80), SEEDS)
@settings(deadline=None, max_examples=30)
def test_without_racks_leaders_and_replicas_differ_by_one_at_most(
    nodes: int, factor: int, partitions: int, seed: int
) -> None:
    factor = min(factor, nodes)
    placer = Placer([broker(node) for node in range(nodes)], seed=seed)
    placed = [placer.place(factor) for _ in range(partitions)]
    assert all(len(set(replicas)) == factor for replicas in placed)
    assert spread(leads(placed), nodes) <= 1
    assert spread(takes(placed), nodes) <= 1


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(1, 5), SEEDS)
@settings(deadline=None, max_examples=30)
def test_no_rack_is_used_twice_while_another_one_is_free(
    racks: list[int], factor: int, seed: int
) -> None:
    """For racks of any sizes, a partition uses as many racks as possible."""
    factor = min(factor, len(racks))
    placer = Placer([broker(node, f"r{rack}") for node, rack in enumerate(racks)], seed=seed)
    placed = [placer.place(factor) for _ in range(20)]
    for replicas in placed:
        assert len(set(replicas)) == factor
        assert len({racks[node] for node in replicas}) == min(factor, len(set(racks)))
    assert spread(leads(placed), len(racks)) <= 1


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 5), SEEDS)
@settings(deadline=None, max_examples=30)
def test_racks_of_equal_size_hold_as_many_replicas(
    racks: int, each: int, factor: int, seed: int
) -> None:
    nodes = racks * each
    placer = Placer([broker(node, f"r{node % racks}") for node in range(nodes)], seed=seed)
    placed = [placer.place(min(factor, nodes)) for _ in range(60)]
    assert spread(takes(placed), nodes) <= 2


def test_added_partitions_balance_the_existing_ones() -> None:
    brokers = [broker(node) for node in range(4)]
    present = [(NodeId(0), NodeId(1)), (NodeId(1), NodeId(0)), (NodeId(0), NodeId(1))]
    placer = Placer(brokers, seed=1, present=present)
    placed = [*present, *(placer.place(2) for _ in range(5))]
    assert spread(leads(placed), 4) <= 1
    assert spread(takes(placed), 4) <= 1


def test_placement_depends_on_the_seed_only() -> None:
    brokers = [broker(node, f"r{node % 2}") for node in range(8)]

    def placed(seed: int) -> list[tuple[NodeId, ...]]:
        placer = Placer(brokers, seed=seed)
        return [placer.place(3) for _ in range(20)]

    assert placed(7) == placed(7)
    assert placed(7) != placed(8)


def test_first_partitions_of_many_topics_are_spread() -> None:
    brokers = [broker(node) for node in range(5)]
    first = Counter(Placer(brokers, seed=seed * 2**40).place(3)[0] for seed in range(500))
    assert min(first.values()) > 60


def test_other_replicas_of_a_brokers_partitions_are_on_all_other_brokers() -> None:
    """Otherwise two brokers would take over all partitions that one led."""
    placer = Placer([broker(node) for node in range(12)], seed=5)
    placed = [placer.place(3) for _ in range(120)]
    partners = {other for replicas in placed if 0 in replicas for other in replicas}
    assert partners == set(range(12))


@pytest.mark.parametrize(("factor", "brokers"), [(0, 3), (-1, 3), (4, 3), (1, 0)])
def test_impossible_replication_factors_are_refused(factor: int, brokers: int) -> None:
    with pytest.raises(InvalidReplicationFactor):
        check_replication_factor(factor, [broker(node) for node in range(brokers)])
