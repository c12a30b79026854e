"""Where members of the quorum are reached: the newest word counts. Bounded; voters stay longest."""

from ...core.voters import Voter


class Addresses:
    """The address book. O(1), but for the rare moment when it is full."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._addresses: dict[Voter, str] = {}  # "host:port", the oldest word first
        self._voters: set[Voter] = set()  # of them, those named by a voter set

    def __len__(self) -> int:
        return len(self._addresses)

    def find(self, voter: Voter) -> str:
        """Where the voter is reached; "" when nobody has said so."""
        return self._addresses.get(voter, "")

    def learn(self, voter: Voter, address: str, *, is_voter: bool) -> bool:
        """Take in where it is reached; whether that is news. "" says nothing."""
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
        """The oldest entry that no voter set named, or else the oldest of all."""
        oldest = next((v for v in self._addresses if v not in self._voters), None)
        voter = next(iter(self._addresses)) if oldest is None else oldest
        del self._addresses[voter]
        self._voters.discard(voter)
