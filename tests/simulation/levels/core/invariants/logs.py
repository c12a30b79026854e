"""Invariants of logs and their changes."""

from typing import Final

from quorumlog.ids import Offset
from quorumlog.raftlog.log_view import Entry
from quorumlog.raftlog.voters import VoterSet

from ....checkers.violation import Violation
from ..disks import MemberDisk
from ..member import CoreMember
from ..oracle import Oracle

NO_VOTERS: Final = VoterSet(())


class LeaderAppendOnly:
    """2. A leader never overwrites or truncates its own log (Raft figure 3)."""

    def __init__(self, oracle: Oracle) -> None:
        pass

    def truncating(self, member: CoreMember, offset: Offset) -> None:
        raft = member.raft
        assert raft is not None, "a truncation without a process"
        # A truncation decided before the election may be written after it.
        if (
            member.state.is_leader
            and member.log.end > offset
            and member.log.last_epoch == member.state.epoch
        ):
            raise Violation(
                "LeaderAppendOnly",
                f"{member.name} leads epoch {member.state.epoch} and truncates {offset}",
            )


class LogMatching:
    """3. Equal end offset and epoch mean equal history from the beginning (Raft §5.3), in all
    logs of the run."""

    def __init__(self, oracle: Oracle) -> None:
        self._chains: dict[tuple[int, int], int] = {}  # (end, epoch) -> running hash

    def appended(self, member: CoreMember, entry: Entry, chain: int) -> None:
        key = (entry.next_offset, entry.epoch)
        known = self._chains.setdefault(key, chain)
        if known != chain:
            raise Violation(
                "LogMatching",
                f"{member.name}'s log up to {key[0]} of epoch {key[1]} differs from another log",
            )


class CommittedImmutable:
    """7. Committed entries are never truncated on any disk."""

    def __init__(self, oracle: Oracle) -> None:
        self._committed = oracle.committed

    def disk_truncating(self, disk: MemberDisk, offset: Offset) -> None:
        entry = disk.log.entries.get(offset)
        if entry is None:
            if offset < disk.log.start.offset:
                raise Violation(
                    "CommittedImmutable", f"{disk.me} truncates {offset} below a snapshot"
                )
            return
        end = entry.next_offset
        if self._committed.chains.get(end) == disk.log.chains[end]:
            raise Violation(
                "CommittedImmutable",
                f"{disk.me} truncates from {offset}, where a committed entry begins",
            )


class Ordered:
    """12. log start <= applied <= high watermark <= log end; removed entries are in a snapshot."""

    def __init__(self, oracle: Oracle) -> None:
        pass

    def settled(self, member: CoreMember) -> None:
        raft = member.raft
        assert raft is not None, "settled without a process"
        log = member.state.log
        if (
            not log.start.offset
            <= member.state.applied_end
            <= member.state.high_watermark
            <= log.end_offset
        ):
            raise Violation(
                "Ordered",
                f"{member.name}: start {log.start.offset}, applied {member.state.applied_end},"
                f" committed {member.state.high_watermark}, end {log.end_offset}",
            )


class Monotonic:
    """11. Epoch, high watermark and applied end of a process only grow."""

    def __init__(self, oracle: Oracle) -> None:
        count = len(oracle.members)
        self._last = [(-1, 0, 0, 0)] * count  # (life, epoch, high watermark, applied)

    def settled(self, member: CoreMember) -> None:
        raft = member.raft
        assert raft is not None, "settled without a process"
        life, epoch, high_watermark, applied = self._last[member.index]
        now = (
            member.life,
            member.state.epoch,
            member.state.high_watermark,
            member.state.applied_end,
        )
        if life == now[0] and (now[1] < epoch or now[2] < high_watermark or now[3] < applied):
            raise Violation(
                "Monotonic", f"{member.name}: {now[1:]} after {self._last[member.index]}"
            )
        self._last[member.index] = now


class SameView:
    """The core's log view equals the result of its rounds: the same end, the same voters in
    force (19: a voter set is in force from its record in the log until that is truncated)."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._truncated: set[int] = set()  # members to compare after this event

    def started(self, member: CoreMember) -> None:
        self._compare(member)

    def settled(self, member: CoreMember) -> None:
        raft = member.raft
        assert raft is not None, "settled without a process"
        if member.state.voters.latest is not member.voters_seen or member.index in self._truncated:
            member.voters_seen = member.state.voters.latest
            self._truncated.discard(member.index)
            self._compare(member)

    def truncating(self, member: CoreMember, offset: Offset) -> None:
        self._truncated.add(member.index)

    def finished(self) -> None:
        for member in self._oracle.members:
            if member.raft is not None:
                self._compare(member)

    def _compare(self, member: CoreMember) -> None:
        """Compare the voters: O(entries since the log's start), only at changes of voters."""
        raft = member.raft
        assert raft is not None, "compared without a process"
        if member.state.log.start.offset != member.log.start.offset:
            return  # it was cleaned; the disk follows in this event
        latest = member.disk.voters_at_start()
        for entry in member.log.between(member.log.start.offset, member.log.end):
            if entry.voters is not None:
                latest = entry.voters
        if latest != member.state.voters.latest:
            raise Violation(
                "SameView",
                f"{member.name} uses {member.state.voters.latest}, its log has {latest}",
            )
