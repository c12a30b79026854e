"""Results of the groups benchmark, and their table on the page."""

import asyncio
from typing import Any

import pytest
from benchmarks.groups import failover, idle, mirror, rates, rebalance
from benchmarks.groups.flood import Flooded
from benchmarks.groups.members import Group, Member
from benchmarks.groups.rebalance import Size, Took
from benchmarks.groups.systems import KAFKA, OURS
from benchmarks.groups.wire import assigned, assignment, subscription
from benchmarks.page import page

from quorumlog.broker.groups.consumer_protocol import decode_assignment, decode_subscription

MACHINE = {"cores": 2, "cpu": "a processor", "python": "3.11", "build": "plain Python", "rounds": 3}
SIZE = Size(members=2, partitions=5)


class IdleMember:
    """A member that does nothing."""

    member_id = ""

    def __init__(self, *owned: int, generation: int = 1) -> None:
        self.owned = owned
        self.generation = generation

    async def join(self) -> None: ...

    async def beat(self) -> float:
        return 1.0

    async def leave(self) -> None: ...


@pytest.mark.parametrize(
    ("members", "is_settled"),
    [
        ([IdleMember(0, 1, 2), IdleMember(3, 4)], True),
        ([IdleMember(0, 1, 2, 3), IdleMember(4)], False),  # the second has less than its share
        ([IdleMember(0, 1, 2), IdleMember(3)], False),
        ([IdleMember(0, 1, 2), IdleMember(2, 3, 4)], False),
        ([IdleMember(0, 1, 2, 3, 4)], False),
        ([], False),
    ],
)
def test_group_is_settled_when_all_members_have_disjoint_shares(
    members: list[IdleMember], is_settled: bool
) -> None:
    present: dict[int, Member] = dict(enumerate(members))
    group = Group(name="g", topic="t", partitions=5, members=present)
    assert group.is_settled(2) is is_settled


def test_group_is_awaited_until_it_settles_in_one_generation() -> None:
    async def main() -> None:
        first, second = IdleMember(0, 1, 2), IdleMember(3, 4, generation=2)
        group = Group(name="g", topic="t", partitions=5, members={1: first, 2: second})
        await group.settled(2)
        waiting = asyncio.ensure_future(group.settled(2, is_even=True))
        await asyncio.sleep(0)
        assert not waiting.done()
        first.generation = 2
        group.changed.set()
        await waiting

    asyncio.run(main())


def test_members_send_what_the_broker_reads() -> None:
    assert decode_subscription(subscription("t")).topics == ("t",)
    part = assignment("t", range(3, 6))
    assert decode_assignment(part).partitions == {"t": (3, 4, 5)}
    assert assigned(part) == (3, 4, 5)
    assert assigned(b"\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff") == ()


def rebalanced() -> dict[str, Any]:
    took = {
        (OURS.name, "classic", "one more joins"): [Took(seconds=s, cpu_s=0.1) for s in (1, 2, 9)],
        (KAFKA.name, "classic", "one more joins"): [Took(seconds=1.0, cpu_s=0.2)],
        (OURS.name, "KIP-848", "it leaves"): [Took(seconds=5.0, cpu_s=0.1)],
    }
    return MACHINE | rebalance.summary(rebalance.Measured(took=took), size=SIZE)


def in_a_second() -> dict[str, Any]:
    flood = Flooded(requests=500, seconds=2.0, broker_cpu_s=1.0, client_cpu_s=0.5)
    measured = rates.Measured(
        floods={(OURS.name, "commits"): [flood], (KAFKA.name, "commits"): [flood]},
        refusals={(KAFKA.name, "heartbeats"): "it hung up"},
    )
    return MACHINE | rates.summary(measured, seconds=2.0)


def at_rest(more: float) -> dict[str, Any]:
    rest = idle.Rest(alone_share=0.01, share=0.01 + more, memory_mb=3.0, settled_s=2.0)
    measured = idle.Measured(rests={(OURS.name, "classic"): [rest]})
    return MACHINE | idle.summary(measured, size=SIZE, seconds=20.0)


def copied() -> dict[str, Any]:
    copies = {
        (way, 100): [mirror.Copy(records=1_000, seconds=s, cpu_s=1.0, nodes_cpu_s=2.0)]
        for way, s in (("mirror", 1.0), ("client", 4.0), ("librdkafka", 1.5))
    }
    return MACHINE | mirror.summary(mirror.Measured(copies=copies))


def test_rows_are_medians_compared_with_kafka() -> None:
    ratios = {each["what"]: each["ratio"] for each in rebalanced()["compared"]}
    assert ratios == {"classic: one more joins, of Kafka's": 2.0}
    (compared,) = in_a_second()["compared"]
    assert (compared["ratio"], compared["met"]) == (1.0, True)


@pytest.mark.parametrize(("more", "met"), [(0.09, True), (0.11, False)])
def test_goal_of_idle_members_counts_their_added_cost(more: float, met: bool) -> None:
    (row,) = at_rest(more)["rows"]
    assert row["met"] is met


def test_failover_goal_does_not_depend_on_kafka() -> None:
    ours, theirs = failover.summary({OURS.name: [4.0], KAFKA.name: [10.0]})["rows"]
    assert (ours["met"], theirs["met"]) == (False, True)


def test_mirror_is_compared_with_each_loop() -> None:
    ratios = {each["what"].rpartition(" ")[2]: each for each in copied()["compared"]}
    assert (ratios["client"]["ratio"], ratios["client"]["met"]) == (4.0, True)
    assert (ratios["librdkafka"]["ratio"], ratios["librdkafka"]["met"]) == (1.5, False)


def test_page_shows_each_part_with_the_missed_goals() -> None:
    shown = page(
        {
            "groups_rebalance": rebalanced(),
            "groups_rates": in_a_second(),
            "groups_idle": at_rest(0.5),
            "groups_failover": MACHINE | failover.summary({OURS.name: [1.0, 2.0, 9.0]}),
            "groups_mirror": copied(),
        }
    )
    assert "| quorumlog | classic | one more joins | 2.00 | 0.10 |" in shown
    assert "| quorumlog | commits | 250 | 2,000 | 0.50 | 0.25 |" in shown
    assert "heartbeats: it hung up." in shown
    assert "| quorumlog | classic | 51.0% | 50.0% | < 10% (missed) | 3 | 2.0 |" in shown
    assert "| quorumlog | 3 | 1.00 | 2.00 | 9.00 | 9.00 | < 3 |" in shown
    assert "; means of 20 s; 2 members, 5 partitions." in shown
    assert "| mirror | 100 | 1,000 | 0.1 | 10000.0 | 20000.0 |" in shown
    assert "Measured by `python -m benchmarks.groups --only idle`." in shown
