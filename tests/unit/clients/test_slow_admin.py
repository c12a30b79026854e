"""Every admin call to a slow server ends within call_timeout_ms."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from quorumlog import services, simulation
from quorumlog.clients.admin.admin import AsyncAdmin
from quorumlog.clients.log import make_log
from quorumlog.clients.offsets import TimestampMs
from quorumlog.errors import (
    ConnectionFailed,
    TimedOut,
    TopicAlreadyExists,
    TransportError,
)
from quorumlog.proto import admin_pb2, quorum_pb2
from quorumlog.runtime import Handler, Method, Runtime

CALL_TIMEOUT_MS = 2_000
CALLS: dict[str, Callable[[AsyncAdmin], Awaitable[Any]]] = {
    "describe_cluster": lambda admin: admin.describe_cluster(),
    "create_topic": lambda admin: admin.create_topic("t"),
    "create_topic, if_not_exists": lambda admin: admin.create_topic("t", if_not_exists=True),
    "list_topics": lambda admin: admin.list_topics(),
    "describe_topic": lambda admin: admin.describe_topic("t"),
    "delete_topic": lambda admin: admin.delete_topic("t"),
    "delete_records": lambda admin: admin.delete_records("t", 5),
    "delete_records by time": lambda admin: admin.delete_records("t", TimestampMs(5)),
    "describe_configs": lambda admin: admin.describe_configs("t"),
    "describe_configs of a broker": lambda admin: admin.describe_configs(broker=1),
    "alter_configs": lambda admin: admin.alter_configs("t", {"retention.ms": 1}),
    "describe_log_dirs": lambda admin: admin.describe_log_dirs(),
    "describe_log_dirs of a broker": lambda admin: admin.describe_log_dirs(broker=2),
}


class SlowServer:
    """Three brokers at one address, slow from `is_slow` on."""

    def __init__(self, answer_s: float) -> None:
        self.answer_s = answer_s
        self.is_slow = False

    def handlers(self, address: str) -> dict[str, Handler]:
        def handler(method: Method[Any, Any]) -> Handler:
            async def handle(request: Any, context: object) -> Any:
                if self.is_slow:
                    await asyncio.sleep(self.answer_s)
                return self.answer(method, request, address)

            return Handler(method, handle)

        methods = [value for name, value in vars(services).items() if name.startswith("ADMIN_")]
        methods.append(services.LOG_LIST_OFFSETS)
        return {method.path: handler(method) for method in methods}

    @staticmethod
    def answer(method: Method[Any, Any], request: Any, address: str) -> Any:
        brokers = [
            admin_pb2.BrokerDescription(id=number, grpc_address=address) for number in (1, 2, 3)
        ]
        if method is services.ADMIN_DESCRIBE_CLUSTER:
            return admin_pb2.DescribeClusterResponse(cluster_id="c", brokers=brokers)
        if method is services.ADMIN_DESCRIBE_TOPICS:
            topic = admin_pb2.TopicDescription(name="t", topic_id=b"t" * 16)
            topic.partitions.add(partition=0, leader=1, replicas=[1], isr=[1])
            response = admin_pb2.DescribeTopicsResponse(brokers=brokers)
            response.results.add(name="t").topic.CopyFrom(topic)
            return response
        if method is services.ADMIN_CREATE_TOPIC:
            raise TopicAlreadyExists("the topic exists", topic=request.name)
        if method is services.ADMIN_DESCRIBE_LOG_DIRS:
            return admin_pb2.DescribeLogDirsResponse()
        raise TimedOut("not in time")  # may be retried


@pytest.mark.parametrize(
    "answer_s", [pytest.param(3_600.0, id="never"), pytest.param(1.5, id="late")]
)
@pytest.mark.parametrize("call", CALLS)
def test_a_call_to_a_slow_server_ends_in_time(call: str, answer_s: float) -> None:
    """Late: each response arrives in time, but a call of two responses must not exceed its
    timeout."""

    async def main(runtime: Runtime) -> None:
        server = SlowServer(answer_s)
        listener = await runtime.network.serve("127.0.0.1:7000", server.handlers("127.0.0.1:7000"))
        async with make_log(runtime, listener.address, call_timeout_ms=CALL_TIMEOUT_MS) as log:
            server.is_slow = True
            began_ms = runtime.clock.now_ms()
            with suppress(TransportError, TimedOut, TopicAlreadyExists):
                await CALLS[call](log.admin)
                assert answer_s < 2, "no broker has answered"
            assert runtime.clock.now_ms() - began_ms <= CALL_TIMEOUT_MS + 100
        await listener.close(0)

    simulation.run(main)


def test_a_controller_that_does_not_answer_in_time_is_no_connection() -> None:
    async def describe(request: object, context: object) -> quorum_pb2.DescribeQuorumResponse:
        await asyncio.sleep(10)
        return quorum_pb2.DescribeQuorumResponse()

    async def main(runtime: Runtime) -> None:
        handler = Handler(services.QUORUM_DESCRIBE, describe)
        listener = await runtime.network.serve("127.0.0.1:0", {handler.method.path: handler})
        with pytest.raises(ConnectionFailed, match="no broker answers at"):
            await make_log(runtime, listener.address, connect_timeout_ms=1_000)
        async with make_log(runtime, listener.address, connect_timeout_ms=20_000):
            pass
        await listener.close(0)

    simulation.run(main)


def test_reads_of_metadata_leave_a_silent_broker_for_good() -> None:
    async def main(runtime: Runtime) -> None:
        silent, other = SlowServer(3_600.0), SlowServer(0.0)
        addresses = ["127.0.0.1:7000", "127.0.0.1:7001"]
        listeners = [
            await runtime.network.serve(address, server.handlers(address))
            for address, server in zip(addresses, (silent, other), strict=True)
        ]
        async with make_log(runtime, ",".join(addresses), call_timeout_ms=CALL_TIMEOUT_MS) as log:
            silent.is_slow = True
            began_ms = runtime.clock.now_ms()
            # Each call detects it; together they must not return to it.
            await asyncio.gather(*(log.admin.describe_cluster() for _ in range(2)))
            assert runtime.clock.now_ms() - began_ms <= CALL_TIMEOUT_MS // 2 + 200
            began_ms = runtime.clock.now_ms()
            await log.admin.describe_cluster()
            assert runtime.clock.now_ms() - began_ms < 100, "the silent broker was called again"
        for listener in listeners:
            await listener.close(0)

    simulation.run(main)
