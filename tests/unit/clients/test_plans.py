"""Reassignment plans: parsing, kept replicas, and placement of new replicas."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.clients.admin.descriptions import Broker
from quorumlog.clients.admin.plans import (
    parse_assignments,
    parse_nodes,
    parse_plan,
    plan_json,
    plan_reassignment,
)
from quorumlog.errors import InvalidReplicaAssignment, InvalidReplicationFactor, InvalidRequest


def brokers(*ids: int, racks: str = "", down: tuple[int, ...] = ()) -> list[Broker]:
    return [
        Broker(
            id=number,
            grpc_address=f"b{number}:1",
            rack=racks[index] if racks else "",
            fenced=number in down,
            broker_epoch=number,
            stopping=False,
        )
        for index, number in enumerate(ids)
    ]


def test_draining_replaces_only_the_drained_broker_and_keeps_the_order() -> None:
    present = {("t", 0): (1, 2, 3), ("t", 1): (2, 3, 1), ("t", 2): (4, 1, 2)}
    plan = plan_reassignment(present, present.keys(), brokers(1, 2, 3, 4), allowed={1, 2, 4})
    assert plan == {("t", 0): (1, 2, 4), ("t", 1): (2, 4, 1)}


def test_leaderships_of_a_drained_broker_go_to_those_that_lead_least() -> None:
    present = {("t", index): (9, 8) for index in range(4)} | {("t", 4): (1, 8), ("t", 5): (2, 8)}
    plan = plan_reassignment(present, present.keys(), brokers(1, 2, 3, 8, 9), allowed={1, 2, 3, 8})
    leaders = Counter(replicas[0] for replicas in plan.values())
    assert plan.keys() == {("t", index) for index in range(4)}
    assert leaders == {1: 1, 2: 1, 3: 2}


def test_new_replica_prefers_a_rack_without_one_over_an_emptier_broker() -> None:
    present = {("t", 0): (1,), ("u", 0): (3,), ("u", 1): (3,)}
    known = brokers(1, 2, 3, racks="aab")
    plan = plan_reassignment(present, [("t", 0)], known, allowed={1, 2, 3}, replication=2)
    assert plan == {("t", 0): (1, 3)}


def test_fewer_replicas_drop_the_duplicate_rack_and_never_the_first() -> None:
    known = brokers(1, 2, 3, racks="aab")
    plan = plan_reassignment(
        {("t", 0): (1, 2, 3)}, [("t", 0)], known, allowed={1, 2, 3}, replication=2
    )
    assert plan == {("t", 0): (1, 3)}
    plan = plan_reassignment(
        {("t", 0): (1, 2, 3)}, [("t", 0)], known, allowed={1, 2, 3}, replication=1
    )
    assert plan == {("t", 0): (1,)}


def test_fewer_replicas_drop_those_on_brokers_that_are_down() -> None:
    known = brokers(1, 2, 3, down=(1, 2))
    plan = plan_reassignment(
        {("t", 0): (1, 2, 3)}, [("t", 0)], known, allowed={1, 2, 3}, replication=1
    )
    assert plan == {("t", 0): (3,)}


def test_more_replicas_than_brokers_are_refused_by_name() -> None:
    with pytest.raises(InvalidReplicationFactor, match=r"t-0: 3 replicas need as many brokers"):
        plan_reassignment({("t", 0): (1, 2, 3)}, [("t", 0)], brokers(1, 2, 3), allowed={1, 2})


PLACES = st.dictionaries(
    st.tuples(st.sampled_from("tu"), st.integers(0, 5)),
    st.lists(st.integers(1, 8), min_size=1, max_size=4, unique=True).map(tuple),
    min_size=1,
)


@pytest.mark.slow
@given(
    present=PLACES,
    allowed=st.sets(st.integers(1, 8), min_size=4),
    replication=st.none() | st.integers(1, 4),
    racks=st.text("abc", min_size=8, max_size=8),
)
def test_a_plan_obeys_its_rule_and_moves_nothing_without_need(
    present: dict[tuple[str, int], tuple[int, ...]],
    allowed: set[int],
    replication: int | None,
    racks: str,
) -> None:
    known = brokers(*range(1, 9), racks=racks)
    plan = plan_reassignment(present, present, known, allowed=allowed, replication=replication)
    after = {**present, **plan}
    for place, now in present.items():
        new = after[place]
        assert len(new) == len(set(new)) == (replication or len(now))
        assert set(new) <= allowed
        if now[0] in allowed:
            assert new[0] == now[0], "the preferred leader stays if it is allowed"
        wanted = replication or len(now)
        kept = sum(node in new for node in now)
        assert kept == min(wanted, sum(node in allowed for node in now))
    assert plan_reassignment(after, after, known, allowed=allowed, replication=replication) == {}


def test_plan_file_round_trip() -> None:
    plan = {("t", 0): (1, 2), ("u", 3): (3,)}
    assert parse_plan(json.dumps(plan_json(plan)), source="f") == plan


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "f: not a reassignment plan"),
        ("{}", "f: not a reassignment plan"),
        ('{"partitions": []}', "f: the plan has no partitions"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "f: not a reassignment plan"),
        ('{"partitions": [{"topic": "t", "partition": "0", "replicas": [1]}]}', "not a number"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": [true]}]}', "not a number"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": 1}]}',
            "f: not a reassignment plan",
        ),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            '{"topic": "t", "partition": 0, "replicas": [2]}]}',
            "t-0 occurs more than once",
        ),
    ],
)
def test_invalid_plan_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        parse_plan(text, source="f")


def test_brokers_are_read_by_commas_and_partitions_by_slashes() -> None:
    assert parse_assignments("1,2,3/ 2,3 ,1") == ((1, 2, 3), (2, 3, 1))
    for text in ("", "1,", "1/", "1;2", "-1", "x"):
        with pytest.raises(
            InvalidReplicaAssignment, match="give a comma-separated list of node ids"
        ):
            parse_assignments(text)
    with pytest.raises(InvalidReplicaAssignment, match="--to is '1,1'; give each broker once"):
        parse_nodes("1,1", flag="--to")
