"""Decisions by ACLs equal the documented rules applied to every ACL in turn."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.metadata.acls import (
    EVERY_PRINCIPAL,
    Acl,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    AclTable,
    ResourcePattern,
)
from quorumlog.metadata.authorization import (
    Action,
    AuthorizerConfig,
    CompiledAcls,
    Verdict,
    decide_by_acls,
    decide_by_type,
)

ALICE = "User:alice"
TOPIC = AclResourceType.TOPIC


def table_of(acls: list[Acl]) -> AclTable:
    table = AclTable()
    for acl in acls:
        table = table.with_acl(acl)
    return table


def compiled(table: AclTable, principal: str) -> tuple[CompiledAcls, CompiledAcls]:
    return (
        CompiledAcls(table.acls_of(principal)),
        CompiledAcls(table.acls_of(EVERY_PRINCIPAL)),
    )


def decide(acls: list[Acl], action: Action, **config: object) -> Verdict:
    table = table_of(acls)
    settings = AuthorizerConfig(**config)  # type: ignore[arg-type]
    return decide_by_acls(table, compiled(table, ALICE), action, settings)


def acl(
    name: str,
    operation: AclOperation,
    permission: AclPermission = AclPermission.ALLOW,
    *,
    pattern: AclPatternType = AclPatternType.LITERAL,
    principal: str = ALICE,
    host: str = "*",
) -> Acl:
    return Acl(ResourcePattern(TOPIC, name, pattern), principal, host, operation, permission)


def on(name: str, operation: AclOperation, host: str = "10.0.0.1") -> Action:
    return Action(ALICE, host, operation, TOPIC, name)


acls_drawn = st.builds(
    acl,
    name=st.sampled_from(["a", "ab", "abc", "b", "*"]),
    operation=st.sampled_from(
        [
            AclOperation.ALL,
            AclOperation.READ,
            AclOperation.ALTER,
            AclOperation.DESCRIBE,
            AclOperation.ALTER_CONFIGS,
            AclOperation.DESCRIBE_CONFIGS,
        ]
    ),
    permission=st.sampled_from([AclPermission.ALLOW, AclPermission.DENY]),
    pattern=st.sampled_from([AclPatternType.LITERAL, AclPatternType.PREFIXED]),
    principal=st.sampled_from([ALICE, "User:bob", EVERY_PRINCIPAL]),
    host=st.sampled_from(["*", "10.0.0.1", "10.0.0.2"]),
)
actions = st.builds(
    on,
    name=st.sampled_from(["a", "ab", "abd", "c"]),
    operation=st.sampled_from(
        [
            AclOperation.READ,
            AclOperation.WRITE,
            AclOperation.DESCRIBE,
            AclOperation.DESCRIBE_CONFIGS,
        ]
    ),
    host=st.sampled_from(["10.0.0.1", "10.0.0.3"]),
)


def by_rules(acls: list[Acl], action: Action, *, allow_if_none: bool) -> bool:
    """Apply the documented rules literally, without an index."""
    selecting = [each for each in acls if each.resource.selects(action.name)]
    mine = [
        each
        for each in selecting
        if each.principal in (ALICE, EVERY_PRINCIPAL) and each.host in ("*", action.host)
    ]
    implying = {
        AclOperation.DESCRIBE: {"READ", "WRITE", "DELETE", "ALTER"},
        AclOperation.DESCRIBE_CONFIGS: {"ALTER_CONFIGS"},
    }.get(action.operation, set())
    same = {"ALL", action.operation.name}
    if any(e.permission is AclPermission.DENY and e.operation.name in same for e in mine):
        return False
    if any(
        e.permission is AclPermission.ALLOW and e.operation.name in same | implying for e in mine
    ):
        return True
    return allow_if_none and not selecting


@given(st.lists(acls_drawn, max_size=8, unique=True), actions, st.booleans())
def test_decision_follows_the_rules(acls: list[Acl], action: Action, allow_if_none: bool) -> None:
    verdict = decide(acls, action, allow_everyone_if_no_acl_found=allow_if_none)
    assert verdict.is_allowed == by_rules(acls, action, allow_if_none=allow_if_none)
    assert verdict.acl is None or verdict.acl in acls


def reason(acls: list[Acl], action: Action, **config: object) -> str:
    return decide(acls, action, **config).reason(action)


def test_super_user_is_allowed_despite_denials() -> None:
    acls = [acl("*", AclOperation.ALL, AclPermission.DENY, principal=EVERY_PRINCIPAL)]
    action = on("a", AclOperation.WRITE)
    assert not decide(acls, action).is_allowed
    assert decide(acls, action, super_users=frozenset((ALICE,))).is_allowed
    assert reason(acls, action, super_users=frozenset((ALICE,))) == "User:alice is a super user"


def test_reason_names_the_acl_that_decided() -> None:
    allow = acl("or", AclOperation.WRITE, pattern=AclPatternType.PREFIXED)
    deny = acl("orders", AclOperation.WRITE, AclPermission.DENY, host="10.0.0.1")
    assert reason([allow, deny], on("orders", AclOperation.WRITE)) == (
        "denied by: Deny User:alice Write Topic orders from 10.0.0.1"
    )
    assert reason([allow], on("orders", AclOperation.DESCRIBE)) == (
        "allowed by: Allow User:alice Write prefixed Topic or"
    )
    assert reason([allow], on("x", AclOperation.WRITE)) == (
        "no ACL allows User:alice Write Topic x from 10.0.0.1"
    )
    assert reason([], on("x", AclOperation.WRITE), allow_everyone_if_no_acl_found=True) == (
        "no ACL selects the resource, and allow.everyone.if.no.acl.found is true"
    )


def any_topic(acls: list[Acl], **config: object) -> bool:
    table = table_of(acls)
    settings = AuthorizerConfig(**config)  # type: ignore[arg-type]
    action = on("", AclOperation.WRITE)
    return decide_by_type(compiled(table, ALICE), action, settings)


PREFIXED = AclPatternType.PREFIXED
WRITE, DENY = AclOperation.WRITE, AclPermission.DENY


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl("a", WRITE)], True),
        ([acl("a", AclOperation.READ)], False),
        ([acl("a", WRITE, host="10.0.0.2")], False),
        ([acl("a", WRITE, principal="User:bob")], False),
        ([acl("a", WRITE, principal=EVERY_PRINCIPAL)], True),
        ([acl("a", WRITE), acl("a", WRITE, DENY)], False),
        ([acl("ab", WRITE), acl("a", AclOperation.ALL, DENY, pattern=PREFIXED)], False),
        ([acl("ab", WRITE, pattern=PREFIXED), acl("ab", WRITE, DENY)], True),
        ([acl("a", WRITE, pattern=PREFIXED), acl("ab", WRITE, DENY, pattern=PREFIXED)], True),
        ([acl("*", WRITE), acl("a", WRITE, DENY)], True),
        ([acl("a", WRITE), acl("*", WRITE, DENY)], False),
    ],
)
def test_right_on_any_resource_of_a_type(acls: list[Acl], expected: bool) -> None:
    assert any_topic(acls) is expected


def test_right_on_any_resource_without_acls_follows_the_setting() -> None:
    assert any_topic([], allow_everyone_if_no_acl_found=True)
    denied = [acl("*", WRITE, DENY)]
    assert not any_topic(denied, allow_everyone_if_no_acl_found=True)
    assert any_topic(denied, super_users=frozenset((ALICE,)))
