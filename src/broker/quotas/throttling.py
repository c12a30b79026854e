"""Charges clients for their requests and returns their throttle time.

A client is a user and a client id, with any number of connections. It is answered first and
throttled afterwards, because the cost of an answer is known only then. Debts are local to the
broker and lost at a restart: a quota applies to each broker.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from ...metadata.client_quotas import (
    CONSUMER_BYTE_RATE,
    NAME_MAX,
    PRODUCER_BYTE_RATE,
    QUOTAS,
    REQUEST_PERCENTAGE,
    QuotaEntity,
)
from .allowance import Allowance
from .rules import QuotaRules

CLIENTS_MAX: Final = 10_000
"""Limit of the clients with state; the longest idle one is dropped first, with its debt. About 1
KiB each."""

US_PER_PERCENT: Final = 10_000
"""Microseconds of one percent of a thread in a second."""


@dataclass(slots=True)
class Throttled:
    """The number and duration of throttles by one quota key, for metrics."""

    count: int = 0
    ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """The token buckets of one client; None: unlimited."""

    rules: QuotaRules  # that it was created with
    bytes_in: Allowance | None
    bytes_out: Allowance | None
    work_us: Allowance | None


class Throttling:
    """The clients of one broker. Belongs to the loop's thread."""

    def __init__(self, *, clients_max: int = CLIENTS_MAX) -> None:
        self._clients_max = clients_max
        self._rules = QuotaRules({})
        self._clients: OrderedDict[tuple[str, str], _Client] = OrderedDict()  # longest idle first
        # By key and share. Clients hold the references; an unreferenced bucket is dropped.
        self._allowances: WeakValueDictionary[tuple[str, str | None, str | None], Allowance] = (
            WeakValueDictionary()
        )
        self.throttled = {key: Throttled() for key in QUOTAS}

    @property
    def is_idle(self) -> bool:
        """True if there are no quotas."""
        return not self._rules.keys

    @property
    def counts_work(self) -> bool:
        """True if any quota limits request time, which must be measured only then."""
        return REQUEST_PERCENTAGE in self._rules.keys

    @property
    def client_count(self) -> int:
        """The number of clients with state."""
        return len(self._clients)

    def apply(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Apply the quotas. A bucket with a changed rate starts full."""
        self._rules = QuotaRules(quotas)

    def charge(
        self,
        *,
        user: str,
        client_id: str,
        now_ms: int,
        bytes_in: int | None = None,
        bytes_out: int | None = None,
        work_us: int = 0,
    ) -> int:
        """Charge a client for a request; return the milliseconds for which it is throttled, or 0.
        None: the request is not of the kind that moves such bytes."""
        if not self._rules.keys:
            return 0
        client = self._client(user, client_id, now_ms)
        wait_ms = 0
        if bytes_in is not None:
            wait_ms = self._take(PRODUCER_BYTE_RATE, client.bytes_in, bytes_in, now_ms)
        if bytes_out is not None:
            waits = self._take(CONSUMER_BYTE_RATE, client.bytes_out, bytes_out, now_ms)
            wait_ms = max(wait_ms, waits)
        return max(wait_ms, self._take(REQUEST_PERCENTAGE, client.work_us, work_us, now_ms))

    def fetch_bytes_max(self, bytes_max: int, *, user: str, client_id: str, now_ms: int) -> int:
        """Return the limit of a fetch answer, at most `bytes_max`: an answer is no larger than the
        client's burst, or the throttle time would be very long."""
        if CONSUMER_BYTE_RATE not in self._rules.keys:
            return bytes_max
        allowance = self._client(user, client_id, now_ms).bytes_out
        return bytes_max if allowance is None else min(bytes_max, max(1, int(allowance.burst())))

    def _take(self, key: str, allowance: Allowance | None, units: int, now_ms: int) -> int:
        wait_ms = 0 if allowance is None else allowance.take(units, now_ms)
        if wait_ms:
            self.throttled[key].count += 1
            self.throttled[key].ms += wait_ms
        return wait_ms

    def _client(self, user: str, client_id: str, now_ms: int) -> _Client:
        # Client ids are chosen by clients. Names longer than those of quotas are cut, to bound
        # their memory.
        name = user[: NAME_MAX + 1], client_id[: NAME_MAX + 1]
        client = self._clients.get(name)
        if client is not None and client.rules is self._rules:
            self._clients.move_to_end(name)
            return client
        # Until it is replaced, the previous entry keeps the unchanged buckets alive.
        client = _Client(
            rules=self._rules,
            bytes_in=self._allowance(PRODUCER_BYTE_RATE, *name, now_ms),
            bytes_out=self._allowance(CONSUMER_BYTE_RATE, *name, now_ms),
            work_us=self._allowance(REQUEST_PERCENTAGE, *name, now_ms),
        )
        self._clients[name] = client
        self._clients.move_to_end(name)
        if len(self._clients) > self._clients_max:
            self._clients.popitem(last=False)
        return client

    def _allowance(self, key: str, user: str, client_id: str, now_ms: int) -> Allowance | None:
        """Return the token bucket of a client, shared if its quota is."""
        share = self._rules.share(key, user=user, client_id=client_id)
        if share is None:
            return None
        per_second = share.value * (US_PER_PERCENT if key == REQUEST_PERCENTAGE else 1)
        owner = key, share.user, share.client_id
        allowance = self._allowances.get(owner)
        if allowance is None or allowance.per_second != per_second:
            allowance = Allowance(per_second=per_second, now_ms=now_ms)
            self._allowances[owner] = allowance
        return allowance
