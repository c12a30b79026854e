"""Produce and Fetch at a broker that does not lead the partition.

The response names the leader (KIP-951) or a follower in the client's rack (KIP-392).
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from tests.kit.batches import batch_of
from tests.kit.kafka_client import RawClient
from tests.kit.simulated_cluster import Play, cluster

from quorumlog.ids import TopicId
from quorumlog.simulation.links import apart

from .produce_fetch import (
    FETCH,
    PRODUCE,
    epoch_ends,
    fetch_fields,
    fetched,
    listed,
    produce,
    produce_fields,
    produced,
)
from .three_nodes import ask, create


@pytest.fixture
def play() -> Iterator[Play]:
    """Start nodes 1 to 3 in racks a to c; topic "t" has leader 1 and follower 2."""
    with cluster(brokers=3, combined=True, racks="abc", kafka=("{}:9092",)) as play:
        create(play, "t", (1, 2))
        yield play


def topic_id(play: Play) -> TopicId:
    """Return the id of "t"."""
    return play[1].image.topics_by_name["t"]


def leaders(answer: Any) -> list[tuple[int, str, int, str | None]]:
    return [(one.node_id, one.host, one.port, one.rack) for one in answer.node_endpoints]


@pytest.mark.parametrize("node", [2, 3])
def test_broker_that_does_not_lead_names_the_leader(play: Play, node: int) -> None:
    """A follower, and a broker without a replica."""

    async def work(client: RawClient) -> None:
        for version in (9, 10, 13):
            fields = produce_fields(version, (0, batch_of(b"a")), topic_id=topic_id(play))
            answer = await client.ask(PRODUCE, version, **fields)
            (result,) = answer.responses[0].partition_responses
            assert result.error_code == ErrorCode.not_leader_or_follower
            if version >= 10:
                assert result.current_leader.leader_id == 1
                assert leaders(answer) == [(1, "n1", 9092, "a")]
        for version in (11, 12, 16, 18):
            fields = fetch_fields(version, (0, 0), topic_id=topic_id(play), max_wait=5_000)
            answer = await client.ask(FETCH, version, **fields)
            (result,) = answer.responses[0].partitions
            assert result.error_code == ErrorCode.not_leader_or_follower
            if version >= 12:
                assert result.current_leader.leader_id == 1
            if version >= 16:
                assert leaders(answer) == [(1, "n1", 9092, "a")]
        (listed_there,) = await listed(client, (0, -1))
        (end_there,) = await epoch_ends(client, (0, 0))
        assert listed_there.error_code == ErrorCode.not_leader_or_follower
        assert end_there.error_code == ErrorCode.not_leader_or_follower

    ask(play, work, node=node)


def test_reader_is_redirected_to_the_follower_in_its_rack(play: Play) -> None:
    async def write(client: RawClient) -> None:
        assert await produce(client, batch_of(b"a")) == 0
        assert await produce(client, batch_of(b"b")) == 1

    async def ask_leader(client: RawClient) -> int:
        (result,) = await fetched(client, (0, 0), version=11, rack_id="b", max_wait=5_000)
        assert (result.error_code, result.records) == (0, b"")
        return int(result.preferred_read_replica)

    async def read(client: RawClient) -> None:
        (result,) = await fetched(client, (0, 0), version=11, rack_id="b", max_wait=5_000)
        assert (result.error_code, result.preferred_read_replica) == (0, -1)
        assert result.records
        (beyond,) = await fetched(client, (0, 9), version=11, rack_id="b", max_wait=5_000)
        assert beyond.error_code == ErrorCode.offset_out_of_range

    ask(play, write)
    assert ask(play, ask_leader) == 2
    ask(play, read, node=2)


def test_isolated_follower_delays_a_response_up_to_its_timeout(play: Play) -> None:
    """acks=all: the ISR acknowledges a batch, or the request times out."""
    play[2].sim.crash()

    async def work(client: RawClient) -> None:
        (late,) = await produced(client, (0, batch_of(b"a")), timeout=50)
        assert late.error_code == ErrorCode.request_timed_out
        assert await produce(client, batch_of(b"b"), acks=1) == 1
        assert (
            await produce(client, batch_of(b"c"), timeout=60_000) == 2
        )  # once node 2 is out of the ISR

    ask(play, work)


def test_waiting_requests_fail_when_a_leadership_ends(play: Play) -> None:
    """The leader keeps its link to the client and loses its links to the other nodes for a
    while."""
    barriers, barrier = play.world.fabric.barriers, list(apart(["n1"], ["n2", "n3"]))

    async def work(client: RawClient) -> set[int]:
        for _ in range(3):
            client.send(PRODUCE, 9, **produce_fields(9, (0, batch_of(b"a")), timeout=600_000))
        await asyncio.sleep(20)  # of virtual time: another node leads by then
        barriers.open(barrier)
        answers = [await client.answer(PRODUCE, 9) for _ in range(3)]
        return {one.responses[0].partition_responses[0].error_code for _, one in answers}

    barriers.close(barrier)
    assert ask(play, work) == {ErrorCode.not_leader_or_follower}
