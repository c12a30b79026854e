"""Random commands: what was decided, what is replayed from bytes and what a delta names are one."""

import itertools

from hypothesis import example, given, settings
from hypothesis import strategies as st

from quorumlog.errors import QuorumlogError
from quorumlog.ids import NO_NODE, DirectoryId, NodeId, Offset, TopicId
from quorumlog.metadata import (
    EMPTY_IMAGE,
    AlterClientQuotas,
    AlterClusterConfigs,
    AlterConfigs,
    AlterReassignments,
    BrokerStopping,
    Command,
    ControllerConfig,
    CreatePartitions,
    CreateTopic,
    Decision,
    DeleteTopic,
    DeltaBuilder,
    FenceBroker,
    MetadataImage,
    PartitionImage,
    QuotaAlteration,
    Reassignment,
    RegisterBroker,
    UnfenceBroker,
    decide,
    replay_batch,
)
from quorumlog.proto.metadata_records_pb2 import MetadataRecord

nodes = st.integers(0, 3).map(NodeId)
names = st.sampled_from(["a", "b", "c.d", "c_d", "no/topic"])
topic_ids = st.integers(1, 5).map(lambda n: TopicId(bytes([n]) * 16))

Step = tuple[str, NodeId] | Command


def registration(node: NodeId, incarnation: int) -> Command:
    return RegisterBroker(
        broker_id=node,
        incarnation_id=bytes([incarnation]) * 16,
        directory_id=DirectoryId(bytes([node]) * 16),
        grpc_address="localhost:1",
    )


parts = st.tuples(st.sampled_from(["user", "client-id"]), st.sampled_from(["a", "b", None]))
quota_changes = st.tuples(
    st.sampled_from(["producer_byte_rate", "request_percentage", "nonsense"]),
    st.sampled_from([1.0, 2.5, 0.0, None]),
)
alterations = st.builds(
    QuotaAlteration,
    entity=st.lists(parts, max_size=2).map(tuple),
    changes=st.lists(quota_changes, max_size=2).map(tuple),
)

steps = st.lists(
    st.one_of(
        st.builds(registration, nodes, st.integers(0, 2)),
        st.tuples(st.sampled_from(["fence", "unfence", "unfence", "stop"]), nodes),
        st.builds(
            CreateTopic,
            name=names,
            topic_id=topic_ids,
            partitions=st.integers(0, 4),
            replication_factor=st.integers(0, 3),
            configs=st.sampled_from([(), (("retention.ms", "5"),), (("nonsense", "1"),)]),
            validate_only=st.booleans(),
        ),
        st.builds(
            CreatePartitions,
            topic=names,
            count=st.integers(0, 6),
            assignments=st.sampled_from([(), ((NodeId(1),),), ((NodeId(2), NodeId(0)),)]),
        ),
        st.builds(
            AlterReassignments,
            reassignments=st.lists(
                st.builds(
                    Reassignment,
                    topic=names,
                    partition=st.integers(0, 2),
                    replicas=st.none()
                    | st.lists(nodes, min_size=1, max_size=3, unique=True).map(tuple),
                ),
                max_size=3,
            ).map(tuple),
        ),
        st.builds(
            AlterConfigs,
            topic=names,
            changes=st.sampled_from(["1", "2", None]).map(
                lambda value: (("min.insync.replicas", value),)
            ),
        ),
        st.builds(
            AlterClusterConfigs,
            changes=st.sampled_from(["true", "false"]).map(
                lambda value: (("unclean.leader.election.enable", value),)
            ),
        ),
        st.builds(
            AlterClientQuotas,
            alterations=st.lists(alterations, min_size=1, max_size=3).map(tuple),
            validate_only=st.booleans(),
        ),
        st.builds(DeleteTopic, name=names),
        st.builds(DeleteTopic, topic_id=topic_ids),
    ),
    max_size=40,
)


def command_of(step: Step, image: MetadataImage) -> Command | None:
    """A broker's change needs the broker's present epoch."""
    if not isinstance(step, tuple):
        return step
    what, node = step
    broker = image.brokers.get(node)
    epoch = broker.epoch if broker is not None else Offset(77)
    match what:
        case "fence":
            return FenceBroker(broker_id=node, broker_epoch=epoch)
        case "unfence":
            return UnfenceBroker(broker_id=node, broker_epoch=epoch)
        case _:
            return BrokerStopping(broker_id=node, broker_epoch=epoch)


def run(script: list[Step]) -> tuple[list[MetadataImage], list[bytes]]:
    """Decide every step; return the images between the steps and the log of record values."""
    image = EMPTY_IMAGE
    images, log = [image], list[bytes]()
    for step in script:
        command = command_of(step, image)
        assert command is not None
        try:
            decision = decide(image, command, ControllerConfig())
        except QuorumlogError:
            continue
        assert isinstance(decision, Decision), "so little takes one step"
        image = replay_batch(image, decision.records, base_offset=image.offset + 1, epoch=1)
        log.extend(record.SerializeToString(deterministic=True) for record in decision.records)
        images.append(image)
    return images, log


def replayed(log: list[bytes]) -> MetadataImage:
    records = [MetadataRecord.FromString(value) for value in log]
    return replay_batch(EMPTY_IMAGE, records, base_offset=0, epoch=1)


def partitions_of(image: MetadataImage) -> dict[tuple[bytes, int], PartitionImage]:
    return {
        (topic.id, index): partition
        for topic in image.sorted_topics()
        for index, partition in topic.sorted_partitions()
    }


@given(steps)
@settings(max_examples=150, deadline=None)
def test_replaying_the_log_gives_the_decided_image(script: list[Step]) -> None:
    images, log = run(script)
    assert replayed(log) == images[-1]


@given(steps)
@settings(max_examples=150, deadline=None)
def test_equal_commands_give_equal_bytes(script: list[Step]) -> None:
    assert run(script)[1] == run(script)[1]


@given(steps)
@settings(max_examples=150, deadline=None)
def test_every_image_is_sound(script: list[Step]) -> None:
    images, _ = run(script)
    for image in images:
        for partition in partitions_of(image).values():
            assert set(partition.isr) <= set(partition.replicas)
            assert all(image.brokers[node].is_active for node in partition.isr)
            if partition.leader == NO_NODE:
                assert not partition.isr
                continue
            leader = image.brokers[partition.leader]
            assert partition.leader in partition.isr
            assert leader.is_active, f"broker {leader.id} leads, fenced or stopping"
        assert {t.name for t in image.sorted_topics()} == set(image.topics_by_name)
        assert len(image.topics_by_id) == len(image.topics_by_name) == len(image.topics_by_key)


@given(steps)
@settings(max_examples=150, deadline=None)
def test_the_indexes_hold_what_a_walk_over_everything_finds(script: list[Step]) -> None:
    images, _ = run(script)
    for image in images:
        partitions = partitions_of(image)
        for node in range(4):
            on_node = sorted(key for key, each in partitions.items() if node in each.replicas)
            assert list(image.partitions_on(NodeId(node))) == on_node
            assert image.replica_count(NodeId(node)) == len(on_node)
        assert set(image.placed) == {n for each in partitions.values() for n in each.replicas}
        moving = sorted(key for key, each in partitions.items() if each.adding or each.removing)
        assert list(image.moving) == moving
        elsewhere = sorted(k for k, each in partitions.items() if each.leader != each.replicas[0])
        assert list(image.led_elsewhere) == elsewhere


@given(steps)
@settings(max_examples=150, deadline=None)
def test_epochs_count_every_change_and_never_go_back(script: list[Step]) -> None:
    images, _ = run(script)
    for before, after in itertools.pairwise(images):
        old, new = partitions_of(before), partitions_of(after)
        for key, partition in new.items():
            was = old.get(key)
            if was is None or was == partition:
                continue
            assert partition.partition_epoch == was.partition_epoch + 1
            is_new_epoch = partition.leader != was.leader or (
                set(was.replicas) - set(partition.replicas)
            )
            assert partition.leader_epoch == was.leader_epoch + bool(is_new_epoch)


def created(partitions: int) -> CreateTopic:
    topic_id = TopicId(bytes([1]) * 16)
    return CreateTopic(name="a", topic_id=topic_id, partitions=partitions)


RECREATED: list[Step] = [
    registration(NodeId(0), 0),
    ("unfence", NodeId(0)),
    created(3),
    DeleteTopic(name="a"),
    created(1),
]


@given(steps, st.integers(0, 60))
@example(RECREATED, 6)
@settings(max_examples=150, deadline=None)
def test_delta_names_exactly_what_differs(script: list[Step], cut: int) -> None:
    _, log = run(script)
    cut = min(cut, len(log))
    builder = DeltaBuilder(replayed(log[:cut]))
    for offset, value in enumerate(log[cut:], cut):
        builder.replay(MetadataRecord.FromString(value), offset=offset, epoch=1)
    delta = builder.build()
    assert delta.after == replayed(log)
    old, new = partitions_of(delta.before), partitions_of(delta.after)
    differing = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    named = [(change.topic.id, change.index) for change in delta.changed_partitions()]
    assert len(named) == len(set(named))
    assert set(named) == differing
    topics = {t.id for t in delta.created_topics()}, {t.id for t in delta.deleted_topics()}
    before, after = set(delta.before.topics_by_id), set(delta.after.topics_by_id)
    assert topics == (after - before, before - after)
    brokers = {(b or a).id for b, a in delta.changed_brokers()}  # type: ignore[union-attr]
    assert brokers == {
        node for node in range(4) if delta.before.broker(node) != delta.after.broker(node)
    }
