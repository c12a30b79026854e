"""Group requests on the synchronous path (`KafkaApi.at_once`).

Each has the response and the state of the usual path, or is left to that path without an effect.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, replace
from random import Random
from typing import Any, Final

import pytest
from tests.kit.kafka_client import CLIENT_ID, RawClient, body_of
from tests.kit.kafka_node import KafkaNode

from quorumlog.broker.coordinator.decision import Ticket
from quorumlog.broker.groups.classic_group import ClassicGroupMachine
from quorumlog.broker.groups.config import OFFSETS_TOPIC
from quorumlog.broker.groups.records import OffsetCommitted
from quorumlog.broker.groups.shell.group_coordinator_shard import GroupCoordinatorShard
from quorumlog.errors import CoordinatorNotAvailable
from quorumlog.frontends.kafka import messages
from quorumlog.frontends.kafka.api import KafkaApi, PreparedResponse
from quorumlog.frontends.kafka.apis import APIS
from quorumlog.frontends.kafka.request import Request
from quorumlog.frontends.kafka.server import KafkaServer
from quorumlog.ids import NodeId, ProducerIdentity
from quorumlog.records.control import TransactionMarker

from .admin_calls import create_topic
from .group_calls import (
    CONSUMER_HEARTBEAT,
    GROUP,
    HEARTBEAT,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    alone,
    assignment,
    join_fields,
    joined,
    on_a_node,
    ready,
    synced,
)

APIS_BY_KEY: Final[Mapping[int, KafkaApi]] = {api.key: api for api in APIS}
OTHER: Final = "g8"  # a group of KIP-848
STEP_MS: Final = 250
ALTER_CONFIGS: Final = 44


async def until(holds: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    for _ in range(600):
        if holds():
            return
        await asyncio.sleep(0.1)
    raise AssertionError("a minute has passed")


class AtOnceRequests:
    """The handlers of one node, called as its connections call them."""

    def __init__(self, kafka: KafkaNode) -> None:
        server = kafka.node.parts.kafka
        assert isinstance(server, KafkaServer)
        self.broker = server.broker
        client = next(iter(server._connections)).client
        self.client = replace(client, client_id=CLIENT_ID)
        self.answered = 0
        self.refused = 0

    def ask(self, key: int, version: int, body: bytes) -> bytes | None:
        """Return the body of the response, or None."""
        at_once = APIS_BY_KEY[key].at_once
        assert at_once is not None
        answer = at_once(self.broker, self.client, version, memoryview(bytearray(body)))
        if answer is None:
            self.refused += 1
            return None
        self.answered += 1
        assert isinstance(answer, bytes)
        return answer

    async def ask_usually(self, key: int, version: int, body: bytes) -> bytes:
        """Return the body of the response of the usual path."""
        api, done = APIS_BY_KEY[key], asyncio.Event()
        assert api.read is not None
        assert api.begin is not None
        now_ms = self.broker.runtime.clock.now_ms()
        request = Request(api, version, 1, CLIENT_ID, self.client, memoryview(body), 0, now_ms)
        request.body = api.read(version, memoryview(body))
        answers: list[Any] = []

        def receive(answer: Any) -> None:
            answers.append(answer)
            done.set()

        if request.body is None:
            walk = messages.check_lengths(api, version, memoryview(body), 0)
            request.body = messages.decode(api, version, memoryview(body), 0, walk)
            answers.append(await api.handle(self.broker, request))
        elif api.begin(self.broker, request, receive):
            await done.wait()
        else:
            answers.append(await api.handle(self.broker, request))
        (answer,) = answers
        if isinstance(answer, PreparedResponse):
            return b"".join(bytes(part) for part in answer.parts(0))  # type: ignore[arg-type]
        return messages.encode(api, version, answer, throttle_ms=0, errors=[])

    @property
    def shard(self) -> GroupCoordinatorShard:
        """The coordinator of the only partition."""
        return self.broker.groups._shards[0]

    def state(self) -> tuple[object, ...]:
        """Return the state that requests change: groups, sessions, offsets and the log end."""
        state = self.shard._state
        assert state is not None
        state.check_invariants()
        now_ms = self.shard._now_ms()
        described = []
        for name, machine in sorted(state._groups.items()):
            if isinstance(machine, ClassicGroupMachine):
                described.append((name, machine.describe(now_ms)))
            else:
                described.append((name, machine.describe(self.broker.image, now_ms)))
        replica = self.shard._replica
        assert replica is not None
        return (*described, self.offsets(), replica.log.log_end_offset)

    def offsets(self) -> list[tuple[object, ...]]:
        """Return the committed offsets with all fields."""
        state = self.shard._state
        assert state is not None
        return [
            (group, topic, partition, *astuple(entry))
            for group in sorted(state._offsets.groups())
            for topic, partition, entry in sorted(
                state._offsets._offsets_of(group), key=lambda found: found[:2]
            )
        ]

    def begin_transaction(self) -> None:
        """Create a pending offset, of a transaction that is not stored."""
        state = self.shard._state
        assert state is not None
        record = OffsetCommitted(group=GROUP, topic="t", partition=0, offset=5, commit_ms=0)
        state._producers.begin(ProducerIdentity(7, 0), "x", self.shard._now_ms())
        state._offsets._pending.stage(7, record)

    def end_transaction(self) -> None:
        """Commit that transaction."""
        state = self.shard._state
        assert state is not None
        marker = TransactionMarker(ProducerIdentity(7, 0), 0, True, 1)
        state._producers.end(marker, self.shard._now_ms())
        state._end_transaction(marker)

    async def reload(self) -> None:
        """Load the state from the log."""
        self.shard._discard(CoordinatorNotAvailable("a test"))
        await until(lambda: self.shard._state is not None)


def beat_body(member: Any, version: int = 4, **changed: Any) -> bytes:
    fields = {
        "group_id": GROUP,
        "generation_id": member.generation_id,
        "member_id": member.member_id,
        "group_instance_id": None,
        **changed,
    }
    return body_of(HEARTBEAT, version, _known(fields, "group_instance_id", version >= 3))


def consumer_body(epoch: int, **changed: Any) -> bytes:
    fields = {
        "group_id": OTHER,
        "member_id": "m8",
        "member_epoch": epoch,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout": -1,
        "subscribed_topic_names": None,
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": None,
        **changed,
    }
    return body_of(CONSUMER_HEARTBEAT, 1, fields)


JOIN: Final[Mapping[str, Any]] = {
    "rebalance_timeout": 60_000,
    "subscribed_topic_names": ("t",),
    "topic_partitions": (),
}


def commit_body(
    member: Any,
    *offsets: tuple[str, int, int],
    version: int = 9,
    note: str | None = "",
    **changed: Any,
) -> bytes:
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, partition, offset in offsets:
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": offset,
                "committed_leader_epoch": 3,
                "committed_metadata": note,
            }
        )
    fields = {
        "group_id": GROUP,
        "generation_id_or_member_epoch": member.generation_id,
        "member_id": member.member_id,
        "group_instance_id": None,
        "topics": [{"name": name, "partitions": parts} for name, parts in topics.items()],
        **changed,
    }
    return body_of(OFFSET_COMMIT, version, _known(fields, "group_instance_id", version >= 7))


def _known(fields: dict[str, Any], name: str, is_known: bool) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if key != name or is_known}


async def replicated(kafka: KafkaNode) -> None:
    """Acknowledge commits without a flush, and wait until the config applies."""
    change = {"name": "flush.policy", "config_operation": 0, "value": "replicated"}
    resource = {"resource_type": 2, "resource_name": OFFSETS_TOPIC, "configs": [change]}
    await kafka.client.ask(ALTER_CONFIGS, 1, resources=[resource], validate_only=False)
    shard = AtOnceRequests(kafka).shard
    replica, inline = shard._replica, shard._deps.directory.inline
    assert replica is not None
    await until(lambda: not replica.flushes)
    queue = inline.queue_of(replica.log)
    await until(lambda: inline.writer.inline_bytes_max(queue) > 0)


Play = Callable[[KafkaNode, AtOnceRequests, Any], Awaitable[None]]


def with_member(folder: str, main: Play, *, replicates: bool = True) -> None:
    """Run with the only member of a group, and topics `t` and `u`."""

    async def serve(kafka: KafkaNode, topic_id: bytes) -> None:
        await create_topic(kafka.channel, "u", partitions=2)
        member = await alone(kafka.client)
        if replicates:
            await replicated(kafka)
        await main(kafka, AtOnceRequests(kafka), member)

    on_a_node(folder, serve, offsets_topic_num_partitions=1)


# --- equal to the usual path ---------------------------------------------------------------------


class History:
    """Random requests to one node, at times that do not depend on the responses."""

    def __init__(
        self, kafka: KafkaNode, at_once: AtOnceRequests, seed: int, *, is_at_once: bool
    ) -> None:
        self.kafka = kafka
        self.at_once = at_once
        self.random = Random(seed)
        self.is_at_once = is_at_once
        self.members: list[Any] = []  # joins of the classic group
        self.clients: list[RawClient] = []
        self.epoch = 0  # of the member of KIP-848
        self.answers: list[object] = []

    async def play(self, member: Any, steps: int) -> list[object]:
        """Send requests. Return the responses and the states after them."""
        self.members.append(member)
        for _ in range(steps):
            await self._wait()
            await self.step()
            await self._wait()
            self.answers.append(self.at_once.state()[:-1])
        return self.answers

    async def _wait(self) -> None:
        """Wait for the next full step of the clock."""
        now_ms = self.kafka.runtime.clock.now_ms()
        await asyncio.sleep((STEP_MS - now_ms % STEP_MS) / 1000)

    async def step(self) -> None:
        kind = self.random.choices(
            ("beat", "commit", "consumer", "join", "leave", "pause", "transaction", "reload"),
            (8, 10, 6, 2, 1, 1, 1, 1),
        )[0]
        await getattr(self, f"_{kind}")()

    async def _ask(self, key: int, version: int, body: bytes) -> None:
        answer = self.at_once.ask(key, version, body) if self.is_at_once else None
        if answer is None:
            answer = await self.at_once.ask_usually(key, version, body)
        self.answers.append(answer)

    def _member(self) -> Any:
        return self.random.choice(self.members)

    async def _beat(self) -> None:
        changed: dict[str, Any] = self.random.choice(
            ({}, {}, {}, {"generation_id": 77}, {"member_id": "x"}, {"group_id": "other"})
        )
        version = self.random.randrange(5)
        await self._ask(HEARTBEAT, version, beat_body(self._member(), version, **changed))

    async def _commit(self) -> None:
        random = self.random
        offsets = [
            (random.choice("ttttu"), random.choice((0, 0, 1, 1, 1, 9)), random.randrange(-2, 9_999))
            for _ in range(random.choice((1, 1, 2, 4)))
        ]
        if random.random() < 0.6:
            offsets = [(topic, partition % 2, offset) for topic, partition, offset in offsets]
        changed: dict[str, Any] = random.choice(
            ({}, {}, {}, {"generation_id_or_member_epoch": 77}, {"member_id": "x"})
        )
        body_version = random.randrange(6, 10)
        note = random.choice(("", "", "", None, "note"))
        body = commit_body(self._member(), *offsets, version=body_version, note=note, **changed)
        await self._ask(OFFSET_COMMIT, body_version, body)

    async def _consumer(self) -> None:
        epoch = self.epoch + self.random.choice((0, 0, 0, 0, 1))
        joins = dict(JOIN) if epoch == 0 else {}
        body = consumer_body(epoch, **joins)
        await self._ask(CONSUMER_HEARTBEAT, 1, body)
        state = self.at_once.shard._state
        assert state is not None
        group = state._groups.get(OTHER)
        if group is not None:
            self.epoch = group.state.current_of("m8").epoch  # type: ignore[union-attr]

    async def _join(self) -> None:
        """Let one more member join. The rebalance stays open until the others rejoin."""
        client = await self.kafka.connect()
        self.clients.append(client)
        client.send_body(11, 9, body_of(11, 9, join_fields(member_id="", group_instance_id="s")))
        await asyncio.sleep(0)

    async def _leave(self) -> None:
        for member in self.members:
            fields = {"member_id": member.member_id, "group_instance_id": None, "reason": None}
            await self.kafka.client.ask(LEAVE_GROUP, 5, group_id=GROUP, members=[fields])
        for client in self.clients:
            client.connection.abort()
        await asyncio.sleep(12)  # the sessions of unanswered joins end
        member = await joined(self.kafka.client)
        parts = {member.member_id: assignment("t", 0)}
        await synced(self.kafka.client, member, parts)
        self.members = [member]

    async def _pause(self) -> None:
        await asyncio.sleep(self.random.choice((4, 12)))  # with 12 s, all sessions end

    async def _transaction(self) -> None:
        """Create a pending offset, or drop it. Its producer is not verified here."""
        state = self.at_once.shard._state
        assert state is not None
        if state._offsets._pending:
            self.at_once.end_transaction()
        else:
            self.at_once.begin_transaction()

    async def _reload(self) -> None:
        state = self.at_once.shard._state
        assert state is not None
        if not state._offsets._pending:
            before = self.at_once.offsets()
            await self.at_once.reload()
            assert self.at_once.offsets() == before


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_random_history_has_the_same_responses_and_states_on_both_paths(
    seed: int, tmp_path: Any
) -> None:
    found: list[list[object]] = []
    counts: list[tuple[int, int]] = []
    for is_at_once in (False, True):

        async def main(kafka: KafkaNode, at_once: AtOnceRequests, member: Any) -> None:
            history = History(kafka, at_once, seed, is_at_once=is_at_once)  # noqa: B023 (runs now)
            found.append(await history.play(member, 60))
            counts.append((at_once.answered, at_once.refused))

        with_member(f"/{seed}", main)
    for usual, at_once in zip(*found, strict=True):
        assert usual == at_once
    assert counts[0] == (0, 0)
    assert min(counts[1]) > 5, "the history needs requests of both kinds"


def test_commit_that_is_answered_at_once_is_in_the_log() -> None:
    async def main(kafka: KafkaNode, at_once: AtOnceRequests, member: Any) -> None:
        replica = at_once.shard._replica
        assert replica is not None
        before = replica.log.log_end_offset
        offsets = (("t", 0, 5), ("u", 1, 6), ("t", 1, 7))
        answers(at_once, (OFFSET_COMMIT, 9, commit_body(member, *offsets)))
        assert replica.log.log_end_offset == before + len(offsets)
        found = at_once.offsets()
        assert [entry[1:4] for entry in found] == sorted(offsets)
        await at_once.reload()
        assert at_once.offsets() == found

    with_member("/d", main)


# --- left to the usual path ----------------------------------------------------------------------


@contextmanager
def changed(owner: Any, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def refuses(at_once: AtOnceRequests, *requests: tuple[int, int, bytes]) -> None:
    """Check that no request is answered, and that none has an effect."""
    before = at_once.state()
    for key, version, body in requests:
        assert at_once.ask(key, version, body) is None, (key, version)
    assert at_once.state() == before


def answers(at_once: AtOnceRequests, *requests: tuple[int, int, bytes]) -> None:
    for key, version, body in requests:
        assert at_once.ask(key, version, body) is not None, (key, version)


def test_requests_with_unusual_fields_are_left_to_the_usual_path() -> None:
    async def main(kafka: KafkaNode, at_once: AtOnceRequests, member: Any) -> None:
        beat = beat_body(member)
        commit = commit_body(member, ("t", 0, 5), ("t", 1, 6))
        answers(at_once, (HEARTBEAT, 4, beat), (OFFSET_COMMIT, 9, commit))
        beats = (
            beat_body(member, group_id="other"),
            beat_body(member, group_id=""),
            beat_body(member, member_id="x"),
            beat_body(member, generation_id=member.generation_id + 1),
            beat_body(member, group_instance_id="i"),
            *(beat[:size] for size in range(len(beat))),
        )
        refuses(at_once, *((HEARTBEAT, 4, body) for body in beats))
        many = [("t", number % 2, number) for number in range(65)]
        commits = (
            commit_body(member, ("t", 0, 5), group_id="other"),
            commit_body(member, ("t", 0, 5), member_id="x"),
            commit_body(member, ("t", 0, 5), member_id="", generation_id_or_member_epoch=-1),
            commit_body(member, ("t", 0, 5), generation_id_or_member_epoch=77),
            commit_body(member, ("t", 0, 5), group_instance_id="i"),
            commit_body(member, ("t", 0, 5), note="note"),
            commit_body(member, ("t", 2, 5)),
            commit_body(member, ("t", -1, 5)),
            commit_body(member, ("v", 0, 5)),
            commit_body(member, ("t", 0, 5), ("v", 0, 5)),
            commit_body(member, *many),
            commit_body(member),
            *(commit[:size] for size in range(len(commit))),
        )
        refuses(at_once, *((OFFSET_COMMIT, 9, body) for body in commits))
        refuses(at_once, (OFFSET_COMMIT, 10, commit), (OFFSET_COMMIT, 5, commit))

    with_member("/d", main)


def test_bytes_of_both_protocols_count_for_the_user() -> None:
    async def main(kafka: KafkaNode, at_once: AtOnceRequests, member: Any) -> None:
        await ready(kafka.client, OTHER)
        kafka.client.send_body(CONSUMER_HEARTBEAT, 1, consumer_body(0, **JOIN))
        _, answer = await kafka.client.answer(CONSUMER_HEARTBEAT, 1)
        assert not answer.error_code
        groups = kafka.node.parts.groups
        assert groups is not None
        limits = groups._member_limits
        assert limits is not None
        assert limits.remembered(at_once.client.identity.principal) == 2
        assert limits.remembered("") == 0

    with_member("/d", main)


def test_consumer_heartbeats_with_a_change_are_left_to_the_usual_path() -> None:
    async def main(kafka: KafkaNode, at_once: AtOnceRequests, member: Any) -> None:
        await ready(kafka.client, OTHER)
        epoch = 0
        for _ in range(5):
            kafka.client.send_body(
                CONSUMER_HEARTBEAT, 1, consumer_body(epoch, **(JOIN if not epoch else {}))
            )
            _, answer = await kafka.client.answer(CONSUMER_HEARTBEAT, 1)
            assert not answer.error_code
            epoch = answer.member_epoch
        answers(at_once, (CONSUMER_HEARTBEAT, 1, consumer_body(epoch)))
        bodies = (
            consumer_body(epoch + 1),
            consumer_body(epoch - 1),
            consumer_body(0, **JOIN),
            consumer_body(-1),
            consumer_body(epoch, group_id=GROUP),
            consumer_body(epoch, member_id="x"),
            consumer_body(epoch, rack_id="r"),
            consumer_body(epoch, instance_id="i"),
            consumer_body(epoch, rebalance_timeout=1),
            consumer_body(epoch, server_assignor="range"),
            consumer_body(epoch, subscribed_topic_names=("t", "u")),
            consumer_body(epoch, subscribed_topic_regex="t.*"),
            consumer_body(epoch, topic_partitions=()),
        )
        refuses(at_once, *((CONSUMER_HEARTBEAT, 1, body) for body in bodies[:-1]))
        for client_id in (None, "another"):
            with changed(at_once.client, "client_id", client_id):
                refuses(at_once, (CONSUMER_HEARTBEAT, 1, consumer_body(epoch)))
        with changed(at_once.client, "peer", "127.0.0.2:1"):
            refuses(at_once, (CONSUMER_HEARTBEAT, 1, consumer_body(epoch)))
        await create_topic(kafka.channel, "v")  # the next heartbeat applies the newer metadata
        refuses(at_once, (CONSUMER_HEARTBEAT, 1, consumer_body(epoch)))

    with_member("/d", main)


def test_requests_during_a_rebalance_are_left_to_the_usual_path() -> None:
    async def main(kafka: KafkaNode, at_once: AtOnceRequests, member: Any) -> None:
        requests = (
            (HEARTBEAT, 4, beat_body(member)),
            (OFFSET_COMMIT, 9, commit_body(member, ("t", 0, 5))),
        )
        answers(at_once, *requests)
        other = await kafka.connect()
        other.send_body(11, 9, body_of(11, 9, join_fields(group_instance_id="s")))
        state = at_once.shard._state
        assert state is not None
        group = state._groups[GROUP]
        assert isinstance(group, ClassicGroupMachine)
        await until(lambda: not group.is_stable)
        refuses(at_once, *requests)  # PreparingRebalance
        again = await joined(kafka.client, member_id=member.member_id)
        await other.frame()
        requests = (
            (HEARTBEAT, 4, beat_body(again)),
            (OFFSET_COMMIT, 9, commit_body(again, ("t", 0, 5))),
        )
        refuses(at_once, *requests)  # CompletingRebalance
        refuses(at_once, (HEARTBEAT, 4, beat_body(member)))  # the former generation
        await synced(kafka.client, again, {again.member_id: assignment("t", 0)})
        answers(at_once, *requests)
        refuses(at_once, (HEARTBEAT, 4, beat_body(member)))

    with_member("/d", main)


def test_requests_to_a_coordinator_without_a_lease_are_left_to_the_usual_path() -> None:
    async def main(kafka: KafkaNode, at_once: AtOnceRequests, member: Any) -> None:
        requests = (
            (HEARTBEAT, 4, beat_body(member)),
            (OFFSET_COMMIT, 9, commit_body(member, ("t", 0, 5))),
        )
        answers(at_once, *requests)
        shard, groups = at_once.shard, at_once.broker.groups
        await asyncio.sleep(0.01)  # an admission holds within a millisecond
        with changed(shard, "_may_be_replaced", lambda: True):
            refuses(at_once, *requests)
        for _ in range(shard._deps.waits_max):
            shard._waiting[Ticket(-1 - len(shard._waiting))] = print
        refuses(at_once, *requests)
        shard._waiting.clear()
        replica = shard._replica
        assert replica is not None
        leader = replica.partition.leader
        assert leader is not None
        with changed(replica.partition, "leader", None):
            refuses(at_once, *requests)
        with changed(leader.isr, "state", replace(leader.isr.state, min_isr=2)):
            refuses(at_once, *requests)
        answers(at_once, *requests)
        await at_once.reload()
        answers(at_once, *requests)
        shard._discard(CoordinatorNotAvailable("a test"))
        for key, version, body in requests:
            assert at_once.ask(key, version, body) is None  # it is loading
        with changed(groups, "_shards", {}), changed(groups, "_shards_by_key", {}):
            for key, version, body in requests:
                assert at_once.ask(key, version, body) is None

    with_member("/d", main)


def test_commit_that_does_not_complete_at_once_is_left_to_the_usual_path() -> None:
    async def main(kafka: KafkaNode, at_once: AtOnceRequests, member: Any) -> None:
        commit = (OFFSET_COMMIT, 9, commit_body(member, ("t", 0, 5)))
        answers(at_once, commit)
        shard = at_once.shard
        replica = shard._replica
        assert replica is not None
        leader = replica.partition.leader
        assert leader is not None
        with changed(leader.isr, "remotes", {2: object()}):  # a follower that has fetched
            refuses(at_once, commit)
        with changed(leader.isr, "state", replace(leader.isr.state, isr=(NodeId(1), NodeId(2)))):
            refuses(at_once, commit)
        with changed(leader.isr, "state", replace(leader.isr.state, counts_flushed=True)):
            refuses(at_once, commit)
        with changed(leader, "high_watermark", leader.high_watermark - 1):
            refuses(at_once, commit)
        queue = shard._deps.directory.inline.queue_of(replica.log)
        with changed(queue, "is_busy", True):
            refuses(at_once, commit)
        at_once.begin_transaction()
        refuses(at_once, commit)
        at_once.end_transaction()
        with changed(at_once.broker.groups, "_image", replace(at_once.broker.image)):
            refuses(at_once, commit)
        answers(at_once, commit)

    with_member("/d", main)


def test_commit_that_waits_for_a_flush_is_left_to_the_usual_path() -> None:
    async def main(kafka: KafkaNode, at_once: AtOnceRequests, member: Any) -> None:
        answers(at_once, (HEARTBEAT, 4, beat_body(member)))
        refuses(at_once, (OFFSET_COMMIT, 9, commit_body(member, ("t", 0, 5))))

    with_member("/d", main, replicates=False)


def test_commit_behind_an_undecided_write_is_left_to_the_usual_path() -> None:
    async def main(kafka: KafkaNode, at_once: AtOnceRequests, member: Any) -> None:
        commit = (OFFSET_COMMIT, 9, commit_body(member, ("t", 0, 5)))
        beat = (HEARTBEAT, 4, beat_body(member))
        answers(at_once, commit, beat)
        usual = asyncio.ensure_future(
            at_once.ask_usually(OFFSET_COMMIT, 9, commit_body(member, ("t", 0, 6), note="note"))
        )
        await asyncio.sleep(0)
        assert at_once.shard._pending
        refuses(at_once, commit, beat)
        await usual
        answers(at_once, commit, beat)

    with_member("/d", main)
