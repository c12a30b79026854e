"""Groups whose records exceed the largest append of their log are refused without side effects.

Regression: the coordinator loaded its state again and asked for a retry, without end, and blocked
the other groups of the partition.
"""

from dataclasses import replace

import pytest
from tests.kit.replica_cluster import Cluster

from quorumlog.broker.groups.config import OFFSETS_TOPIC
from quorumlog.broker.groups.requests import (
    ConsumerHeartbeat,
    FetchOffsets,
    Joined,
    JoinGroup,
    SyncGroup,
)
from quorumlog.errors import GroupFull, MessageTooLarge

from .coordinated import (
    GROUP,
    TAKEN,
    asked,
    begun,
    cluster,
    commit,
    coordinator,
    made,
    make_topic,
    tried,
)

SEGMENT_BYTES = 40_000
LARGE = (SEGMENT_BYTES - 128) * 15 // 32  # bytes of all members


def started(nodes: Cluster, partitions: int = 1) -> None:
    """Start a coordinator whose log accepts only small appends."""
    nodes.start()
    make_topic(nodes, partitions=partitions)
    made(nodes)
    changes = {"segment.bytes": str(SEGMENT_BYTES)}
    nodes.run(lambda log: log.admin.alter_configs(OFFSETS_TOPIC, changes))
    log = nodes.replica(1, OFFSETS_TOPIC).log
    nodes.until(lambda: log.config.segment_bytes == SEGMENT_BYTES)
    nodes.crash(1)
    nodes.start(1)
    assert tried(nodes, 1, commit(1, group="other")) == TAKEN


def joining(size: int, member_id: str = "", instance_id: str | None = None) -> JoinGroup:
    return JoinGroup(
        group=GROUP,
        member_id=member_id,
        instance_id=instance_id,
        client_id="c",
        client_host="/h",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        protocol_type="connect",
        protocols=(("range", bytes(size)),),
        takes_member_id_first=False,
    )


def assigning(joined: Joined, size: int) -> SyncGroup:
    return SyncGroup(
        group=GROUP,
        member_id=joined.member_id,
        generation=joined.generation,
        assignments={joined.member_id: bytes(size), "nobody": bytes(LARGE)},
    )


def beating(*topics: str, member_id: str = "m", epoch: int = 0) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        group=GROUP,
        member_id=member_id,
        member_epoch=epoch,
        client_id="c",
        client_host="/h",
        rebalance_timeout_ms=30_000,
        topics=frozenset(topics),
        owned={},
    )


def undisturbed(nodes: Cluster) -> None:
    assert coordinator(nodes, 1).figures.reloads == 0
    assert asked(nodes, 1, commit(2, group="other")) == TAKEN


def test_oversized_assignment_is_refused_and_a_smaller_one_accepted() -> None:
    with cluster(1) as nodes:
        started(nodes)
        joined = asked(nodes, 1, joining(100))
        with pytest.raises(MessageTooLarge, match="assign fewer partitions"):
            asked(nodes, 1, assigning(joined, LARGE + 1))
        undisturbed(nodes)
        assert asked(nodes, 1, assigning(joined, LARGE)).assignment == bytes(LARGE)


def test_member_that_makes_the_group_too_large_is_refused() -> None:
    with cluster(1) as nodes:
        started(nodes)
        first = begun(nodes, 1, joining(LARGE // 2))
        with pytest.raises(GroupFull, match="the limit is 18690"):
            asked(nodes, 1, joining(LARGE // 2))
        nodes.world.run_until(first, virtual_ms=10_000)
        joined = first.result()
        asked(nodes, 1, assigning(joined, 10))
        with pytest.raises(GroupFull):
            asked(nodes, 1, joining(LARGE, joined.member_id))
        undisturbed(nodes)
        again = asked(nodes, 1, joining(LARGE // 2 + 1, joined.member_id))
        assert again.generation == joined.generation + 1


def test_static_member_rejoins_a_group_of_the_maximal_size() -> None:
    with cluster(1) as nodes:
        started(nodes)
        joined = asked(nodes, 1, joining(LARGE - 100, instance_id="s"))
        asked(nodes, 1, assigning(joined, LARGE))
        again = asked(nodes, 1, joining(LARGE - 100, instance_id="s"))
        assert again.generation == joined.generation
        undisturbed(nodes)


def test_member_with_too_many_topics_is_refused() -> None:
    names = [f"{each:0100}" for each in range(LARGE // 100 + 1)]
    with cluster(1) as nodes:
        started(nodes)
        with pytest.raises(GroupFull, match="subscribe by a pattern"):
            asked(nodes, 1, beating(*names))
        epoch = asked(nodes, 1, beating("t")).member_epoch
        with pytest.raises(GroupFull):
            asked(nodes, 1, beating(*names, epoch=epoch))
        asked(nodes, 1, beating(*names[:100], epoch=epoch))
        with pytest.raises(GroupFull):
            asked(nodes, 1, beating(*names[:100], member_id="n"))
        asked(nodes, 1, beating(*names[:100], epoch=epoch))  # it may repeat the same subscription
        classic = replace(joining(LARGE), protocol_type="consumer")
        with pytest.raises(GroupFull):
            asked(nodes, 1, classic)
        undisturbed(nodes)


def test_request_larger_than_the_log_accepts_gets_a_final_error() -> None:
    """An assignment of very many partitions: its size is unknown before the decision."""
    with cluster(1) as nodes:
        started(nodes, partitions=6_000)
        with pytest.raises(MessageTooLarge, match="use fewer members or topics"):
            asked(nodes, 1, beating("t"))
        assert tried(nodes, 1, commit(3, group="other")) == TAKEN
        assert coordinator(nodes, 1).figures.reloads == 1


def test_a_decision_that_fits_the_log_alone_is_stored_behind_the_others_of_its_turn() -> None:
    with cluster(1) as nodes:
        started(nodes)
        joined = asked(nodes, 1, joining(LARGE - 200))
        waiting = [begun(nodes, 1, commit(5, group=f"{each:0200}")) for each in range(25)]
        synced = begun(nodes, 1, assigning(joined, LARGE))
        nodes.until(lambda: synced.done() and all(each.done() for each in waiting))
        assert synced.result().assignment == bytes(LARGE)
        assert {each.result() for each in waiting} == {TAKEN}
        undisturbed(nodes)


def test_deletion_of_a_topic_with_too_many_offsets_stops_no_node() -> None:
    long = "g" * (SEGMENT_BYTES // 5)
    with cluster(1) as nodes:
        started(nodes)
        assert asked(nodes, 1, commit(7, group=long)) == TAKEN
        changes = {"segment.bytes": str(SEGMENT_BYTES // 10)}
        nodes.run(lambda log: log.admin.alter_configs(OFFSETS_TOPIC, changes))
        nodes.crash(1)
        nodes.start(1)
        assert tried(nodes, 1, FetchOffsets(group=long))[0].offset == 7
        nodes.run(lambda log: log.admin.delete_topic("t"))
        nodes.until(lambda: coordinator(nodes, 1).figures.reloads == 1)
        assert tried(nodes, 1, FetchOffsets(group="nobody")) == ()


def test_concurrent_commits_are_stored_in_batches_that_fit() -> None:
    with cluster(1) as nodes:
        started(nodes)
        waiting = [begun(nodes, 1, commit(5, group=f"{each:0200}")) for each in range(400)]
        nodes.until(lambda: all(each.done() for each in waiting))
        assert {each.result() for each in waiting} == {TAKEN}
        undisturbed(nodes)
