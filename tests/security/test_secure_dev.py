"""A secure node from one command, and clients with the files that it writes."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

import quorumlog
from quorumlog import services
from quorumlog.errors import (
    ClusterAuthorizationFailed,
    ConnectionFailed,
    NotImplementedHere,
    SaslAuthenticationFailed,
    TopicAuthorizationFailed,
)
from quorumlog.runtime import Channel, Method

from ..interop.kafka_tools import tool_of

BROKER_METHODS = [
    method
    for method in vars(services).values()
    if isinstance(method, Method)
    and method.path.split("/")[1].split(".")[-1]
    in ("Controller", "Raft", "Replica", "TransactionCoordination")
]
QUORUMLOG = (sys.executable, "-m", "quorumlog.cli")


async def ask(channel: Channel, method: Method[Any, Any]) -> None:
    """Call a method with an empty request."""
    if not method.streaming:
        await channel.call(method, method.request(), timeout_ms=10_000)
        return
    stream = await channel.stream(method, timeout_ms=10_000)
    await stream.finish()
    await stream.receive()


class SecureNode:
    """A process of `quorumlog dev --secure`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._process = subprocess.Popen(
            [
                *QUORUMLOG,
                *("dev", "--secure", "--data-dir", str(folder / "data"), "--output", "json"),
                *("--grpc-port", "0", "--kafka-port", "0"),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the node has not started"
        self.ready: dict[str, Any] = json.loads(line)

    @property
    def security(self) -> Path:
        """The folder with certificates and profiles."""
        return self.folder / "data-security"

    def connect(self, user: str, password: str) -> quorumlog.Log:
        """A client with a password."""
        return quorumlog.connect(
            self.ready["grpc"],
            tls=quorumlog.TLS(ca=str(self.security / "ca.pem")),
            credentials=quorumlog.SCRAM(user=user, password=password),
        )

    def administrator(self) -> quorumlog.Log:
        """The administrator's client."""
        return self.connect("admin", f"file:{self.security / 'admin.password'}")

    def run(self, *words: str, given: str = "") -> str:
        """Return the output of a command with the administrator's profile."""
        done = self._run(words, given)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def error_of(self, *words: str, given: str = "") -> str:
        """Return the error of a command that fails."""
        done = self._run(words, given)
        assert done.returncode == 1, done.stdout
        return done.stderr

    def _run(self, words: tuple[str, ...], given: str) -> "subprocess.CompletedProcess[str]":
        environment = {**os.environ, "QUORUMLOG_CONFIG": self.ready["profile"]}
        return subprocess.run(
            [*QUORUMLOG, *words],
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    def close(self) -> None:
        """Stop the process."""
        self._process.terminate()
        assert self._process.wait(60) == 0
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureNode]:
    """One node for all tests."""
    started = SecureNode(tmp_path_factory.mktemp("secure"))
    yield started
    started.close()


def test_administrator_may_do_everything_and_others_what_acls_allow(node: SecureNode) -> None:
    with node.administrator() as admin:
        admin.admin.create_topic("orders")
        admin.admin.set_password("alice", "secret")
        admin.admin.create_acls(
            [
                quorumlog.Acl(
                    principal="User:alice",
                    operation="Write",
                    resource_type="Topic",
                    resource="orders",
                )
            ]
        )
        decision = admin.admin.explain_authorization("User:alice", "Read", "Topic", "orders")
        assert not decision.is_allowed
        assert "no ACL allows" in decision.reason
        with node.connect("alice", "secret") as alice:
            with alice.producer() as producer:
                producer.send("orders", value=b"one").result()
            with pytest.raises(TopicAuthorizationFailed):
                list(alice.consumer("orders", until_end=True))
            with pytest.raises(ClusterAuthorizationFailed):
                alice.admin.describe_users()
        values = [record.value for record in admin.consumer("orders", until_end=True)]
        assert values == [b"one"]


def test_client_ends_when_its_user_is_deleted(node: SecureNode) -> None:
    with node.administrator() as admin:
        admin.admin.set_password("bob", "secret")
        with node.connect("bob", "secret") as bob:
            assert bob.admin.describe_cluster().brokers
            admin.admin.delete_user("bob")
            with pytest.raises(SaslAuthenticationFailed):
                bob.admin.describe_cluster()
        assert [user.name for user in admin.admin.describe_users()].count("bob") == 0


def test_clients_without_the_right_credentials_are_refused(node: SecureNode) -> None:
    tls = quorumlog.TLS(ca=str(node.security / "ca.pem"))
    address = node.ready["grpc"]
    with pytest.raises(SaslAuthenticationFailed):
        node.connect("admin", "wrong")
    with pytest.raises(SaslAuthenticationFailed):
        node.connect("nobody", "wrong")
    with pytest.raises(SaslAuthenticationFailed, match=r"credentials=quorumlog\.SCRAM"):
        quorumlog.connect(address, tls=tls)
    with pytest.raises(SaslAuthenticationFailed):
        quorumlog.connect(address, tls=tls, credentials=quorumlog.Token("ql1.AAAA"))
    with pytest.raises(SaslAuthenticationFailed):
        quorumlog.connect(address, tls=tls, credentials=quorumlog.Token("a.b.c"))
    with pytest.raises(ConnectionFailed, match="requires TLS") as raised:
        quorumlog.connect(f"127.0.0.1:1,{address}", connect_timeout_ms=1_500)
    assert "127.0.0.1:1: connection refused" in raised.value.message
    assert "quorumlog dev" not in raised.value.message
    with pytest.raises(ConnectionFailed, match="tls_ca_file"):  # the system has other authorities
        quorumlog.connect(address, connect_timeout_ms=1_500, tls=quorumlog.TLS())
    with pytest.raises(ConnectionFailed, match="perhaps the Kafka port"):
        quorumlog.connect(node.ready["kafka"], connect_timeout_ms=1_500, tls=tls)
    with pytest.raises(ConnectionFailed, match="does not use TLS on this port"):
        quorumlog.connect(node.ready["http"], connect_timeout_ms=1_500, tls=tls)


def test_commands_use_the_profile(node: SecureNode) -> None:
    node.run("users", "create", "carol", "--password-file", "-", given="secret\n")
    assert "carol" in node.run("users", "list")
    node.run("acls", "add", "User:carol", "Read", "Describe", "--topic", "a.", "--prefixed")
    assert "Prefixed" in node.run("acls", "list", "--principal", "User:carol")
    explained = node.run("acls", "explain", "User:carol", "Read", "--topic", "a.b")
    assert "allowed" in explained
    assert "Removed 2 ACLs." in node.run("acls", "remove", "User:carol")
    node.run("users", "delete", "carol", "--yes")
    assert "carol" not in node.run("users", "list")


def test_commands_refuse_passwords_that_others_can_read_and_prompts_without_a_terminal(
    node: SecureNode, tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    password.chmod(0o644)
    create = ("users", "create", "admin")  # the file is read before the user is looked up
    assert "chmod o-rwx" in node.error_of(*create, "--password-file", str(password))
    missing = node.error_of(*create, "--password-file", str(tmp_path / "missing"))
    assert "No such file" in missing
    assert missing.count("missing") == 1
    assert node.error_of("users", "create", "carl").count("--password-file") == 2


@pytest.mark.parametrize(
    ("operation", "resource", "sentence"),
    [
        ("Write", ("--group", "g"), "a Group does not support it; give one of Read, Delete,"),
        ("Read", ("--cluster",), "a Cluster does not support it"),
        ("Any", ("--topic", "t"), "a Topic does not support it"),
        ("create-tokens", ("--transactional-id", "i"), "give one of Write, Describe, All"),
    ],
)
def test_acls_have_operations_that_their_resource_supports(
    node: SecureNode, operation: str, resource: tuple[str, ...], sentence: str
) -> None:
    assert sentence in node.error_of("acls", "add", "User:carol", operation, *resource)


def test_files_with_secrets_are_readable_by_their_owner_alone(node: SecureNode) -> None:
    for path in node.security.iterdir():
        if path.suffix != ".pem":
            assert not path.stat().st_mode & 0o077, path


def test_profile_of_librdkafka_works(node: SecureNode) -> None:
    from confluent_kafka import Producer

    rows = (node.security / "kcat.conf").read_text().splitlines()
    config = dict(row.split("=", 1) for row in rows)
    errors: list[object] = []
    producer = Producer(config)
    producer.produce("by-kafka", b"value", on_delivery=lambda error, _: errors.append(error))
    assert not producer.flush(60)
    assert errors == [None]


@pytest.mark.long
def test_profile_of_kafkas_tools_works(node: SecureNode) -> None:
    tool = tool_of(node.ready["kafka"], config=node.security / "kafka.properties")
    tool("topics", "--create", "--topic", "by-java")
    assert "by-java" in tool("topics", "--list").splitlines()


def test_what_a_denied_client_tried_is_in_the_audit_log(node: SecureNode) -> None:
    with node.administrator() as admin:
        admin.admin.set_password("dora", "secret")
        admin.admin.create_topic("readable")
        read = {"operation": "Read", "resource_type": "Topic", "resource": "readable"}
        admin.admin.create_acls([quorumlog.Acl(principal="User:dora", **read)])
    with node.connect("dora", "secret") as dora, pytest.raises(ClusterAuthorizationFailed):
        dora.admin.describe_users()
    write = (
        "Write on a topic is enough; grant it: `quorumlog acls add User:dora Write --topic TOPIC`"
    )
    with (
        node.connect("dora", "secret") as dora,
        dora.producer() as producer,
        pytest.raises(ClusterAuthorizationFailed, match=write),
    ):
        producer.send("readable", value=b"denied").result()
    with pytest.raises(SaslAuthenticationFailed):
        node.connect("dora", "wrong")
    lines = (node.security / "kcat.conf").read_text().splitlines()
    config: dict[str, Any] = {
        **dict(line.split("=", 1) for line in lines),
        "sasl.username": "emil\n\x1b",
    }
    with pytest.raises(KafkaException):
        AdminClient(config).list_topics(timeout=2)
    rows = [json.loads(line) for line in (node.security / "audit.log").read_text().splitlines()]
    assert {"event": "denial", "operation": "Describe", "resource_type": "Cluster"}.items() <= (
        next(row for row in rows if row["principal"] == "User:dora" and "resource" in row).items()
    )
    outcomes = [row["outcome"] for row in rows if row["event"] == "authentication"]
    assert {"ok", "refused"} <= set(outcomes)
    refused = [row for row in rows if row.get("outcome") == "refused"]
    assert {"dora", "emil\n\x1b"} <= {row.get("claimed_user") for row in refused}
    changes = [row for row in rows if row["event"] == "change"]
    assert any("dora" in str(row["detail"]) and row["principal"] == "User:admin" for row in changes)
    assert "secret" not in (node.security / "audit.log").read_text()


def test_client_cannot_call_what_brokers_call(node: SecureNode) -> None:
    """Not even the administrator: such calls are not authorized one by one."""

    async def main() -> None:
        client = quorumlog.aio.connect(
            node.ready["grpc"],
            tls=quorumlog.TLS(ca=str(node.security / "ca.pem")),
            credentials=quorumlog.SCRAM(
                user="admin", password=f"file:{node.security / 'admin.password'}"
            ),
        )
        async with client as log:
            channel = log._connection.channel(node.ready["grpc"])
            for method in BROKER_METHODS:
                with pytest.raises(NotImplementedHere):
                    await ask(channel, method)

    asyncio.run(main())
