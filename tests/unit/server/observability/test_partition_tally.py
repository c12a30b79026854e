"""Partition counts by state: exact, updated in steps, without repeated work for unchanged
topics."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from immutables import Map
from msgspec import structs

from quorumlog.ids import NO_NODE, Epoch, NodeId, TopicId
from quorumlog.metadata import EMPTY_IMAGE, MetadataImage, PartitionImage, TopicImage
from quorumlog.server.observability.partition_tally import COUNTED_A_STEP, PartitionTally

ME = NodeId(1)


def partition(
    *, replicas: tuple[int, ...] = (1, 2, 3), isr: tuple[int, ...] = (1, 2, 3), leader: int = 1
) -> PartitionImage:
    return PartitionImage(
        replicas=tuple(map(NodeId, replicas)),
        isr=tuple(map(NodeId, isr)),
        leader=NodeId(leader),
        leader_epoch=Epoch(1),
        partition_epoch=1,
    )


def image_of(topics: dict[str, list[PartitionImage]], **configs: str) -> MetadataImage:
    image = EMPTY_IMAGE
    for number, (name, states) in enumerate(topics.items()):
        topic = TopicImage(
            id=TopicId(number.to_bytes(16, "big")),
            name=name,
            partitions=Map(dict(enumerate(states))),
            configs=Map({key.replace("_", "."): value for key, value in configs.items()}),
        )
        image = replace(
            image,
            topics_by_id=image.topics_by_id.set(topic.id, topic),
            topics_by_name=image.topics_by_name.set(name, topic.id),
        )
    return image


def counted(image: MetadataImage, *, node_id: NodeId = ME) -> PartitionTally:
    tally = PartitionTally(node_id)
    for _ in tally.count_image(image):
        pass
    return tally


def test_each_state_of_a_partition_is_counted() -> None:
    moving = structs.replace(partition(replicas=(1, 2, 3, 4)), adding=(NodeId(4),))
    tally = counted(
        image_of(
            {
                "t": [
                    partition(),
                    partition(isr=(1, 2)),
                    partition(isr=(1,)),
                    partition(replicas=(2, 1, 3)),
                    partition(replicas=(2, 1, 3), isr=(2,), leader=2),
                    partition(isr=(), leader=NO_NODE),
                    partition(replicas=(2,), isr=(2,), leader=2),
                    moving,
                ]
            }
        )
    )

    assert tally.led.partitions == 5
    assert tally.led.by_isr == {3: 3, 2: 1, 1: 1}
    assert (tally.led.under_replicated, tally.led.under_min_isr, tally.led.at_min_isr) == (2, 1, 1)
    assert (tally.led.moving, tally.led.not_preferred) == (1, 1)
    assert tally.followed == 2
    everywhere = tally.everywhere
    assert (everywhere.partitions, everywhere.offline) == (8, 1)
    assert (everywhere.under_replicated, everywhere.under_min_isr) == (4, 3)


def test_min_isr_of_the_topic_counts() -> None:
    states = {"t": [partition(isr=(1, 2))]}

    assert counted(image_of(states)).led.under_min_isr == 0
    assert counted(image_of(states, min_insync_replicas="3")).led.under_min_isr == 1


def test_a_min_isr_above_the_replicas_counts_as_all_of_them() -> None:
    states = {"t": [partition(replicas=(1, 2), isr=(1, 2))]}

    assert counted(image_of(states, min_insync_replicas="3")).led.under_min_isr == 0


def test_unchanged_topics_are_not_counted_again() -> None:
    states = {f"t{number}": [partition()] * 500 for number in range(10)}
    image = image_of(states)
    tally = PartitionTally(ME)
    first = sum(1 for _ in tally.count_image(image))
    changed = image_of({**states, "t0": [partition(isr=(1,))] * 500})
    topic = changed.topics_by_name["t0"]
    image = replace(image, topics_by_id=image.topics_by_id.set(topic, changed.topics_by_id[topic]))
    second = sum(1 for _ in tally.count_image(image))

    assert (first, second) == (5, 0)
    assert (tally.led.partitions, tally.led.under_replicated) == (5_000, 500)


def test_deleted_topic_is_not_counted() -> None:
    tally = PartitionTally(ME)
    for topics in ({"a": [partition()], "b": [partition()]}, {"a": [partition()]}):
        for _ in tally.count_image(image_of(topics)):
            pass

    assert tally.everywhere.partitions == 1


def test_a_large_topic_is_counted_in_steps() -> None:
    steps = list(
        PartitionTally(ME).count_image(image_of({"t": [partition()] * (5 * COUNTED_A_STEP)}))
    )

    assert len(steps) >= 5


@given(
    st.lists(
        st.sets(st.sampled_from([1, 2, 3])).map(
            lambda isr: partition(isr=tuple(sorted(isr)), leader=min(isr, default=NO_NODE))
        ),
        max_size=20,
    )
)
def test_counts_of_all_brokers_add_up_to_those_of_the_cluster(
    states: list[PartitionImage],
) -> None:
    image = image_of({"t": states})
    tallies = [counted(image, node_id=NodeId(number)) for number in (1, 2, 3)]

    everywhere = tallies[0].everywhere
    assert sum(tally.led.partitions for tally in tallies) == (
        everywhere.partitions - everywhere.offline
    )
    for tally in tallies:
        assert tally.led.partitions + tally.followed == len(states)
