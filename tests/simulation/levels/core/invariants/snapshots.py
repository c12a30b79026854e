"""Invariants of snapshots and their installation."""

from quorumlog.raftlog.log_view import SnapshotId
from quorumlog.raftlog.messages import SnapshotChunk
from quorumlog.raftlog.voters import Voter

from ....checkers.violation import Violation
from ..disks import SnapshotFile
from ..member import CoreMember
from ..oracle import Oracle


class SameSnapshot:
    """16. A snapshot ends at a committed offset of its epoch; its state and voters are those of
    the log there; equal names mean equal bytes on every member."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._files: dict[SnapshotId, bytes] = {}

    def snapshot_written(
        self, member: CoreMember, snapshot: SnapshotId, file: SnapshotFile
    ) -> None:
        committed = self._oracle.committed
        end = snapshot.end_offset
        chain = SnapshotFile.chain_in(file.content, snapshot)
        if end not in committed.chains or chain != committed.chains[end]:
            raise Violation("SameSnapshot", f"{member.name}'s {snapshot} is no committed state")
        if end and committed.epoch_before(end) != snapshot.epoch:
            raise Violation("SameSnapshot", f"{member.name}'s {snapshot} is of another epoch")
        if file.voters != self._oracle.voters_at(end):
            raise Violation(
                "SameSnapshot",
                f"{member.name}'s {snapshot} has {file.voters}, the log has"
                f" {self._oracle.voters_at(end)}",
            )
        if self._files.setdefault(snapshot, file.content) != file.content:
            raise Violation("SameSnapshot", f"{member.name}'s {snapshot} has other bytes")


class StartInSnapshot:
    """16. A log that does not start at 0 starts at the end of one of its snapshots."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def started(self, member: CoreMember) -> None:
        self._compare(member)

    def snapshot_written(
        self, member: CoreMember, snapshot: SnapshotId, file: SnapshotFile
    ) -> None:
        self._compare(member)

    def finished(self) -> None:
        for member in self._oracle.members:
            self._compare(member)

    def _compare(self, member: CoreMember) -> None:
        start = member.disk.log.start
        if start.offset and start not in [each.log_end for each in member.disk.snapshots]:
            raise Violation(
                "StartInSnapshot", f"{member.name}'s log starts at {start}, no snapshot ends there"
            )


class InstallKeepsCommitted:
    """17. Installing a snapshot undoes nothing committed, applied or acknowledged, and a leader
    installs none."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def installing(self, member: CoreMember, snapshot: SnapshotId) -> None:
        raft, log = member.raft, member.log
        assert raft is not None, "an installation without a process"
        end = snapshot.end_offset
        if member.state.is_leader:
            raise Violation("InstallKeepsCommitted", f"{member.name} leads and installs {snapshot}")
        if end < member.state.high_watermark or end < member.state_end:
            raise Violation(
                "InstallKeepsCommitted",
                f"{member.name} installs {snapshot}, applied is {member.state_end}, committed"
                f" {member.state.high_watermark}",
            )
        chain = self._oracle.committed.chains.get(end)
        if chain is not None and log.chains.get(end) == chain and log.end > end:
            raise Violation(
                "InstallKeepsCommitted",
                f"{member.name} drops [{end}, {log.end}) for {snapshot}, which its log matches",
            )


class HonestChunk:
    """16. A snapshot chunk carries the voters in force at the snapshot's end."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self.sending = {SnapshotChunk: self._chunk}

    def _chunk(self, member: CoreMember, chunk: SnapshotChunk) -> None:
        if chunk.voters != self._oracle.voters_at(chunk.snapshot.end_offset):
            raise Violation(
                "HonestChunk", f"{member.name} sends {chunk.snapshot} with {chunk.voters}"
            )


class NewestSnapshot:
    """16. A leader that begins to send a snapshot sends its newest one."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        # By member: its newest snapshot, and when it was durable.
        self._written: dict[int, tuple[SnapshotId, int]] = {}
        # By member and receiver: epoch and snapshot of the last chunk.
        self._begun: dict[tuple[int, Voter], tuple[int, SnapshotId]] = {}
        self.sending = {SnapshotChunk: self._chunk}

    def snapshot_written(
        self, member: CoreMember, snapshot: SnapshotId, file: SnapshotFile
    ) -> None:
        self._written[member.number] = (snapshot, self._oracle.now_us)

    def _chunk(self, member: CoreMember, chunk: SnapshotChunk) -> None:
        key, sent = (member.number, chunk.receiver), (chunk.epoch, chunk.snapshot)
        if self._begun.get(key) == sent:
            return
        self._begun[key] = sent
        newest, written_us = self._written.get(member.number, (chunk.snapshot, 0))
        age_us = self._oracle.now_us - written_us
        if newest > chunk.snapshot and age_us > self._oracle.release_us:
            raise Violation(
                "NewestSnapshot",
                f"{member.name} begins to send {chunk.snapshot}, though it has {newest} for"
                f" {age_us} us",
            )
