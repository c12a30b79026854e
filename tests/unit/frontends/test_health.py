"""The health check of a whole node, as load balancers use it."""

import asyncio
from pathlib import Path
from typing import Any

from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from quorumlog.broker.config import RequestConfig
from quorumlog.errors import Stopping
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.runtime import Runtime, real
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory
from quorumlog.services import ADMIN_CREATE_TOPIC, LOG_SUBSCRIBE

WAIT_MS = 60_000


def test_a_stopping_node_is_not_serving_before_its_streams_end(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        config = NodeConfig(
            data_dir=str(tmp_path / "data"),
            grpc_listener="127.0.0.1:0",
            controller_listener="127.0.0.1:0",
            requests=RequestConfig(subscribe_heartbeat_ms=100),
        )
        await format_directory(runtime, config)
        node = Node(runtime, config)
        address = (await node.start()).grpc
        assert address is not None
        seen: list[str] = []

        async def follow(stream: Any) -> None:
            try:
                while await stream.receive() is not None:
                    pass  # heartbeats of the stream
            except Stopping:
                seen.append("stream ended")

        async def watch(answers: Any) -> None:
            while (answer := await answers.read()) is not aio.EOF:
                seen.append(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))

        async with (
            asyncio.timeout(WAIT_MS / 1000),
            aio.insecure_channel(address) as foreign,
            runtime.tasks.scope("test") as scope,
        ):
            channel = runtime.network.channel(address)
            request = admin_pb2.CreateTopicRequest(name="t", partitions=1)
            await channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)
            stub: Any = health_pb2_grpc.HealthStub(foreign)
            answers = stub.Watch(health_pb2.HealthCheckRequest())
            assert (await answers.read()).status == health_pb2.HealthCheckResponse.SERVING
            scope.spawn(watch(answers), name="watch")
            stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
            await stream.send(log_pb2.SubscribeRequest(topic="t"))
            assert await stream.receive() is not None
            scope.spawn(follow(stream), name="follow")
            await node.stop()
        assert seen == ["NOT_SERVING", "stream ended"]

    real.run(main)
