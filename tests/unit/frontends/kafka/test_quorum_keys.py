"""DescribeQuorum, AddRaftVoter, RemoveRaftVoter on a quorum of one."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS, Run

from quorumlog import simulation
from quorumlog.proto import admin_pb2, quorum_pb2
from quorumlog.runtime import Runtime
from quorumlog.services import ADMIN_DESCRIBE_CLUSTER, QUORUM_DESCRIBE

from .admin_calls import NODE, TIMEOUT_MS

DESCRIBE_QUORUM, ADD_VOTER, REMOVE_VOTER = 55, 80, 81
TOPIC = "__cluster_metadata"
DISK = b"d" * 16
HERE = {"name": "CONTROLLER", "host": "127.0.0.1", "port": 9093}


def asked(*places: tuple[str, int]) -> list[dict[str, Any]]:
    return [{"topic_name": name, "partitions": [{"partition_index": at}]} for name, at in places]


async def quorum_of(kafka: KafkaNode) -> quorum_pb2.DescribeQuorumResponse:
    request = quorum_pb2.DescribeQuorumRequest()
    return await kafka.channel.call(QUORUM_DESCRIBE, request, timeout_ms=WAIT_MS)


@pytest.mark.parametrize("version", range(3))
def test_quorum_description_equals_that_of_grpc(run: Run, folder: str, version: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            expected = await quorum_of(kafka)
            answer = await kafka.client.ask(DESCRIBE_QUORUM, version, topics=asked((TOPIC, 0)))
            (topic,) = answer.topics
            (part,) = topic.partitions
            assert (answer.error_code, topic.topic_name, part.error_code) == (0, TOPIC, 0)
            assert (part.leader_id, part.leader_epoch) == (NODE, expected.leader_epoch)
            assert part.high_watermark >= expected.high_watermark
            (voter,) = part.current_voters
            assert voter.replica_id == NODE
            assert voter.log_end_offset >= part.high_watermark
            if version >= 1:
                now_ms = runtime.clock.wall_ms()
                assert now_ms - WAIT_MS <= voter.last_fetch_timestamp <= now_ms
                assert voter.last_caught_up_timestamp == voter.last_fetch_timestamp
            if version >= 2:
                assert voter.replica_directory_id.bytes == expected.voters[0].directory_id
                (node,) = answer.nodes
                assert (node.node_id, node.listeners) == (NODE, ())  # without an address

    run(main)


@pytest.mark.parametrize(
    "places", [[("t", 0)], [(TOPIC, 1)], [(TOPIC, 0), ("t", 0)], [(TOPIC, 0), (TOPIC, 0)]]
)
def test_every_other_log_is_unknown(folder: str, places: list[tuple[str, int]]) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            answer = await kafka.client.ask(DESCRIBE_QUORUM, 2, topics=asked(*places))
            errors = [part.error_code for topic in answer.topics for part in topic.partitions]
            assert errors == [3] * len(places)

    simulation.run(main)


def voter(**fields: Any) -> dict[str, Any]:
    return {
        "cluster_id": None,
        "timeout": TIMEOUT_MS,
        "voter_id": 2,
        "voter_directory_id": DISK,
        "listeners": (HERE,),
        **fields,
    }


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        (voter(), 7, "node 2"),  # it does not follow
        (voter(voter_id=NODE), 126, "already a voter"),
        (voter(voter_id=-1), 42, "is not a node id"),
        (voter(voter_directory_id=b""), 42, "voter_directory_id: empty"),
        (voter(listeners=()), 42, "CONTROLLER"),
        (voter(listeners=({**HERE, "name": "OTHER"},)), 42, "CONTROLLER"),
        (voter(cluster_id="x" * 22), 104, "cluster"),
    ],
)
@pytest.mark.parametrize("version", range(2))
def test_a_voter_that_cannot_be_added_is_refused_by_its_code(
    folder: str, version: int, fields: dict[str, Any], code: int, message: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            answer = await kafka.client.ask(ADD_VOTER, version, **fields)
            assert answer.error_code == code
            assert message in answer.error_message
            assert len((await quorum_of(kafka)).voters) == 1

    simulation.run(main)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"voter_id": 2, "voter_directory_id": DISK}, 127),
        ({"voter_id": NODE, "voter_directory_id": DISK}, 127),  # another disk of it
        ({"voter_id": NODE, "voter_directory_id": b""}, 42),
        ({"voter_id": -1, "voter_directory_id": DISK}, 42),
        ({"voter_id": 2, "voter_directory_id": DISK, "cluster_id": "x"}, 104),
    ],
)
def test_a_voter_that_cannot_be_removed_is_refused_by_its_code(
    folder: str, fields: dict[str, Any], code: int
) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            answer = await kafka.client.ask(REMOVE_VOTER, 0, **{"cluster_id": None, **fields})
            assert answer.error_code == code
            assert answer.error_message

    simulation.run(main)


def test_last_voter_cannot_be_removed_and_the_cluster_id_is_accepted(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            request = admin_pb2.DescribeClusterRequest()
            cluster = await kafka.channel.call(ADMIN_DESCRIBE_CLUSTER, request, timeout_ms=WAIT_MS)
            directory_id = (await quorum_of(kafka)).voters[0].directory_id
            answer = await kafka.client.ask(
                REMOVE_VOTER,
                0,
                cluster_id=cluster.cluster_id,
                voter_id=NODE,
                voter_directory_id=directory_id,
            )
            assert answer.error_code == 42
            assert "last" in answer.error_message

    simulation.run(main)
