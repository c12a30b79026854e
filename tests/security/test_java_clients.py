"""Kafka's own tools, on its Java client, with every way to authenticate."""

import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.kit.certificates import Certificates
from tests.kit.client_security import ClientSecurity, java_truststore, write_properties
from tests.kit.issuer import TokenIssuer
from tests.kit.node_process import NodeProcess, free_port

import quorumlog

from ..interop.kafka_jars import java_command
from ..interop.kafka_tools import Tool, tool_of

pytestmark = pytest.mark.slow

SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = 'correct "horse", battery=staple'
TOPIC = "allowed"
TOKENS = "org.apache.kafka.common.security.oauthbearer"
READ = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "30000")


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureProcess:
    """A node with a listener for passwords and tokens, and one for certificates."""

    folder: Path
    certificates: Certificates
    issuer: TokenIssuer
    node: NodeProcess
    passwords: str  # "host:port" of the listeners
    mutual: str
    audit_log: Path

    def user(self, name: str, password: str = PASSWORD, mechanism: str = SCRAM[0]) -> Tool:
        """Return the tools of a user with a password."""
        security = ClientSecurity(
            ca=self.certificates.ca, user=name, password=password, mechanism=mechanism
        )
        return self.tools(self.passwords, security.java())

    def with_certificate(self, name: str) -> Tool:
        """Return the tools of a user with a certificate."""
        self.certificates.client(name)
        settings = {
            "security.protocol": "SSL",
            **java_truststore(self.certificates.ca),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.pair(name)),
        }
        return self.tools(self.mutual, settings)

    def with_token(self, name: str, token: str) -> Tool:
        """Return the tools of a client that reads its token from a file."""
        file = self.folder / f"{name}.token"
        file.write_text(token)
        settings = {
            "security.protocol": "SASL_SSL",
            **java_truststore(self.certificates.ca),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{TOKENS}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{TOKENS}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
        }
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        flags = (f"{allowed}.urls={file.as_uri()}", f"{allowed}.files={file}")
        return self.tools(self.passwords, settings, *flags)

    def tools(self, bootstrap: str, settings: Mapping[str, str], *flags: str) -> Tool:
        """Return the tools of a client with these settings."""
        config = self.folder / f"client-{len(list(self.folder.glob('client-*')))}.properties"
        return tool_of(bootstrap, config=write_properties(config, settings), flags=flags)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureProcess]:
    """One node for all tests, with the administrator `admin`, and `alice`, who may use TOPIC."""
    java_command()  # skips without Java
    folder = tmp_path_factory.mktemp("secure")
    certificates = Certificates.create(folder / "ca")
    passwords, mutual = (f"localhost:{free_port()}" for _ in range(2))
    with TokenIssuer(certificates.server()) as issuer:
        token_settings = issuer.settings(certificates.ca)
        names = {**certificates.settings(), **token_settings}
        node = NodeProcess(
            folder / "node",
            settings={
                **{name.replace("_", "."): value for name, value in names.items()},
                "listeners.kafka": [f"SASL_SSL://{passwords}", f"SSL://{mutual}"],
                "sasl.enabled.mechanisms": [*SCRAM, "OAUTHBEARER"],
                "ssl.client.auth": "requested",
                "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/,DEFAULT",
                "super.users": ["User:admin", "User:ANONYMOUS"],
                "connections.max.reauth.ms": 3_000,
                "group.initial.rebalance.delay.ms": 0,
                "audit.log.file": str(folder / "audit.log"),
            },
        )
        with node:
            _create_users(node)
            yield SecureProcess(
                folder=folder,
                certificates=certificates,
                issuer=issuer,
                node=node,
                passwords=passwords,
                mutual=mutual,
                audit_log=folder / "audit.log",
            )


def _create_users(node: NodeProcess) -> None:
    """Create the users with a client of the plain listener for nodes."""
    with quorumlog.connect(node.address) as log:
        log.admin.create_topic(TOPIC)
        for user in ("admin", "alice"):
            log.admin.set_password(user, PASSWORD)
        log.admin.create_acls(
            [
                quorumlog.Acl(
                    principal="User:alice", operation="All", resource_type=kind, resource=TOPIC
                )
                for kind in ("Topic", "Group")
            ]
        )


def write_and_read(tool: Tool) -> None:
    """Write two records and read them in a group; another topic is denied."""
    lines = [f"{time.time_ns()}-{number}" for number in range(2)]
    tool("console-producer", "--topic", TOPIC, stdin="\n".join(lines) + "\n")
    printed = tool("console-consumer", "--topic", TOPIC, "--group", TOPIC, *READ)
    assert printed.splitlines()[:2] == lines
    denied = tool("console-producer", "--topic", "denied", stdin="a\n")
    assert "TopicAuthorizationException" in denied


def test_console_logs_in_with_a_password(secure: SecureProcess) -> None:
    write_and_read(secure.user("alice", mechanism="SCRAM-SHA-512"))
    wrong = secure.user("alice", password="wrong", mechanism="SCRAM-SHA-512")
    assert "SaslAuthenticationException" in wrong("topics", "--list", code=1)


@pytest.mark.long
def test_console_is_known_by_its_certificate(secure: SecureProcess) -> None:
    write_and_read(secure.with_certificate("alice"))
    assert TOPIC not in secure.with_certificate("bob")("topics", "--list").splitlines()


@pytest.mark.long
def test_console_sends_the_token_of_an_issuer(secure: SecureProcess) -> None:
    issuer, now_s = secure.issuer, int(time.time())
    write_and_read(secure.with_token("alice", issuer.token("alice", iat=now_s)))
    other = secure.with_token("other", issuer.token("alice", iat=now_s, aud="other"))
    assert "SaslAuthenticationException" in other("topics", "--list", code=1)


@pytest.mark.long
def test_acls_are_added_listed_and_removed(secure: SecureProcess) -> None:
    admin = secure.user("admin")
    prefix = ("--topic", "sales.", "--resource-pattern-type", "prefixed")
    rights = ("--operation", "Read", "--operation", "Write")
    admin("topics", "--create", "--topic", "sales.north")
    admin("acls", "--add", "--allow-principal", "User:carol", *rights, *prefix)
    admin("acls", "--add", "--deny-principal", "User:carol", "--deny-host", "10.0.0.1", *prefix)
    with quorumlog.connect(secure.node.address) as log:
        log.admin.set_password("carol", PASSWORD)
    listed = admin("acls", "--list", "--topic", "sales.", "--resource-pattern-type", "match")
    found = re.findall(
        r"principal=(\S+), host=(\S+), operation=(\w+), permissionType=(\w+)", listed
    )
    assert sorted(found) == [
        ("User:carol", "*", "READ", "ALLOW"),
        ("User:carol", "*", "WRITE", "ALLOW"),
        ("User:carol", "10.0.0.1", "ALL", "DENY"),
    ]
    carol = secure.user("carol")
    assert carol("topics", "--list").split() == ["sales.north"]
    denied = carol("acls", "--list", code=1)
    assert "ClusterAuthorizationException" in denied
    admin("acls", "--remove", "--allow-principal", "User:carol", *rights, *prefix, "--force")
    assert carol("topics", "--list").split() == []
    left = admin("acls", "--list", "--principal", "User:carol")
    assert re.findall(r"permissionType=(\w+)", left) == ["DENY"]


@pytest.mark.long
def test_passwords_are_altered_described_and_deleted(secure: SecureProcess) -> None:
    admin = secure.user("admin")
    which = ("--entity-type", "users", "--entity-name", "dora")
    added = "SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]"
    admin("configs", "--alter", *which, "--add-config", added)
    described = admin("configs", "--describe", *which)
    assert "SCRAM-SHA-256=iterations=8192" in described
    assert "SCRAM-SHA-512=iterations=4096" in described
    dora = secure.user("dora", password="secret", mechanism="SCRAM-SHA-512")
    assert dora("topics", "--list").split() == []
    admin("configs", "--alter", *which, "--delete-config", "SCRAM-SHA-512")
    assert "SaslAuthenticationException" in dora("topics", "--list", code=1)
    missing = admin("configs", "--alter", *which, "--delete-config", "SCRAM-SHA-512", code=1)
    assert "ResourceNotFoundException" in missing


@pytest.mark.long
def test_producer_authenticates_again_on_its_connection(secure: SecureProcess) -> None:
    """KIP-368: its session of three seconds ends while it sends, and no record is lost."""
    alice = secure.user("alice")
    load = ("--num-records", "1200", "--record-size", "100", "--throughput", "100")
    before = len(authentications(secure))
    printed = alice("producer-perf-test", "--topic", TOPIC, *load)
    assert re.search(r"1200 records sent, .* 99.9th", printed), printed
    assert "Exception" not in printed
    assert len(authentications(secure)) - before > 2  # without it there are two connections


def authentications(secure: SecureProcess) -> list[str]:
    """Return the outcomes of alice's authentications in the audit log."""
    rows = [json.loads(line) for line in secure.audit_log.read_text().splitlines()]
    return [
        row["outcome"]
        for row in rows
        if row["event"] == "authentication" and row["principal"] == "User:alice"
    ]
