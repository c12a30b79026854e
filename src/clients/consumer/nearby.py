"""The replica that a partition is fetched from: the leader, or a preferred replica (KIP-392).

Pure. The leader names a replica in the consumer's rack. The consumer fetches from it until it
fails, the leader changes, or `STAY_MS` have passed, and then asks the leader again. After a
failure it fetches from the leader alone for `LEADER_MS`, as the leader would name the same
replica.
"""

from dataclasses import dataclass, replace

from ..topology import Leader

STAY_MS = 30_000
LEADER_MS = 1_000


@dataclass(slots=True)
class Nearby:
    """The preferred replica of one partition. Times are those of now_ms()."""

    address: str | None = None  # of the replica that is fetched from; None: the leader
    leader: Leader | None = None  # the leader that named it; None: set by the first fetch
    until_ms: int = 0  # end of the fetches from the replica
    leader_until_ms: int = 0  # until then only the leader is fetched from

    @property
    def is_away(self) -> bool:
        """True if another replica than the leader is fetched from."""
        return self.address is not None

    def source(self, leader: Leader, now_ms: int) -> Leader:
        """Return the broker to fetch from, for a partition with this leader."""
        self.leader = self.leader or leader
        if self.address is None or leader != self.leader or now_ms >= self.until_ms:
            self.address = None
            return leader
        return replace(leader, address=self.address)

    def rack_told(self, rack: str, now_ms: int) -> str:
        """Return the rack to send in a fetch request; "" prevents the leader from naming a
        replica."""
        return "" if now_ms < self.leader_until_ms else rack

    def named(self, address: str | None, now_ms: int) -> None:
        """Fetch from the replica that the leader named; None: its address is unknown."""
        self.address, self.leader, self.until_ms = address, None, now_ms + STAY_MS
        if address is None:
            self.leader_until_ms = now_ms + STAY_MS

    def leave(self, now_ms: int) -> bool:
        """Fetch from the leader again after a failure; return True if another replica was in
        use."""
        was_away, self.address = self.is_away, None
        if was_away:
            self.leader_until_ms = now_ms + LEADER_MS
        return was_away
