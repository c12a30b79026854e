"""The lease of a coordinator that may have been replaced without its knowledge."""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from tests.kit.replica_cluster import Cluster

from quorumlog.broker.coordinator.decision import UNDECIDED
from quorumlog.broker.groups.config import OFFSETS_TOPIC
from quorumlog.broker.groups.requests import (
    ClassicHeartbeat,
    CommitOutcome,
    CommitTransactionalOffsets,
    ConsumerBeat,
    ConsumerHeartbeat,
    OffsetToCommit,
)
from quorumlog.errors import CoordinatorNotAvailable, NotCoordinator
from quorumlog.ids import Epoch, ProducerIdentity
from quorumlog.metadata import ImageDelta
from quorumlog.runtime import Runtime

from .coordinated import (
    ANSWER_MS,
    GROUP,
    asked,
    begun,
    cluster,
    commit,
    coordinator,
    image,
    made,
    make_topic,
    on,
    tried,
)

JOIN = ConsumerHeartbeat(
    group=GROUP,
    member_id="m",
    member_epoch=0,
    client_id="c",
    client_host="/h",
    rebalance_timeout_ms=5_000,
    topics=frozenset({"t"}),
)
REFUSED = (CoordinatorNotAvailable, NotCoordinator)


@contextmanager
def coordinated(*numbers: int, **settings: Any) -> Iterator[tuple[Cluster, int, ConsumerHeartbeat]]:
    """Return nodes, their coordinator, and the next heartbeat of its only member."""
    with cluster(*numbers, **settings) as nodes:
        nodes.start()
        make_topic(nodes)
        old = made(nodes)
        beat = tried(nodes, old, JOIN)
        assert isinstance(beat, ConsumerBeat)
        yield nodes, old, replace(JOIN, member_epoch=beat.member_epoch, topics=None)


def hold_metadata(nodes: Cluster, number: int) -> asyncio.Event:
    """Stop a node from applying metadata until the event is set, as with a stalled disk."""
    publisher, free = nodes.nodes[number].parts.publisher, asyncio.Event()
    assert publisher is not None

    async def wait() -> None:
        await free.wait()

    def subscriber(_: ImageDelta) -> object:
        return wait()

    publisher._subscribers.insert(0, subscriber)  # type: ignore[arg-type]
    return free


def move(nodes: Cluster, old: int) -> int:
    """Move the leadership to another node. Return that node."""
    new = next(number for number in nodes.numbers if number != old)
    targets = [new, *[number for number in nodes.numbers if number != new]]

    async def ask(log: object) -> None:
        admin = log.admin  # type: ignore[attr-defined]
        await admin.reassign_partitions({(OFFSETS_TOPIC, 0): targets})
        await admin.elect_leaders([(OFFSETS_TOPIC, 0)])

    nodes.run(ask)
    nodes.until(lambda: nodes.leader_beside(old, OFFSETS_TOPIC) == new)
    return new


@pytest.mark.slow
def test_coordinator_behind_the_metadata_stops_answering_after_its_lease() -> None:
    """The controllers receive its heartbeats, but it does not apply the election of another
    leader."""
    with coordinated() as (nodes, old, beat):
        hold_metadata(nodes, old)
        new = move(nodes, old)
        tried(nodes, new, beat)
        nodes.world.run_for(5_000)
        assert nodes.replica(old, OFFSETS_TOPIC).partition.is_leader
        assert coordinator(nodes, old).answer_at_once(beat) is UNDECIDED
        with pytest.raises(REFUSED):
            asked(nodes, old, beat)


@pytest.mark.long
def test_with_unclean_elections_the_lease_needs_all_followers() -> None:
    """An unclean election can replace in-sync replicas that are partitioned off together."""
    with coordinated(1, 2, 3, 4, 5) as (nodes, old, beat):
        unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        nodes.run(lambda log: log.admin.alter_configs(OFFSETS_TOPIC, unclean))
        topic = image(nodes, old).topic(OFFSETS_TOPIC)
        assert topic is not None
        replicas = topic.partitions[0].replicas
        near, far = [number for number in replicas if number != old]
        barrier = nodes.separate(old, far)
        nodes.until(lambda: nodes.isr(OFFSETS_TOPIC) == {old, near}, 60_000)
        for one in (old, near):
            for other in nodes.numbers:
                if other not in (old, near):
                    barrier += nodes.separate(one, other)
        nodes.until(lambda: nodes.replica(far, OFFSETS_TOPIC).partition.is_leader, 60_000)
        tried(nodes, far, replace(JOIN, member_id="n"))
        assert nodes.replica(old, OFFSETS_TOPIC).partition.is_leader
        with pytest.raises(REFUSED):
            asked(nodes, old, beat)


def is_told_too_late(nodes: Cluster, number: int) -> bool:
    """Return True if all followers have the coordinator's append without its acknowledgement."""
    end = nodes.replica(number, OFFSETS_TOPIC).log.log_end_offset
    ends = nodes.ends(OFFSETS_TOPIC).values()
    waits = coordinator(nodes, number)._shards[0]._uncommitted
    return bool(waits) and all(each == end for each in ends)


@pytest.mark.slow
def test_coordinator_paused_beyond_its_lease_returns_no_earlier_decision() -> None:
    """The acknowledgements of its followers may be as old as the pause."""
    with coordinated() as (nodes, old, beat):
        request = replace(commit(1), member_id=beat.member_id, generation=beat.member_epoch)
        tasks = [begun(nodes, old, each, answer_ms=60_000) for each in (request, beat)]
        nodes.until(lambda: is_told_too_late(nodes, old))
        nodes.machine(old).pause()
        nodes.world.run_for(10_000)
        assert nodes.leader_beside(old, OFFSETS_TOPIC) not in (0, old)
        nodes.machine(old).resume()
        for task in tasks:
            with contextlib.suppress(*REFUSED):
                nodes.world.run_until(task, virtual_ms=60_000)
            assert isinstance(task.exception(), REFUSED), task


def commit_in_transaction(
    nodes: Cluster, number: int, answer_ms: int, transactional_id: str = "x"
) -> CommitOutcome:
    """Commit an offset in a transaction that its coordinator must verify."""
    request = CommitTransactionalOffsets(
        group=GROUP,
        transactional_id=transactional_id,
        producer=ProducerIdentity(7, 0),
        offsets=(OffsetToCommit(topic="t", partition=0, offset=1),),
    )

    async def main(runtime: Runtime) -> CommitOutcome:
        deadline_ms = runtime.clock.now_ms() + answer_ms
        return await coordinator(nodes, number).ask_transactional(request, deadline_ms=deadline_ms)

    return on(nodes, number, main)


def cut_off(nodes: Cluster, number: int) -> None:
    for other in nodes.numbers:
        if other != number:
            nodes.separate(number, other)


def test_coordinator_without_a_lease_verifies_no_transaction() -> None:
    """Clients retry CoordinatorLoading at the same broker, so its response would never change."""
    with coordinated() as (nodes, old, _):
        cut_off(nodes, old)
        nodes.world.run_for(10_000)
        assert nodes.replica(old, OFFSETS_TOPIC).partition.is_leader
        with pytest.raises(REFUSED):
            commit_in_transaction(nodes, old, 1_000)


def coordinated_elsewhere(nodes: Cluster, number: int) -> str:
    """Return a transactional id with another coordinator than this node."""
    transactions = nodes.nodes[number].parts.transactions
    assert transactions is not None

    async def main(runtime: Runtime) -> str:
        deadline_ms = runtime.clock.now_ms() + ANSWER_MS
        for each in map(str, range(100)):
            with contextlib.suppress(CoordinatorNotAvailable):
                if await transactions.coordinator_of(each, deadline_ms=deadline_ms) != number:
                    return each
            await asyncio.sleep(0.1)
        raise AssertionError("all ids have the same coordinator")

    return on(nodes, number, main)


def test_coordinator_that_loses_its_lease_during_a_verification_refuses_the_commit() -> None:
    with coordinated() as (nodes, old, _):
        transactional_id = coordinated_elsewhere(nodes, old)
        for number in nodes.numbers:
            if number != old:
                nodes.machine(number).pause()
        with pytest.raises(REFUSED):
            commit_in_transaction(nodes, old, 20_000, transactional_id)


def test_coordinator_without_an_open_log_accepts_no_member() -> None:
    """Another node may have been elected before the log opens."""
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        groups, outcomes = coordinator(nodes, 1), list[object]()
        around = groups._deps
        assert around is not None
        term = groups._new_shard(around, 0, Epoch(0))
        with pytest.raises(CoordinatorNotAvailable):
            term.submit(ClassicHeartbeat(group=GROUP, member_id="m", generation=1), outcomes.append)
        assert not outcomes
