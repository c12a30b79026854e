"""The methods of the service `Admin` for placement and leadership, by raw calls."""

from typing import Any

import pytest
from tests.kit.node import WAIT_MS, serving

from quorumlog import simulation
from quorumlog.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    InvalidTopic,
    QuorumlogError,
    UnknownTopicOrPartition,
)
from quorumlog.proto import admin_pb2 as pb
from quorumlog.runtime import Method, Runtime
from quorumlog.services import (
    ADMIN_ALTER_CLUSTER_CONFIGS,
    ADMIN_ALTER_CONFIGS,
    ADMIN_ALTER_REASSIGNMENTS,
    ADMIN_CREATE_PARTITIONS,
    ADMIN_CREATE_TOPIC,
    ADMIN_DESCRIBE_REPLICAS,
    ADMIN_ELECT_LEADERS,
    ADMIN_LIST_REASSIGNMENTS,
    ADMIN_UNREGISTER_BROKER,
    ADMIN_UPDATE_FEATURES,
)


def of_kind(number: Any) -> pb.ElectLeadersRequest:
    return pb.ElectLeadersRequest(kind=number)


PLACE = {"topic": "t", "partition": 0}
NO_VALUE: Any = {"name": "cleanup.policy", "operation": pb.CONFIG_OPERATION_APPEND}
UNKNOWN_OPERATION: Any = {"name": "cleanup.policy", "value": "", "operation": 9}
REFUSED: list[tuple[Method[Any, Any], Any, type[QuorumlogError], str]] = [
    (
        ADMIN_CREATE_TOPIC,
        pb.CreateTopicRequest(name="t", assignments=[{"replicas": []}]),
        InvalidReplicaAssignment,
        "assignment: 0 brokers; give 1",
    ),
    (
        ADMIN_CREATE_PARTITIONS,
        pb.CreatePartitionsRequest(topic="t", count=0),
        InvalidRequest,
        "count: 0; give 1 or more",
    ),
    (ADMIN_CREATE_PARTITIONS, pb.CreatePartitionsRequest(topic="t/", count=2), InvalidTopic, "t/"),
    (
        ADMIN_CREATE_PARTITIONS,
        pb.CreatePartitionsRequest(topic="t", count=2, assignments=[{"replicas": [1, 1]}]),
        InvalidReplicaAssignment,
        r"assignment: \[1, 1\]; give node ids of 0 or more, each once",
    ),
    (
        ADMIN_CREATE_PARTITIONS,
        pb.CreatePartitionsRequest(topic="t", count=2, topic_id=b"short"),
        InvalidRequest,
        "topic_id: 5 bytes; give 16",
    ),
    (
        ADMIN_ALTER_REASSIGNMENTS,
        pb.AlterReassignmentsRequest(),
        InvalidRequest,
        "partitions: empty",
    ),
    (
        ADMIN_ALTER_REASSIGNMENTS,
        pb.AlterReassignmentsRequest(partitions=[PLACE, PLACE]),
        InvalidRequest,
        "this partition is named twice",
    ),
    (
        ADMIN_ALTER_REASSIGNMENTS,
        pb.AlterReassignmentsRequest(partitions=[{**PLACE, "target": {"replicas": [2, -1]}}]),
        InvalidReplicaAssignment,
        r"assignment: \[2, -1\]",
    ),
    (
        ADMIN_ELECT_LEADERS,
        pb.ElectLeadersRequest(kind=pb.ELECTION_KIND_UNCLEAN),
        InvalidRequest,
        "partitions: empty for an unclean election, which may lose records; name each one",
    ),
    (
        ADMIN_ELECT_LEADERS,
        pb.ElectLeadersRequest(partitions=[{"topic": "t", "partition": -1}]),
        InvalidRequest,
        "the partition is negative; give 0 or more",
    ),
    (ADMIN_ELECT_LEADERS, of_kind(7), InvalidRequest, "kind: 7; give"),
    (
        ADMIN_LIST_REASSIGNMENTS,
        pb.ListReassignmentsRequest(topics=["nope"]),
        UnknownTopicOrPartition,
        "nope",
    ),
    (
        ADMIN_ALTER_CLUSTER_CONFIGS,
        pb.AlterClusterConfigsRequest(),
        InvalidRequest,
        "changes: 0 entries; give 1",
    ),
    (
        ADMIN_ALTER_CONFIGS,
        pb.AlterConfigsRequest(topic="t", changes=[NO_VALUE]),
        InvalidRequest,
        "cleanup.policy: no value to append",
    ),
    (
        ADMIN_ALTER_CONFIGS,
        pb.AlterConfigsRequest(topic="t", changes=[UNKNOWN_OPERATION]),
        InvalidRequest,
        "cleanup.policy: unknown operation 9; give CONFIG_OPERATION_SET",
    ),
    (
        ADMIN_UPDATE_FEATURES,
        pb.UpdateFeaturesRequest(updates=[{"name": "f", "level": 1}, {"name": "f", "level": 2}]),
        InvalidRequest,
        "updates: 'f' is named twice",
    ),
    (
        ADMIN_UPDATE_FEATURES,
        pb.UpdateFeaturesRequest(updates=[{"name": "f", "level": -1}]),
        InvalidRequest,
        "'f': level -1; give 0 or more",
    ),
    (
        ADMIN_UNREGISTER_BROKER,
        pb.UnregisterBrokerRequest(broker=-3),
        InvalidRequest,
        "broker: -3 is not a node id",
    ),
]


def test_invalid_request_is_refused_without_the_controller(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            for method, request, kind, why in REFUSED:
                with pytest.raises(kind, match=why):
                    await channel.call(method, request, timeout_ms=WAIT_MS)

    simulation.run(main)


def test_idle_cluster_lists_no_reassignment(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            created = await channel.call(
                ADMIN_CREATE_TOPIC, pb.CreateTopicRequest(name="t"), timeout_ms=WAIT_MS
            )
            request = pb.ListReassignmentsRequest(min_metadata_offset=created.metadata_offset)
            listed = await channel.call(ADMIN_LIST_REASSIGNMENTS, request, timeout_ms=WAIT_MS)
            assert list(listed.reassignments) == []
            assert listed.metadata_offset >= created.metadata_offset

    simulation.run(main)


def test_repeated_growth_to_the_same_count_succeeds(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            create = pb.CreateTopicRequest(name="t")
            created = await channel.call(ADMIN_CREATE_TOPIC, create, timeout_ms=WAIT_MS)
            topic_id = created.topic.topic_id
            grow = pb.CreatePartitionsRequest(topic="t", count=3, topic_id=topic_id)
            for _ in range(2):
                grown = await channel.call(ADMIN_CREATE_PARTITIONS, grow, timeout_ms=WAIT_MS)
                assert [each.partition for each in grown.topic.partitions] == [0, 1, 2]
                assert {each.leader for each in grown.topic.partitions} == {1}
                assert grown.usable
            assert grown.metadata_offset > created.metadata_offset
            fewer = pb.CreatePartitionsRequest(topic="t", count=2)
            with pytest.raises(InvalidPartitions, match="3"):
                await channel.call(ADMIN_CREATE_PARTITIONS, fewer, timeout_ms=WAIT_MS)

    simulation.run(main)


def test_reassignments_and_elections_have_a_result_for_each_partition(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            create = pb.CreateTopicRequest(name="t", assignments=[{"replicas": [1]}] * 3)
            await channel.call(ADMIN_CREATE_TOPIC, create, timeout_ms=WAIT_MS)
            targets: list[dict[str, Any]] = [
                {"topic": "t", "partition": 0, "target": {"replicas": [7]}},
                {"topic": "t", "partition": 1, "target": {"replicas": [1]}},
                {"topic": "t", "partition": 2},
                {"topic": "t", "partition": 3, "target": {"replicas": [1]}},
            ]
            move = pb.AlterReassignmentsRequest(partitions=targets)
            moved = await channel.call(ADMIN_ALTER_REASSIGNMENTS, move, timeout_ms=WAIT_MS)
            assert [(each.partition, each.error.name) for each in moved.results] == [
                (0, "INVALID_REPLICA_ASSIGNMENT"),
                (1, ""),
                (2, "NO_REASSIGNMENT_IN_PROGRESS"),
                (3, "UNKNOWN_TOPIC_OR_PARTITION"),
            ]
            elect = pb.ElectLeadersRequest(partitions=[PLACE, {"topic": "t", "partition": 9}])
            elected = await channel.call(ADMIN_ELECT_LEADERS, elect, timeout_ms=WAIT_MS)
            assert [each.error.name for each in elected.results] == [
                "ELECTION_NOT_NEEDED",
                "UNKNOWN_TOPIC_OR_PARTITION",
            ]
            everywhere = pb.ElectLeadersRequest()
            elected = await channel.call(ADMIN_ELECT_LEADERS, everywhere, timeout_ms=WAIT_MS)
            assert list(elected.results) == []

    simulation.run(main)


def test_leader_describes_replicas_of_its_partitions_and_errors_for_the_others(
    folder: str,
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            for name in ("u", "t"):
                create = pb.CreateTopicRequest(name=name, partitions=2)
                await channel.call(ADMIN_CREATE_TOPIC, create, timeout_ms=WAIT_MS)
            answer = await channel.call(
                ADMIN_DESCRIBE_REPLICAS, pb.DescribeReplicasRequest(), timeout_ms=WAIT_MS
            )
            assert answer.broker == 1
            assert [(each.topic, each.partition) for each in answer.partitions] == [
                ("t", 0),
                ("t", 1),
                ("u", 0),
                ("u", 1),
            ]
            for each in answer.partitions:
                assert (each.min_isr, len(each.replicas)) == (1, 1)
                assert (each.replicas[0].broker, each.replicas[0].in_sync) == (1, True)
            request = pb.DescribeReplicasRequest(
                partitions=[PLACE, {"topic": "none", "partition": 0}]
            )
            answer = await channel.call(ADMIN_DESCRIBE_REPLICAS, request, timeout_ms=WAIT_MS)
            assert [(each.topic, each.error.name) for each in answer.partitions] == [
                ("none", "UNKNOWN_TOPIC_OR_PARTITION"),
                ("t", ""),
            ]

    simulation.run(main)
