"""The memory of what members send to their groups: subscriptions and assignments. Pure."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from ...errors import GroupFull
from .requests import ConsumerHeartbeat, JoinGroup, SyncGroup

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

    def replaced_bytes(self, request: Any) -> int:
        """Return the bytes that a request of a member replaces."""


class ShardMemberBytes:
    """The bytes of the groups of one partition."""

    def __init__(self, groups: Mapping[str, SizedGroup]) -> None:
        self._groups = groups
        self._sizes: dict[str, int] = {}
        self.total = 0

    def update(self, group: str) -> None:
        """Count a group again after a change."""
        machine = self._groups.get(group)
        size = 0 if machine is None else machine.member_bytes
        self.total += size - self._sizes.pop(group, 0)
        if size:
            self._sizes[group] = size

    def of_group(self, group: str) -> int:
        """Return the bytes of a group."""
        return self._sizes.get(group, 0)

    def growth(self, request: Any) -> int:
        """Return the bytes that a request adds to its group at most."""
        if isinstance(request, JoinGroup):
            size = sum(len(name) + len(content) for name, content in request.protocols)
        elif isinstance(request, SyncGroup):
            size = sum(map(len, request.assignments.values()))
        elif isinstance(request, ConsumerHeartbeat):
            size = sum(map(len, request.topics or ())) + len(request.pattern or "")
        else:
            return 0
        if not size:
            return 0
        machine = self._groups.get(request.group)
        return max(0, size - (0 if machine is None else machine.replaced_bytes(request)))


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

    def add(self, client: str, partition: int, group: str, growth: int, now_ms: int) -> None:
        """Count the bytes that a request of a client adds to a group. Raise GroupFull at a
        limit."""
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
        groups = self._added.setdefault(client, {})
        groups[partition, group] = groups.get((partition, group), 0) + growth
        self._sums[client] = own + growth

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
