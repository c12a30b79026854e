"""`quorumlog mirror status` shows the available partitions while part of the cluster is down."""

import asyncio
import json
from collections.abc import Callable

import pytest
from tests.kit.command import succeed
from tests.kit.waits import run_patiently

from quorumlog.errors import NotEnoughReplicas, QuorumlogError
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.runtime import CallContext, Handler, Runtime
from quorumlog.runtime.error_detail import encode_error
from quorumlog.services import (
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
    LOG_LIST_OFFSETS,
)

TOPIC_ID = b"i" * 16
ENDS: list[int | QuorumlogError] = [70, 71, NotEnoughReplicas("its disk is full"), 73]
LEADERS = [1, -1, 1, 2]


async def shown(runtime: Runtime, *arguments: str) -> str:
    """Return the output for a cluster of two brokers with one copy.

    One of its partitions is available, one has no leader, and the leader of one refuses.
    """

    async def cluster(
        request: admin_pb2.DescribeClusterRequest, context: CallContext
    ) -> admin_pb2.DescribeClusterResponse:
        brokers = [admin_pb2.BrokerDescription(id=n, grpc_address=listener.address) for n in (1, 2)]
        return admin_pb2.DescribeClusterResponse(cluster_id="c", brokers=brokers)

    async def topics(
        request: admin_pb2.ListTopicsRequest, context: CallContext
    ) -> admin_pb2.ListTopicsResponse:
        listed = admin_pb2.ListTopicsResponse()
        listed.topics.add(name="copy", topic_id=TOPIC_ID, partitions=len(LEADERS))
        return listed

    async def describe(
        request: admin_pb2.DescribeTopicsRequest, context: CallContext
    ) -> admin_pb2.DescribeTopicsResponse:
        answer = admin_pb2.DescribeTopicsResponse(brokers=(await cluster(None, context)).brokers)  # type: ignore[arg-type]
        found = answer.results.add(name="copy").topic
        found.name, found.topic_id = "copy", TOPIC_ID
        found.configs.add(name="mirror.source", value="old/x")
        for partition, leader in enumerate(LEADERS):
            found.partitions.add(partition=partition, leader=leader, replicas=[1, 2], isr=[1])
        return answer

    async def offsets(
        request: log_pb2.ListOffsetsRequest, context: CallContext
    ) -> log_pb2.ListOffsetsResponse:
        answer = log_pb2.ListOffsetsResponse()
        for each in request.partitions:
            result = answer.results.add(topic=each.topic, partition=each.partition)
            end = ENDS[each.partition]
            if isinstance(end, int):
                result.offset = end
            else:
                result.error.CopyFrom(encode_error(end))
        return answer

    table = [
        Handler(ADMIN_DESCRIBE_CLUSTER, cluster),
        Handler(ADMIN_LIST_TOPICS, topics),
        Handler(ADMIN_DESCRIBE_TOPICS, describe),
        Handler(LOG_LIST_OFFSETS, offsets),
    ]
    handlers = {handler.method.path: handler for handler in table}
    listener = await runtime.network.serve("127.0.0.1:0", handlers)
    say: Callable[..., str] = succeed
    return await asyncio.to_thread(say, "mirror", "status", *arguments, address=listener.address)


@pytest.mark.long
def test_unavailable_partitions_do_not_hide_the_others() -> None:
    async def main(runtime: Runtime) -> None:
        rows = json.loads(await shown(runtime, "-o", "json"))
        assert [row["copied_to"] for row in rows] == [70, None, None, 73]
        assert [row["partition"] for row in rows] == [0, 1, 2, 3]
        problems = [row["problem"] for row in rows]
        assert (problems[0], problems[3]) == (None, None)
        assert "no leader" in problems[1]
        assert "its disk is full" in problems[2]
        table = await shown(runtime)
        assert "its disk is full" in table
        assert "73" in table

    run_patiently(main)
