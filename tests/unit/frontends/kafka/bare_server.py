"""Kafka listeners without a node; the test supplies the handlers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from tests.kit.kafka_client import RawClient

from quorumlog.broker.config import RequestConfig
from quorumlog.broker.quotas import ClientQuotaManager
from quorumlog.frontends.kafka import KafkaConfig, KafkaServer
from quorumlog.frontends.kafka.api import Answer, BrokerContext, Call, KafkaApi
from quorumlog.runtime import Runtime

GRACE_MS = 500
PLAIN_KEY, GATED_KEY, BROKEN_KEY = 19, 20, 21  # the schemas of the test requests


class Gate:
    """An API whose requests wait until the test releases them, in any order."""

    def __init__(self) -> None:
        self.begun: list[int] = []  # request timeouts, which identify the requests
        self._opened: dict[int, asyncio.Event] = {}
        self._news = asyncio.Event()
        self.api = KafkaApi(
            key=GATED_KEY, name="Gated", low=1, high=6, flexible=4, handle=self._handle
        )

    def open(self, number: int) -> None:
        """Release a request."""
        self._opened.setdefault(number, asyncio.Event()).set()

    async def reached(self, count: int) -> None:
        """Wait until so many requests have started."""
        async with asyncio.timeout(60):
            while len(self.begun) < count:
                self._news.clear()
                await self._news.wait()

    async def _handle(self, door: BrokerContext, call: Call) -> Answer:
        number = int(call.body.timeout.total_seconds() * 1000)
        self.begun.append(number)
        self._news.set()
        await self._opened.setdefault(number, asyncio.Event()).wait()
        return {"responses": []}


async def plain(door: BrokerContext, call: Call) -> Answer:
    """Respond at once with the requested names."""
    rows = [{"name": topic.name, "topic_id": bytes(16)} for topic in call.body.topics]
    return {"topics": [{**row, "error_code": 0, "error_message": None} for row in rows]}


async def broken(door: BrokerContext, call: Call) -> Answer:
    """Raise an unexpected exception."""
    raise ZeroDivisionError("one of ours")


PLAIN = KafkaApi(key=PLAIN_KEY, name="Plain", low=2, high=7, flexible=5, handle=plain)
BROKEN = KafkaApi(key=BROKEN_KEY, name="Broken", low=0, high=2, flexible=2, handle=broken)


LARGE_KEY = 37


async def large(door: BrokerContext, call: Call) -> Answer:
    """Answer with 100 KB."""
    row = {"name": "t", "error_code": 0, "error_message": "x" * 30_000}
    return {"results": [row] * 4}


LARGE = KafkaApi(key=LARGE_KEY, name="Large", low=0, high=3, flexible=2, handle=large)
ASKED: dict[str, Any] = {"topics": (), "timeout": 5, "validate_only": False}


def topics(*names: str) -> dict[str, Any]:
    """Return the fields of a plain request."""
    rows = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in names]
    return {
        "topics": [{**row, "assignments": (), "configs": ()} for row in rows],
        "timeout": 1_000,
        "validate_only": False,
    }


@asynccontextmanager
async def bare_server(
    runtime: Runtime,
    *apis: KafkaApi,
    listeners: Sequence[str] = ("one",),
    throttling: ClientQuotaManager | None = None,
    inflight_max: int = 5,
    unsent_bytes_max: int = 1 << 20,
    **settings: Any,
) -> AsyncIterator[tuple[KafkaServer, dict[str, str]]]:
    """A server with these API keys in addition to `PLAIN` and `BROKEN`, and its addresses by
    listener."""
    absent = cast(Any, None)  # no handler of a test uses the node
    bounds: dict[str, Any] = {
        "request_bytes_max": 1 << 20,
        "connections_max": 100,
        "listener_connections_max": 100,
        "requests_bytes_max": 64 << 20,
        "auto_create_topics": False,
    }
    door = BrokerContext(
        runtime=runtime,
        hosted=absent,
        writer=absent,
        reader=absent,
        log_admin=absent,
        metadata=absent,
        api=absent,
        groups=absent,
        settings=KafkaConfig(**{**bounds, **settings}),
        requests=RequestConfig(produce_inflight_max=inflight_max, fetch_bytes_max=unsent_bytes_max),
        throttling=throttling or ClientQuotaManager(),
    )
    async with runtime.tasks.scope("kafka") as scope:
        server = KafkaServer(door, scope, (PLAIN, BROKEN, *apis))
        addresses = {name: await server.listen(name, "127.0.0.1:0") for name in listeners}
        try:
            yield server, addresses
        finally:
            await server.close(GRACE_MS)


async def is_served(client: RawClient) -> bool:
    answer = await client.ask(PLAIN_KEY, 5, **topics("t"))
    return len(answer.topics) == 1
