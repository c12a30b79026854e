"""Charges clients for what they take, and says for how long each must wait.

A client is a user with a client id, by as many connections as it likes. It is answered first and
waits afterwards: what an answer costs is known only then. What clients owe is this broker's
knowledge alone: a quota holds for each broker, and is not kept over a start.
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
"""Clients that are remembered; the one that asked for nothing for the longest time is forgotten
first, with what it owes. About 1 KiB each."""

US_PER_PERCENT: Final = 10_000
"""Microseconds that one percent of a thread has in a second."""


@dataclass(slots=True)
class Throttled:
    """How often a quota of one key had a client wait, for the figures."""

    count: int = 0
    ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Client:
    """What one client may take; None: as much as it likes."""

    rules: QuotaRules  # of which this is
    bytes_in: Allowance | None
    bytes_out: Allowance | None
    work_us: Allowance | None


class Throttling:
    """One broker's clients. Belongs to the loop's thread."""

    def __init__(self, *, clients_max: int = CLIENTS_MAX) -> None:
        self._clients_max = clients_max
        self._rules = QuotaRules({})
        self._clients: OrderedDict[tuple[str, str], _Client] = OrderedDict()  # longest idle first
        # By key and share. A client holds what it takes from; what no client holds is gone.
        self._allowances: WeakValueDictionary[tuple[str, str | None, str | None], Allowance] = (
            WeakValueDictionary()
        )
        self.throttled = {key: Throttled() for key in QUOTAS}

    @property
    def is_idle(self) -> bool:
        """Whether nobody has any quota."""
        return not self._rules.keys

    @property
    def counts_work(self) -> bool:
        """Whether anybody has a quota of request time: else none need be measured."""
        return REQUEST_PERCENTAGE in self._rules.keys

    @property
    def client_count(self) -> int:
        """Clients that are remembered."""
        return len(self._clients)

    def apply(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """These are the quotas from now on. Whose quota is another one begins anew, and owes
        nothing."""
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
        """Note what a request took, and return for how many milliseconds its client must take
        nothing more, 0: it may go on. None: the request was none that moves such bytes."""
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
        """Return how many bytes a fetch may answer with, at most `bytes_max`: an answer is never
        larger than what the client's quota lets through at once, or it would wait for very long."""
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
        # A client may call itself as it likes; longer names than a quota can be for are cut, so
        # that it takes no memory by that.
        name = user[: NAME_MAX + 1], client_id[: NAME_MAX + 1]
        client = self._clients.get(name)
        if client is not None and client.rules is self._rules:
            self._clients.move_to_end(name)
            return client
        # Of before a change of the rules, the client stands there until this one has taken over
        # from it what is as it was.
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
        """What a client takes from, which others may too."""
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
