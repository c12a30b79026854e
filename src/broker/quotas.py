"""Quotas of clients: the share of the broker of each, and the throttle time after an excess.

A client is a user and a client id, with any number of connections. It is answered first and
throttled afterwards, because the cost of an answer is known only then. Debts are local to the
broker and lost at a restart: a quota applies to each broker. Pure: the front end measures the cost
of requests and delays clients.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from ..metadata.client_quotas import (
    CLIENT_ID,
    CONSUMER_BYTE_RATE,
    NAME_MAX,
    PRODUCER_BYTE_RATE,
    QUOTAS,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
)

BURST_MS: Final = 10_000
"""The time for which unused allowance is kept: ten of Kafka's one-second windows."""

WAIT_MS_MAX: Final = 600_000
"""The limit of one wait; debt beyond it is kept. A connection that is not read looks open for that
long after its client has gone."""


class TokenBucket:
    """A rate limit with a burst and with debt, of one client or of several that share a quota.

    It fills at its rate up to the amount of `BURST_MS`, so an idle client may take that at once. It
    falls below zero if more is taken than it has; the client must then wait.

    Kafka keeps sums of the last eleven one-second windows instead, with the same limits: ten
    seconds' worth at once, and the rate from then on. But sums forget: a client that takes a
    hundred seconds' worth, and reconnects after eleven seconds, starts without debt; here it still
    has to wait. In any t seconds a client gets at most the rate times (t + 10), and one more
    request per connection.
    """

    __slots__ = ("__weakref__", "_left", "_per_ms", "_when_ms", "per_second")

    def __init__(self, *, per_second: float, now_ms: int) -> None:
        """Start with a full burst; `per_second` is above 0, in the caller's units."""
        assert per_second > 0, f"a rate of {per_second}"
        self.per_second = per_second
        self._per_ms = per_second / 1000
        self._left = self._per_ms * BURST_MS  # in units, at `_when_ms`
        self._when_ms = now_ms

    def take(self, units: float, now_ms: int) -> int:
        """Take `units`, even if that exceeds the balance; return the milliseconds for which nothing
        more may be taken, 0 without debt."""
        assert units >= 0, f"{units} are taken"
        self._left = self._left_at(now_ms) - units
        self._when_ms = max(self._when_ms, now_ms)
        if self._left >= 0:
            return 0
        wait_ms = -self._left / self._per_ms
        return WAIT_MS_MAX if wait_ms > WAIT_MS_MAX else max(1, int(wait_ms + 0.5))

    def burst(self) -> float:
        """Return the capacity in units."""
        return self._per_ms * BURST_MS

    def _left_at(self, now_ms: int) -> float:
        passed_ms = max(0, now_ms - self._when_ms)
        return min(self.burst(), self._left + passed_ms * self._per_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaShare:
    """The quota of a client, and the clients that share it."""

    value: float  # as in the metadata
    user: str | None  # None: all users of the client id
    client_id: str | None  # None: all client ids of the user


class QuotaRules:
    """The configured quotas, and the selection of the quota of a client.

    For each key, the first of these entities that has a value counts (KIP-257):

        user and client id by name      user by name, any client id        user by name
        any user, client id by name     any user and any client id         any user
        client id by name               any client id

    in reading order. A quota of a user is shared by all client ids of that user, a quota of a
    client id by all users with that client id, and one of both belongs to the pair. "Any user" is a
    default that applies to each user separately.
    """

    __slots__ = ("_quotas", "keys")

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        self._quotas = quotas
        self.keys = frozenset(key for values in quotas.values() for key in values)

    def share(self, key: str, *, user: str, client_id: str) -> QuotaShare | None:
        """Return the quota of a client for a key, or None."""
        if key not in self.keys:
            return None
        for entity in _entities(user, client_id):
            value = self._quotas.get(entity, {}).get(key)
            if value is not None:
                types = dict(entity)
                return QuotaShare(
                    value=value,
                    user=user if USER in types else None,
                    client_id=client_id if CLIENT_ID in types else None,
                )
        return None


def _entities(user: str, client_id: str) -> Iterator[QuotaEntity]:
    """Yield the entities that match the client, the most specific first."""
    clients = (CLIENT_ID, client_id), (CLIENT_ID, None)
    for of_user in (USER, user), (USER, None):
        for of_client in clients:
            yield of_client, of_user
        yield (of_user,)
    for of_client in clients:
        yield (of_client,)


CLIENTS_MAX: Final = 10_000
"""Limit of the clients with state; the longest idle one is dropped first, with its debt. About 1
KiB each."""

US_PER_PERCENT: Final = 10_000
"""Microseconds of one percent of a thread in a second."""


@dataclass(slots=True)
class ThrottleCount:
    """The number and duration of throttles by one quota key, for metrics."""

    count: int = 0
    ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """The token buckets of one client; None: unlimited."""

    rules: QuotaRules  # that it was created with
    bytes_in: TokenBucket | None
    bytes_out: TokenBucket | None
    work_us: TokenBucket | None


class ClientQuotaManager:
    """The clients of one broker. Belongs to the loop's thread."""

    def __init__(self, *, clients_max: int = CLIENTS_MAX) -> None:
        self._clients_max = clients_max
        self._rules = QuotaRules({})
        self._clients: OrderedDict[tuple[str, str], _Client] = OrderedDict()  # longest idle first
        # By key and share. Clients hold the references; an unreferenced bucket is dropped.
        self._allowances: WeakValueDictionary[tuple[str, str | None, str | None], TokenBucket] = (
            WeakValueDictionary()
        )
        self.throttled = {key: ThrottleCount() for key in QUOTAS}

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

    def _take(self, key: str, allowance: TokenBucket | None, units: int, now_ms: int) -> int:
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

    def _allowance(self, key: str, user: str, client_id: str, now_ms: int) -> TokenBucket | None:
        """Return the token bucket of a client, shared if its quota is."""
        share = self._rules.share(key, user=user, client_id=client_id)
        if share is None:
            return None
        per_second = share.value * (US_PER_PERCENT if key == REQUEST_PERCENTAGE else 1)
        owner = key, share.user, share.client_id
        allowance = self._allowances.get(owner)
        if allowance is None or allowance.per_second != per_second:
            allowance = TokenBucket(per_second=per_second, now_ms=now_ms)
            self._allowances[owner] = allowance
        return allowance
