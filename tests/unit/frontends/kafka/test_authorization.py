"""Every API of the Kafka front end asks for authorization.

The requests are made from the schemas, so a new API is in the tests as soon as it is offered.
"""

import dataclasses
import typing
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from tests.kit.kafka_node import KafkaNode, serving_kafka

from quorumlog import simulation
from quorumlog.frontends.kafka.apis import APIS
from quorumlog.frontends.kafka.apis.describe_quorum import LISTENER
from quorumlog.frontends.kafka.schemas import error_code
from quorumlog.frontends.kafka.shapes import without_none
from quorumlog.metadata import MetadataImage
from quorumlog.metadata.acls import AclOperation, AclResourceType
from quorumlog.metadata.authorization import AuthorizerConfig
from quorumlog.runtime import Runtime

from ..acl_changes import allow
from .admin_calls import create_topic
from .any_request import bytes_of, schema_of

NOBODY: Final = AuthorizerConfig()
ANONYMOUS: Final = AuthorizerConfig(super_users=frozenset({"User:ANONYMOUS"}))

_READ, _WRITE, _DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE
_ALTER, _DESCRIBE = AclOperation.ALTER, AclOperation.DESCRIBE
_TOPIC, _GROUP = AclResourceType.TOPIC, AclResourceType.GROUP
_CLUSTER, _ID = AclResourceType.CLUSTER, AclResourceType.TRANSACTIONAL_ID

NEEDS: Final[Mapping[str, tuple[tuple[AclOperation, AclResourceType], ...]]] = {
    "Produce": ((_WRITE, _TOPIC),),
    "Fetch": ((_READ, _TOPIC),),
    "ListOffsets": ((_DESCRIBE, _TOPIC),),
    "Metadata": ((_DESCRIBE, _TOPIC),),
    "OffsetCommit": ((_READ, _GROUP), (_READ, _TOPIC)),
    "OffsetFetch": ((_DESCRIBE, _GROUP), (_DESCRIBE, _TOPIC)),
    "FindCoordinator": ((_DESCRIBE, _GROUP),),
    "JoinGroup": ((_READ, _GROUP),),
    "Heartbeat": ((_READ, _GROUP),),
    "LeaveGroup": ((_READ, _GROUP),),
    "SyncGroup": ((_READ, _GROUP),),
    "DescribeGroups": ((_DESCRIBE, _GROUP),),
    "CreateTopics": ((AclOperation.CREATE, _CLUSTER),),
    "DeleteTopics": ((_DELETE, _TOPIC),),
    "DeleteRecords": ((_DELETE, _TOPIC),),
    "InitProducerId": ((_WRITE, _ID),),
    "OffsetForLeaderEpoch": ((_DESCRIBE, _TOPIC),),
    "AddPartitionsToTxn": ((_WRITE, _ID), (_WRITE, _TOPIC)),
    "AddOffsetsToTxn": ((_WRITE, _ID), (_READ, _GROUP)),
    "EndTxn": ((_WRITE, _ID),),
    "WriteTxnMarkers": ((AclOperation.CLUSTER_ACTION, _CLUSTER),),
    "TxnOffsetCommit": ((_WRITE, _ID), (_READ, _GROUP), (_READ, _TOPIC)),
    "DescribeAcls": ((_DESCRIBE, _CLUSTER),),
    "CreateAcls": ((_ALTER, _CLUSTER),),
    "DeleteAcls": ((_ALTER, _CLUSTER),),
    "DescribeConfigs": ((AclOperation.DESCRIBE_CONFIGS, _TOPIC),),
    "AlterConfigs": ((AclOperation.ALTER_CONFIGS, _TOPIC),),
    "DescribeLogDirs": ((_DESCRIBE, _CLUSTER),),
    "CreatePartitions": ((_ALTER, _TOPIC),),
    "DeleteGroups": ((_DELETE, _GROUP),),
    "ElectLeaders": ((_ALTER, _CLUSTER),),
    "IncrementalAlterConfigs": ((AclOperation.ALTER_CONFIGS, _TOPIC),),
    "AlterPartitionReassignments": ((_ALTER, _CLUSTER),),
    "ListPartitionReassignments": ((_DESCRIBE, _CLUSTER),),
    "OffsetDelete": ((_DELETE, _GROUP), (_READ, _TOPIC)),
    "DescribeClientQuotas": ((AclOperation.DESCRIBE_CONFIGS, _CLUSTER),),
    "AlterClientQuotas": ((AclOperation.ALTER_CONFIGS, _CLUSTER),),
    "DescribeUserScramCredentials": ((_DESCRIBE, _CLUSTER),),
    "AlterUserScramCredentials": ((_ALTER, _CLUSTER),),
    "DescribeQuorum": ((_DESCRIBE, _CLUSTER),),
    "UpdateFeatures": ((_ALTER, _CLUSTER),),
    "DescribeProducers": ((_READ, _TOPIC),),
    "UnregisterBroker": ((_ALTER, _CLUSTER),),
    "DescribeTransactions": ((_DESCRIBE, _ID),),
    "ConsumerGroupHeartbeat": ((_READ, _GROUP), (_DESCRIBE, _TOPIC)),
    "ConsumerGroupDescribe": ((_DESCRIBE, _GROUP),),
    "ListConfigResources": ((AclOperation.DESCRIBE_CONFIGS, _CLUSTER),),
    "DescribeTopicPartitions": ((_DESCRIBE, _TOPIC),),
    "AddRaftVoter": ((_ALTER, _CLUSTER),),
    "RemoveRaftVoter": ((_ALTER, _CLUSTER),),
}
"""The ACLs that each API needs, as in Apache Kafka's table of operations."""

OPEN: Final = frozenset({"ApiVersions", "DescribeCluster", "SaslAuthenticate", "SaslHandshake"})
"""They answer any client, which needs versions, a login and addresses to connect."""

FILTERED: Final = frozenset({"ListGroups", "ListTransactions"})
"""They leave out resources that the client may not describe."""

DENIALS: Final = frozenset({29, 30, 31, 53})
NOT_ATTEMPTED: Final = 55
LOADING: Final = frozenset({14, 15, 16})
"""The codes until the coordinator's topic is created and loaded."""

BY_ID: Final[Mapping[str, int]] = {
    "Produce": 13,
    "Fetch": 13,
    "Metadata": 12,
    "OffsetCommit": 10,
    "OffsetFetch": 10,
    "DeleteTopics": 6,
}
"""The first versions that name topics by ids. An unknown id is reported as such: ids are random, so
a client that has one may know of the topic."""

_VALUES: Final[Mapping[str, Any]] = {
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "float64": 1.0,
    "bool": False,
    "bytes": b"",
    "records": b"",
    "error_code": error_code(0),
    "timedelta_i32": timedelta(seconds=30),
    "timedelta_i64": timedelta(seconds=30),
    "datetime_i64": datetime.fromtimestamp(1, UTC),
}
_BY_FIELD: Final[Mapping[str, Any]] = {
    "acks": 1,
    "num_partitions": 1,
    "replication_factor": 1,
    "timestamp": -1,
    "replica_id": -1,
    "session_epoch": -1,
    "resource_type": 2,  # a topic
    "producer_id": 1,
    "count": 5,
}


def filled(schema: type[Any], name: str, topic_id: bytes, fields: Mapping[str, Any]) -> Any:
    """Return a request in which every resource has the name, and every list one element."""
    hints = typing.get_type_hints(schema)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(schema):
        kind, _ = without_none(hints[field.name])
        if "tag" in field.metadata:
            continue
        is_list = typing.get_origin(kind) is tuple
        if is_list:
            kind, _ = without_none(typing.get_args(kind)[0])
        if field.name in fields:
            values[field.name] = fields[field.name]
            continue
        if hasattr(kind, "__dataclass_fields__"):
            value = filled(kind, name, topic_id, fields)
        else:
            kafka_type = field.metadata.get("kafka_type", "")
            default = {"string": name, "uuid": UUID(bytes=topic_id)}.get(kafka_type)
            value = _VALUES[kafka_type] if default is None else default
        values[field.name] = (value,) if is_list else value
    return schema(**values)


def codes_of(message: Any) -> Iterator[int]:
    """Yield every error code of a response."""
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        for each in value if isinstance(value, tuple) else (value,):
            if dataclasses.is_dataclass(each):
                yield from codes_of(each)
            elif "error_code" in field.name:
                yield each if isinstance(each, int) else int(each.value)


@dataclasses.dataclass
class Asking:
    """A node with the topic "secret"."""

    kafka: KafkaNode
    topic_id: bytes

    def id_of(self, name: str) -> bytes:
        """Return the topic id that requests for a name have."""
        return self.topic_id if name == "secret" else bytes(15) + b"\x01"

    async def ask(self, key: int, version: int, name: str = "secret") -> Any:
        client = await self.kafka.connect()
        client.send_body(key, version, request_about(key, version, name, self.id_of(name)))
        _, answer = await client.answer(key, version)
        client.connection.abort()
        return answer

    async def allow(self, needs: Collection[tuple[AclOperation, AclResourceType]]) -> None:
        """Replace the ACLs by those of the needs on the resources named "secret"."""
        await allow(self.kafka.node, needs)


_ALICE: Final = {"principal": "User:alice"}
_ANY_ACL: Final = {
    "resource_type_filter": 1,
    "pattern_type_filter": 1,
    "operation": 1,
    "permission_type": 1,
    "principal_filter": "User:alice",
    "host_filter": None,
}
_PLAIN_METADATA: Final = {
    "allow_auto_topic_creation": False,
    "include_topic_authorized_operations": False,
}
_LONG_FETCH: Final = {
    "current_leader_epoch": -1,
    "max_wait": timedelta(seconds=20),
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 20,
}
_SPECIAL: Final[Mapping[int, Mapping[str, Any]]] = {
    0: {"transactional_id": None},
    3: {"topic_id": UUID(int=0)},
    8: {"generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None},
    19: {"assignments": (), "configs": ()},
    20: {"name": None},  # since version 6: the id names the topic
    29: _ANY_ACL,
    30: {"resource_pattern_type": 3, "operation": 3, "permission_type": 3, "host": "*", **_ALICE},
    31: _ANY_ACL,
    48: {"entity_type": "user", "match_type": 2, "match": None},
    51: {"mechanism": 1, "iterations": 4_096, "salt": b"salt", "salted_password": b"x"},
    55: {"topic_name": "__cluster_metadata"},
    57: {"feature": "metadata.version", "upgrade_type": 1, "max_version_level": 1},
    74: {"resource_types": ()},
    80: {"port": 1, "voter_directory_id": UUID(int=1), "name": LISTENER},
}


def request_about(key: int, version: int, name: str, topic_id: bytes) -> bytes:
    """Return the body of a request in which every resource has the name."""
    fields = {**_BY_FIELD, **_SPECIAL.get(key, {})}
    return bytes_of(filled(schema_of(key, version), name, topic_id, fields))


def image_of(asking: Asking) -> MetadataImage:
    publisher = asking.kafka.node.parts.publisher
    assert publisher is not None
    return publisher.image


def run_on_secret(
    main: typing.Callable[[Asking], typing.Awaitable[None]],
    folder: str,
    authorizer: AuthorizerConfig,
) -> None:
    """Run `main` on a node that has the topic, restarted with the authorizer."""

    async def serve(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic_id = await create_topic(kafka.channel, "secret")
        async with serving_kafka(
            runtime, folder, authorizer=authorizer, is_formatted=True
        ) as kafka:
            await main(Asking(kafka, topic_id))

    simulation.run(serve)


def test_every_api_denies_a_client_without_rights(folder: str) -> None:
    failures: list[str] = []

    async def main(asking: Asking) -> None:
        for api in APIS:
            if api.name in OPEN | FILTERED:
                continue
            for version in (api.low, api.high):
                codes = set(codes_of(await asking.ask(api.key, version)))
                if not codes & DENIALS or codes - DENIALS - {0, NOT_ATTEMPTED}:
                    failures.append(f"{api.name} {version}: {sorted(codes)}")

    run_on_secret(main, folder, NOBODY)
    assert not failures, "\n".join(failures)


def test_no_api_denies_a_super_user(folder: str) -> None:
    failures: list[str] = []

    async def main(asking: Asking) -> None:
        for api in APIS:
            codes = set(codes_of(await asking.ask(api.key, api.high)))
            if codes & DENIALS:
                failures.append(f"{api.name}: {sorted(codes)}")

    run_on_secret(main, folder, ANONYMOUS)
    assert not failures, "\n".join(failures)


def test_denied_requests_change_nothing(folder: str) -> None:
    async def main(asking: Asking) -> None:
        before = image_of(asking)
        for api in APIS:
            await asking.ask(api.key, api.high)
        after = image_of(asking)
        assert dataclasses.replace(after, offset=before.offset, epoch=before.epoch) == before

    run_on_secret(main, folder, NOBODY)


def test_denials_do_not_disclose_topics(folder: str) -> None:
    """The answers about a topic that exists and one that does not differ in nothing but the name
    and the id that the client sent."""
    failures: list[str] = []

    async def main(asking: Asking) -> None:
        for api in APIS:
            for version in (api.low, min(api.high, BY_ID.get(api.name, api.high + 1) - 1)):
                answers = []
                for name in ("secret", "absent"):
                    answer = repr(await asking.ask(api.key, version, name=name))
                    for own in (name, str(UUID(bytes=asking.id_of(name)))):
                        answer = answer.replace(own, "#")
                    answers.append(answer)
                if answers[0] != answers[1]:
                    failures.append(f"{api.name} {version}: {answers[0]} / {answers[1]}")

    run_on_secret(main, folder, NOBODY)
    assert not failures, "\n".join(failures)


def test_each_api_needs_exactly_its_acls(folder: str) -> None:
    failures: list[str] = []

    async def main(asking: Asking) -> None:
        for api in sorted(APIS, key=lambda api: api.name == "DeleteTopics"):  # at the end
            if api.name in OPEN | FILTERED:
                continue
            needs = NEEDS[api.name]
            version = min(api.high, BY_ID.get(api.name, api.high + 1) - 1)
            for missing in (None, *needs):
                await asking.allow([each for each in needs if each != missing])
                codes = set(codes_of(await asking.ask(api.key, version)))
                if bool(codes & DENIALS) != (missing is not None):
                    failures.append(f"{api.name} without {missing}: {sorted(codes)}")

    run_on_secret(main, folder, NOBODY)
    assert not failures, "\n".join(failures)


def test_lists_have_the_topics_and_groups_that_may_be_described(folder: str) -> None:
    async def main(asking: Asking) -> None:
        client = await asking.kafka.connect()
        await asking.allow([(_READ, _GROUP), (_READ, _TOPIC)])
        codes = LOADING
        while set(codes) & LOADING:
            codes = frozenset(codes_of(await asking.ask(8, 9)))  # stores an offset of the group
        assert codes == {0}
        groups = await client.ask(16, 5, states_filter=(), types_filter=())
        assert [each.group_id for each in groups.groups] == ["secret"]
        everything = await client.ask(3, 12, topics=None, **_PLAIN_METADATA)
        assert [each.name for each in everything.topics] == ["secret"]  # not __consumer_offsets
        await asking.allow([])
        groups = await client.ask(16, 5, states_filter=(), types_filter=())
        assert groups.groups == ()
        assert (await client.ask(3, 12, topics=None, **_PLAIN_METADATA)).topics == ()

    run_on_secret(main, folder, NOBODY)


def test_created_topic_is_described_to_clients_that_may_describe_its_configs(folder: str) -> None:
    async def main(asking: Asking) -> None:
        await asking.allow([(AclOperation.CREATE, _CLUSTER)])
        (created,) = (await asking.ask(19, 7, name="new")).topics
        assert created.error_code == error_code(0)
        assert (created.topic_config_error_code, created.configs) == (29, ())
        assert (created.num_partitions, created.replication_factor) == (-1, -1)

    run_on_secret(main, folder, NOBODY)


def test_operations_in_responses_are_those_of_the_client(folder: str) -> None:
    async def main(asking: Asking) -> None:
        client = await asking.kafka.connect()
        await asking.allow([(_WRITE, _TOPIC)])
        answer = await client.ask(
            3,
            12,
            topics=[{"topic_id": bytes(16), "name": "secret"}],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )
        (topic,) = answer.topics
        assert topic.topic_authorized_operations == 1 << _WRITE | 1 << _DESCRIBE

    run_on_secret(main, folder, NOBODY)


def test_waiting_fetch_ends_when_the_right_is_withdrawn(folder: str) -> None:
    async def main(asking: Asking) -> None:
        client = await asking.kafka.connect()
        await asking.allow([(_READ, _TOPIC)])
        message = filled(schema_of(1, 12), "secret", bytes(16), {**_BY_FIELD, **_LONG_FETCH})
        client.send_body(1, 12, bytes_of(message))
        await asking.allow([])
        _, answer = await client.answer(1, 12)
        assert set(codes_of(answer)) == {0, 29}

    run_on_secret(main, folder, NOBODY)
