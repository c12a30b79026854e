"""Clients that share an allowance, changes of quotas, and the bound of remembered clients."""

import gc

from quorumlog.broker.quotas import ClientQuotaManager
from quorumlog.metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)

ALICE: QuotaEntity = (("user", "alice"),)
ANY_CLIENT: QuotaEntity = (("client-id", None),)
ANY_USER: QuotaEntity = (("user", None),)


def produce(
    throttling: ClientQuotaManager,
    size: int,
    *,
    user: str = "alice",
    client_id: str = "",
    now_ms: int = 0,
) -> int:
    return throttling.charge(user=user, client_id=client_id, now_ms=now_ms, bytes_in=size)


def test_without_quotas_no_client_is_throttled_or_remembered() -> None:
    throttling = ClientQuotaManager()
    assert throttling.is_idle
    assert produce(throttling, 10**12) == 0
    assert throttling.client_count == 0


def test_bytes_in_bytes_out_and_time_are_charged_each_for_itself() -> None:
    throttling = ClientQuotaManager()
    quotas = {PRODUCER_BYTE_RATE: 100.0, CONSUMER_BYTE_RATE: 1000.0, REQUEST_PERCENTAGE: 50.0}
    throttling.apply({ALICE: quotas})
    assert produce(throttling, 2_000) == 10_000
    assert throttling.charge(user="alice", client_id="", now_ms=0, bytes_out=11_000) == 1_000
    # Half a thread for ten seconds is five seconds of work.
    assert throttling.charge(user="alice", client_id="", now_ms=0, work_us=5_000_000) == 0
    assert throttling.charge(user="alice", client_id="", now_ms=0, work_us=500) == 1
    assert throttling.charge(user="alice", client_id="", now_ms=0, work_us=499_500) == 1_000


def test_the_longest_wait_counts() -> None:
    throttling = ClientQuotaManager()
    throttling.apply({ALICE: {PRODUCER_BYTE_RATE: 100.0, REQUEST_PERCENTAGE: 100.0}})
    charged = throttling.charge(
        user="alice", client_id="", now_ms=0, bytes_in=1_100, work_us=13_000_000
    )
    assert charged == 3_000
    assert {key: (each.count, each.ms) for key, each in throttling.throttled.items()} == {
        CONSUMER_BYTE_RATE: (0, 0),
        PRODUCER_BYTE_RATE: (1, 1_000),
        REQUEST_PERCENTAGE: (1, 3_000),
    }


def test_client_in_debt_is_throttled_for_an_empty_request() -> None:
    throttling = ClientQuotaManager()
    throttling.apply({ALICE: {CONSUMER_BYTE_RATE: 100.0}})
    throttling.charge(user="alice", client_id="", now_ms=0, bytes_out=2_000)
    assert throttling.charge(user="alice", client_id="", now_ms=0, bytes_out=0) == 10_000
    assert (
        throttling.charge(user="alice", client_id="", now_ms=0) == 0
    )  # no fetch: no allowance is charged


def test_client_ids_of_a_user_share_the_quota_of_the_user() -> None:
    throttling = ClientQuotaManager()
    throttling.apply({ALICE: {PRODUCER_BYTE_RATE: 100.0}})
    assert produce(throttling, 1_000, client_id="one") == 0
    assert produce(throttling, 100, client_id="two") == 1_000
    assert produce(throttling, 10_000, user="bob", client_id="one") == 0


def test_default_quota_applies_to_each_user_separately() -> None:
    throttling = ClientQuotaManager()
    throttling.apply({ANY_USER: {PRODUCER_BYTE_RATE: 100.0}})
    assert produce(throttling, 2_000, user="alice") == 10_000
    assert produce(throttling, 1_000, user="bob") == 0


def test_users_of_a_client_id_share_the_quota_of_the_client_id() -> None:
    throttling = ClientQuotaManager()
    throttling.apply({ANY_CLIENT: {PRODUCER_BYTE_RATE: 100.0}})
    assert produce(throttling, 1_000, user="alice", client_id="app") == 0
    assert produce(throttling, 100, user="bob", client_id="app") == 1_000
    assert produce(throttling, 100, user="bob", client_id="app2") == 0


def test_change_of_a_quota_clears_the_debt_of_its_clients_only() -> None:
    throttling = ClientQuotaManager()
    bob: QuotaEntity = (("user", "bob"),)
    throttling.apply({ALICE: {PRODUCER_BYTE_RATE: 100.0}, bob: {PRODUCER_BYTE_RATE: 100.0}})
    produce(throttling, 2_000)
    produce(throttling, 2_000, user="bob")
    throttling.apply({ALICE: {PRODUCER_BYTE_RATE: 200.0}, bob: {PRODUCER_BYTE_RATE: 100.0}})
    assert produce(throttling, 0) == 0
    assert produce(throttling, 0, user="bob") == 10_000
    assert produce(throttling, 2_200) == 1_000


def test_removed_quota_does_not_apply() -> None:
    throttling = ClientQuotaManager()
    throttling.apply({ALICE: {REQUEST_PERCENTAGE: 1.0}})
    before = throttling.is_idle, throttling.counts_work
    throttling.apply({})
    assert [before, (throttling.is_idle, throttling.counts_work)] == [(False, True), (True, False)]
    assert produce(throttling, 10**9) == 0


def test_shared_allowance_stays_shared_when_other_quotas_change() -> None:
    """Both clients share one allowance before and after the change."""
    throttling = ClientQuotaManager()
    throttling.apply({ALICE: {PRODUCER_BYTE_RATE: 100.0}})
    produce(throttling, 600, client_id="one")
    produce(throttling, 400, client_id="two")
    throttling.apply({ALICE: {PRODUCER_BYTE_RATE: 100.0, CONSUMER_BYTE_RATE: 1.0}})
    assert produce(throttling, 100, client_id="one") == 1_000
    assert produce(throttling, 100, client_id="two") == 2_000


def test_longest_idle_client_is_evicted_above_the_limit() -> None:
    throttling = ClientQuotaManager(clients_max=3)
    throttling.apply({ANY_CLIENT: {PRODUCER_BYTE_RATE: 100.0}})
    for name in ("a", "b", "c"):
        produce(throttling, 2_000, client_id=name)
    produce(throttling, 0, client_id="a")
    produce(throttling, 0, client_id="d")
    assert throttling.client_count == 3
    assert produce(throttling, 0, client_id="a") == 10_000
    assert produce(throttling, 0, client_id="b") == 0  # evicted with its debt
    gc.collect()
    assert len(throttling._allowances) == 3


def test_very_long_client_id_takes_little_memory_and_collides_with_no_other() -> None:
    throttling = ClientQuotaManager()
    throttling.apply({(("client-id", "x" * 255),): {PRODUCER_BYTE_RATE: 1.0}})
    assert produce(throttling, 10**6, client_id="x" * 30_000) == 0
    assert [len(client_id) for _, client_id in throttling._clients] == [256]


def test_fetch_returns_at_most_one_burst() -> None:
    throttling = ClientQuotaManager()

    def bytes_max(user: str) -> int:
        return throttling.fetch_bytes_max(1_000_000, user=user, client_id="", now_ms=0)

    assert bytes_max("alice") == 1_000_000
    throttling.apply({ALICE: {CONSUMER_BYTE_RATE: 1_000.0}})
    assert bytes_max("alice") == 10_000
    assert bytes_max("bob") == 1_000_000


def test_clients_with_equal_quotas_get_equal_rates_however_they_ask() -> None:
    """One client sends small requests, one large ones; both wait for their throttle times."""
    throttling = ClientQuotaManager()
    throttling.apply({ANY_CLIENT: {PRODUCER_BYTE_RATE: 10_000.0}})
    sizes = {"small": 500, "large": 40_000}
    next_ms, sent = dict.fromkeys(sizes, 0), dict.fromkeys(sizes, 0)
    for now_ms in range(0, 120_000, 10):
        for name, size in sizes.items():
            if now_ms >= next_ms[name]:
                sent[name] += size
                next_ms[name] = now_ms + produce(throttling, size, client_id=name, now_ms=now_ms)
    for name, total in sent.items():
        # Ten seconds of the rate at once, then the rate; at most one more request.
        assert 0 <= total - 10_000 * 130 <= 2 * sizes[name], (name, total)
