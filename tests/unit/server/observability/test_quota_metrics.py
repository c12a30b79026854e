"""Metrics of clients that quotas throttle."""

from quorumlog.broker.quotas import ClientQuotaManager
from quorumlog.metadata.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from quorumlog.metrics import Scrape
from quorumlog.metrics.table import QUOTA_CLIENTS, QUOTA_THROTTLES, QUOTA_WAIT
from quorumlog.server.observability.collectors import collect_quotas


def test_throttle_times_are_counted_by_the_exhausted_quota() -> None:
    throttling = ClientQuotaManager()
    throttling.apply({(("user", None),): {PRODUCER_BYTE_RATE: 100.0}})
    for user, size in (("alice", 1_150), ("alice", 0), ("bob", 1_000)):
        throttling.charge(user=user, client_id="", now_ms=0, bytes_in=size)
    scrape = Scrape()
    collect_quotas(scrape, throttling)
    assert scrape.value(QUOTA_THROTTLES, PRODUCER_BYTE_RATE) == 2
    assert scrape.value(QUOTA_WAIT, PRODUCER_BYTE_RATE) == 3.0
    assert scrape.value(QUOTA_THROTTLES, CONSUMER_BYTE_RATE) == 0
    assert scrape.value(QUOTA_CLIENTS) == 2
