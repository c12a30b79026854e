"""Leader and controller use the same replica counts, also during a reassignment."""

import pytest
from immutables import Map

from quorumlog.broker.shell.replica_manager import TopicSettings
from quorumlog.ids import Epoch, NodeId, TopicId
from quorumlog.metadata import PartitionImage, TopicImage
from quorumlog.metadata.decisions.elections import Electorate, Loss
from quorumlog.metadata.image import EMPTY_IMAGE
from quorumlog.storage import FlushPolicy


def partition(replicas: int, *, adding: int = 0, removing: int = 0) -> PartitionImage:
    nodes = tuple(NodeId(node) for node in range(replicas))
    return PartitionImage(
        replicas=nodes,
        isr=nodes[:1],
        leader=NodeId(0),
        leader_epoch=Epoch(0),
        partition_epoch=0,
        adding=nodes[replicas - adding :] if adding else (),
        removing=nodes[:removing],
    )


@pytest.mark.parametrize(
    ("state", "min_isr", "policy"),
    [
        (partition(1), 1, FlushPolicy.FSYNC),
        (partition(3), 2, FlushPolicy.REPLICATED),
        (
            partition(3, adding=2),
            1,
            FlushPolicy.FSYNC,
        ),  # one replica becomes three: writable in between
        (partition(3, removing=2), 1, FlushPolicy.FSYNC),  # three replicas become one
        (partition(6, adding=3, removing=3), 2, FlushPolicy.REPLICATED),
    ],
)
def test_leader_and_controller_count_replicas_alike(
    state: PartitionImage, min_isr: int, policy: FlushPolicy
) -> None:
    topic = TopicImage(id=TopicId(b"a" * 16), name="a", partitions=Map({0: state}), configs=Map())
    found, config = TopicSettings().of(topic, state)
    assert (found, config.flush_policy) == (min_isr, policy)
    electorate = Electorate(EMPTY_IMAGE)
    electorate.select_topic(topic)
    assert electorate.min_isr(state) == min_isr
    assert electorate.has_lost(state, Loss.UNFLUSHED) == (policy is FlushPolicy.REPLICATED)
