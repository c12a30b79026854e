"""A user without ACLs, over TLS: every request about every kind of name, and what it can learn."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final
from uuid import UUID

import pytest
from tests.kit.certificates import Certificates
from tests.kit.client_security import ClientSecurity
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS
from tests.kit.secure_client import SecureClient, connect_tls, connect_with
from tests.kit.users import add_acl, remove_user, set_password
from tests.kit.waits import run_patiently, wait_until, with_time
from tests.unit.frontends.acl_changes import allow
from tests.unit.frontends.grpc_requests import METHODS, answer_about
from tests.unit.frontends.kafka.admin_calls import create_topic
from tests.unit.frontends.kafka.group_calls import (
    GROUP,
    HEARTBEAT,
    JOIN_GROUP,
    join_fields,
    joined,
    ready,
)
from tests.unit.frontends.kafka.named_requests import (
    BY_ID,
    DENIALS,
    FILTERED,
    NOT_ATTEMPTED,
    OPEN,
    codes_of,
    long_fetch,
    request_about,
)

from quorumlog.clients.credentials import SCRAM, TLS, channel_security
from quorumlog.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    QuorumlogError,
    SaslAuthenticationFailed,
    StreamBroken,
    TopicAuthorizationFailed,
)
from quorumlog.frontends.grpc.log_service import BUILD_BYTES_MAX
from quorumlog.frontends.kafka.apis import APIS
from quorumlog.metadata import INTERNAL_TOPICS
from quorumlog.metadata.acls import AclOperation, AclResourceType
from quorumlog.proto import (
    admin_pb2,
    groups_pb2,
    log_pb2,
    staged_commits_pb2,
    transactions_pb2,
)
from quorumlog.records import Codec, Record, encode_batch
from quorumlog.runtime import Channel, Runtime
from quorumlog.runtime.real import RealTasks
from quorumlog.services import (
    ADMIN_CREATE_TOPIC,
    ADMIN_DELETE_TOPIC,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
    GROUPS_HEARTBEAT,
    LOG_FETCH,
    LOG_PUBLISH,
    LOG_SUBSCRIBE,
    STAGED_COMMITS_ADD_PARTITIONS,
    STAGED_COMMITS_BEGIN,
    STAGED_COMMITS_OPEN_WRITE,
)

PASSWORD: Final = "correct horse"
SECRET, ABSENT, METADATA_LOG = "secret", "absent", "__cluster_metadata"
NAMES: Final = (SECRET, *sorted(INTERNAL_TOPICS), METADATA_LOG)
NO_ID: Final = bytes(15) + b"\x01"
INVALID_TOPIC: Final = 17
REBALANCE_IN_PROGRESS: Final = 27
JOIN_MS: Final = 3_000
TRIES: Final = 1_000
SECOND_MS: Final = 1_000
RATIO_MAX: Final = 1.1
LIST_OFFSETS, METADATA, FIND_COORDINATOR, DESCRIBE_GROUPS = 2, 3, 10, 15
DESCRIBE_TRANSACTIONS: Final = 65
PRODUCE, FETCH, DELETE_TOPICS, DELETE_RECORDS = 0, 1, 20, 21

JOIN: Final[Mapping[str, Mapping[str, Any]]] = {
    "Groups/Heartbeat": {
        "member_epoch": 0,
        "assignor": "",
        "topics": None,
        "owned": None,
        "pattern": "s.*",
    },
}
"""The fields of a join with the pattern of another member."""


class Rights:
    """A node with the topic "secret", its users mallory and root, who may do everything."""

    def __init__(self, kafka: KafkaNode, certificates: Certificates, topic_id: bytes) -> None:
        self.kafka = kafka
        self._certificates = certificates
        self.topic_id = topic_id

    async def log_in(self, user: str) -> SecureClient:
        """Return a connection of a user."""
        address = self.kafka.node.addresses.kafka_listeners["SASL_SSL"]
        client = await connect_tls(self.kafka.runtime, address, self._certificates.client())
        assert not (await client.log_in(user, PASSWORD)).error_code.value
        return client

    def channel(self, user: str) -> Channel:
        """Return a gRPC channel of a user."""
        address = self.kafka.node.addresses.grpc.replace("127.0.0.1", "localhost")
        tls = TLS(ca=self._certificates.ca)
        security = channel_security(tls, SCRAM(user=user, password=PASSWORD))
        return self.kafka.runtime.network.channel(address, security)

    async def ask(self, client: SecureClient, key: int, version: int, name: str) -> Any:
        """Return the response to a request in which every resource has the name."""
        topic_id = self.topic_id if name == SECRET else NO_ID
        client.send_body(key, version, request_about(key, version, name, topic_id))
        _, answer = await client.answer(key, version)
        return answer


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """One authority for all tests."""
    return Certificates.create(tmp_path_factory.mktemp("ca"))


@asynccontextmanager
async def rights(
    runtime: Runtime,
    folder: Path,
    certificates: Certificates,
    mechanisms: tuple[str, ...] = ("SCRAM-SHA-256",),
) -> AsyncIterator[Rights]:
    async with serving_kafka(runtime, str(folder)) as kafka:
        topic_id = await create_topic(kafka.channel, SECRET)
        await set_password(kafka.node, "mallory", PASSWORD)
        await set_password(kafka.node, "root", PASSWORD)
        for key_type in (0, 1):  # creates the internal topics
            await kafka.client.ask(
                FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=(SECRET,)
            )
    async with serving_kafka(
        runtime,
        str(folder),
        is_formatted=True,
        **certificates.settings(),
        grpc_security_protocol="SASL_SSL",
        listeners_kafka=("SASL_SSL://127.0.0.1:0",),
        super_users=("User:root",),
        subscribe_heartbeat_ms=100,
        sasl_enabled_mechanisms=mechanisms,
    ) as kafka:
        yield Rights(kafka, certificates, topic_id)


@asynccontextmanager
async def occupied(runtime: Runtime, lane: str) -> AsyncIterator[Callable[[], int]]:
    """Occupy a lane of one thread; yields a function that returns the number of waiting jobs."""
    tasks, end = runtime.tasks, threading.Event()
    assert isinstance(tasks, RealTasks)
    occupying = asyncio.ensure_future(tasks.offload(lane, end.wait))
    await asyncio.sleep(0)
    try:
        yield lambda: len(tasks._lanes[lane]._unfinished) - 1
    finally:
        end.set()
        await occupying


async def error_of(channel: Channel, topic: str) -> str:
    """Return the name of the error of a topic's description."""
    request = admin_pb2.DescribeTopicsRequest(names=[topic])
    answer = await channel.call(ADMIN_DESCRIBE_TOPICS, request, timeout_ms=WAIT_MS)
    name: str = answer.results[0].error.name
    return name


def test_every_request_about_every_name_is_denied_alike(
    certificates: Certificates, tmp_path: Path
) -> None:
    """The answers about a name that exists and one that does not differ in the name alone. An id is
    no name: a client that has one may know of the topic."""
    failures: list[str] = []

    async def main(runtime: Runtime) -> None:
        async with rights(runtime, tmp_path / "node", certificates) as node:
            client = await node.log_in("mallory")
            for api in APIS:
                if api.name in OPEN | FILTERED:
                    continue
                version = min(api.high, BY_ID.get(api.name, api.high + 1) - 1)
                texts = {}
                for name in (ABSENT, *NAMES):
                    answer = await node.ask(client, api.key, version, name)
                    codes = set(codes_of(answer))
                    if name == METADATA_LOG and INVALID_TOPIC in codes:
                        continue  # reserved in every cluster
                    if not codes & DENIALS or codes - DENIALS - {0, NOT_ATTEMPTED}:
                        failures.append(f"{api.name} {version} {name}: {sorted(codes)}")
                    texts[name] = repr(answer).replace(name, "#")
                differing = {name for name, text in texts.items() if text != texts[ABSENT]}
                if differing - {SECRET}:
                    failures.append(f"{api.name} {version} discloses {differing}")

    run_patiently(main)
    assert not failures, "\n".join(failures)


def test_not_even_a_super_user_writes_internal_topics_or_reads_the_metadata_log(
    certificates: Certificates, tmp_path: Path
) -> None:
    """The metadata log has the keys of passwords."""
    failures: list[str] = []

    async def main(runtime: Runtime) -> None:
        async with rights(runtime, tmp_path / "node", certificates) as node:
            client = await node.log_in("root")
            for key, version in ((PRODUCE, 9), (DELETE_TOPICS, 5), (DELETE_RECORDS, 2)):
                for name in NAMES[1:]:
                    codes = set(codes_of(await node.ask(client, key, version, name)))
                    if not codes - {0}:
                        failures.append(f"key {key} {name}: {sorted(codes)}")
            for key, version in ((FETCH, 12), (LIST_OFFSETS, 7)):
                codes = set(codes_of(await node.ask(client, key, version, METADATA_LOG)))
                if codes - {0} != {3}:
                    failures.append(f"key {key} {METADATA_LOG}: {sorted(codes)}")

    run_patiently(main)
    assert not failures, "\n".join(failures)


async def occupy(channel: Channel, name: str) -> None:
    """Let a group and a staged commit of the name have the secret topic."""
    beat = groups_pb2.GroupHeartbeatRequest(
        group=name,
        member_id=str(UUID(int=1)),
        rebalance_timeout_ms=WAIT_MS,
        subscription={"pattern": "s.*"},
        owned={},
    )
    given = await channel.call(GROUPS_HEARTBEAT, beat, timeout_ms=WAIT_MS)
    assert [each.topic for each in given.assignment.partitions] == [SECRET]
    write = await channel.call(
        STAGED_COMMITS_OPEN_WRITE, staged_commits_pb2.OpenWriteRequest(), timeout_ms=WAIT_MS
    )
    begin = staged_commits_pb2.BeginAttemptRequest(name=name, number=1, write_id=write.write_id)
    begun = await channel.call(STAGED_COMMITS_BEGIN, begin, timeout_ms=WAIT_MS)
    add = transactions_pb2.AddPartitionsRequest(
        transactional_id=name,
        producer=begun.producer,
        partitions=[groups_pb2.GroupPartition(topic=SECRET, partition=0)],
    )
    await channel.call(STAGED_COMMITS_ADD_PARTITIONS, add, timeout_ms=WAIT_MS)


def test_rights_on_a_group_and_a_transactional_id_disclose_no_topic(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Every request about a name of which the client has all rights, and which has a topic of which
    it has none. Descriptions come first: other requests end what they describe."""
    failures: list[str] = []

    async def main(runtime: Runtime) -> None:
        async with rights(runtime, tmp_path / "node", certificates) as node:
            root, channel = node.channel("root"), node.channel("mallory")
            await occupy(root, "hers")
            for kind in (AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID):
                await add_acl(node.kafka.node, "User:mallory", AclOperation.ALL, kind, "hers")
            client = await node.log_in("mallory")
            for api in sorted(APIS, key=lambda each: "Describe" not in each.name):
                if api.name in OPEN:
                    continue
                answer = await node.ask(client, api.key, api.high, "hers")
                if SECRET in repr(answer):
                    failures.append(f"{api.name}: {answer}")
            for path in sorted(METHODS, key=lambda each: "Describe" not in each):
                found = await answer_about(channel, path, "hers", **JOIN.get(path, {}))
                assert path not in JOIN or not isinstance(found, QuorumlogError), found
                if SECRET in repr(found):
                    failures.append(f"{path}: {found}")
            await channel.close()
            await root.close()

    run_patiently(main)
    assert not failures, "\n".join(failures)


@pytest.mark.long
def test_time_of_an_answer_does_not_tell_whether_a_name_exists(
    certificates: Certificates, tmp_path: Path
) -> None:
    async def main(runtime: Runtime) -> None:
        async with rights(runtime, tmp_path / "node", certificates) as node:
            client, channel = await node.log_in("mallory"), node.channel("mallory")

            async def describe(name: str) -> None:
                assert await error_of(channel, name) == TopicAuthorizationFailed.name

            def asking(key: int, version: int) -> Callable[[str], Awaitable[object]]:
                return lambda name: node.ask(client, key, version, name)

            for ask in (
                asking(METADATA, 9),
                asking(LIST_OFFSETS, 6),
                asking(DESCRIBE_GROUPS, 5),
                asking(DESCRIBE_TRANSACTIONS, 0),
                describe,
            ):
                await with_time(1, partial(compare, ask))
            await channel.close()

    async def compare(ask: Callable[[str], Awaitable[object]], _: int) -> None:
        """Compare the medians of times that were taken in turns."""
        taken: dict[str, list[float]] = {SECRET: [], ABSENT: []}
        for number in range(2 * TRIES):
            name = (SECRET, ABSENT)[number % 2]
            began_s = time.perf_counter()
            await ask(name)
            taken[name].append(time.perf_counter() - began_s)
        existing_s, missing_s = (median(taken[name]) for name in (SECRET, ABSENT))
        assert 1 / RATIO_MAX < existing_s / missing_s < RATIO_MAX, f"{existing_s} and {missing_s}"

    run_patiently(main)


def test_acls_of_a_user_take_effect_on_an_open_connection_within_a_second(
    certificates: Certificates, tmp_path: Path
) -> None:
    async def main(runtime: Runtime) -> None:
        async with rights(runtime, tmp_path / "node", certificates) as node:
            client, channel = await node.log_in("mallory"), node.channel("mallory")
            assert await error_of(channel, SECRET) == TopicAuthorizationFailed.name
            await add_acl(
                node.kafka.node,
                "User:mallory",
                AclOperation.DESCRIBE,
                AclResourceType.TOPIC,
                SECRET,
            )
            # `add_acl` returns when the node has applied it: the next decision has it
            assert not await error_of(channel, SECRET)
            answer = await node.ask(client, LIST_OFFSETS, 6, SECRET)
            assert not set(codes_of(answer)) & DENIALS
            await channel.close()

    run_patiently(main)


async def receive_all(stream: Any, take: Callable[[Any], None] = lambda _: None) -> None:
    """Receive until the stream ends; raises its error."""
    while (received := await stream.receive()) is not None:
        take(received)


@pytest.mark.parametrize("what", ["the right", "the user"])
def test_waiting_requests_end_within_a_second_after_their_user_has_lost(
    certificates: Certificates, tmp_path: Path, what: str
) -> None:
    """Requests that wait on open connections: a fetch, and a subscription."""

    async def main(runtime: Runtime) -> None:
        async with rights(runtime, tmp_path / "node", certificates) as node:
            root = node.channel("root")
            await with_time(SECOND_MS, partial(lose, node, root))
            await root.close()

    async def lose(node: Rights, root: Channel, time_ms: int) -> None:
        broker, read = node.kafka.node, [(AclOperation.READ, AclResourceType.TOPIC)]
        await set_password(broker, "mallory", PASSWORD)
        await allow(broker, read, principal="User:mallory")
        client, channel = await node.log_in("mallory"), node.channel("mallory")
        stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
        await stream.send(log_pb2.SubscribeRequest(topic=SECRET))
        first = await stream.receive()
        assert first is not None
        end = first.high_watermark
        client.send_body(FETCH, 12, long_fetch(SECRET))
        waiting = log_pb2.FetchRequest(
            partitions=[log_pb2.FetchPartition(topic=SECRET, partition=0, offset=end)],
            max_wait_ms=WAIT_MS,
            min_bytes=1,
        )
        fetching = asyncio.ensure_future(channel.call(LOG_FETCH, waiting, timeout_ms=2 * WAIT_MS))
        began_s = time.monotonic()
        if what == "the right":
            await allow(broker, [], principal="User:mallory")
            record = log_pb2.PublishRequest(topic=SECRET, records=[log_pb2.Record(value=b"v")])
            await root.call(LOG_PUBLISH, record, timeout_ms=WAIT_MS)  # which would end the wait
            _, answer = await client.answer(FETCH, 12)
            assert set(codes_of(answer)) & DENIALS
            assert not answer.responses[0].partitions[0].records
            with pytest.raises(TopicAuthorizationFailed):
                await receive_all(stream)
        else:
            await remove_user(broker, "mallory")
            await client.ended()
            record = log_pb2.PublishRequest(topic=SECRET, records=[log_pb2.Record(value=b"v")])
            await root.call(LOG_PUBLISH, record, timeout_ms=WAIT_MS)  # which ends the wait
            with pytest.raises(SaslAuthenticationFailed):
                await fetching
            with pytest.raises(StreamBroken, match="the session has ended"):
                await receive_all(stream)
        taken_ms = (time.monotonic() - began_s) * 1_000
        if what == "the user":
            with pytest.raises(SaslAuthenticationFailed):
                await error_of(channel, SECRET)
        client.connection.abort()
        await asyncio.gather(fetching, return_exceptions=True)
        await channel.close()
        assert taken_ms < time_ms

    run_patiently(main)


CLUSTER_READS: Final = (
    "Admin/DescribeAcls",
    "Admin/DescribeScramCredentials",
    "Admin/DescribeClientQuotas",
    "Admin/ListReassignments",
    "Admin/ExplainAuthorization",
)
"""Reads that need a right on the cluster, and wait for an offset of the metadata."""

EXPLAINED: Final = {
    "principal": "User:alice",
    "host": "127.0.0.1",
    "operation": int(AclOperation.READ),
    "resource_type": int(AclResourceType.TOPIC),
}

WAITING: Final = tuple(
    path
    for path, method in METHODS.items()
    if "min_metadata_offset" in method.request.DESCRIPTOR.fields_by_name
)


@pytest.mark.parametrize("what", ["the right", "the user"])
def test_read_that_waits_for_the_metadata_is_authorized_by_it(
    certificates: Certificates, tmp_path: Path, what: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with rights(runtime, tmp_path / "node", certificates) as node:
            broker, channel = node.kafka.node, node.channel("mallory")
            cluster = AclResourceType.CLUSTER
            needs = [(AclOperation.DESCRIBE, cluster), (AclOperation.DESCRIBE_CONFIGS, cluster)]
            await allow(broker, needs, principal="User:mallory")
            known = admin_pb2.ListTopicsRequest()
            now = (await channel.call(ADMIN_LIST_TOPICS, known, timeout_ms=WAIT_MS)).metadata_offset
            waiting = [
                asyncio.ensure_future(
                    answer_about(channel, path, SECRET, min_metadata_offset=now + 1, **EXPLAINED)
                )
                for path in (CLUSTER_READS if what == "the right" else WAITING)
            ]
            await asyncio.sleep(0)
            await channel.call(ADMIN_LIST_TOPICS, known, timeout_ms=WAIT_MS)  # follows the others
            error: type[QuorumlogError] = SaslAuthenticationFailed
            if what == "the right":
                await allow(broker, [], principal="User:mallory")
                error = ClusterAuthorizationFailed
            else:
                await remove_user(broker, "mallory")
            for found in await asyncio.gather(*waiting):
                assert isinstance(found, error), found
            await channel.close()

    run_patiently(main)


@pytest.mark.parametrize("what", ["the right", "the user"])
def test_publish_that_waits_for_its_compression_is_authorized_again(
    certificates: Certificates, tmp_path: Path, what: str
) -> None:
    async def main(runtime: Runtime) -> None:
        async with rights(runtime, tmp_path / "node", certificates) as node:
            broker, channel, root = node.kafka.node, node.channel("mallory"), node.channel("root")
            write = [(AclOperation.WRITE, AclResourceType.TOPIC)]
            await allow(broker, write, principal="User:mallory")
            record = log_pb2.Record(value=bytes(BUILD_BYTES_MAX))
            large = log_pb2.PublishRequest(topic=SECRET, records=[record])
            async with occupied(runtime, "cpu") as jobs:
                publishing = asyncio.ensure_future(
                    channel.call(LOG_PUBLISH, large, timeout_ms=WAIT_MS)
                )
                await wait_until(lambda: jobs() == 1)
                error: type[QuorumlogError] = SaslAuthenticationFailed
                if what == "the right":
                    await allow(broker, [], principal="User:mallory")
                    error = TopicAuthorizationFailed
                else:
                    await remove_user(broker, "mallory")
            with pytest.raises(error):
                await publishing
            fetch = log_pb2.FetchRequest(
                partitions=[log_pb2.FetchPartition(topic=SECRET, partition=0)]
            )
            fetched = await root.call(LOG_FETCH, fetch, timeout_ms=WAIT_MS)
            assert fetched.results[0].high_watermark == 0
            await root.close()
            await channel.close()

    run_patiently(main)


def test_user_logs_in_while_large_requests_wait_for_their_compression(
    certificates: Certificates, tmp_path: Path
) -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            rights(runtime, tmp_path / "node", certificates, mechanisms=("PLAIN",)) as node,
            occupied(runtime, "cpu"),
        ):
            address = node.kafka.node.addresses.kafka_listeners["SASL_SSL"]
            security = ClientSecurity(ca=certificates.ca, user="mallory", password=PASSWORD)
            client = await connect_with(runtime, address, security)
            client.connection.abort()

    run_patiently(main)


def test_join_that_waits_is_authorized_again_before_its_response(
    certificates: Certificates, tmp_path: Path
) -> None:
    """The response has the subscriptions of the members."""

    async def main(runtime: Runtime) -> None:
        async with rights(runtime, tmp_path / "node", certificates) as node:
            broker, needs = node.kafka.node, [(AclOperation.READ, AclResourceType.GROUP)]
            await allow(broker, needs, principal="User:mallory", name=GROUP)
            first, second = await node.log_in("mallory"), await node.log_in("mallory")
            await ready(first)
            leader = await joined(first, rebalance_timeout=JOIN_MS)
            pending = await second.ask(JOIN_GROUP, 9, **join_fields())
            # The other member does not rejoin, so the response waits for the rebalance timeout.
            fields = join_fields(member_id=pending.member_id, rebalance_timeout=JOIN_MS)
            second.send(JOIN_GROUP, 9, **fields)
            beat = {
                "group_id": GROUP,
                "generation_id": leader.generation_id,
                "member_id": leader.member_id,
                "group_instance_id": None,
            }
            for _ in range(TRIES):
                state = await first.ask(HEARTBEAT, 4, **beat)
                if int(state.error_code) == REBALANCE_IN_PROGRESS:
                    break
                await asyncio.sleep(0.01)
            await allow(broker, [], principal="User:mallory")
            _, answer = await second.answer(JOIN_GROUP, 9)
            assert int(answer.error_code) == GroupAuthorizationFailed.code
            assert not answer.members
            for client in (first, second):
                client.connection.abort()

    run_patiently(main)


def test_decoded_responses_of_one_read_end_with_the_right(
    certificates: Certificates, tmp_path: Path
) -> None:
    """A small batch may be decompressed to more than the windows of a connection."""
    count = 300

    async def main(runtime: Runtime) -> None:
        async with rights(runtime, tmp_path / "node", certificates) as node:
            broker, read = node.kafka.node, [(AclOperation.READ, AclResourceType.TOPIC)]
            await allow(broker, read, principal="User:mallory")
            root, channel = await node.log_in("root"), node.channel("mallory")
            large = [Record(number, 1_000, None, bytes(100_000)) for number in range(count)]
            batch = encode_batch(large, codec=Codec.ZSTD)
            part = {"index": 0, "records": batch}
            answer = await root.ask(
                PRODUCE,
                9,
                transactional_id=None,
                acks=-1,
                timeout=WAIT_MS,
                topic_data=[{"name": SECRET, "partition_data": [part]}],
            )
            assert not set(codes_of(answer)) - {0}
            stream = await channel.stream(LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
            request = log_pb2.SubscribeRequest(topic=SECRET, decoded=True, max_bytes=1 << 20)
            await stream.send(request)
            first = await stream.receive()
            assert first is not None
            await allow(broker, [], principal="User:mallory")
            received: list[int] = []
            with pytest.raises(TopicAuthorizationFailed):
                await receive_all(stream, lambda each: received.append(len(each.records)))
            assert len(first.records) + sum(received) < count
            root.connection.abort()
            await channel.close()

    run_patiently(main)


def test_client_cannot_choose_the_id_of_another_topic(
    certificates: Certificates, tmp_path: Path
) -> None:
    """Clients that know a topic by its id would write to the one that has the id now."""

    async def main(runtime: Runtime) -> None:
        async with rights(runtime, tmp_path / "node", certificates) as node:
            create = [(AclOperation.CREATE, AclResourceType.TOPIC)]
            await allow(node.kafka.node, create, principal="User:mallory", name="mine")
            root, mallory = node.channel("root"), node.channel("mallory")
            secret_id = node.topic_id
            mine = admin_pb2.CreateTopicRequest(name="mine", topic_id=secret_id, partitions=1)
            made = await mallory.call(ADMIN_CREATE_TOPIC, mine, timeout_ms=WAIT_MS)
            assert made.topic.topic_id != secret_id
            again = await mallory.call(ADMIN_CREATE_TOPIC, mine, timeout_ms=WAIT_MS)
            assert again.topic.topic_id == made.topic.topic_id  # a repeat of the same creation
            gone = admin_pb2.DeleteTopicRequest(name=SECRET, topic_id=secret_id)
            await root.call(ADMIN_DELETE_TOPIC, gone, timeout_ms=WAIT_MS)
            revived = admin_pb2.CreateTopicRequest(name=SECRET, topic_id=secret_id, partitions=1)
            made = await root.call(ADMIN_CREATE_TOPIC, revived, timeout_ms=WAIT_MS)
            assert made.topic.topic_id != secret_id
            await root.close()
            await mallory.close()

    run_patiently(main)
