"""One leadership of a group coordinator: load, failed appends, bounds and end."""

import asyncio
import struct
from dataclasses import replace
from typing import Any

import pytest
from tests.kit.replica_cluster import Cluster

from quorumlog.broker.coordinator.decision import UNDECIDED
from quorumlog.broker.coordinator.shell.coordinator_shard import (
    BATCH_BYTES,
    CANCELLED_MAX,
    _PendingBatch,
)
from quorumlog.broker.coordinator.shell.loader import RECORDS_A_STEP, ShardLoader
from quorumlog.broker.groups.config import OFFSETS_TOPIC
from quorumlog.broker.groups.formats import decode, encode
from quorumlog.broker.groups.records import OffsetCommitted
from quorumlog.broker.groups.requests import (
    CommitOffsets,
    CommitOutcome,
    ConsumerBeat,
    ConsumerHeartbeat,
    FetchOffsets,
    OffsetToCommit,
)
from quorumlog.broker.groups.shell.group_coordinator_shard import GroupCoordinatorShard
from quorumlog.errors import (
    CoordinatorNotAvailable,
    NotCoordinator,
    Overloaded,
    QuorumlogError,
    UnknownMember,
)
from quorumlog.ids import Offset
from quorumlog.records import Record, encode_batch, iterate_batches
from quorumlog.runtime import Runtime
from quorumlog.storage import AppendOrigin
from quorumlog.storage.shell import Appended

from .coordinated import (
    GROUP,
    TAKEN,
    asked,
    begun,
    cluster,
    commit,
    coordinator,
    leader,
    made,
    make_topic,
    on,
    stored,
    tried,
)

ABSURD = CommitOffsets(
    group=GROUP,
    offsets=(OffsetToCommit(topic="t", partition=0, offset=9, leader_epoch=2**40),),
)
"""A commit that is decided and cannot be encoded."""


def many(partitions: int, offset: int, group: str = GROUP) -> CommitOffsets:
    offsets = tuple(
        OffsetToCommit(topic="t", partition=each, offset=offset) for each in range(partitions)
    )
    return CommitOffsets(group=group, offsets=offsets)


@pytest.mark.slow
def test_load_yields_the_loop_to_other_tasks() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes, partitions=500)
        made(nodes)
        asked(nodes, 1, many(500, 1))

        async def steps(_: Runtime) -> list[int]:
            """Return the numbers of records between two turns of other tasks."""
            parts = nodes.nodes[1].parts
            assert parts.directory is not None
            log = nodes.replica(1, OFFSETS_TOPIC).log
            stored_records = ShardLoader(
                parts.directory,
                log,
                end_offset=log.log_end_offset,
                partition=0,
                kind="groups",
                decode=lambda record: decode(record.key, record.value),
            )
            found = []
            while (records := await stored_records.take()) is not None:
                found.append(len(records))
            assert sum(found) == 500
            return found

        assert max(on(nodes, 1, steps)) <= RECORDS_A_STEP


def test_load_skips_damaged_records() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        asked(nodes, 1, commit(3))

        async def damage(_: Runtime) -> None:
            directory, log = nodes.nodes[1].parts.directory, nodes.replica(1, OFFSETS_TOPIC).log
            assert directory is not None
            records = [
                Record(0, 1, b"\0\1\0", b"cut short"),
                Record(0, 1, b"\0\x63unknown", b"type"),
                Record(0, 1, b"\0\2\0\1g", b"\0\3\0"),
            ]
            await directory.append_nowait(
                log, encode_batch(records), leader_epoch=0, origin=AppendOrigin.INTERNAL, flush=True
            )

        on(nodes, 1, damage)
        asked(nodes, 1, commit(4, group="another"))
        nodes.crash(1, power=True)
        nodes.start(1)
        assert stored(nodes, 1) == {("t", 0): 3}
        assert stored(nodes, 1, "another") == {("t", 0): 4}


def test_state_that_could_not_be_stored_is_dropped_and_loaded_again() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        assert asked(nodes, 1, commit(3)) == TAKEN

        purgatory = nodes.replica(1, OFFSETS_TOPIC).partition.purgatory

        async def refused(runtime: Runtime) -> None:
            """Decide on a commit, then refuse its append."""
            deadline_ms = runtime.clock.now_ms() + 1_000
            work = coordinator(nodes, 1).ask(commit(9), deadline_ms=deadline_ms)
            task = asyncio.create_task(work)
            await asyncio.sleep(0)
            purgatory.entries_max = 0
            with pytest.raises(CoordinatorNotAvailable, match="could not be stored"):
                await task

        on(nodes, 1, refused)
        assert coordinator(nodes, 1).figures.reloads == 1
        nodes.until(lambda: coordinator(nodes, 1).census().partitions_served == 1)
        with pytest.raises(CoordinatorNotAvailable, match="group updates cannot be stored now"):
            asked(nodes, 1, commit(10))
        purgatory.entries_max = 100
        assert stored(nodes, 1) == {("t", 0): 3}
        assert tried(nodes, 1, commit(11)) == TAKEN
        assert stored(nodes, 1) == {("t", 0): 11}


def beat_of_a_member(nodes: Cluster, number: int) -> ConsumerHeartbeat:
    """Let a member join. Return its next heartbeat."""
    join = ConsumerHeartbeat(
        group=GROUP,
        member_id="m",
        member_epoch=0,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=5_000,
        topics=frozenset({"t"}),
    )
    epoch = asked(nodes, number, join).member_epoch
    return replace(join, member_epoch=epoch, topics=None)


def test_a_heartbeat_answered_at_once_restarts_the_session() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        groups, beat = coordinator(nodes, 1), beat_of_a_member(nodes, 1)
        assert asked(nodes, 1, beat).assignment is None
        for _ in range(4):
            nodes.world.run_for(30_000)
            answer = groups.answer_at_once(beat)
            assert isinstance(answer, ConsumerBeat)
        assert answer == asked(nodes, 1, beat)
        nodes.world.run_for(50_000)
        assert groups.answer_at_once(beat) is UNDECIDED
        with pytest.raises(UnknownMember):
            asked(nodes, 1, beat)


def test_no_heartbeat_is_answered_at_once_before_an_earlier_decision_is_committed() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        groups, beat = coordinator(nodes, 1), beat_of_a_member(nodes, 1)
        asked(nodes, 1, beat)
        outcomes = list[Any]()

        async def ask(_: Runtime) -> None:
            assert isinstance(groups.answer_at_once(beat), ConsumerBeat)
            groups.submit(commit(1, group="h"), outcomes.append)
            assert groups.answer_at_once(beat) is UNDECIDED

        on(nodes, 1, ask)
        nodes.until(lambda: outcomes == [TAKEN])
        assert isinstance(groups.answer_at_once(beat), ConsumerBeat)


def test_no_heartbeat_is_answered_at_once_while_the_log_refuses_appends() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        groups, beat = coordinator(nodes, 1), beat_of_a_member(nodes, 1)
        asked(nodes, 1, beat)
        nodes.replica(1, OFFSETS_TOPIC).partition.purgatory.entries_max = 0
        assert groups.answer_at_once(beat) is UNDECIDED


def test_members_that_were_refused_for_longer_than_a_session_stay_members() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        purgatory = nodes.replica(1, OFFSETS_TOPIC).partition.purgatory
        again = beat_of_a_member(nodes, 1)
        epoch = again.member_epoch
        bound, purgatory.entries_max = purgatory.entries_max, 0
        for _ in range(12):
            with pytest.raises(CoordinatorNotAvailable):
                asked(nodes, 1, again)
            nodes.world.run_for(5_000)
        purgatory.entries_max = bound
        nodes.world.run_for(2_000)
        assert asked(nodes, 1, again).member_epoch == epoch
        nodes.world.run_for(50_000)  # a session without heartbeats, and no pending append
        with pytest.raises(UnknownMember):
            asked(nodes, 1, again)


def test_very_many_offsets_of_one_decision_go_into_several_batches() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes, partitions=200)
        made(nodes)
        log = nodes.replica(1, OFFSETS_TOPIC).log
        before = log.log_end_offset
        noted = tuple(replace(each, note="n" * 4_000) for each in many(200, 5).offsets)
        assert asked(nodes, 1, replace(many(200, 5), offsets=noted)) == CommitOutcome(
            errors=(None,) * 200
        )
        found = log.read(before, max_bytes=4 << 20)
        assert found is not None
        content = found.read()
        found.release()
        sizes = [header.size for _, header in iterate_batches(content)]
        assert len(sizes) == 2
        assert max(sizes) < BATCH_BYTES + 8_000
        assert len(stored(nodes, 1)) == 200


def test_decision_that_cannot_be_encoded_is_never_returned() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        assert asked(nodes, 1, commit(3)) == TAKEN
        with pytest.raises(struct.error):
            asked(nodes, 1, ABSURD)
        assert stored(nodes, 1) == {("t", 0): 3}
        assert tried(nodes, 1, commit(4)) == TAKEN
        assert coordinator(nodes, 1).figures.reloads == 1


def test_load_includes_appends_in_flight() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        replica, directory = nodes.replica(1, OFFSETS_TOPIC), nodes.nodes[1].parts.directory
        assert directory is not None
        committed = OffsetCommitted(group=GROUP, topic="t", partition=0, offset=7, commit_ms=1)
        key, value = encode(committed)
        assert value is not None
        large = encode_batch(
            [Record(0, 1, key, value + bytes(3 << 20))]
        )  # written without the shard

        async def overtaken(runtime: Runtime) -> None:
            appended = directory.append_nowait(
                replica.log,
                large,
                leader_epoch=replica.partition.leader_epoch,
                origin=AppendOrigin.INTERNAL,
                flush=True,
            )
            with pytest.raises(struct.error):  # the state is dropped
                await coordinator(nodes, 1).ask(ABSURD, deadline_ms=runtime.clock.now_ms() + 1_000)
            assert appended.outcome() is None
            await appended

        on(nodes, 1, overtaken)
        assert stored(nodes, 1) == {("t", 0): 7}


@pytest.mark.slow
def test_isolated_coordinator_returns_no_offsets() -> None:
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        old = made(nodes)
        assert asked(nodes, old, commit(1)) == TAKEN
        barrier = nodes.cut_off(old)
        task = begun(nodes, old, commit(2), answer_ms=60_000)
        others = [n for n in nodes.numbers if n != old]
        nodes.until(lambda: nodes.leader_beside(old, OFFSETS_TOPIC) in others)
        new = nodes.leader_beside(old, OFFSETS_TOPIC)
        assert tried(nodes, new, commit(5)) == TAKEN
        nodes.join_again(barrier)
        nodes.world.run_until(task, virtual_ms=60_000)
        assert isinstance(task.exception(), NotCoordinator | CoordinatorNotAvailable)
        nodes.until(lambda: leader(nodes) == new)
        assert stored(nodes, new) == {("t", 0): 5}
        with pytest.raises(NotCoordinator):
            asked(nodes, old, FetchOffsets(group=GROUP))


def test_requests_that_wait_are_bounded() -> None:
    with cluster(1, group_waits_max=3) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        tasks = [begun(nodes, 1, commit(each)) for each in range(6)]
        outcomes: list[type[QuorumlogError] | None] = []
        for task in tasks:
            nodes.world.run_until(task, virtual_ms=1_000)
            error = task.exception()
            assert error is None or isinstance(error, QuorumlogError)
            outcomes.append(None if error is None else type(error))
        assert outcomes.count(None) >= 3
        assert set(outcomes) <= {None, Overloaded}
        assert Overloaded in outcomes


@pytest.mark.long
def test_hundred_thousand_offsets_are_loaded() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes, partitions=1_000)
        made(nodes)
        for group in range(100):
            asked(nodes, 1, many(1_000, group, f"g{group}"))
        nodes.crash(1)
        nodes.start(1)
        found = stored(nodes, 1, "g73")
        assert len(found) == 1_000
        assert set(found.values()) == {73}
        census = coordinator(nodes, 1).census()
        assert (census.offsets, census.groups_by_state) == (100_000, {"Empty": 100})


def test_reply_by_callback_arrives_in_the_call_or_after_the_append() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        groups, outcomes = coordinator(nodes, 1), list[Any]()

        async def ask(_: Runtime) -> None:
            assert groups.submit(FetchOffsets(group=GROUP), outcomes.append) is None
            assert outcomes.pop() == ()
            assert groups.submit(commit(1), outcomes.append) is not None
            assert not outcomes

        on(nodes, 1, ask)
        nodes.until(lambda: outcomes == [TAKEN])


def test_cancelled_request_gets_no_reply() -> None:
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        groups, outcomes = coordinator(nodes, 1), list[Any]()

        async def ask(_: Runtime) -> None:
            forget = groups.submit(commit(2), outcomes.append)
            assert forget is not None
            forget()

        on(nodes, 1, ask)
        assert asked(nodes, 1, commit(3)) == TAKEN
        assert stored(nodes, 1) == {("t", 0): 3}
        assert not outcomes


@pytest.mark.slow
def test_responses_of_cancelled_requests_are_not_kept() -> None:
    """Lag is queried repeatedly, each response has all offsets of a group, and replicas may be
    offline for days."""
    with cluster() as nodes:
        nodes.start()
        make_topic(nodes)
        number = made(nodes)
        assert asked(nodes, number, commit(1)) == TAKEN
        for other in nodes.numbers:
            if other != number:
                nodes.machine(other).pause()
        left = begun(nodes, number, commit(2))
        looks = [
            begun(nodes, number, FetchOffsets(group=GROUP), answer_ms=each) for each in range(1_000)
        ]
        nodes.until(lambda: all(look.done() for look in looks))
        assert not left.done()
        kept = [reply for each in term(nodes, number)._uncommitted for reply in each.replies]
        assert len(kept) <= CANCELLED_MAX + 1
        for other in nodes.numbers:
            if other != number:
                nodes.machine(other).resume()
        nodes.world.run_until(left, virtual_ms=60_000)
        assert left.result() == TAKEN


def term(nodes: Cluster, number: int) -> GroupCoordinatorShard:
    return coordinator(nodes, number)._shards[0]


def test_state_is_dropped_after_a_bug_in_its_append() -> None:
    """It is unknown which part is in the log, so later requests must not see this state."""
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        assert asked(nodes, 1, commit(1)) == TAKEN

        async def broken(_: Runtime) -> None:
            part = term(nodes, 1)
            part._writing = batch = _PendingBatch()
            batch.effects.append("groups have none")
            part._appended(batch, Appended(Offset(0), Offset(0), -1, Offset(0)))

        on(nodes, 1, broken)
        assert coordinator(nodes, 1).figures.reloads == 1
        assert stored(nodes, 1) == {("t", 0): 1}


def test_bug_in_a_timer_stops_no_node() -> None:
    """The next coordinator would load the same groups and stop as well."""
    with cluster(1) as nodes:
        nodes.start()
        make_topic(nodes)
        made(nodes)
        assert asked(nodes, 1, commit(1)) == TAKEN

        async def broken(_: Runtime) -> None:
            part = term(nodes, 1)
            shard: Any = part.state
            shard._groups["broken"] = object()
            shard._due["broken"] = 1
            shard._deadlines.insert(0, (1, "broken"))
            part._wake.set()

        on(nodes, 1, broken)
        nodes.until(lambda: coordinator(nodes, 1).figures.reloads == 1)
        assert stored(nodes, 1) == {("t", 0): 1}
        assert tried(nodes, 1, commit(2)) == TAKEN
