"""The messages of commands and replies: every command of RelayRequest and every reply."""

from typing import Any, get_args

import pytest
from tests.kit.metadata_cluster import Cluster
from tests.kit.stepwise import complete

from quorumlog.errors import InvalidRequest, NoReassignmentInProgress
from quorumlog.ids import NodeId, Offset, TopicId
from quorumlog.metadata import (
    AclDeletion,
    AclsCreated,
    AclsDeleted,
    AllocateProducerIds,
    AlterClientQuotas,
    AlterClusterConfigs,
    AlterConfigs,
    AlterGroupConfigs,
    AlterReassignments,
    AlterScramCredentials,
    ClientQuotasAltered,
    ClusterConfigsAltered,
    ConfigsAltered,
    CreateAcls,
    CreatePartitions,
    CreateTopic,
    DeleteAcls,
    DeleteTopic,
    Done,
    ElectLeaders,
    FeaturesUpdated,
    FeatureUpdate,
    GroupConfigsAltered,
    ListChange,
    PartitionOutcome,
    PartitionOutcomes,
    PartitionsCreated,
    ProducerIdsAllocated,
    QuotaAlteration,
    QuotaOutcome,
    Reassignment,
    RelayedCommand,
    Reply,
    ScramCredentialsAltered,
    ScramOutcome,
    Submitted,
    TopicCreated,
    TopicDeleted,
    UnregisterBroker,
    UpdateFeatures,
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
from quorumlog.metadata.codec import (
    decode_command,
    describe_features,
    describe_topic,
    encode_command,
    encode_reply,
)
from quorumlog.metadata.commands import Relayed
from quorumlog.metadata.decisions.features import feature_levels
from quorumlog.metadata.decisions.topics import with_topic_id
from quorumlog.metadata.scram_credentials import ScramCredential, ScramMechanism
from quorumlog.proto import admin_pb2, controller_pb2, metadata_records_pb2
from quorumlog.runtime.real import RealEntropy

ID = TopicId(b"i" * 16)
ONE_TWO = admin_pb2.ReplicaAssignment(replicas=[1, 2])
SET = admin_pb2.ConfigChange(name="x", value="1")
CLEAR = admin_pb2.ConfigChange(name="y")
ADD = admin_pb2.ConfigChange(name="l", value="1, 2", operation=admin_pb2.CONFIG_OPERATION_APPEND)
TAKE = admin_pb2.ConfigChange(name="m", value="3", operation=admin_pb2.CONFIG_OPERATION_SUBTRACT)

COMMANDS: list[tuple[controller_pb2.RelayRequest, Relayed]] = [
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
            alter_group_configs=controller_pb2.AlterGroupConfigsRequest(
                group="g", changes=[SET, CLEAR], replace=True, validate_only=True
            )
        ),
        AlterGroupConfigs(
            group="g", changes=(("x", "1"), ("y", None)), replace=True, validate_only=True
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
            allocate_producer_ids=controller_pb2.AllocateProducerIdsRequest(
                broker_epoch=9, producer_id_len=1
            ),
        ),
        AllocateProducerIds(broker_id=NodeId(7), broker_epoch=Offset(9), count=1),
    ),
]


ACL = Acl(
    ResourcePattern(AclResourceType.TOPIC, "a", AclPatternType.PREFIXED),
    "User:alice",
    "10.0.0.1",
    AclOperation.WRITE,
    AclPermission.DENY,
)
ACL_MESSAGE = metadata_records_pb2.Acl(
    resource_type="ACL_RESOURCE_TYPE_TOPIC",
    resource_name="a",
    pattern_type="ACL_PATTERN_TYPE_PREFIXED",
    principal="User:alice",
    host="10.0.0.1",
    operation="ACL_OPERATION_WRITE",
    permission="ACL_PERMISSION_DENY",
)
CREDENTIAL = ScramCredential(salt=b"s", iterations=4_096, stored_key=b"k", server_key=b"v")
COMMANDS += [
    (
        controller_pb2.RelayRequest(create_acls=admin_pb2.CreateAclsRequest(acls=[ACL_MESSAGE])),
        CreateAcls(acls=(ACL,)),
    ),
    (
        controller_pb2.RelayRequest(
            delete_acls=admin_pb2.DeleteAclsRequest(
                filters=[
                    {
                        "resource_type": "ACL_RESOURCE_TYPE_ANY",
                        "pattern_type": "ACL_PATTERN_TYPE_MATCH",
                        "resource_name": "",
                        "operation": "ACL_OPERATION_ANY",
                        "permission": "ACL_PERMISSION_ALLOW",
                    }
                ]
            )
        ),
        DeleteAcls(
            filters=(
                AclFilter(
                    resource_name="",
                    pattern_type=AclPatternType.MATCH,
                    permission=AclPermission.ALLOW,
                ),
            )
        ),
    ),
    (
        controller_pb2.RelayRequest(
            alter_scram_credentials=admin_pb2.AlterScramCredentialsRequest(
                deletions=[{"user": "a", "mechanism": "SCRAM_MECHANISM_SHA_512"}],
                upsertions=[
                    {
                        "credential": {"user": "b", "mechanism": "SCRAM_MECHANISM_SHA_256"},
                        "salt": b"s",
                        "iterations": 4_096,
                        "stored_key": b"k",
                        "server_key": b"v",
                    }
                ],
            )
        ),
        AlterScramCredentials(
            deletions=(("a", ScramMechanism.SCRAM_SHA_512),),
            upsertions=((("b", ScramMechanism.SCRAM_SHA_256), CREDENTIAL),),
        ),
    ),
]


def name_of(request: controller_pb2.RelayRequest) -> str:
    return request.WhichOneof("command") or ""


@pytest.mark.parametrize(("request_", "command"), COMMANDS, ids=lambda each: "")
def test_relayed_request_decodes_to_its_command(
    request_: controller_pb2.RelayRequest, command: Relayed
) -> None:
    assert decode_command(request_) == command
    assert decode_command(encode_command(command)) == command
    assert encode_command(command).WhichOneof("command") == name_of(request_)


def test_every_command_of_the_message_is_known() -> None:
    fields = controller_pb2.RelayRequest.DESCRIPTOR.oneofs_by_name["command"].fields
    assert {field.name for field in fields} == {name_of(request) for request, _ in COMMANDS}


def test_request_without_a_command_is_rejected() -> None:
    with pytest.raises(InvalidRequest, match="no command"):
        decode_command(controller_pb2.RelayRequest())


def test_topic_without_an_id_gets_a_random_one() -> None:
    command = with_topic_id(CreateTopic(name="a"), RealEntropy(bytes(32)))
    assert len(command.topic_id) == 16
    assert with_topic_id(command, RealEntropy(bytes(32))) is command


def test_only_deletions_are_not_repeatable() -> None:
    once = [each.__name__ for each in get_args(Relayed) if not each.is_repeatable]
    assert once == ["DeleteTopic", "DeleteAcls", "AlterScramCredentials"]


def encoded(command: RelayedCommand[Any], reply: Reply) -> controller_pb2.RelayResponse:
    return complete(encode_reply(command, Submitted(reply=reply, offset=Offset(8), applied=True)))


def test_every_reply_becomes_the_response_to_its_command(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.create("a", configs=(("retention.ms", "5"),))
    topic = cluster.topic("a")
    error = NoReassignmentInProgress("no reassignment in progress")
    outcomes = PartitionOutcomes(outcomes=(PartitionOutcome(topic="a", partition=3, error=error),))
    quotas = QuotaOutcome(entity=(("user", None),), error=error)
    replies: dict[str, Reply] = {
        "create_topic": TopicCreated(topic=topic),
        "delete_topic": TopicDeleted(topic_id=topic.id),
        "create_partitions": PartitionsCreated(topic=topic),
        "alter_configs": ConfigsAltered(configs=(("retention.ms", "5"),)),
        "alter_cluster_configs": ClusterConfigsAltered(configs=(("x", "1"),)),
        "alter_group_configs": GroupConfigsAltered(configs=(("x", "1"),)),
        "alter_reassignments": outcomes,
        "elect_leaders": outcomes,
        "update_features": FeaturesUpdated(levels=(("metadata.version", 1, 1, 1),)),
        "alter_client_quotas": ClientQuotasAltered(outcomes=(quotas,)),
        "create_acls": AclsCreated(errors=(None, error)),
        "delete_acls": AclsDeleted(deletions=(AclDeletion(acls=(ACL,)), AclDeletion(error=error))),
        "alter_scram_credentials": ScramCredentialsAltered(
            outcomes=(ScramOutcome(user="a"), ScramOutcome(user="b", error=error))
        ),
        "unregister_broker": Done(),
        "allocate_producer_ids": ProducerIdsAllocated(start=5, count=6),
    }
    for request, command in COMMANDS:
        name = name_of(request)
        response = encoded(command, replies[name])
        assert response.WhichOneof("reply") == name
        if name != "allocate_producer_ids":
            assert getattr(response, name).metadata_offset == 8
    moved = encoded(COMMANDS[8][1], outcomes)
    assert moved.alter_reassignments.results[0].error.name == "NO_REASSIGNMENT_IN_PROGRESS"
    created = encoded(COMMANDS[0][1], TopicCreated(topic=topic)).create_topic
    assert created.usable
    assert created.topic == describe_topic(topic)
    assert created.topic.partitions[0].min_isr == 1


def test_feature_of_a_newer_controller_has_no_description() -> None:
    levels = (("metadata.version", 1, 1, 1), ("of.another.release", 2, 0, 2))
    features = encoded(UpdateFeatures(updates=()), FeaturesUpdated(levels=levels)).update_features
    assert [bool(each.doc) for each in features.features] == [True, False]


def test_features_are_described_with_the_levels_of_every_broker(cluster: Cluster) -> None:
    features = describe_features(feature_levels(cluster.image))
    assert [
        (feature.name, feature.level, feature.level_min, feature.level_max) for feature in features
    ] == [("metadata.version", 1, 1, 1), ("transaction.version", 0, 0, 2)]
    assert all(feature.doc for feature in features)
