"""Members bring more than the log of their group takes at once.

The coordinator read everything anew, told them to repeat it, and they did: for ever, and nobody
else's groups on that partition came to anything meanwhile.
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
LARGE = (SEGMENT_BYTES - 128) * 15 // 32  # what members bring together


def started(nodes: Cluster, partitions: int = 1) -> None:
    """Have a coordinator whose log takes little at once."""
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


def test_a_leader_that_assigns_too_much_is_told_so_and_may_say_less() -> None:
    with cluster(1) as nodes:
        started(nodes)
        joined = asked(nodes, 1, joining(100))
        with pytest.raises(MessageTooLarge, match="assign fewer partitions"):
            asked(nodes, 1, assigning(joined, LARGE + 1))
        undisturbed(nodes)
        assert asked(nodes, 1, assigning(joined, LARGE)).assignment == bytes(LARGE)


def test_members_whose_subscriptions_are_too_much_together_are_not_taken() -> None:
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


def test_a_static_member_comes_again_into_a_group_that_is_as_large_as_it_may_be() -> None:
    with cluster(1) as nodes:
        started(nodes)
        joined = asked(nodes, 1, joining(LARGE - 100, instance_id="s"))
        asked(nodes, 1, assigning(joined, LARGE))
        again = asked(nodes, 1, joining(LARGE - 100, instance_id="s"))
        assert again.generation == joined.generation
        undisturbed(nodes)


def test_a_member_that_names_too_many_topics_is_not_taken() -> None:
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
        asked(nodes, 1, beating(*names[:100], epoch=epoch))  # it may say the same again
        classic = replace(joining(LARGE), protocol_type="consumer")
        with pytest.raises(GroupFull):
            asked(nodes, 1, classic)
        undisturbed(nodes)


def test_who_asks_for_more_than_the_log_takes_is_told_not_to_repeat_it() -> None:
    """A share-out of very many partitions: nothing that a member brings says so before."""
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


def test_a_topic_goes_whose_offsets_the_log_does_not_take_any_more_and_no_node_stops() -> None:
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


def test_what_many_commit_at_once_is_stored_in_batches_that_fit() -> None:
    with cluster(1) as nodes:
        started(nodes)
        waiting = [begun(nodes, 1, commit(5, group=f"{each:0200}")) for each in range(400)]
        nodes.until(lambda: all(each.done() for each in waiting))
        assert {each.result() for each in waiting} == {TAKEN}
        undisturbed(nodes)
