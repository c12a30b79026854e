"""Which replica of one partition is read: its leader, or one in the reader's rack that the leader
has named (KIP-392).

Pure. Who is named is read until it refuses, or the leader is another one, or `STAY_MS` have passed:
then the leader is asked again. After a refusal the leader alone is read for a while, for it would
name the same one.
"""

from dataclasses import dataclass, replace

from ..topology import Leader

STAY_MS = 30_000
LEADER_MS = 1_000


@dataclass(slots=True)
class Nearby:
    """See the module. Times are those of now_ms()."""

    address: str | None = None  # of the replica that is read instead of the leader
    leader: Leader | None = None  # under which it is; None: taken when it is first read
    until_ms: int = 0  # then the leader is asked again
    leader_until_ms: int = 0  # until then the leader alone is read

    @property
    def is_away(self) -> bool:
        """Whether another one than the leader is read."""
        return self.address is not None

    def source(self, leader: Leader, now_ms: int) -> Leader:
        """Return where to read, for a partition that has this leader now."""
        self.leader = self.leader or leader
        if self.address is None or leader != self.leader or now_ms >= self.until_ms:
            self.address = None
            return leader
        return replace(leader, address=self.address)

    def rack_told(self, rack: str, now_ms: int) -> str:
        """Return the rack to tell a leader, which may name a replica there then."""
        return "" if now_ms < self.leader_until_ms else rack

    def named(self, address: str | None, now_ms: int) -> None:
        """The leader has named a replica to read from; None: nobody knows where that one is."""
        self.address, self.leader, self.until_ms = address, None, now_ms + STAY_MS
        if address is None:
            self.leader_until_ms = now_ms + STAY_MS

    def leave(self, now_ms: int) -> bool:
        """Read from the leader again, as the other one fails; return whether there was one."""
        was_away, self.address = self.is_away, None
        if was_away:
            self.leader_until_ms = now_ms + LEADER_MS
        return was_away
