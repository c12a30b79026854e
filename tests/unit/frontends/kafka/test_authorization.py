"""Every API of the Kafka front end checks authorization.

The requests are built from the schemas, so the tests include every new API.
"""

import asyncio
import dataclasses
import typing
from collections.abc import Collection, Mapping
from itertools import product
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from tests.kit.kafka_node import KafkaNode, serving_kafka

from quorumlog import simulation
from quorumlog.api.audit import WINDOW_S
from quorumlog.frontends.kafka.apis import APIS
from quorumlog.frontends.kafka.schemas import error_code
from quorumlog.metadata import MetadataImage
from quorumlog.metadata.acls import AclOperation, AclResourceType
from quorumlog.metadata.authorization import AuthorizerConfig
from quorumlog.runtime import Runtime

from ..acl_changes import allow
from .admin_calls import create_topic
from .named_requests import (
    BY_ID,
    DENIALS,
    FILTERED,
    LOADING,
    NOT_ATTEMPTED,
    OPEN,
    PLAIN_METADATA,
    codes_of,
    long_fetch,
    request_about,
)

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


AUDITED: Final = frozenset(
    {
        "AddRaftVoter",
        "AlterClientQuotas",
        "AlterConfigs",
        "AlterPartitionReassignments",
        "AlterUserScramCredentials",
        "CreateAcls",
        "CreatePartitions",
        "CreateTopics",
        "DeleteAcls",
        "DeleteGroups",
        "DeleteRecords",
        "DeleteTopics",
        "ElectLeaders",
        "IncrementalAlterConfigs",
        "OffsetDelete",
        "RemoveRaftVoter",
        "UnregisterBroker",
        "UpdateFeatures",
    }
)
"""They change the metadata or the voters, or delete records, groups or offsets."""


PATTERN_HEARTBEAT: Final[Mapping[str, Any]] = {
    "group_id": "secret",
    "member_id": "m",
    "instance_id": None,
    "rack_id": None,
    "rebalance_timeout": 60_000,
    "subscribed_topic_names": None,
    "subscribed_topic_regex": "s.*",
    "server_assignor": None,
    "topic_partitions": (),
}


@dataclasses.dataclass
class SecretRequests:
    """A node with the topic "secret"."""

    kafka: KafkaNode
    topic_id: bytes

    def id_of(self, name: str) -> bytes:
        """Return the topic id that requests for a name use."""
        return self.topic_id if name == "secret" else bytes(15) + b"\x01"

    async def ask(
        self, key: int, version: int, name: str = "secret", *, number: int | None = None
    ) -> Any:
        client = await self.kafka.connect()
        topic_id = self.id_of(name)
        client.send_body(key, version, request_about(key, version, name, topic_id, number=number))
        _, answer = await client.answer(key, version)
        client.connection.abort()
        return answer

    async def allow(self, needs: Collection[tuple[AclOperation, AclResourceType]]) -> None:
        """Replace the ACLs by those that the needs require on the resources named "secret"."""
        await allow(self.kafka.node, needs)


def image_of(asking: SecretRequests) -> MetadataImage:
    publisher = asking.kafka.node.parts.publisher
    assert publisher is not None
    return publisher.image


def run_on_secret(
    main: typing.Callable[[SecretRequests], typing.Awaitable[None]],
    folder: str,
    authorizer: AuthorizerConfig,
    **settings: Any,
) -> None:
    """Run `main` on a node that has the topic, restarted with the authorizer and settings."""

    async def serve(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            topic_id = await create_topic(kafka.channel, "secret")
        async with serving_kafka(
            runtime, folder, authorizer=authorizer, is_formatted=True, **settings
        ) as kafka:
            await main(SecretRequests(kafka, topic_id))

    simulation.run(serve)


def test_every_api_denies_a_client_without_rights_and_audits_it(
    folder: str, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.log"
    failures: list[str] = []

    async def main(asking: SecretRequests) -> None:
        for api in APIS:
            if api.name in OPEN | FILTERED:
                continue
            for version in (api.low, api.high):
                audit.write_text("")
                codes = set(codes_of(await asking.ask(api.key, version)))
                if not codes & DENIALS or codes - DENIALS - {0, NOT_ATTEMPTED}:
                    failures.append(f"{api.name} {version}: {sorted(codes)}")
                await asyncio.sleep(WINDOW_S)  # the end of the audit log's window
                if '"event": "denial"' not in audit.read_text():
                    failures.append(f"{api.name} {version}: not in the audit log")

    run_on_secret(main, folder, NOBODY, audit_log_file=str(audit))
    assert not failures, "\n".join(failures)


def test_no_api_denies_a_super_user_and_changes_are_audited(folder: str, tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    failures: list[str] = []
    audited: set[str] = set()

    async def main(asking: SecretRequests) -> None:
        for api in sorted(APIS, key=lambda each: each.name == "DeleteTopics"):  # the last request
            audit.write_text("")
            codes = set(codes_of(await asking.ask(api.key, api.high)))
            if codes & DENIALS:
                failures.append(f"{api.name}: {sorted(codes)}")
            if '"event": "change"' in audit.read_text():
                audited.add(api.name)

    run_on_secret(main, folder, ANONYMOUS, audit_log_file=str(audit))
    assert not failures, "\n".join(failures)
    assert audited == AUDITED


def test_denied_requests_change_nothing(folder: str) -> None:
    async def main(asking: SecretRequests) -> None:
        before = image_of(asking)
        for api in APIS:
            await asking.ask(api.key, api.high)
        after = image_of(asking)
        assert dataclasses.replace(after, offset=before.offset, epoch=before.epoch) == before

    run_on_secret(main, folder, NOBODY)


def test_denials_do_not_disclose_topics(folder: str) -> None:
    """The responses about a topic that exists and one that does not differ only in the name and the
    id that the client sent, for any number of partitions."""
    failures: list[str] = []

    async def main(asking: SecretRequests) -> None:
        for api, number in product(APIS, (None, 0, 1)):
            for version in (api.low, min(api.high, BY_ID.get(api.name, api.high + 1) - 1)):
                answers = []
                for name in ("secret", "absent"):
                    answer = repr(await asking.ask(api.key, version, name=name, number=number))
                    for own in (name, str(UUID(bytes=asking.id_of(name)))):
                        answer = answer.replace(own, "#")
                    answers.append(answer)
                if answers[0] != answers[1]:
                    failures.append(f"{api.name} {version}: {answers[0]} / {answers[1]}")

    run_on_secret(main, folder, NOBODY)
    assert not failures, "\n".join(failures)


def test_denials_of_an_id_do_not_have_the_name_of_its_topic(folder: str) -> None:
    """Every request that can name the topic by its id, with rights on a group and a transactional
    id."""
    failures: list[str] = []

    async def main(asking: SecretRequests) -> None:
        needs = [(_DESCRIBE, _GROUP), (_READ, _GROUP), (_WRITE, _ID)]
        await allow(asking.kafka.node, needs, name="absent")
        for api in APIS:
            if api.name not in BY_ID:
                continue
            client = await asking.kafka.connect()
            request = request_about(api.key, api.high, "absent", asking.topic_id)
            client.send_body(api.key, api.high, request)
            _, answer = await client.answer(api.key, api.high)
            client.connection.abort()
            if "secret" in repr(answer):
                failures.append(f"{api.name}: {answer}")

    run_on_secret(main, folder, NOBODY)
    assert not failures, "\n".join(failures)


def test_deletion_by_id_does_not_confirm_a_guessed_name(folder: str) -> None:
    async def main(asking: SecretRequests) -> None:
        client, answers = await asking.kafka.connect(), []
        by_id = {"name": None, "topic_id": asking.topic_id}
        for guess in ("secret", "absent"):
            by_name = {"name": guess, "topic_id": bytes(16)}
            answer = await client.ask(20, 6, topics=(by_name, by_id), timeout=2_000)
            answers.append(repr(answer).replace(guess, "#"))
        assert answers[0] == answers[1]

    run_on_secret(main, folder, NOBODY)


def test_deletion_by_an_id_that_the_broker_lacks_is_not_sent_to_the_controller(
    folder: str, tmp_path: Path
) -> None:
    """The controller may have the topic already, and does not authorize clients."""
    audit = tmp_path / "audit.log"

    async def main(asking: SecretRequests) -> None:
        client = await asking.kafka.connect()
        by_id = {"name": None, "topic_id": bytes(15) + b"\x01"}
        (unknown,) = (await client.ask(20, 6, topics=(by_id,), timeout=2_000)).responses
        assert unknown.error_code == error_code(100)
        assert "change" not in audit.read_text()

    run_on_secret(main, folder, NOBODY, audit_log_file=str(audit))


def test_assignment_leaves_out_topics_that_the_client_may_no_longer_describe(
    folder: str, tmp_path: Path
) -> None:
    """Before the next match of the pattern. The denial is in the audit log."""
    audit = tmp_path / "audit.log"
    epoch = 0

    async def main(asking: SecretRequests) -> None:
        client = await asking.kafka.connect()

        async def assigned() -> list[bytes]:
            nonlocal epoch
            beat = {**PATTERN_HEARTBEAT, "member_epoch": epoch}
            answer = await client.ask(68, 1, **beat)
            while answer.error_code in LOADING:
                await asyncio.sleep(0.1)
                answer = await client.ask(68, 1, **beat)
            epoch = answer.member_epoch
            return [each.topic_id.bytes for each in answer.assignment.topic_partitions]

        await asking.allow([(_READ, _GROUP), (_DESCRIBE, _TOPIC)])
        assert await assigned() == [asking.topic_id]
        await asking.allow([(_READ, _GROUP)])
        assert await assigned() == []
        await asyncio.sleep(WINDOW_S)
        assert '"resource": "secret"' in audit.read_text()

    run_on_secret(main, folder, NOBODY, audit_log_file=str(audit))


def test_election_in_all_partitions_without_a_leader_is_denied(folder: str) -> None:
    """There is no such partition, which the response does not disclose."""

    async def main(asking: SecretRequests) -> None:
        client = await asking.kafka.connect()
        answer = await client.ask(43, 2, election_type=1, topic_partitions=None, timeout=2_000)
        assert answer.error_code == error_code(31)

    run_on_secret(main, folder, NOBODY)


def test_each_api_needs_exactly_its_acls(folder: str) -> None:
    failures: list[str] = []

    async def main(asking: SecretRequests) -> None:
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


def test_lists_have_the_topics_and_groups_that_may_be_described(
    folder: str, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.log"

    async def main(asking: SecretRequests) -> None:
        client = await asking.kafka.connect()
        await asking.allow([(_READ, _GROUP), (_READ, _TOPIC)])
        codes = LOADING
        while set(codes) & LOADING:
            codes = frozenset(codes_of(await asking.ask(8, 9)))  # stores an offset of the group
        assert codes == {0}
        groups = await client.ask(16, 5, states_filter=(), types_filter=())
        assert [each.group_id for each in groups.groups] == ["secret"]
        everything = await client.ask(3, 12, topics=None, **PLAIN_METADATA)
        assert [each.name for each in everything.topics] == ["secret"]  # not __consumer_offsets
        await asking.allow([])
        groups = await client.ask(16, 5, states_filter=(), types_filter=())
        assert groups.groups == ()
        assert (await client.ask(3, 12, topics=None, **PLAIN_METADATA)).topics == ()
        assert "denial" not in audit.read_text()

    run_on_secret(main, folder, NOBODY, audit_log_file=str(audit))


def test_list_of_resources_has_the_topics_and_groups_whose_configs_may_be_described(
    folder: str,
) -> None:
    describe = AclOperation.DESCRIBE_CONFIGS

    async def main(asking: SecretRequests) -> None:
        client = await asking.kafka.connect()

        async def names() -> list[str]:
            answer = await client.ask(74, 1, resource_types=(2, 32))
            assert answer.error_code == error_code(0)
            return [each.resource_name for each in answer.config_resources]

        await asking.allow([(AclOperation.ALTER_CONFIGS, _GROUP)])
        change = {"name": "consumer.session.timeout.ms", "config_operation": 0, "value": "50000"}
        resource = {"resource_type": 32, "resource_name": "secret", "configs": (change,)}
        (changed,) = (await client.ask(44, 1, resources=(resource,), validate_only=False)).responses
        assert changed.error_code == error_code(0)
        await asking.allow([(describe, _CLUSTER)])
        assert await names() == []
        await asking.allow([(describe, _CLUSTER), (describe, _TOPIC), (describe, _GROUP)])
        assert await names() == ["secret", "secret"]

    run_on_secret(main, folder, NOBODY)


def test_created_topic_is_described_to_clients_that_may_describe_its_configs(folder: str) -> None:
    async def main(asking: SecretRequests) -> None:
        await asking.allow([(AclOperation.CREATE, _CLUSTER)])
        (created,) = (await asking.ask(19, 7, name="new")).topics
        assert created.error_code == error_code(0)
        assert (created.topic_config_error_code, created.configs) == (29, ())
        assert (created.num_partitions, created.replication_factor) == (-1, -1)

    run_on_secret(main, folder, NOBODY)


def test_operations_in_responses_are_those_of_the_client(folder: str) -> None:
    async def main(asking: SecretRequests) -> None:
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


def test_waiting_fetch_ends_when_the_right_is_withdrawn(folder: str, tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"

    async def main(asking: SecretRequests) -> None:
        client = await asking.kafka.connect()
        await asking.allow([(_READ, _TOPIC)])
        client.send_body(1, 12, long_fetch("secret"))
        await asking.allow([])
        _, answer = await client.answer(1, 12)
        assert set(codes_of(answer)) == {0, 29}
        assert audit.read_text().count('"event": "denial"') == 1

    run_on_secret(main, folder, NOBODY, audit_log_file=str(audit))
