"""The authorizer of a node: typed errors, cached decisions, and when they are dropped."""

from typing import Any

import pytest

from quorumlog.api import authorizer as module
from quorumlog.api.authorizer import Authorizer
from quorumlog.errors import (
    AuthorizationFailed,
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from quorumlog.metadata import EMPTY_IMAGE, MetadataImage, replay
from quorumlog.metadata.acls import (
    Acl,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    ResourcePattern,
    acl_message,
)
from quorumlog.metadata.authorization import Action, AuthorizerConfig
from quorumlog.proto import metadata_records_pb2 as pb
from quorumlog.runtime import ANONYMOUS_CLIENT, ClientIdentity

ALICE = ClientIdentity("User:alice", "10.0.0.1")
BOB = ClientIdentity("User:bob", "10.0.0.1")
READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC = AclResourceType.TOPIC
NO_SETTINGS = AuthorizerConfig()


def acl(name: str, principal: str = "User:alice", operation: AclOperation = READ) -> Acl:
    pattern = ResourcePattern(TOPIC, name, AclPatternType.LITERAL)
    return Acl(pattern, principal, "*", operation, AclPermission.ALLOW)


class Acls:
    """An authorizer on an image whose ACLs the test changes."""

    def __init__(self, config: AuthorizerConfig | None = NO_SETTINGS) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.denied: list[tuple[str, str]] = []
        self.authorizer = Authorizer(
            lambda: self.image,
            config,
            denied=lambda action: self.denied.append((action.principal, action.name)),
        )

    def add(self, added: Acl) -> None:
        self._replay(pb.MetadataRecord(acl=acl_message(added)))

    def remove(self, removed: Acl) -> None:
        self._replay(pb.MetadataRecord(remove_acl=acl_message(removed)))

    def _replay(self, record: pb.MetadataRecord) -> None:
        self.image = replay(self.image, record, offset=self.image.offset + 1, epoch=1)

    def reads(self, client: ClientIdentity, topic: str) -> bool:
        return self.authorizer.allows(client, READ, TOPIC, topic)


def test_changes_take_effect_at_the_next_decision() -> None:
    acls = Acls()
    assert not acls.reads(ALICE, "orders")
    acls.add(acl("orders"))
    assert acls.reads(ALICE, "orders")
    assert not acls.reads(BOB, "orders")
    everyone = acl("orders", "User:*")
    acls.add(everyone)
    assert acls.reads(BOB, "orders")
    acls.remove(everyone)
    acls.remove(acl("orders"))
    assert not acls.reads(ALICE, "orders")
    assert not acls.reads(BOB, "orders")


def test_right_without_acls_ends_with_the_first_acl_of_anyone() -> None:
    acls = Acls(AuthorizerConfig(allow_everyone_if_no_acl_found=True))
    assert acls.reads(ALICE, "orders")
    acls.add(acl("orders", "User:bob"))
    assert not acls.reads(ALICE, "orders")


def test_without_a_config_every_action_is_allowed() -> None:
    acls = Acls(None)
    assert not acls.authorizer.is_enabled
    acls.authorizer.check(ALICE, AclOperation.ALTER, AclResourceType.CLUSTER)
    assert acls.authorizer.allows_any(ALICE, WRITE, TOPIC)
    assert acls.authorizer.denial(ALICE, WRITE, TOPIC, "orders") is None
    assert acls.authorizer.explain(Action(ALICE.principal, ALICE.host, WRITE, TOPIC, "x")) == (
        True,
        "the broker has no authorizer",
    )


def test_node_of_the_cluster_is_allowed() -> None:
    node = ClientIdentity("Node:3", "10.0.0.3")
    assert Acls().authorizer.allows(node, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)
    assert Acls().authorizer.allows_any(node, WRITE, TOPIC)
    user = ClientIdentity("User:Node:3", "10.0.0.3")
    assert not Acls().authorizer.allows(user, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        (AclResourceType.TOPIC, TopicAuthorizationFailed),
        (AclResourceType.GROUP, GroupAuthorizationFailed),
        (AclResourceType.TRANSACTIONAL_ID, TransactionalIdAuthorizationFailed),
        (AclResourceType.CLUSTER, ClusterAuthorizationFailed),
        (AclResourceType.USER, ClusterAuthorizationFailed),
    ],
)
def test_denial_has_the_error_of_its_resource(
    kind: AclResourceType, error: type[AuthorizationFailed]
) -> None:
    acls = Acls()
    with pytest.raises(error, match=r"User:alice from 10\.0\.0\.1 is not authorized: Alter"):
        acls.authorizer.check(ALICE, AclOperation.ALTER, kind, "x")
    assert acls.denied == [("User:alice", "x")]


@pytest.mark.parametrize(
    ("client", "action", "remedy"),
    [
        (
            ALICE,
            (WRITE, TOPIC, "orders"),
            "grant it: `quorumlog acls add User:alice Write --topic orders`",
        ),
        (
            ALICE,
            (AclOperation.DESCRIBE, TOPIC, "t"),
            "imply it): `quorumlog acls add User:alice Describe --topic t`",
        ),
        (ALICE, (READ, AclResourceType.GROUP, "a b"), "Read --group 'a b'`"),
        (
            ALICE,
            (WRITE, AclResourceType.TRANSACTIONAL_ID, "batch/1"),
            "--transactional-id batch/1`",
        ),
        (ALICE, (AclOperation.ALTER, AclResourceType.CLUSTER), "Alter --cluster`"),
        (ClientIdentity("User:CN=a,O=b", "h"), (READ, TOPIC, "t"), "User:CN=a,O=b Read --topic t`"),
        (ALICE, (READ, AclResourceType.GROUP, "--deny"), "ask an administrator for an ACL"),
        (ALICE, (READ, AclResourceType.GROUP, "`id`"), "ask an administrator for an ACL"),
        (ALICE, (READ, AclResourceType.GROUP, "x" * 250), "ask an administrator for an ACL"),
        (ANONYMOUS_CLIENT, (READ, TOPIC, "t"), "ask an administrator for an ACL"),
    ],
)
def test_denial_ends_with_the_command_that_grants(
    client: ClientIdentity, action: tuple[Any, ...], remedy: str
) -> None:
    denial = Acls().authorizer.denial(client, *action)
    assert denial is not None
    assert denial.message.endswith(remedy)


def test_bit_set_has_the_allowed_operations() -> None:
    acls = Acls()
    acls.add(acl("orders", operation=WRITE))
    asked = (READ, WRITE, AclOperation.DESCRIBE)
    found = acls.authorizer.authorized_operations(ALICE, TOPIC, "orders", asked)
    assert found == 1 << WRITE | 1 << AclOperation.DESCRIBE


def test_right_on_any_topic_follows_the_acls() -> None:
    acls = Acls()
    assert not acls.authorizer.allows_any(ALICE, WRITE, TOPIC)
    acls.add(acl("orders", operation=WRITE))
    assert acls.authorizer.allows_any(ALICE, WRITE, TOPIC)
    assert acls.authorizer.explain(Action(ALICE.principal, ALICE.host, WRITE, TOPIC, "orders")) == (
        True,
        "allowed by: Allow User:alice Write Topic orders",
    )
    assert acls.authorizer.explain(Action(ALICE.principal, ALICE.host, WRITE, TOPIC, "x")) == (
        False,
        "no ACL allows User:alice Write Topic x from 10.0.0.1",
    )


def test_decisions_about_long_names_are_not_kept() -> None:
    acls = Acls()
    for number in range(100):
        assert not acls.authorizer.allows(ALICE, WRITE, TOPIC, f"{number}" + "x" * 30_000)
    assert acls.authorizer._count == 1  # the client
    assert not acls.authorizer.allows(ALICE, WRITE, TOPIC, "x" * 249)
    assert acls.authorizer._count == 2


def test_clients_that_ask_about_long_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_MAX", 10)
    acls = Acls()
    for number in range(25):
        client = ClientIdentity(principal="User:alice", host=f"10.0.0.{number}")
        assert not acls.authorizer.allows(client, WRITE, TOPIC, "x" * 250)
        assert len(acls.authorizer._clients) <= 10


def test_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DECISIONS_MAX", 10)
    acls = Acls()
    acls.add(acl("t7"))
    for number in range(25):
        assert acls.reads(ALICE, f"t{number}") == (number == 7)
        assert sum(len(each.decisions) for each in acls.authorizer._clients.values()) <= 10
    assert acls.reads(ALICE, "t7")
