"""Random controller commands, with the resulting images and records."""

from hypothesis import strategies as st

from quorumlog.errors import QuorumlogError
from quorumlog.ids import DirectoryId, NodeId, Offset, TopicId
from quorumlog.metadata import (
    EMPTY_IMAGE,
    AlterClientQuotas,
    AlterClusterConfigs,
    AlterConfigs,
    AlterGroupConfigs,
    AlterReassignments,
    AlterScramCredentials,
    BrokerStopping,
    Command,
    ControllerConfig,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    Decision,
    DeleteAcls,
    DeleteTopic,
    FenceBroker,
    MetadataImage,
    QuotaAlteration,
    Reassignment,
    RegisterBroker,
    UnfenceBroker,
    decide,
    replay_batch,
)
from quorumlog.metadata.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
)
from quorumlog.metadata.scram_credentials import ScramCredential, ScramMechanism

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
acls = st.builds(
    Acl,
    st.builds(
        ResourcePattern,
        st.just(AclResourceType.TOPIC),
        names,
        st.sampled_from([AclPatternType.LITERAL, AclPatternType.PREFIXED]),
    ),
    st.sampled_from(["User:a", "User:*", "nonsense"]),
    st.just("*"),
    st.sampled_from([AclOperation.READ, AclOperation.ALL]),
    st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
)
scram_keys = st.tuples(st.sampled_from(["a", "b", ""]), st.sampled_from(ScramMechanism))
credentials = st.builds(
    ScramCredential,
    salt=st.just(b"salt"),
    iterations=st.sampled_from([4_096, 1]),
    stored_key=st.just(bytes(32)),
    server_key=st.just(bytes(32)),
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
            AlterGroupConfigs,
            group=st.sampled_from(["g", "h"]),
            changes=st.sampled_from(["uniform", "range", None]).map(
                lambda value: (("consumer.assignor", value),)
            ),
        ),
        st.builds(
            AlterClientQuotas,
            alterations=st.lists(alterations, min_size=1, max_size=3).map(tuple),
            validate_only=st.booleans(),
        ),
        st.builds(CreateAcls, acls=st.lists(acls, max_size=3).map(tuple)),
        st.builds(
            DeleteAcls,
            filters=st.lists(
                st.builds(
                    AclFilter,
                    resource_name=st.none() | names,
                    pattern_type=st.sampled_from([AclPatternType.ANY, AclPatternType.MATCH]),
                    principal=st.sampled_from([None, "User:a", "nonsense"]),
                ),
                max_size=2,
            ).map(tuple),
        ),
        st.builds(
            AlterScramCredentials,
            deletions=st.lists(scram_keys, max_size=1).map(tuple),
            upsertions=st.lists(st.tuples(scram_keys, credentials), max_size=2).map(tuple),
        ),
        st.builds(DeleteTopic, name=names),
        st.builds(DeleteTopic, topic_id=topic_ids),
    ),
    max_size=40,
)


def command_of(step: Step, image: MetadataImage) -> Command | None:
    """Return the command of a broker, with the current broker epoch."""
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


def decide_all(script: list[Step]) -> tuple[list[MetadataImage], list[bytes]]:
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
        assert isinstance(decision, Decision), "a short decision has one step"
        image = replay_batch(image, decision.records, base_offset=image.offset + 1, epoch=1)
        log.extend(record.SerializeToString(deterministic=True) for record in decision.records)
        images.append(image)
    return images, log
