"""Client quotas in the metadata: validation, records and effect."""

import pytest
from tests.kit.metadata_cluster import Cluster

from quorumlog.errors import CorruptionError, InvalidRequest
from quorumlog.metadata import (
    AlterClientQuotas,
    ClientQuotasAltered,
    Decision,
    QuotaAlteration,
)
from quorumlog.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    QUOTAS,
    REQUEST_PERCENTAGE,
    EntityFilter,
    QuotaEntity,
    check_entity,
    check_filters,
    check_quota_changes,
    entity_text,
    matching_entities,
    quota_record,
    sorted_entities,
)
from quorumlog.metadata.decisions import quotas
from quorumlog.metadata.snapshots import image_of, image_slices
from quorumlog.proto import metadata_records_pb2 as pb

ALICE: QuotaEntity = (("user", "alice"),)
BOTH: QuotaEntity = (("client-id", None), ("user", "alice"))


def alteration(entity: QuotaEntity, **changes: float | None) -> QuotaAlteration:
    return QuotaAlteration(entity=entity, changes=tuple(changes.items()))


def alter(
    cluster: Cluster, *alterations: QuotaAlteration, validate_only: bool = False
) -> tuple[Decision, list[str]]:
    """Return the decision, and the error message of each alteration, "" for none."""
    decision = cluster.do(AlterClientQuotas(alterations=alterations, validate_only=validate_only))
    assert isinstance(decision.reply, ClientQuotasAltered)
    return decision, [
        "" if each.error is None else each.error.message for each in decision.reply.outcomes
    ]


def quotas_of(cluster: Cluster) -> dict[QuotaEntity, dict[str, float]]:
    return {entity: dict(values) for entity, values in cluster.image.client_quotas.items()}


def test_table_is_in_order_with_its_value_ranges() -> None:
    assert list(QUOTAS) == sorted(QUOTAS)
    assert QUOTAS[PRODUCER_BYTE_RATE].takes == "a whole number above 0 (bytes a second)"
    assert all(row.doc.endswith(".") for row in QUOTAS.values())


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ([], "has no entity"),
        ([("ip", "10.0.0.1")], "'ip'; give a user, a client-id, or both"),
        ([("", "x")], "''; give"),
        ([("user", "a"), ("user", None)], "more than one user"),
        ([("user", "")], "0 characters; give 1..255"),
        ([("client-id", "x" * 256)], "256 characters"),
    ],
)
def test_invalid_entity_is_refused(parts: list[tuple[str, str | None]], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        check_entity(parts)


def test_parts_of_an_entity_have_one_order() -> None:
    assert check_entity([("user", "alice"), ("client-id", None)]) == BOTH
    assert entity_text(BOTH) == "the default client-id, user alice"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ([("producer_rate", 1.0)], r"'producer_rate'; quotas are consumer_byte_rate"),
        ([("controller_mutation_rate", 1.0)], "quotas are consumer_byte_rate"),
        ([("x" * 5_000, 1.0)], "unknown quota 'x{255}'"),
        ([(PRODUCER_BYTE_RATE, 0.0)], "is 0; give a whole number above 0"),
        ([(PRODUCER_BYTE_RATE, -5.0)], "is -5"),
        ([(CONSUMER_BYTE_RATE, 1.5)], "is 1.5; give a whole number"),
        ([(CONSUMER_BYTE_RATE, 1e18)], "1e[+]18"),
        ([(REQUEST_PERCENTAGE, float("nan"))], "nan"),
        ([(REQUEST_PERCENTAGE, float("inf"))], "inf"),
        ([(PRODUCER_BYTE_RATE, 1.0), (PRODUCER_BYTE_RATE, None)], "more than once"),
    ],
)
def test_invalid_quota_value_is_refused(changes: list[tuple[str, float | None]], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        check_quota_changes(changes)


def test_fraction_of_a_percent_is_a_valid_request_percentage() -> None:
    assert check_quota_changes([(REQUEST_PERCENTAGE, 0.5)]) == {REQUEST_PERCENTAGE: 0.5}


def test_entity_without_quotas_is_removed(cluster: Cluster) -> None:
    cluster.start(1, 2)
    decision, errors = alter(
        cluster,
        alteration(ALICE, producer_byte_rate=5.0, request_percentage=20.0),
        alteration(BOTH[::-1], consumer_byte_rate=7.0),
    )
    assert errors == ["", ""]
    assert decision.brokers == (1, 2)
    assert quotas_of(cluster) == {
        ALICE: {PRODUCER_BYTE_RATE: 5.0, REQUEST_PERCENTAGE: 20.0},
        BOTH: {CONSUMER_BYTE_RATE: 7.0},
    }
    alter(
        cluster,
        alteration(ALICE, producer_byte_rate=None),
        alteration(BOTH, consumer_byte_rate=None),
    )
    assert quotas_of(cluster) == {ALICE: {REQUEST_PERCENTAGE: 20.0}}


def test_refused_alteration_stops_no_other(cluster: Cluster) -> None:
    cluster.start(1)
    _, errors = alter(
        cluster,
        alteration((("ip", "10.0.0.1"),), producer_byte_rate=1.0),
        alteration(ALICE, producer_byte_rate=5.0),
        alteration(BOTH, producer_byte_rate=5.0, consumer_byte_rate=0.0),
        alteration((("user", None),)),
    )
    assert [bool(error) for error in errors] == [True, False, True, True]
    assert quotas_of(cluster) == {ALICE: {PRODUCER_BYTE_RATE: 5.0}}
    with pytest.raises(InvalidRequest, match="no changes"):
        alter(cluster)


def test_an_entity_that_is_named_twice_is_refused_both_times(cluster: Cluster) -> None:
    _, errors = alter(
        cluster,
        alteration(BOTH, producer_byte_rate=5.0),
        alteration(ALICE, producer_byte_rate=6.0),
        alteration(BOTH[::-1], consumer_byte_rate=5.0),
    )
    assert [error.endswith("given more than once; give each entity once") for error in errors] == [
        True,
        False,
        True,
    ]
    assert quotas_of(cluster) == {ALICE: {PRODUCER_BYTE_RATE: 6.0}}


def test_repeat_and_validation_change_nothing(cluster: Cluster) -> None:
    cluster.start(1)
    change = alteration(ALICE, producer_byte_rate=5.0, consumer_byte_rate=None)
    looked, errors = alter(cluster, change, alteration(BOTH, nothing=1.0), validate_only=True)
    assert looked.records == ()
    assert [bool(error) for error in errors] == [False, True]
    assert len(alter(cluster, change)[0].records) == 1
    assert alter(cluster, change)[0].records == ()


def test_many_alterations_are_decided_in_steps(cluster: Cluster) -> None:
    cluster.start(1)
    many = [alteration((("user", f"u{n}"),), producer_byte_rate=1.0) for n in range(1_000)]
    alter(cluster, *many)
    assert cluster.slices == 6
    assert len(cluster.image.client_quotas) == 1_000


def test_entities_with_quotas_are_limited(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quotas, "ENTITIES_MAX", 2)
    cluster.start(1)
    named = [(("user", name),) for name in "abc"]
    _, errors = alter(cluster, *(alteration(each, producer_byte_rate=1.0) for each in named))
    assert [bool(error) for error in errors] == [False, False, True]
    assert "set a default" in errors[2]
    # Existing entities may change theirs, and removals of missing ones succeed.
    _, errors = alter(
        cluster,
        alteration(named[0], consumer_byte_rate=1.0),
        alteration(named[2], producer_byte_rate=None),
    )
    assert errors == ["", ""]
    alter(cluster, alteration(named[1], producer_byte_rate=None))
    _, errors = alter(cluster, alteration(named[2], producer_byte_rate=1.0))
    assert errors == [""]


def test_snapshot_restores_the_quotas_in_order(cluster: Cluster) -> None:
    cluster.start(1)
    entities: list[QuotaEntity] = [
        (("client-id", "app"),),
        (("client-id", "app"), ("user", None)),
        (("client-id", None),),
        BOTH,
        ALICE,
        (("user", None),),
    ]
    for entity in reversed(entities):
        alter(cluster, alteration(entity, producer_byte_rate=1.0, consumer_byte_rate=2.0))
    image = cluster.image
    assert sorted_entities(image.client_quotas) == entities
    values = [value for values in image_slices(image) for value in values]
    assert image_of(values, end_offset=image.offset + 1, epoch=image.epoch) == image
    written = [pb.MetadataRecord.FromString(value).client_quota for value in values]
    kept = [(each.entity[0].type, each.key) for each in written if each.key]
    assert kept[:3] == [
        ("client-id", CONSUMER_BYTE_RATE),
        ("client-id", PRODUCER_BYTE_RATE),
        ("client-id", CONSUMER_BYTE_RATE),
    ]


@pytest.mark.parametrize("entity", [(), BOTH[::-1], (("user", "a"), ("user", "b"))])
def test_record_without_an_entity_or_out_of_order_is_corruption(
    cluster: Cluster, entity: QuotaEntity
) -> None:
    with pytest.raises(CorruptionError, match="is empty or not sorted"):
        cluster.replay((quota_record(entity, PRODUCER_BYTE_RATE, 1.0),))


@pytest.mark.parametrize(
    ("filters", "strict", "found"),
    [
        ([], False, [0, 1, 2, 3]),
        ([], True, []),
        ([EntityFilter(type="user", name="alice")], False, [1, 2]),
        ([EntityFilter(type="user", name="alice")], True, [2]),
        ([EntityFilter(type="user")], False, [3]),
        ([EntityFilter(type="user", is_any=True)], False, [1, 2, 3]),
        ([EntityFilter(type="client-id")], False, [1]),
        (
            [EntityFilter(type="client-id", is_any=True), EntityFilter(type="user", is_any=True)],
            True,
            [1],
        ),
        ([EntityFilter(type="client-id", name="bob")], False, []),
    ],
)
def test_filters_match_entities_with_every_requested_part(
    cluster: Cluster, filters: list[EntityFilter], strict: bool, found: list[int]
) -> None:
    entities = [(("client-id", "app"),), BOTH, ALICE, (("user", None),)]
    for entity in entities:
        alter(cluster, alteration(entity, producer_byte_rate=1.0))
    all_quotas = cluster.image.client_quotas
    assert matching_entities(all_quotas, filters, strict=strict) == [entities[n] for n in found]


def test_filters_that_match_no_entity_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="'ip'"):
        check_filters([EntityFilter(type="ip", is_any=True)])
    with pytest.raises(InvalidRequest, match="more than one filter for user"):
        check_filters([EntityFilter(type="user"), EntityFilter(type="user", is_any=True)])
