"""The latest known addresses of the nodes. Bounded; addresses of voters are kept longest."""

from ...core.voters import Voter


class Addresses:
    """Addresses by node. O(1), except for an eviction."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._addresses: dict[Voter, str] = {}  # "host:port", oldest first
        self._voters: set[Voter] = set()  # the nodes that a voter set named

    def __len__(self) -> int:
        return len(self._addresses)

    def find(self, voter: Voter) -> str:
        """Return the address of a node, "" if unknown."""
        return self._addresses.get(voter, "")

    def learn(self, voter: Voter, address: str, *, is_voter: bool) -> bool:
        """Record an address. Return True if it is new. "" changes nothing."""
        if is_voter:
            self._voters.add(voter)
        if not address or self._addresses.get(voter) == address:
            return False
        self._addresses.pop(voter, None)
        self._addresses[voter] = address
        if len(self._addresses) > self._entries_max:
            self._forget_one()
        return True

    def _forget_one(self) -> None:
        """Evict the oldest node that no voter set named, or else the oldest one."""
        oldest = next((v for v in self._addresses if v not in self._voters), None)
        voter = next(iter(self._addresses)) if oldest is None else oldest
        del self._addresses[voter]
        self._voters.discard(voter)
