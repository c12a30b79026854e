"""What brokers relay and what comes back: every command of the message, every reply."""

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import InvalidRequest, NoReassignmentInProgress
from quorumlog.ids import NodeId, Offset, TopicId
from quorumlog.metadata import (
    AllocateProducerIds,
    AlterClientQuotas,
    AlterClusterConfigs,
    AlterConfigs,
    AlterReassignments,
    ClientQuotasAltered,
    ClusterConfigsAltered,
    Command,
    ConfigsAltered,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    Done,
    ElectLeaders,
    FeaturesUpdated,
    FeatureUpdate,
    ListChange,
    PartitionOutcome,
    PartitionOutcomes,
    PartitionsAltered,
    PartitionsCreated,
    ProducerIdsAllocated,
    QuotaAlteration,
    Reassignment,
    Reply,
    TopicCreated,
    TopicDeleted,
    UnregisterBroker,
    UpdateFeatures,
    describe_features,
)
from quorumlog.metadata.translation import command_of, response_of
from quorumlog.proto import admin_pb2, controller_pb2
from quorumlog.runtime.real import RealEntropy

ID = TopicId(b"i" * 16)
ONE_TWO = admin_pb2.ReplicaAssignment(replicas=[1, 2])
SET = admin_pb2.ConfigChange(name="x", value="1")
CLEAR = admin_pb2.ConfigChange(name="y")
ADD = admin_pb2.ConfigChange(name="l", value="1, 2", operation=admin_pb2.CONFIG_OPERATION_APPEND)
TAKE = admin_pb2.ConfigChange(name="m", value="3", operation=admin_pb2.CONFIG_OPERATION_SUBTRACT)

COMMANDS: list[tuple[controller_pb2.RelayRequest, Command]] = [
    (
        controller_pb2.RelayRequest(
            create_topic=admin_pb2.CreateTopicRequest(
                name="a",
                topic_id=ID,
                partitions=2,
                replication_factor=3,
                configs=[admin_pb2.ConfigEntry(name="x", value="1")],
                validate_only=True,
                assignments=[ONE_TWO],
            )
        ),
        CreateTopic(
            name="a",
            topic_id=ID,
            partitions=2,
            replication_factor=3,
            configs=(("x", "1"),),
            validate_only=True,
            assignments=((NodeId(1), NodeId(2)),),
        ),
    ),
    (
        controller_pb2.RelayRequest(delete_topic=admin_pb2.DeleteTopicRequest(name="a")),
        DeleteTopic(name="a", topic_id=None),
    ),
    (
        controller_pb2.RelayRequest(
            create_partitions=admin_pb2.CreatePartitionsRequest(
                topic="a", count=4, assignments=[ONE_TWO], validate_only=True, topic_id=ID
            )
        ),
        CreatePartitions(
            topic="a",
            count=4,
            assignments=((NodeId(1), NodeId(2)),),
            validate_only=True,
            topic_id=ID,
        ),
    ),
    (
        controller_pb2.RelayRequest(
            alter_configs=admin_pb2.AlterConfigsRequest(
                topic="a", changes=[SET, CLEAR], validate_only=True
            )
        ),
        AlterConfigs(topic="a", changes=(("x", "1"), ("y", None)), validate_only=True),
    ),
    (
        controller_pb2.RelayRequest(
            alter_configs=admin_pb2.AlterConfigsRequest(
                topic="a", changes=[SET, ADD, TAKE], replace=True
            )
        ),
        AlterConfigs(
            topic="a",
            changes=(("x", "1"),),
            lists=(
                ListChange(name="l", parts=("1", "2")),
                ListChange(name="m", parts=("3",), is_removal=True),
            ),
            replace=True,
        ),
    ),
    (
        controller_pb2.RelayRequest(
            alter_cluster_configs=admin_pb2.AlterClusterConfigsRequest(
                changes=[SET, CLEAR], validate_only=True
            )
        ),
        AlterClusterConfigs(changes=(("x", "1"), ("y", None)), validate_only=True),
    ),
    (
        controller_pb2.RelayRequest(
            alter_cluster_configs=admin_pb2.AlterClusterConfigsRequest(changes=[ADD], replace=True)
        ),
        AlterClusterConfigs(
            changes=(), lists=(ListChange(name="l", parts=("1", "2")),), replace=True
        ),
    ),
    (
        controller_pb2.RelayRequest(
            alter_reassignments=admin_pb2.AlterReassignmentsRequest(
                partitions=[
                    admin_pb2.PartitionReassignment(topic="a", partition=1, target=ONE_TWO),
                    admin_pb2.PartitionReassignment(topic="b", partition=2),
                ],
                keep_replication_factor=True,
            )
        ),
        AlterReassignments(
            reassignments=(
                Reassignment(topic="a", partition=1, replicas=(NodeId(1), NodeId(2))),
                Reassignment(topic="b", partition=2, replicas=None),
            ),
            keep_replication_factor=True,
        ),
    ),
    (
        controller_pb2.RelayRequest(
            elect_leaders=admin_pb2.ElectLeadersRequest(
                kind=admin_pb2.ELECTION_KIND_UNCLEAN,
                partitions=[admin_pb2.TopicPartition(topic="a", partition=3)],
            )
        ),
        ElectLeaders(unclean=True, partitions=(("a", 3),)),
    ),
    (
        controller_pb2.RelayRequest(
            update_features=admin_pb2.UpdateFeaturesRequest(
                updates=[admin_pb2.FeatureUpdate(name="f", level=2, allow_downgrade=True)],
                validate_only=True,
            )
        ),
        UpdateFeatures(
            updates=(FeatureUpdate(name="f", level=2, allow_downgrade=True),), validate_only=True
        ),
    ),
    (
        controller_pb2.RelayRequest(unregister_broker=admin_pb2.UnregisterBrokerRequest(broker=5)),
        UnregisterBroker(broker_id=NodeId(5)),
    ),
    (
        controller_pb2.RelayRequest(
            alter_client_quotas=admin_pb2.AlterClientQuotasRequest(
                alterations=[
                    {
                        "entity": [{"type": "user"}, {"type": "client-id", "name": ""}],
                        "changes": [{"key": "a", "value": 0}, {"key": "b"}],
                    }
                ],
                validate_only=True,
            )
        ),
        AlterClientQuotas(
            alterations=(
                QuotaAlteration(
                    entity=(("user", None), ("client-id", "")),
                    changes=(("a", 0.0), ("b", None)),
                ),
            ),
            validate_only=True,
        ),
    ),
    (
        controller_pb2.RelayRequest(
            broker_id=7,
            allocate_producer_ids=controller_pb2.AllocateProducerIdsRequest(broker_epoch=9),
        ),
        AllocateProducerIds(broker_id=NodeId(7), broker_epoch=Offset(9)),
    ),
]


def name_of(request: controller_pb2.RelayRequest) -> str:
    return request.WhichOneof("command") or ""


@pytest.mark.parametrize(("request_", "command"), COMMANDS, ids=lambda each: "")
def test_every_relayed_request_becomes_its_command(
    request_: controller_pb2.RelayRequest, command: Command
) -> None:
    assert command_of(request_, RealEntropy(bytes(32))) == command


def test_every_command_of_the_message_is_known() -> None:
    fields = controller_pb2.RelayRequest.DESCRIPTOR.oneofs_by_name["command"].fields
    assert {field.name for field in fields} == {name_of(request) for request, _ in COMMANDS}


def test_a_topic_without_an_id_gets_one_drawn_and_an_empty_request_is_refused() -> None:
    request = controller_pb2.RelayRequest(create_topic=admin_pb2.CreateTopicRequest(name="a"))
    command = command_of(request, RealEntropy(bytes(32)))
    assert isinstance(command, CreateTopic)
    assert len(command.topic_id) == 16
    with pytest.raises(InvalidRequest, match="no command"):
        command_of(controller_pb2.RelayRequest(), RealEntropy(bytes(32)))


def test_every_reply_becomes_the_answer_to_its_request(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a", configs=(("retention.ms", "5"),))
    topic = cluster.topic("a")
    error = NoReassignmentInProgress("no reassignment in progress")
    outcomes = PartitionOutcomes(outcomes=(PartitionOutcome(topic="a", partition=3, error=error),))
    replies: dict[str, Reply] = {
        "create_topic": TopicCreated(topic=topic),
        "delete_topic": TopicDeleted(topic=topic),
        "create_partitions": PartitionsCreated(topic=topic),
        "alter_configs": ConfigsAltered(topic=topic),
        "alter_cluster_configs": ClusterConfigsAltered(configs=(("x", "1"),)),
        "alter_reassignments": outcomes,
        "elect_leaders": outcomes,
        "update_features": FeaturesUpdated(levels=(("metadata.version", 1, 1, 1),)),
        "alter_client_quotas": ClientQuotasAltered(errors=(error,)),
        "unregister_broker": Done(),
        "allocate_producer_ids": ProducerIdsAllocated(start=5, count=6),
    }
    for request, _ in COMMANDS:
        name = name_of(request)
        answer = response_of(replies[name], request=request, offset=Offset(8), applied=True)
        assert answer.WhichOneof("reply") == name
        if name != "allocate_producer_ids":
            assert getattr(answer, name).metadata_offset == 8
    moved = response_of(outcomes, request=COMMANDS[5][0], offset=Offset(8), applied=True)
    assert moved.alter_reassignments.results[0].error.name == "NO_REASSIGNMENT_IN_PROGRESS"
    with pytest.raises(AssertionError):
        response_of(
            PartitionsAltered(results=()), request=COMMANDS[0][0], offset=Offset(8), applied=True
        )


def test_features_are_described_with_what_every_broker_works_with(cluster: Cluster) -> None:
    [feature] = describe_features(cluster.image)
    assert (feature.name, feature.level, feature.level_min, feature.level_max) == (
        "metadata.version",
        1,
        1,
        1,
    )
    assert feature.doc
