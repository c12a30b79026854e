"""Committed offsets and deletions survive power cuts and failovers of the group coordinator."""

import asyncio
from collections.abc import Callable
from typing import NoReturn

import pytest
from tests.kit.replica_cluster import Cluster

from quorumlog.broker.groups.classic_group import ClassicGroupMachine
from quorumlog.broker.groups.config import OFFSETS_TOPIC
from quorumlog.broker.groups.requests import DeleteGroup, FetchOffsets
from quorumlog.broker.groups.shell import coordinator as coordinator_module
from quorumlog.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidGroupId,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from quorumlog.records import iterate_batches
from quorumlog.runtime import Runtime

from .coordinated import (
    ANSWER_MS,
    GROUP,
    TAKEN,
    asked,
    begun,
    cluster,
    commit,
    coordinator,
    image,
    leader,
    made,
    make_topic,
    on,
    stored,
    tried,
)


def listed(
    nodes: Cluster, is_listed: Callable[[str, int], bool] = lambda name, turn: True
) -> list[str]:
    """Return the groups of the list of node 1. `is_listed` gets the turn of the loop."""

    async def main(runtime: Runtime) -> list[str]:
        turn = 0
        listing = asyncio.ensure_future(
            coordinator(nodes, 1).list_groups(lambda name: is_listed(name, turn))
        )
        await asyncio.sleep(0)
        while not listing.done():
            turn += 1
            await asyncio.sleep(0)
        return [line.group for line in await listing]

    return on(nodes, 1, main)


def test_committed_offset_survives_a_power_cut() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        assert asked(nodes, 1, commit(7)) == TAKEN
        nodes.crash(1, power=True)
        nodes.start(1)
        assert stored(nodes, 1) == {("t", 0): 7}


def test_committed_offsets_survive_a_coordinator_failover() -> None:
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        old = made(nodes)
        for offset in range(20):
            assert asked(nodes, old, commit(offset)) == TAKEN
        nodes.crash(old)
        nodes.until(lambda: leader(nodes) not in (0, old))
        assert stored(nodes, leader(nodes)) == {("t", 0): 19}


def test_other_broker_names_the_coordinator() -> None:
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        number = made(nodes)
        other = next(n for n in nodes.numbers if n != number)
        with pytest.raises(NotCoordinator, match=f"send the request to broker {number}"):
            asked(nodes, other, commit(1))

        async def look(runtime: Runtime) -> int:
            deadline_ms = runtime.clock.now_ms() + ANSWER_MS
            return await coordinator(nodes, other).coordinator_of(GROUP, deadline_ms=deadline_ms)

        assert on(nodes, other, look) == number


def test_commit_of_an_unknown_partition_is_refused_alone() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        (error,) = asked(nodes, 1, commit(1, topic="no")).errors
        assert isinstance(error, UnknownTopicOrPartition)
        (error,) = asked(nodes, 1, commit(1, partition=1)).errors
        assert isinstance(error, UnknownTopicOrPartition)
        with pytest.raises(InvalidGroupId):
            asked(nodes, 1, commit(1, group=""))


def test_offsets_topic_is_created_once_the_initial_brokers_are_registered() -> None:
    with cluster() as nodes:
        nodes.start(1, 2)
        with pytest.raises(CoordinatorNotAvailable, match="needs 3 brokers and 2 are active"):
            asked(nodes, 1, commit(1))
        nodes.start(3)
        made(nodes)
        topic = image(nodes, 1).topic(OFFSETS_TOPIC)
        assert topic is not None
        assert len(topic.partitions[0].replicas) == 3
        assert dict(topic.configs) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "min.insync.replicas": "2",
            "segment.bytes": str(100 << 20),
        }


def test_lone_broker_creates_the_offsets_topic() -> None:
    with cluster(1) as nodes:
        nodes.start()
        made(nodes)
        topic = image(nodes, 1).topic(OFFSETS_TOPIC)
        assert topic is not None
        assert topic.partitions[0].replicas == (1,)
        assert topic.configs["flush.policy"] == "fsync"


def test_commit_waits_for_the_isr_and_fails_below_min_isr() -> None:
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        number = made(nodes)
        assert asked(nodes, number, commit(1)) == TAKEN
        others = [n for n in nodes.numbers if n != number]
        barrier = nodes.separate(number, others[0]) + nodes.separate(number, others[1])
        with pytest.raises(CoordinatorNotAvailable):
            asked(nodes, number, commit(2), answer_ms=1_000)
        nodes.join_again(barrier)
        nodes.until(lambda: leader(nodes) != 0)
        assert tried(nodes, leader(nodes), commit(3)) == TAKEN
        assert stored(nodes, leader(nodes)) == {("t", 0): 3}


def test_commits_of_one_loop_iteration_are_one_batch() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes, partitions=5)
        made(nodes)
        asked(nodes, 1, commit(1))
        log = nodes.replica(1, OFFSETS_TOPIC).log
        before = log.log_end_offset
        tasks = [begun(nodes, 1, commit(9, partition=each)) for each in range(5)]
        for task in tasks:
            nodes.world.run_until(task, virtual_ms=1_000)
            assert task.result() == TAKEN
        found = log.read(before, max_bytes=1 << 20)
        assert found is not None
        content = found.read()
        found.release()
        batches = [header.record_count for _, header in iterate_batches(content)]
        assert sum(batches) == 5
        assert len(batches) <= 2


def test_offsets_of_a_deleted_topic_do_not_apply_to_its_successor() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        make_topic(nodes, "kept")
        made(nodes)
        asked(nodes, 1, commit(5))
        asked(nodes, 1, commit(6, topic="kept"))
        nodes.run(lambda log: log.admin.delete_topic("t"))
        make_topic(nodes)
        assert stored(nodes, 1) == {("kept", 0): 6}
        nodes.crash(1, power=True)
        nodes.start(1)
        assert stored(nodes, 1) == {("kept", 0): 6}


def not_built(group: ClassicGroupMachine) -> NoReturn:
    """Fail instead of building the line of a group."""
    raise AssertionError(group.group)


def test_list_checks_rights_first_and_yields_to_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without rights makes no broker build a line for each group."""
    monkeypatch.setattr(coordinator_module, "LISTED_A_STEP", 2)
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        for number in range(6):
            asked(nodes, 1, commit(5, group=f"g{number}"))
        monkeypatch.setattr(ClassicGroupMachine, "listing", not_built)
        turns_at_check: list[int] = []

        def is_listed(_: str, turn: int) -> bool:
            turns_at_check.append(turn)
            return False

        assert listed(nodes, is_listed) == []
        assert turns_at_check == [0, 0, 1, 1, 2, 2]


def test_a_deleted_group_stays_deleted() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        asked(nodes, 1, commit(5))
        assert listed(nodes) == [GROUP]
        asked(nodes, 1, DeleteGroup(group=GROUP))
        assert listed(nodes) == []
        nodes.crash(1)
        nodes.start(1)
        assert stored(nodes, 1) == {}
        assert listed(nodes) == []


def test_loading_coordinator_returns_coordinator_loading() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        asked(nodes, 1, commit(5))
        nodes.crash(1)
        nodes.start(1)
        nodes.until(lambda: coordinator(nodes, 1).census().partitions_read == 1)
        with pytest.raises(CoordinatorNotAvailable, match="coordinator of its groups is starting"):
            asked(nodes, 1, FetchOffsets(group=GROUP))
        nodes.until(lambda: nodes.leader(OFFSETS_TOPIC) == 1)
        with pytest.raises(CoordinatorLoading):
            asked(nodes, 1, FetchOffsets(group=GROUP))
        assert stored(nodes, 1) == {("t", 0): 5}


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_acknowledged_commits_survive_a_power_cut_of_the_coordinator_at_any_time(seed: int) -> None:
    with cluster(seed=seed) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        acknowledged = tried_last = -1
        for round_ in range(4):
            number = leader(nodes)
            tasks = [begun(nodes, number, commit(tried_last + 1 + each)) for each in range(10)]
            tried_last += 10
            nodes.world.run_for(2 * round_ + seed)
            for offset, task in enumerate(tasks, tried_last - 9):
                if task.done() and not task.cancelled() and task.exception() is None:
                    acknowledged = offset
            nodes.crash(number, power=True)
            nodes.until(lambda old=number: leader(nodes) not in (0, old))  # type: ignore[misc]
            found = stored(nodes, leader(nodes)).get(("t", 0), -1)
            assert acknowledged <= found <= tried_last
            nodes.start(number)
            nodes.until(lambda: len(nodes.isr(OFFSETS_TOPIC)) == 3)
        assert acknowledged >= 0
