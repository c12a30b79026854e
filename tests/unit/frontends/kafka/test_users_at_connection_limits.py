"""The connections of users at a limit."""

from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.kit.kafka_client import ConnectionEnded, RawClient, connected
from tests.kit.kafka_node import KafkaNode, run_on_kafka_node
from tests.kit.users import set_password

from quorumlog.errors import TransportError

from .sasl_client import PASSWORD, SASL, log_in, may_describe, sasl_address

LIMIT = 8


async def _logged_in(kafka: KafkaNode, stack: AsyncExitStack, user: str) -> RawClient:
    client = await stack.enter_async_context(connected(kafka.runtime, sasl_address(kafka)))
    assert not (await log_in(client, user, PASSWORD)).error_code.value
    return client


@pytest.mark.parametrize("limit", ["kafka_connections_max", "kafka_connections_max_per_ip"])
def test_user_with_many_connections_loses_the_oldest_one_to_a_user_with_few(limit: str) -> None:
    settings: dict[str, Any] = {**SASL, limit: LIMIT}

    async def main(kafka: KafkaNode) -> None:
        for user in ("admin", "mallory"):
            await set_password(kafka.node, user, PASSWORD)
        async with AsyncExitStack() as stack:
            held = [await _logged_in(kafka, stack, "mallory") for _ in range(LIMIT - 1)]
            admin = await _logged_in(kafka, stack, "admin")
            assert await may_describe(admin)
            await held[0].ended()
            assert held[0].has_ended
            for _ in range(2):  # the user with the most gets no further one
                with pytest.raises((ConnectionEnded, TransportError)):
                    await _logged_in(kafka, stack, "mallory")
            assert await may_describe(admin)
            for client in held[1:]:
                assert await may_describe(client)
        server = kafka.node.parts.kafka
        assert server is not None
        assert server.figures.listeners["SASL_PLAINTEXT"].ended["full"] == 3

    run_on_kafka_node(main, "/node", **settings)


def test_stranger_ends_no_connection_of_a_user() -> None:
    async def main(kafka: KafkaNode) -> None:
        await set_password(kafka.node, "mallory", PASSWORD)
        async with AsyncExitStack() as stack:
            held = [await _logged_in(kafka, stack, "mallory") for _ in range(LIMIT - 1)]
            strangers = [
                await stack.enter_async_context(connected(kafka.runtime, sasl_address(kafka)))
                for _ in range(3)
            ]
            for stranger in strangers[:-1]:
                await stranger.ended()
                assert stranger.has_ended
            for client in held:
                assert await may_describe(client)

    run_on_kafka_node(main, "/node", **SASL, kafka_connections_max=LIMIT)
