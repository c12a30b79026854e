"""The memory of what members send to their groups: names, subscriptions, assignments. Pure."""

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol, TypeAlias

from ...errors import GroupFull

Charge: TypeAlias = Callable[[str, str, int], None]
"""Counts bytes for a client, given the client and the group that has grown."""

CLIENT_BYTES_MAX: Final = 128 << 20
"""The bytes that one client may add to the groups of a broker."""

BYTES_MAX: Final = 512 << 20
"""The bytes of all groups of a broker."""

SWEEP_MS: Final = 1_000
"""The minimum time between two sweeps over the groups of a client."""

GROUPS_KEPT: Final = 1_000
"""The groups of a client that are remembered without a sweep, or twice those that are left."""


class SizedGroup(Protocol):
    """A group."""

    @property
    def member_bytes(self) -> int:
        """The bytes of its members."""


def text_bytes(texts: Collection[str]) -> int:
    """Return the maximum size of texts in UTF-8 and in memory, without the objects: exact for ASCII
    only. O(the number of texts)."""
    size = sum(map(len, texts))
    return size if all(map(str.isascii, texts)) else 4 * size


class ShardMemberBytes:
    """The bytes of the groups of one partition."""

    def __init__(self, groups: Mapping[str, SizedGroup], charge: Charge | None) -> None:
        """`charge` is called with all bytes that groups grow by, except those of a load."""
        self._groups = groups
        self._charge = charge
        self._sizes: dict[str, int] = {}
        self._clients: dict[str, str] = {}  # the last client that was charged, by group
        self.total = 0

    def update(self, group: str, client: str = "") -> None:
        """Count a group again after a change. `client` has requested it; "": none, as at a timeout.
        Then growth counts for the client of the last growth."""
        machine = self._groups.get(group)
        size = 0 if machine is None else machine.member_bytes
        growth = size - self._sizes.get(group, 0)
        if not growth:
            return
        self.total += growth
        if not size:
            del self._sizes[group]
            self._clients.pop(group, None)
            return
        self._sizes[group] = size
        client = client or self._clients.get(group, "")
        if growth > 0 and client and self._charge is not None:
            self._clients[group] = client
            self._charge(client, group, growth)

    def of_group(self, group: str) -> int:
        """Return the bytes of a group."""
        return self._sizes.get(group, 0)


class MemberBytesLimits:
    """The limits of one broker: of all its groups, and of what each client adds to them.

    A client has at most the present bytes of each group that it added some to. A group that was
    loaded from its log has no clients: its bytes count for all only.
    """

    def __init__(self, total: Callable[[], int], of_group: Callable[[int, str], int]) -> None:
        """`total` returns the bytes of all groups, `of_group` those of one of a partition."""
        self._total = total
        self._of_group = of_group
        self._added: dict[str, dict[tuple[int, str], int]] = {}  # by client and group
        self._sums: dict[str, int] = {}  # by client
        self._swept_ms: dict[str, int] = {}  # by client, the last sweep
        self._left: dict[str, int] = {}  # by client, the groups left by the last sweep

    def check(self, client: str, group: str, now_ms: int, growth: int) -> None:
        """Raise GroupFull if a client must not add so many bytes to a group."""
        total = self._total()
        if total + growth > BYTES_MAX:
            raise GroupFull(
                f"group {group!r}: the members of all groups of the broker have {total} bytes, the"
                f" limit is {BYTES_MAX}; subscribe to fewer topics, or remove groups"
            )
        own, groups = self._sums.get(client, 0), self._added.get(client, {})
        are_many = len(groups) >= max(GROUPS_KEPT, 2 * self._left.get(client, 0))
        if are_many or own + growth > CLIENT_BYTES_MAX:
            own = self._sweep(client, now_ms)
        if own + growth > CLIENT_BYTES_MAX:
            raise GroupFull(
                f"group {group!r}: {client} has added {own} bytes to the groups of the broker, the"
                f" limit is {CLIENT_BYTES_MAX}; subscribe to fewer topics, or leave groups"
            )

    def add(self, client: str, partition: int, group: str, growth: int) -> None:
        """Count the bytes that a client has added to a group."""
        groups = self._added.setdefault(client, {})
        groups[partition, group] = groups.get((partition, group), 0) + growth
        self._sums[client] = self._sums.get(client, 0) + growth

    def remembered(self, client: str) -> int:
        """Return the number of groups that a client has added bytes to, as far as it is known."""
        return len(self._added.get(client, ()))

    def _sweep(self, client: str, now_ms: int) -> int:
        """Count what is left of the bytes of a client; return it."""
        if now_ms - self._swept_ms.get(client, -SWEEP_MS) < SWEEP_MS:
            return self._sums[client]
        left = {
            place: min(added, present)
            for place, added in self._added.get(client, {}).items()
            if (present := self._of_group(*place))
        }
        self._added[client], self._sums[client] = left, sum(left.values())
        self._swept_ms[client], self._left[client] = now_ms, len(left)
        return self._sums[client]
