"""JoinGroup requests wait for other members longer than any other request may."""

import pytest
from tests.kit.kafka_client import RawClient
from tests.kit.kafka_node import KafkaNode

from quorumlog.frontends.kafka.api import ANSWER_MS_MAX

from . import group_calls as calls
from .group_calls import GROUP, join_fields, joined, on_a_node, ready, synced

REBALANCE_MS = 2 * ANSWER_MS_MAX


async def leads(client: RawClient) -> str:
    """Join as a member that does not rejoin later. Return its id."""
    await ready(client)
    member = await joined(client, session_timeout=3 * ANSWER_MS_MAX, rebalance_timeout=REBALANCE_MS)
    await synced(client, member, {member.member_id: b""})
    return str(member.member_id)


async def waits(client: RawClient) -> str:
    """Start a join beside it. Return the member id that the coordinator generated."""
    timeouts = {"session_timeout": 3 * ANSWER_MS_MAX, "rebalance_timeout": REBALANCE_MS}
    drawn = await client.ask(calls.JOIN_GROUP, 9, **join_fields(**timeouts))
    client.send(calls.JOIN_GROUP, 9, **join_fields(member_id=drawn.member_id, **timeouts))
    return str(drawn.member_id)


def test_join_is_answered_at_the_rebalance_timeout_and_not_before(folder: str) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        clock = kafka.runtime.clock
        await leads(kafka.client)
        second = await kafka.connect()
        second.patience_s = 100
        began_ms = clock.now_ms()
        member = await waits(second)
        _, answer = await second.answer(calls.JOIN_GROUP, 9)
        took_ms = clock.now_ms() - began_ms
        assert REBALANCE_MS <= took_ms < REBALANCE_MS + 2_000
        assert (int(answer.error_code), answer.member_id) == (0, member)
        assert [each.member_id for each in answer.members] == [member]

    on_a_node(folder, main)


def test_connection_closed_during_a_join_keeps_nothing_and_the_group_continues(folder: str) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        first = await leads(kafka.client)
        server = kafka.node.parts.kafka
        assert server is not None
        second = await kafka.connect()
        await waits(second)
        beat = {"group_id": GROUP, "generation_id": 1, "member_id": first}
        while not (await kafka.client.ask(calls.HEARTBEAT, 4, **beat)).error_code:
            pass  # until the coordinator has the other join
        assert (server.figures.open, server.memory.taken) == (1, 0)  # the waiting join
        second.connection.abort()
        answer = await joined(kafka.client, member_id=first, rebalance_timeout=REBALANCE_MS)
        assert answer.generation_id == 2
        assert first in [each.member_id for each in answer.members]
        assert (server.figures.open, server.memory.taken) == (0, 0)

    on_a_node(folder, main)


@pytest.mark.parametrize(
    ("key", "version", "more"),
    [
        (calls.HEARTBEAT, 4, {}),
        (
            calls.SYNC_GROUP,
            5,
            {"protocol_type": "consumer", "protocol_name": "range", "assignments": ()},
        ),
    ],
)
def test_missing_group_has_no_member(
    folder: str, key: int, version: int, more: dict[str, object]
) -> None:
    async def main(kafka: KafkaNode, topic_id: bytes) -> None:
        await ready(kafka.client, "nope")
        asked = {"group_id": "nope", "generation_id": 1, "member_id": "m", **more}
        assert int((await kafka.client.ask(key, version, **asked)).error_code) == 25

    on_a_node(folder, main)
