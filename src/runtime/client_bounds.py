"""Bounds of the resources of a node that its clients use. Pure."""

import ipaddress
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import Final, Generic, TypeVar

from ..errors import Overloaded

UNREAD_BYTES: Final = (256 << 20, 512 << 20)  # of responses, for each principal, in all

LINES_A_SECOND_MAX: Final = 10
"""The log lines about the clients of a protocol."""

IPV6_HOST_BITS: Final = 64
"""The lower bits of an IPv6 address, which a client chooses in its network."""

T = TypeVar("T")


@lru_cache(maxsize=4_096)
def address_block(host: str) -> str:
    """Return the addresses that bounds count as one: an IPv4 address, also one that is mapped to
    IPv6; the /64 of an IPv6 address; any other host as it is."""
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    network = ipaddress.IPv6Address(int(address) >> IPV6_HOST_BITS << IPV6_HOST_BITS)
    return f"{network}/{128 - IPV6_HOST_BITS}"


class ClientLines:
    """The rate of log lines about clients."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._second = self._count = 0  # the second of the newest line, and its lines

    def may_log(self) -> bool:
        """Count a line; return False beyond the limit of this second."""
        second = self._now_ms() // 1_000
        self._count = self._count + 1 if second == self._second else 1
        self._second = second
        return self._count <= LINES_A_SECOND_MAX


class ClientEntries(Generic[T]):
    """The entries of clients, oldest first."""

    def __init__(self) -> None:
        self._principals: dict[T, str] = {}
        self._by_principal: dict[str, dict[T, None]] = {}

    def __len__(self) -> int:
        return len(self._principals)

    def __iter__(self) -> Iterator[T]:
        return iter(self._principals)

    def add(self, entry: T, principal: str) -> None:
        """Add an entry as the newest one."""
        self._principals[entry] = principal
        self._by_principal.setdefault(principal, {})[entry] = None

    def discard(self, entry: T) -> None:
        """Remove an entry, if it is there."""
        principal = self._principals.pop(entry, None)
        if principal is None:
            return
        own = self._by_principal[principal]
        del own[entry]
        if not own:
            del self._by_principal[principal]

    def count_of(self, principal: str) -> int:
        """Return the number of entries of a principal."""
        return len(self._by_principal.get(principal, ()))

    def of_most(self, principal: str) -> Collection[T] | None:
        """Return the entries of the principal with the most of them, oldest first; None if no other
        principal has more than this one."""
        most = max(self._by_principal.values(), key=len, default={})
        own = self._by_principal.get(principal, {})
        return most if len(most) > len(own) else None


class ClientBytes:
    """The bytes of responses that clients do not read, bounded for each client and for all."""

    def __init__(self, client_bytes_max: int, bytes_max: int) -> None:
        self._client_bytes_max = client_bytes_max
        self._bytes_max = bytes_max
        self._by_client: Counter[str] = Counter()
        self._bytes = 0

    def has_room(self, client: str, size: int) -> bool:
        """Return True if `size` bytes more are within the limits."""
        return (
            self._by_client[client] + size <= self._client_bytes_max
            and self._bytes + size <= self._bytes_max
        )

    def check(self, client: str, size: int) -> None:
        """Raise Overloaded if there is no room for `size` bytes."""
        if not self.has_room(client, size):
            raise Overloaded(
                f"{self._by_client[client]} bytes of responses to {client}, and {self._bytes} in"
                f" all, are not read yet; the limits are {self._client_bytes_max} and"
                f" {self._bytes_max}; read responses at once, or request less"
            )

    def add(self, client: str, size: int) -> None:
        """Count `size` bytes. Raise Overloaded at a limit."""
        self.check(client, size)
        self._by_client[client] += size
        self._bytes += size

    def remove(self, client: str, size: int) -> None:
        """Count `size` bytes less."""
        self._bytes -= size
        self._by_client[client] -= size
        if not self._by_client[client]:
            del self._by_client[client]
