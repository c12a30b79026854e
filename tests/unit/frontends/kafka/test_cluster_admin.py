"""Reassignments, elections and quorum changes of three nodes by the Kafka listener of one."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from tests.kit.kafka_client import RawClient, connected
from tests.kit.simulated_cluster import Play, cluster

from quorumlog.runtime import Runtime

from .three_nodes import TIMEOUT_MS, ask, create

pytestmark = pytest.mark.slow  # three nodes each

ELECT_LEADERS, ALTER_MOVES, LIST_MOVES = 43, 45, 46
DESCRIBE_QUORUM, UNREGISTER_BROKER, ADD_VOTER, REMOVE_VOTER = 55, 64, 80, 81


@pytest.fixture
def play() -> Iterator[Play]:
    """Start nodes 1 to 3 with both roles."""
    with cluster(brokers=3, combined=True, kafka=("{}:9092",)) as play:
        yield play


async def move(
    client: RawClient, *moves: tuple[str, int, tuple[int, ...] | None], **fields: Any
) -> list[tuple[str, int, int]]:
    """Reassign. Return topic, partition and error code of each result."""
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "replicas": replicas}]}
        for name, index, replicas in moves
    ]
    answer = await client.ask(ALTER_MOVES, 1, topics=topics, timeout=TIMEOUT_MS, **fields)
    assert answer.error_code == 0
    return [
        (topic.name, part.partition_index, part.error_code)
        for topic in answer.responses
        for part in topic.partitions
    ]


async def moving(client: RawClient, topics: Any = None) -> dict[tuple[str, int], Any]:
    answer = await client.ask(LIST_MOVES, 0, topics=topics, timeout=TIMEOUT_MS)
    assert answer.error_code == 0
    return {
        (topic.name, part.partition_index): (
            part.replicas,
            part.adding_replicas,
            part.removing_replicas,
        )
        for topic in answer.topics
        for part in topic.partitions
    }


def replicas_of(play: Play, name: str, index: int) -> tuple[int, ...]:
    topic = play[1].image.topic(name)
    assert topic is not None
    return topic.partitions[index].replicas


def test_running_reassignment_is_listed_and_can_be_cancelled(play: Play) -> None:
    create(play, "t", (1,), (1,))
    play[3].sim.crash()  # the moved replica receives no records

    async def work(client: RawClient) -> None:
        assert await move(client, ("t", 0, (3,)), ("t", 1, (2,))) == [("t", 0, 0), ("t", 1, 0)]
        expected = ((3, 1), (3,), (1,))
        assert (await moving(client))["t", 0] == expected
        wanted = [{"name": "t", "partition_indexes": (0, 9)}, {"name": "nope"}]
        assert await moving(client, wanted) == {("t", 0): expected}
        assert await moving(client, ()) == {}
        assert await move(client, ("t", 0, None)) == [("t", 0, 0)]
        assert ("t", 0) not in await moving(client)
        assert await move(client, ("t", 0, None)) == [("t", 0, 85)]

    ask(play, work)
    assert replicas_of(play, "t", 0) == (1,)
    play.until(lambda: replicas_of(play, "t", 1) == (2,))


def test_invalid_reassignment_does_not_stop_the_others(play: Play) -> None:
    create(play, "t", *[(1, 2)] * 6)

    async def work(client: RawClient) -> list[tuple[str, int, int]]:
        return await move(
            client,
            ("t", 0, (2, 1)),
            ("t", 1, ()),
            ("t", 2, (1, 1)),
            ("t", 3, (1, 77)),
            ("t", 4, (1, -1)),
            ("t", 5, (1,)),
            ("t", 5, (2,)),
            ("t", 9, (1,)),
            ("t", -1, (1,)),
            ("nope", 0, (1,)),
            ("t/", 0, (1,)),
        )

    assert sorted(ask(play, work)) == [
        ("nope", 0, 3),
        ("t", -1, 42),
        ("t", 0, 0),
        ("t", 1, 39),
        ("t", 2, 39),
        ("t", 3, 39),
        ("t", 4, 39),
        ("t", 5, 42),
        ("t", 9, 3),
        ("t/", 0, 17),
    ]
    assert [replicas_of(play, "t", index) for index in range(6)] == [(2, 1), *[(1, 2)] * 5]


def test_a_move_may_have_to_keep_the_number_of_replicas(play: Play) -> None:
    create(play, "t", (1,), (1,))

    async def work(client: RawClient) -> None:
        kept = {"allow_replication_factor_change": False}
        moves = [("t", 0, (1, 2)), ("t", 1, (2,))]
        assert await move(client, *moves, **kept) == [("t", 0, 38), ("t", 1, 0)]

    ask(play, work)
    assert replicas_of(play, "t", 0) == (1,)


def test_preferred_replica_leads_again_unless_it_is_down(play: Play) -> None:
    create(play, "t", (2, 1, 3), (3, 1, 2), (1, 2, 3))
    play[2].sim.crash()
    play.until(lambda: play.is_fenced(2))
    play[2].start()
    play.until(lambda: play[2].is_ready and not play.is_fenced(2))
    topic = play[1].image.topic("t")
    assert topic is not None
    assert topic.partitions[0].leader != 2
    play[3].sim.crash()
    play.until(lambda: play.is_fenced(3))

    async def work(client: RawClient) -> dict[int, int]:
        topics = [{"topic": "t", "partitions": (0, 1, 2)}]
        fields = {"election_type": 0, "topic_partitions": topics, "timeout": TIMEOUT_MS}
        answer = await client.ask(ELECT_LEADERS, 2, **fields)
        assert answer.error_code == 0
        (result,) = answer.replica_election_results
        return {part.partition_id: part.error_code for part in result.partition_result}

    def in_sync() -> bool:
        topic = play[1].image.topic("t")
        return topic is not None and 2 in topic.partitions[0].isr

    play.until(in_sync)
    assert ask(play, work) == {0: 0, 1: 80, 2: 84}
    play.until(lambda: play[1].image.topics_by_id[topic.id].partitions[0].leader == 2)


def test_an_unclean_election_of_all_takes_those_without_a_leader(play: Play) -> None:
    create(play, "alone", (3,))
    create(play, "t", (1,))
    play[3].sim.crash()
    play.until(lambda: play.is_fenced(3))

    async def work(client: RawClient) -> list[tuple[str, int, int]]:
        fields = {"election_type": 1, "topic_partitions": None, "timeout": TIMEOUT_MS}
        answer = await client.ask(ELECT_LEADERS, 2, **fields)
        assert answer.error_code == 0
        return [
            (result.topic, part.partition_id, part.error_code)
            for result in answer.replica_election_results
            for part in result.partition_result
        ]

    assert ask(play, work) == [("alone", 0, 83)]


def test_broker_that_is_down_is_unregistered(play: Play) -> None:
    play[3].sim.crash()
    play.until(lambda: play.is_fenced(3))

    async def work(client: RawClient) -> int:
        return int((await client.ask(UNREGISTER_BROKER, 0, broker_id=3)).error_code)

    assert ask(play, work) == 0
    play.until(lambda: play.broker(3) is None)


@pytest.mark.parametrize("node", [1, 2, 3])
def test_every_node_describes_the_quorum_of_its_leader(play: Play, node: int) -> None:
    async def work(client: RawClient) -> Any:
        topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        return await client.ask(DESCRIBE_QUORUM, 2, topics=topics)

    answer = ask(play, work, node=node)
    (part,) = answer.topics[0].partitions
    leader = play.controller()
    assert leader is not None
    assert (part.error_code, part.leader_id) == (0, leader.config.node_id)
    assert [voter.replica_id for voter in part.current_voters] == [1, 2, 3]
    assert all(voter.log_end_offset >= part.high_watermark for voter in part.current_voters)
    assert all(voter.last_fetch_timestamp > 0 for voter in part.current_voters)
    listeners = [
        (each.node_id, each.listeners[0].host, each.listeners[0].port) for each in answer.nodes
    ]
    assert listeners == [(1, "n1", 9093), (2, "n2", 9093), (3, "n3", 9093)]


def test_a_voter_is_removed_and_added_again(play: Play) -> None:
    follower = next(each for each in (1, 2, 3) if play[each] is not play.controller())
    disk = bytes([follower]) * 16
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]

    async def work(client: RawClient) -> list[list[int]]:
        async def voters() -> list[int]:
            answer = await client.ask(DESCRIBE_QUORUM, 2, topics=topics)
            return [each.replica_id for each in answer.topics[0].partitions[0].current_voters]

        seen = [await voters()]
        named = {"cluster_id": None, "voter_id": follower, "voter_directory_id": disk}
        removed = await client.ask(REMOVE_VOTER, 0, **named)
        assert (removed.error_code, removed.error_message) == (0, None)
        seen.append(await voters())
        listeners = [{"name": "CONTROLLER", "host": f"n{follower}", "port": 9093}]
        for _ in range(50):
            added = await client.ask(ADD_VOTER, 1, listeners=listeners, timeout=TIMEOUT_MS, **named)
            if added.error_code != 7:  # it follows as an observer after a moment
                break
        assert (added.error_code, added.error_message) == (0, None)
        return [*seen, await voters()]

    others = sorted({1, 2, 3} - {follower})
    assert ask(play, work) == [[1, 2, 3], others, [1, 2, 3]]


def changes(timeout_ms: int) -> dict[int, tuple[int, dict[str, Any]]]:
    """Return a version and the fields of a change, by API key."""
    named = {"name": "t"}
    created = {"name": "u", "num_partitions": 1, "replication_factor": 1}
    config = {"name": "retention.ms", "config_operation": 0, "value": "1"}
    resource = {"resource_type": 2, "resource_name": "t"}
    voter = {"cluster_id": None, "voter_id": 2, "voter_directory_id": b"d" * 16}
    listeners = [{"name": "CONTROLLER", "host": "n2", "port": 9093}]
    moves = [{**named, "partitions": [{"partition_index": 0, "replicas": (1,)}]}]
    feature = {"feature": "metadata.version", "max_version_level": 1}
    partitions = [{"topic": "t", "partitions": (0,)}]
    timed: dict[int, tuple[int, dict[str, Any]]] = {
        19: (7, {"topics": [{**created, "assignments": (), "configs": ()}]}),
        20: (6, {"topics": [{**named, "topic_id": b""}]}),
        37: (
            3,
            {"topics": [{**named, "count": 3, "assignments": None}], "validate_only": False},
        ),
        43: (2, {"election_type": 0, "topic_partitions": partitions}),
        45: (1, {"topics": moves}),
        57: (2, {"feature_updates": [feature]}),
        80: (1, {"listeners": listeners, **voter}),
    }
    return {key: (at, {**fields, "timeout": timeout_ms}) for key, (at, fields) in timed.items()} | {
        33: (2, {"resources": [{**resource, "configs": ()}], "validate_only": False}),
        44: (1, {"resources": [{**resource, "configs": [config]}], "validate_only": False}),
        64: (0, {"broker_id": 2}),
        81: (0, voter),
    }


def error_in(answer: Any) -> int:
    """Return the error of the response, or of its only result."""
    for name in ("topics", "responses", "results"):
        for part in getattr(answer, name, ()):
            answer = part
    return int(answer.error_code)


def test_without_a_controller_every_change_is_answered_in_time_with_an_error(play: Play) -> None:
    create(play, "t", (1,))
    for node in (2, 3):
        play[node].sim.crash()
    play.until(lambda: play.controller() is None)

    async def main(runtime: Runtime) -> dict[int, int]:
        async def ask_one(key: int, version: int, fields: dict[str, Any]) -> int:
            began_ms = runtime.clock.now_ms()
            async with connected(runtime, "n1:9092") as client:
                client.patience_s = 40.0
                answer = await client.ask(key, version, **fields)
            assert runtime.clock.now_ms() - began_ms <= fields.get("timeout", 30_000) + 100
            return error_in(answer)

        asked = changes(timeout_ms=3_000)
        codes = await asyncio.gather(*(ask_one(key, *each) for key, each in asked.items()))
        return dict(zip(asked, codes, strict=True))

    unavailable = {7, 13, 41}  # timed out, outcome unknown, no controller
    assert {key: code for key, code in play.ask(main).items() if code not in unavailable} == {}
