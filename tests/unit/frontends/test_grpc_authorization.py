"""Every gRPC method for clients checks authorization.

The requests are built from the descriptors, so the tests include every new method.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from google.protobuf.message import Message
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import WAIT_MS
from tests.kit.users import add_acl

from quorumlog import services, simulation
from quorumlog.api.audit import WINDOW_S
from quorumlog.errors import QuorumlogError, TopicAuthorizationFailed
from quorumlog.metadata.acls import AclOperation, AclPermission, AclResourceType
from quorumlog.metadata.authorization import AuthorizerConfig
from quorumlog.proto import (
    admin_pb2,
    errors_pb2,
    groups_pb2,
    log_pb2,
    metadata_records_pb2,
    staged_commits_pb2,
    transactions_pb2,
)
from quorumlog.runtime import Runtime, real
from quorumlog.services import ADMIN_CREATE_TOPIC

from .acl_changes import allow
from .grpc_requests import METHODS, answer_about, asked

EVERYONE: Final = AuthorizerConfig(super_users=frozenset({"User:ANONYMOUS"}))

OPEN: Final = frozenset({"Admin/DescribeCluster", "Admin/DescribeFeatures", "Auth/Authenticate"})
"""They answer any client, which needs addresses, levels and a login to connect."""

NAME_TOPICS: Final = frozenset({"Transactions/AddOffsets", "Transactions/AddPartitions"})
"""Of the methods about transactional ids."""

FILTERED: Final = frozenset(
    {
        "Admin/ListTopics",
        "Groups/ListGroups",
        "StagedCommits/List",
        "Transactions/ListTransactions",
    }
)
"""They leave out resources that the client may not describe."""

AUDITED: Final = frozenset(
    {
        "Admin/AlterClientQuotas",
        "Admin/AlterClusterConfigs",
        "Admin/AlterConfigs",
        "Admin/AlterReassignments",
        "Admin/AlterScramCredentials",
        "Admin/CreateAcls",
        "Admin/CreatePartitions",
        "Admin/CreateTopic",
        "Admin/DeleteAcls",
        "Admin/DeleteRecords",
        "Admin/DeleteTopic",
        "Admin/ElectLeaders",
        "Admin/UnregisterBroker",
        "Admin/UpdateFeatures",
        "Groups/DeleteGroups",
        "Groups/DeleteOffsets",
        "Quorum/AddVoter",
        "Quorum/RemoveVoter",
        "Quorum/TransferLeadership",
    }
)
"""They change the metadata or the voters, or delete records, groups or offsets."""

JOIN: Final = groups_pb2.GroupHeartbeatRequest(
    group="present",
    member_id="m",
    rebalance_timeout_ms=WAIT_MS,
    subscription={"topics": ["secret"]},
    owned={},
)
"""It creates the internal topic of the groups."""

DENIALS: Final = frozenset(
    {
        "TOPIC_AUTHORIZATION_FAILED",
        "GROUP_AUTHORIZATION_FAILED",
        "CLUSTER_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    }
)
NOT_ATTEMPTED: Final = "OPERATION_NOT_ATTEMPTED"


def errors_in(message: Message) -> Iterator[str]:
    """Yield the names of all errors in a response."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        each: Any
        for each in value if field.is_repeated else (value,):
            if isinstance(each, errors_pb2.Error):
                if each.name:
                    yield each.name
            else:
                yield from errors_in(each)


async def errors_of(kafka: KafkaNode, path: str, name: str = "secret") -> set[str]:
    """Return the names of the errors of a method's response."""
    answer = await answer_about(kafka.channel, path, name)
    return {answer.name} if isinstance(answer, QuorumlogError) else set(errors_in(answer))


async def read_to_end(stream: Any) -> None:
    """Receive until the stream ends. Raise its error."""
    while await stream.receive() is not None:
        continue


def run_on_secret(main: Any, folder: str, authorizer: AuthorizerConfig, **settings: Any) -> None:
    """Run `main` on a node that has the topic "secret", restarted with the authorizer and
    settings."""

    async def serve(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            request = admin_pb2.CreateTopicRequest(name="secret", partitions=2)
            await kafka.channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)
        async with serving_kafka(
            runtime, folder, authorizer=authorizer, is_formatted=True, **settings
        ) as kafka:
            await main(kafka)

    simulation.run(serve)


def test_every_method_denies_a_client_without_rights_and_audits_it(
    folder: str, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.log"
    failures: list[str] = []

    async def main(kafka: KafkaNode) -> None:
        for path in METHODS:
            if path in OPEN | FILTERED:
                continue
            audit.write_text("")
            found = await errors_of(kafka, path)
            if not found & DENIALS or found - DENIALS - {NOT_ATTEMPTED}:
                failures.append(f"{path}: {sorted(found)}")
            await asyncio.sleep(WINDOW_S)  # the end of the audit log's window
            if '"event": "denial"' not in audit.read_text():
                failures.append(f"{path}: not in the audit log")

    run_on_secret(main, folder, AuthorizerConfig(), audit_log_file=str(audit))
    assert not failures, "\n".join(failures)


def test_no_method_denies_a_super_user_and_changes_are_audited(folder: str, tmp_path: Path) -> None:
    audit = tmp_path / "audit.log"
    failures: list[str] = []
    audited: set[str] = set()

    async def main(kafka: KafkaNode) -> None:
        await asked(kafka.channel, services.GROUPS_HEARTBEAT, JOIN)
        for path in METHODS:
            audit.write_text("")
            found = await errors_of(kafka, path)
            if found & DENIALS:
                failures.append(f"{path}: {sorted(found)}")
            if '"event": "change"' in audit.read_text():
                audited.add(path)

    run_on_secret(main, folder, EVERYONE, audit_log_file=str(audit))
    assert not failures, "\n".join(failures)
    assert audited == AUDITED


def test_subscription_ends_when_the_right_is_withdrawn(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await allow(kafka.node, [(AclOperation.READ, AclResourceType.TOPIC)])
        stream = await kafka.channel.stream(services.LOG_SUBSCRIBE, timeout_ms=WAIT_MS)
        await stream.send(log_pb2.SubscribeRequest(topic="secret"))
        assert (await stream.receive()) is not None  # without records: the stream is alive
        await allow(kafka.node, [])
        with pytest.raises(TopicAuthorizationFailed):
            await read_to_end(stream)

    run_on_secret(main, folder, AuthorizerConfig())


def test_fetch_has_an_error_for_each_partition_that_may_not_be_read(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        await allow(kafka.node, [(AclOperation.READ, AclResourceType.TOPIC)])
        request = log_pb2.FetchRequest(
            partitions=[
                {"topic": "secret"},
                {"topic": "other"},
                {"topic": "secret", "partition": 1},
            ]
        )
        answer = await kafka.channel.call(services.LOG_FETCH, request, timeout_ms=WAIT_MS)
        assert [each.error.name for each in answer.results] == [
            "",
            "TOPIC_AUTHORIZATION_FAILED",
            "",
        ]

    run_on_secret(main, folder, AuthorizerConfig())


def test_acls_and_credentials_are_created_described_and_deleted(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        call = kafka.channel.call
        acl = metadata_records_pb2.Acl(
            resource_type="ACL_RESOURCE_TYPE_TOPIC",
            resource_name="orders",
            pattern_type="ACL_PATTERN_TYPE_LITERAL",
            principal="User:alice",
            host="*",
            operation="ACL_OPERATION_READ",
            permission="ACL_PERMISSION_ALLOW",
        )
        every = admin_pb2.AclFilter(
            resource_type="ACL_RESOURCE_TYPE_ANY",
            pattern_type="ACL_PATTERN_TYPE_ANY",
            operation="ACL_OPERATION_ANY",
            permission="ACL_PERMISSION_ANY",
        )
        create = admin_pb2.CreateAclsRequest(acls=[acl])
        created = await call(services.ADMIN_CREATE_ACLS, create, timeout_ms=WAIT_MS)
        assert not created.results[0].HasField("error")
        describe = admin_pb2.DescribeAclsRequest(
            filter=every, min_metadata_offset=created.metadata_offset
        )
        described = await call(services.ADMIN_DESCRIBE_ACLS, describe, timeout_ms=WAIT_MS)
        assert list(described.acls) == [acl]
        delete = admin_pb2.DeleteAclsRequest(filters=[every])
        deleted = await call(services.ADMIN_DELETE_ACLS, delete, timeout_ms=WAIT_MS)
        assert list(deleted.results[0].acls) == [acl]
        key = {"user": "alice", "mechanism": "SCRAM_MECHANISM_SHA_256"}
        alter = admin_pb2.AlterScramCredentialsRequest(
            upsertions=[
                {
                    "credential": key,
                    "salt": b"salt of bytes",
                    "iterations": 4_096,
                    "stored_key": bytes(32),
                    "server_key": bytes(32),
                }
            ]
        )
        altered = await call(services.ADMIN_ALTER_SCRAM_CREDENTIALS, alter, timeout_ms=WAIT_MS)
        assert not altered.results[0].HasField("error")
        shown = await call(
            services.ADMIN_DESCRIBE_SCRAM_CREDENTIALS,
            admin_pb2.DescribeScramCredentialsRequest(min_metadata_offset=altered.metadata_offset),
            timeout_ms=WAIT_MS,
        )
        assert [(each.credential.user, each.iterations) for each in shown.credentials] == [
            ("alice", 4_096)
        ]

    run_on_secret(main, folder, EVERYONE)


def test_acls_need_an_authorizer(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            assert await errors_of(kafka, "Admin/CreateAcls") == {"SECURITY_DISABLED"}

    simulation.run(main)


def test_denials_do_not_disclose_topics(folder: str) -> None:
    """With rights on the groups and transactional ids, the responses about a topic that exists and
    one that does not have the same errors."""
    failures: list[str] = []
    read, write = AclOperation.READ, AclOperation.WRITE
    group, name_of_id = AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID
    delete = AclOperation.DELETE
    needs = [(read, group), (delete, group), (write, name_of_id)]

    async def main(kafka: KafkaNode) -> None:
        for path in METHODS:
            if path.startswith(("StagedCommits/", "Transactions/")) and path not in NAME_TOPICS:
                continue
            found = []
            for name in ("secret", "absent"):
                await allow(kafka.node, needs, name=name)
                found.append(await errors_of(kafka, path, name))
            if found[0] != found[1]:
                failures.append(f"{path}: {found}")

    run_on_secret(main, folder, AuthorizerConfig())
    assert not failures, "\n".join(failures)


def test_description_or_deletion_of_a_group_creates_no_topic(folder: str) -> None:
    """For a missing group, by a client with or without rights."""

    async def main(kafka: KafkaNode) -> None:
        publisher = kafka.node.parts.publisher
        assert publisher is not None
        for path in ("Groups/DescribeGroups", "Groups/DeleteGroups"):
            await allow(kafka.node, [])
            assert await errors_of(kafka, path) == {"GROUP_AUTHORIZATION_FAILED"}
            rights = (AclOperation.DESCRIBE, AclOperation.DELETE)
            await allow(kafka.node, [(each, AclResourceType.GROUP) for each in rights])
            assert await errors_of(kafka, path) == {"GROUP_ID_NOT_FOUND"}
        assert [each.name for each in publisher.image.sorted_topics()] == ["secret"]

    run_on_secret(main, folder, AuthorizerConfig())


def test_assignment_leaves_out_topics_that_the_client_may_no_longer_describe(folder: str) -> None:
    """Before the next match of the pattern."""
    read, describe = AclOperation.READ, AclOperation.DESCRIBE
    beat = groups_pb2.GroupHeartbeatRequest(
        group="secret",
        member_id="m",
        rebalance_timeout_ms=WAIT_MS,
        subscription={"pattern": "s.*"},
        owned={},
    )

    async def main(kafka: KafkaNode) -> None:
        async def assigned() -> list[str]:
            answer = await asked(kafka.channel, services.GROUPS_HEARTBEAT, beat)
            beat.member_epoch = answer.member_epoch
            return [each.topic for each in answer.assignment.partitions]

        group = (read, AclResourceType.GROUP)
        await allow(kafka.node, [group, (describe, AclResourceType.TOPIC)])
        assert await assigned() == ["secret", "secret"]
        await allow(kafka.node, [group])
        assert await assigned() == []

    run_on_secret(main, folder, AuthorizerConfig())


def test_denials_of_an_id_do_not_have_the_name_of_its_topic(folder: str) -> None:
    """Every request that can name the topic by its id, with rights on a group and a transactional
    id."""
    failures: list[str] = []
    read, write = AclOperation.READ, AclOperation.WRITE

    async def main(kafka: KafkaNode) -> None:
        publisher = kafka.node.parts.publisher
        assert publisher is not None
        by_id = {"topic": "", "topic_id": publisher.image.topics_by_name["secret"]}
        needs = [(read, AclResourceType.GROUP), (write, AclResourceType.TRANSACTIONAL_ID)]
        await allow(kafka.node, needs, name="mine")
        for path in METHODS:
            answer = await answer_about(kafka.channel, path, "mine", **by_id)
            if "secret" in f"{answer} {answer!r}":
                failures.append(f"{path}: {answer}")

    run_on_secret(main, folder, AuthorizerConfig())
    assert not failures, "\n".join(failures)


def test_claim_by_name_does_not_disclose_a_topic(folder: str) -> None:
    read, describe = AclOperation.READ, AclOperation.DESCRIBE

    async def main(kafka: KafkaNode) -> None:
        async def refusal(topic: str) -> str:
            """Return the error of a join that claims a partition of the topic."""
            join = groups_pb2.GroupHeartbeatRequest(
                group="secret",
                member_id=topic,
                rebalance_timeout_ms=WAIT_MS,
                subscription={},
                owned={"partitions": [{"topic": topic}]},
            )
            try:
                await asked(kafka.channel, services.GROUPS_HEARTBEAT, join)
            except QuorumlogError as error:
                return error.name
            return ""

        group = (read, AclResourceType.GROUP)
        await allow(kafka.node, [group])
        assert (await refusal("secret"), await refusal("absent")) == ("", "")
        await allow(kafka.node, [group, (describe, AclResourceType.TOPIC)])
        assert await refusal("secret") == "INVALID_REQUEST"

    run_on_secret(main, folder, AuthorizerConfig())


@pytest.mark.parametrize("has_right", [True, False])
def test_rights_on_an_attempt_are_those_on_the_name_of_its_commits(
    folder: str, has_right: bool
) -> None:
    """With rights only on a transactional id that equals the id of the attempt, the request is
    denied."""
    begin = staged_commits_pb2.BeginAttemptRequest(name="secret", write_id=1)

    async def main(kafka: KafkaNode) -> None:
        write = [(AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID)]
        await allow(kafka.node, write)
        attempt = await asked(kafka.channel, services.STAGED_COMMITS_BEGIN, begin)
        listed = f"secret#{attempt.producer.producer_id}"
        if not has_right:
            await allow(kafka.node, write, name=listed)
        every = await asked(
            kafka.channel, services.TRANSACTIONS_LIST, transactions_pb2.ListTransactionsRequest()
        )
        names = [each.transactional_id for each in every.transactions]
        assert names == ([listed] if has_right else [])
        errors = {"TRANSACTIONAL_ID_NOT_FOUND"} if not has_right else set()
        for method in ("DescribeTransactions", "AbortTransaction"):
            assert await errors_of(kafka, f"Transactions/{method}", listed) == errors

    run_on_secret(main, folder, AuthorizerConfig())


def test_acls_of_an_address_apply_to_clients_of_a_plaintext_listener(
    folder: str, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.log"
    host, read, topic = "127.0.0.1", AclOperation.READ, AclResourceType.TOPIC

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(
            runtime, folder, authorizer=AuthorizerConfig(), audit_log_file=str(audit)
        ) as kafka:
            node = kafka.node
            assert await errors_of(kafka, "Log/Fetch") == {"TOPIC_AUTHORIZATION_FAILED"}
            assert json.loads(audit.read_text())["host"] == host
            await add_acl(node, "User:ANONYMOUS", read, topic, "secret", host=host)
            assert await errors_of(kafka, "Log/Fetch") == {"UNKNOWN_TOPIC_OR_PARTITION"}
            denial = AclPermission.DENY
            await add_acl(node, "User:*", read, topic, "secret", host=host, permission=denial)
            assert await errors_of(kafka, "Log/Fetch") == {"TOPIC_AUTHORIZATION_FAILED"}

    real.run(main)


@pytest.mark.parametrize("has_right", [True, False])
def test_repeat_of_a_creation_has_its_own_configs_without_the_right_to_describe(
    folder: str, has_right: bool
) -> None:
    create = admin_pb2.CreateTopicRequest(
        name="mine", topic_id=bytes(range(16)), configs=[{"name": "retention.ms", "value": "1000"}]
    )
    alter = admin_pb2.AlterConfigsRequest(
        topic="mine", changes=[{"name": "retention.ms", "value": "2000"}]
    )

    async def main(kafka: KafkaNode) -> None:
        topic = AclResourceType.TOPIC
        rights = [AclOperation.CREATE, *[AclOperation.DESCRIBE] * has_right]
        await allow(kafka.node, [(AclOperation.ALTER_CONFIGS, topic)], name="mine")
        for each in rights:
            await add_acl(kafka.node, "User:ANONYMOUS", each, topic, "mine")
        first = await asked(kafka.channel, ADMIN_CREATE_TOPIC, create)
        await asked(kafka.channel, services.ADMIN_ALTER_CONFIGS, alter)
        again = await asked(kafka.channel, ADMIN_CREATE_TOPIC, create)
        assert again.topic.topic_id == first.topic.topic_id
        assert [each.value for each in first.topic.configs] == ["1000"]
        assert [each.value for each in again.topic.configs] == ["2000" if has_right else "1000"]

    run_on_secret(main, folder, AuthorizerConfig())


def test_list_has_the_topics_that_may_be_described(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        async def names() -> list[str]:
            request = admin_pb2.ListTopicsRequest()
            answer = await kafka.channel.call(
                services.ADMIN_LIST_TOPICS, request, timeout_ms=WAIT_MS
            )
            return [each.name for each in answer.topics]

        assert await names() == []
        await allow(kafka.node, [(AclOperation.WRITE, AclResourceType.TOPIC)])
        assert await names() == ["secret"]

    run_on_secret(main, folder, AuthorizerConfig())
