"""Invariants of commits, application and acknowledgements."""

from quorumlog.raftlog.messages import AppendResponse, HeartbeatResponse
from quorumlog.raftlog.voters import VoterSet

from ....checkers.violation import Violation
from ..member import CoreMember
from ..oracle import Oracle


class CommittedOnQuorum:
    """6, 9, 15. A leader commits only entries on the disks of a majority of its voters. Its own
    disk counts like any other; observers and removed voters do not count."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def commit_advanced(self, member: CoreMember, before: int) -> None:
        raft = member.raft
        if raft is None or not member.is_leading:
            return
        end = member.state.high_watermark
        chain = member.log.chains[end]
        voters: VoterSet = member.state.voters.latest
        disks = self._oracle.disks
        held = sum(1 for voter in voters if voter in disks and disks[voter].log.holds(end, chain))
        if held * 2 <= len(voters):
            raise Violation(
                "CommittedOnQuorum",
                f"{member.name} commits up to {end}, which {held} of {len(voters)} voters have on"
                " disk",
            )


class OwnEpochCommit:
    """8. A leader counts copies of entries of its own epoch only (Raft §5.4.2, figure 8)."""

    def __init__(self, oracle: Oracle) -> None:
        pass

    def commit_advanced(self, member: CoreMember, before: int) -> None:
        raft = member.raft
        if raft is None or not member.is_leading:
            return
        epoch = member.state.log.epoch_before(member.state.high_watermark)
        if epoch != member.state.epoch:
            raise Violation(
                "OwnEpochCommit",
                f"{member.name} leads epoch {member.state.epoch} and commits an entry of epoch"
                f" {epoch}",
            )


class OneHistory:
    """3, 5, 7. There is one committed log. A leader commits an entry first; other members commit
    only entries that a leader has committed."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._payloads: set[bytes] = set()

    def commit_advanced(self, member: CoreMember, before: int) -> None:
        raft = member.raft
        assert raft is not None, "a commit without a process"
        committed, log = self._oracle.committed, member.log
        end = member.state.high_watermark
        if end > committed.end:
            if not member.is_leading:
                raise Violation(
                    "OneHistory",
                    f"{member.name} commits up to {end}, no leader has committed more than"
                    f" {committed.end}",
                )
            if not log.holds(committed.end, committed.chains[committed.end]):
                raise Violation(
                    "OneHistory",
                    f"{member.name} commits up to {end} another log than was committed up to"
                    f" {committed.end}",
                )
            for entry in list(log.between(committed.end, end)):
                self._oracle.commit(entry)
        if end in log.chains and log.chains[end] != committed.chains.get(end):
            raise Violation(
                "OneHistory", f"{member.name} commits up to {end} another log than other members"
            )


class OneState:
    """5. The same applied end means the same state; ranges are applied in order, once."""

    def __init__(self, oracle: Oracle) -> None:
        self._committed = oracle.committed

    def applied(self, member: CoreMember, before: int) -> None:
        chain = self._committed.chains.get(member.state_end)
        if chain is None:
            raise Violation(
                "OneState", f"{member.name} applied up to {member.state_end}, uncommitted"
            )
        if chain != member.state_chain:
            raise Violation("OneState", f"{member.name}'s state at {member.state_end} differs")


class DurableAnswer:
    """9, 13. A follower acknowledges only entries on its disk that equal its leader's, in an
    epoch that is durable too."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self.sending = {AppendResponse: self._acknowledged, HeartbeatResponse: self._acknowledged}

    def _acknowledged(
        self, member: CoreMember, response: AppendResponse | HeartbeatResponse
    ) -> None:
        end = response.match_end
        if end is None:
            return
        disk = member.disk
        if disk.log.end < end:
            raise Violation(
                "DurableAnswer", f"{member.name} acknowledges {end}, on disk is {disk.log.end}"
            )
        if disk.hard_state.epoch < response.epoch:
            raise Violation(
                "DurableAnswer",
                f"{member.name} acknowledges in epoch {response.epoch}, on disk is"
                f" {disk.hard_state.epoch}",
            )
        leader = self._oracle.member_of(response.receiver)
        if leader is None or leader.led_epoch != response.epoch or leader.epoch != response.epoch:
            return
        chain = leader.log.chains.get(end)
        if chain is None:
            if end > leader.log.end:
                raise Violation(
                    "DurableAnswer",
                    f"{member.name} acknowledges {end}, its leader's log ends at {leader.log.end}",
                )
        elif not disk.log.holds(end, chain):
            raise Violation(
                "DurableAnswer",
                f"{member.name} acknowledges {end} of another log than its leader's",
            )
