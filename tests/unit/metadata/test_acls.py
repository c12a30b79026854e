"""ACLs in the metadata: checks, filters, the table, creation and deletion."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import CorruptionError, InvalidRequest
from quorumlog.metadata import AclsCreated, AclsDeleted, CreateAcls, DeleteAcls
from quorumlog.metadata.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclPatternType,
    AclPermission,
    AclResourceType,
    AclTable,
    ResourcePattern,
    acl_message,
    acl_of,
    canonical_host,
    check_acl,
    check_filter,
    enum_of,
    name_of,
)
from quorumlog.metadata.decisions import acls
from quorumlog.metadata.snapshots import image_of, image_slices
from quorumlog.proto import metadata_records_pb2 as pb

ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders", AclPatternType.LITERAL)
READ = Acl(ORDERS, "User:alice", "*", AclOperation.READ, AclPermission.ALLOW)


def acl(
    name: str = "orders",
    principal: str = "User:alice",
    *,
    kind: AclResourceType = AclResourceType.TOPIC,
    pattern: AclPatternType = AclPatternType.LITERAL,
    host: str = "*",
    operation: AclOperation = AclOperation.READ,
    permission: AclPermission = AclPermission.ALLOW,
) -> Acl:
    return Acl(ResourcePattern(kind, name, pattern), principal, host, operation, permission)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (acl(kind=AclResourceType.ANY), "the resource type is ANY"),
        (acl(pattern=AclPatternType.MATCH), "the pattern type is MATCH; give LITERAL or PREFIXED"),
        (acl(pattern=AclPatternType.ANY), "the pattern type is ANY"),
        (acl(operation=AclOperation.ANY), "the operation is ANY"),
        (acl(permission=AclPermission.ANY), "give ALLOW or DENY"),
        (acl(name=""), "0 characters; give 1..1024"),
        (acl(name="x" * 1_025), "1025 characters"),
        (acl(name="a\nb"), "not printable"),
        (acl(kind=AclResourceType.CLUSTER), "give 'kafka-cluster'"),
        (acl(principal="alice"), "give User:NAME"),
        (acl(principal="Group:staff"), "give User:NAME"),
        (acl(principal="User:"), "give User:NAME"),
        (acl(host="example.org"), "is not an IP address"),
    ],
)
def test_invalid_acl_is_rejected(wrong: Acl, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        check_acl(wrong)


def test_hosts_have_one_form() -> None:
    assert canonical_host("*") == "*"
    assert canonical_host("0:0:0:0:0:0:0:1") == "::1"
    assert canonical_host("::ffff:10.0.0.1") == "10.0.0.1"
    assert check_acl(acl(host="::ffff:10.0.0.1")) == acl(host="10.0.0.1")
    assert check_filter(AclFilter(host="::ffff:10.0.0.1")) == AclFilter(host="10.0.0.1")


@pytest.mark.parametrize(
    "condition",
    [AclFilter(principal="alice"), AclFilter(host="h"), AclFilter(resource_name="")],
)
def test_invalid_filter_is_rejected(condition: AclFilter) -> None:
    with pytest.raises(InvalidRequest):
        check_filter(condition)


def test_names_are_those_of_the_acl_tools() -> None:
    assert name_of(AclResourceType.TRANSACTIONAL_ID) == "TransactionalId"
    with pytest.raises(InvalidRequest, match=r"unknown AclPermission 4; .* supports 1\.\.3"):
        enum_of(AclPermission, 4)
    assert str(acl(pattern=AclPatternType.PREFIXED, host="10.0.0.1")) == (
        "Allow User:alice Read prefixed Topic orders from 10.0.0.1"
    )


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (AclFilter(), True),
        (AclFilter(resource_name="orders"), True),
        (AclFilter(resource_name="order"), False),
        (AclFilter(resource_type=AclResourceType.GROUP), False),
        (AclFilter(pattern_type=AclPatternType.PREFIXED), False),
        (AclFilter(pattern_type=AclPatternType.LITERAL, resource_name="orders"), True),
        (AclFilter(principal="User:alice"), True),
        (AclFilter(principal="User:*"), False),
        (AclFilter(host="*"), True),
        (AclFilter(host="10.0.0.1"), False),
        (AclFilter(operation=AclOperation.READ), True),
        (AclFilter(operation=AclOperation.ALL), False),
        (AclFilter(permission=AclPermission.DENY), False),
    ],
)
def test_filter_matches_an_acl_by_every_part(condition: AclFilter, expected: bool) -> None:
    assert condition.matches(READ) is expected


def test_match_finds_the_patterns_that_select_a_name() -> None:
    condition = AclFilter(resource_name="orders-eu", pattern_type=AclPatternType.MATCH)
    selecting = [
        acl("orders-eu"),
        acl("*"),
        acl("orders", pattern=AclPatternType.PREFIXED),
    ]
    others = [acl("orders"), acl("orders-eu-2", pattern=AclPatternType.PREFIXED)]
    assert [each for each in [*selecting, *others] if condition.matches(each)] == selecting


def matching(table: AclTable) -> list[Acl]:
    return [acl for acl in table.visit(AclFilter()) if acl is not None]


names = st.sampled_from(["a", "ab", "b", "*"])
acls_drawn = st.builds(
    acl,
    name=names,
    principal=st.sampled_from(["User:alice", "User:bob", "User:*"]),
    pattern=st.sampled_from([AclPatternType.LITERAL, AclPatternType.PREFIXED]),
    operation=st.sampled_from(AclOperation),
)


@given(st.lists(acls_drawn, unique=True), st.data())
def test_table_equals_a_set(drawn: list[Acl], data: st.DataObject) -> None:
    table = AclTable()
    for each in drawn:
        table = table.with_acl(each)
    removed = data.draw(st.lists(st.sampled_from(drawn), unique=True)) if drawn else []
    for each in removed:
        table = table.without(each)
    left = set(drawn) - set(removed)
    assert matching(table) == sorted(left, key=lambda each: (each.principal, each))
    assert table.count == len(left)
    assert sum(table.counts.values()) == len(left)
    assert all(each in table for each in left)
    assert not any(each in table for each in removed)
    for name in ("a", "ab", "abc"):
        assert table.has_acl_for(AclResourceType.TOPIC, name) == any(
            each.resource.selects(name) for each in left
        )
        assert not table.has_acl_for(AclResourceType.GROUP, name)


def test_creation_has_a_result_for_each_acl(cluster: Cluster) -> None:
    wrong = acl(host="nowhere")
    decision = cluster.do(CreateAcls(acls=(READ, wrong, READ, acl("*"))))
    assert isinstance(decision.reply, AclsCreated)
    assert [each is None for each in decision.reply.errors] == [True, False, True, True]
    assert [acl_of(each.acl) for each in decision.records] == [READ, acl("*")]
    again = cluster.do(CreateAcls(acls=(READ,)))
    assert again.records == ()
    assert again.reply == AclsCreated(errors=(None,))


def test_creation_waits_for_every_broker_that_is_not_fenced(cluster: Cluster) -> None:
    cluster.start(1)
    cluster.start(2)
    assert cluster.do(CreateAcls(acls=(READ,))).brokers == (1, 2)


def test_acls_beyond_the_limit_are_rejected(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acls, "ACLS_MAX", 2)
    reply = cluster.do(CreateAcls(acls=(acl("a"), acl("b"), acl("c"), acl("a")))).reply
    assert isinstance(reply, AclsCreated)
    assert [each is None for each in reply.errors] == [True, True, False, True]
    assert "limit of 2 ACLs" in str(reply.errors[2])


def test_acls_of_one_principal_are_bounded(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acls, "PRINCIPAL_ACLS_MAX", 1)
    reply = cluster.do(CreateAcls(acls=(acl("a"), acl("b"), acl("a", "User:bob")))).reply
    assert isinstance(reply, AclsCreated)
    assert [each is None for each in reply.errors] == [True, False, True]


def test_deletion_reports_the_acls_of_each_filter(cluster: Cluster) -> None:
    kept = acl("payments")
    bob = acl(principal="User:bob")
    cluster.do(CreateAcls(acls=(READ, bob, kept)))
    decision = cluster.do(
        DeleteAcls(
            filters=(
                AclFilter(principal="User:alice", resource_name="orders"),
                AclFilter(host="nowhere"),
                AclFilter(resource_name="orders"),
            )
        )
    )
    reply = decision.reply
    assert isinstance(reply, AclsDeleted)
    first, second, third = reply.deletions
    assert first.acls == (READ,)
    assert isinstance(second.error, InvalidRequest)
    assert third.acls == (READ, bob)  # also by the first filter
    assert len(decision.records) == 2
    assert matching(cluster.image.acls) == [kept]


def test_deletion_of_many_acls_runs_in_steps(cluster: Cluster) -> None:
    many = tuple(acl(f"t{number}") for number in range(500))
    cluster.do(CreateAcls(acls=many))
    assert cluster.slices > 1
    reply = cluster.do(DeleteAcls(filters=(AclFilter(),))).reply
    assert cluster.slices > 1
    assert isinstance(reply, AclsDeleted)
    assert len(reply.deletions[0].acls) == 500
    assert cluster.image.acls.count == 0
    assert not cluster.image.acls.counts
    assert not cluster.image.acls.by_principal


def test_snapshot_contains_the_acls(cluster: Cluster) -> None:
    cluster.do(CreateAcls(acls=(READ, acl(principal="User:bob", host="::1"))))
    values = [value for part in image_slices(cluster.image) for value in part]
    end_offset = cluster.image.offset + 1
    assert image_of(values, end_offset=end_offset, epoch=1) == cluster.image


@pytest.mark.parametrize("is_present", [True, False])
def test_record_that_does_not_fit_stops_the_replay(cluster: Cluster, is_present: bool) -> None:
    if is_present:
        cluster.do(CreateAcls(acls=(READ,)))
        record = pb.MetadataRecord(acl=acl_message(READ))
    else:
        record = pb.MetadataRecord(remove_acl=acl_message(READ))
    with pytest.raises(CorruptionError, match="ACL Allow User:alice Read Topic orders"):
        cluster.replay((record,))


def test_change_of_one_principal_keeps_the_sets_of_the_others(cluster: Cluster) -> None:
    cluster.do(CreateAcls(acls=(READ,)))
    before = cluster.image.acls.acls_of("User:alice")
    cluster.do(CreateAcls(acls=(acl(principal="User:bob"),)))
    assert cluster.image.acls.acls_of("User:alice") is before
