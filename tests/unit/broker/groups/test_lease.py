"""Who coordinates alone: what is answered by who may have been replaced, and may not know it."""

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
    """Nodes, which of them coordinates, and the next heartbeat of its only member."""
    with cluster(*numbers, **settings) as nodes:
        nodes.start()
        make_topic(nodes)
        old = made(nodes)
        beat = tried(nodes, old, JOIN)
        assert isinstance(beat, ConsumerBeat)
        yield nodes, old, replace(JOIN, member_epoch=beat.member_epoch, topics=None)


def hold_metadata(nodes: Cluster, number: int) -> asyncio.Event:
    """Have a node apply nothing more, as one whose disk hangs, until the event is set."""
    publisher, free = nodes.nodes[number].parts.publisher, asyncio.Event()
    assert publisher is not None

    async def wait() -> None:
        await free.wait()

    def subscriber(_: ImageDelta) -> object:
        return wait()

    publisher._subscribers.insert(0, subscriber)  # type: ignore[arg-type]
    return free


def move(nodes: Cluster, old: int) -> int:
    """Have another node lead; returns which."""
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
def test_who_is_behind_the_metadata_lets_nobody_believe_it_for_long() -> None:
    """The controllers hear it, and it does not hear of the one that they let lead instead."""
    with coordinated() as (nodes, old, beat):
        hold_metadata(nodes, old)
        new = move(nodes, old)
        tried(nodes, new, beat)
        nodes.world.run_for(5_000)
        assert nodes.replica(old, OFFSETS_TOPIC).partition.is_leader
        assert coordinator(nodes, old).answer_at_once(beat) is UNDECIDED
        with pytest.raises(REFUSED):
            asked(nodes, old, beat)


@pytest.mark.slow
def test_where_anybody_may_be_elected_everybody_has_to_follow() -> None:
    """By unclean elections others replace in-sync replicas that are cut off together."""
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
    """Whether all followers have what a coordinator has stored, and it has not heard so."""
    end = nodes.replica(number, OFFSETS_TOPIC).log.log_end_offset
    ends = nodes.ends(OFFSETS_TOPIC).values()
    waits = coordinator(nodes, number)._shards[0]._uncommitted
    return bool(waits) and all(each == end for each in ends)


@pytest.mark.slow
def test_who_was_stopped_for_long_tells_nobody_what_it_had_decided_before() -> None:
    """The followers' word on what waits to be committed then may be as old: it was true before."""
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
    """Clients retry CoordinatorLoading at the same broker, so its answer would never change."""
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


def test_who_cannot_open_its_log_believes_no_member() -> None:
    """Of what it does not lead yet, another node may have been elected since."""
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
