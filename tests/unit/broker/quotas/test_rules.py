"""The quota that applies to a client, by the order of KIP-257, and the clients that share it."""

import pytest

from quorumlog.broker.quotas import QuotaRules, QuotaShare
from quorumlog.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    QuotaEntity,
)

KEY = PRODUCER_BYTE_RATE

IN_ORDER: list[tuple[QuotaEntity, str | None, str | None]] = [
    # The entity of the quota; the user and the client id that share it.
    ((("client-id", "app"), ("user", "alice")), "alice", "app"),
    ((("client-id", None), ("user", "alice")), "alice", "app"),
    ((("user", "alice"),), "alice", None),
    ((("client-id", "app"), ("user", None)), "alice", "app"),
    ((("client-id", None), ("user", None)), "alice", "app"),
    ((("user", None),), "alice", None),
    ((("client-id", "app"),), None, "app"),
    ((("client-id", None),), None, "app"),
]


@pytest.mark.parametrize("place", range(len(IN_ORDER)))
def test_the_first_entity_that_sets_the_key_counts_and_no_other(place: int) -> None:
    rules = QuotaRules(
        {entity: {KEY: 100.0 + i} for i, (entity, _, _) in enumerate(IN_ORDER) if i >= place}
    )
    _, user, client_id = IN_ORDER[place]
    found = rules.share(KEY, user="alice", client_id="app")
    assert found == QuotaShare(value=100.0 + place, user=user, client_id=client_id)


def test_quotas_of_others_do_not_count() -> None:
    rules = QuotaRules(
        {
            (("user", "bob"),): {KEY: 1.0},
            (("client-id", "other"),): {KEY: 1.0},
            (("client-id", "app"), ("user", "bob")): {KEY: 1.0},
            (("client-id", None), ("user", "bob")): {KEY: 1.0},
            (("client-id", "other"), ("user", None)): {KEY: 1.0},
        }
    )
    assert rules.share(KEY, user="alice", client_id="app") is None


def test_an_entity_that_sets_another_key_is_passed_over() -> None:
    rules = QuotaRules(
        {
            (("user", "alice"),): {CONSUMER_BYTE_RATE: 5.0},
            (("client-id", None),): {PRODUCER_BYTE_RATE: 7.0},
        }
    )
    found = rules.share(PRODUCER_BYTE_RATE, user="alice", client_id="app")
    assert found == QuotaShare(value=7.0, user=None, client_id="app")
    assert rules.keys == {CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE}
