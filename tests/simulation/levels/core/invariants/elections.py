"""Invariants of elections: epochs, votes, and the log of a leader."""

from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.messages import VoteRequest, VoteResponse
from quorumlog.raftlog.voters import Voter

from ....checkers.violation import Violation
from ..checks import Delivered
from ..member import CoreMember, log_end_of
from ..oracle import Oracle


class ElectionSafety:
    """1. An epoch has at most one leader, across restarts (Raft figure 3)."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def role_changed(self, member: CoreMember) -> None:
        raft = member.raft
        if raft is None or not member.state.is_leader:
            return
        known = self._oracle.leaders.setdefault(member.state.epoch, member.me)
        if known != member.me:
            raise Violation(
                "ElectionSafety", f"{known} and {member.me} lead epoch {member.state.epoch}"
            )
        if member.state.epoch > self._oracle.newest_leader_epoch:
            self._oracle.newest_leader_epoch = member.state.epoch


class ElectedByQuorum:
    """1. A leader has received the votes of a majority of its voters in this epoch; its own vote
    is on its disk."""

    def __init__(self, oracle: Oracle) -> None:
        self._votes = oracle.votes

    def role_changed(self, member: CoreMember) -> None:
        raft = member.raft
        if raft is None or not member.state.is_leader:
            return
        voters, epoch, me = (
            list(member.state.voters.latest),
            member.state.epoch,
            member.me,
        )
        stored = member.disk.hard_state
        votes = sum(1 for voter in voters if self._votes.get((voter, epoch)) == me != voter)
        votes += me in voters and (stored.epoch, stored.vote) == (epoch, me)
        if votes * 2 <= len(voters):
            raise Violation(
                "ElectedByQuorum",
                f"{member.name} leads epoch {epoch} by {votes} votes of {len(voters)} voters",
            )


class NoResumedLeadership:
    """A restarted node does not lead the epoch it led before: its tail may be lost
    (KAFKA-10527)."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._lives: dict[int, tuple[int, int]] = {}  # epoch -> (node, life) of its leader

    def role_changed(self, member: CoreMember) -> None:
        raft = member.raft
        if raft is None or not member.state.is_leader:
            return
        life = (member.number, member.life)
        known = self._lives.setdefault(member.state.epoch, life)
        if known != life:
            raise Violation(
                "NoResumedLeadership",
                f"{member.name} leads epoch {member.state.epoch} in another life",
            )


class LeaderCompleteness:
    """4. The log of every later leader contains every committed entry (Raft §5.4)."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def role_changed(self, member: CoreMember) -> None:
        raft = member.raft
        if raft is None or not member.state.is_leader:
            return
        committed = self._oracle.committed
        if committed.last_epoch > member.state.epoch:  # committed by a later leader
            return
        if not member.log.holds(committed.end, committed.chains[committed.end]):
            raise Violation(
                "LeaderCompleteness",
                f"{member.name} leads epoch {member.state.epoch} with a log up to {member.log.end}"
                f" without what was committed up to {committed.end}",
            )

    def commit_advanced(self, member: CoreMember, before: int) -> None:
        """Check newer leaders when an older leader commits late."""
        raft = member.raft
        newest = self._oracle.newest_leader_epoch
        if raft is None or not member.state.is_leader or newest <= member.state.epoch:
            return
        leader = self._oracle.member_of(self._oracle.leaders[newest])
        if leader is None or leader.raft is None or not leader.state.is_leader:
            return
        if leader.state.epoch != newest:
            return
        end = member.state.high_watermark
        if not leader.log.holds(end, member.log.chains[end]):
            raise Violation(
                "LeaderCompleteness",
                f"{member.name} committed up to {end} in epoch {member.state.epoch}, which the"
                f" leader of epoch {newest} does not have",
            )


class OneVote:
    """10. One vote per epoch, across restarts; epoch and vote never go back."""

    def __init__(self, oracle: Oracle) -> None:
        self._votes = oracle.votes
        self.sending = {VoteResponse: self._granted, VoteRequest: self._campaign}

    def storing(self, member: CoreMember, state: HardState) -> None:
        before = member.disk.hard_state
        if state.epoch < before.epoch:
            raise Violation("OneVote", f"{member.name} stores {state} after {before}")
        if state.epoch == before.epoch and before.vote not in (None, state.vote):
            raise Violation("OneVote", f"{member.name} takes its vote back: {state} after {before}")

    def started(self, member: CoreMember) -> None:
        raft = member.raft
        if raft is not None and (member.state.epoch, member.state.vote) != (
            member.disk.hard_state.epoch,
            member.disk.hard_state.vote,
        ):
            raise Violation("OneVote", f"{member.name} starts in epoch {member.state.epoch}")

    def _granted(self, member: CoreMember, response: VoteResponse) -> None:
        if response.granted and not response.pre_vote:
            self._count(member.me, response.epoch, response.receiver)

    def _campaign(self, member: CoreMember, request: VoteRequest) -> None:
        if not request.pre_vote:
            self._count(member.me, request.epoch, member.me)

    def _count(self, voter: Voter, epoch: int, candidate: Voter) -> None:
        known = self._votes.setdefault((voter, epoch), candidate)
        if known != candidate:
            raise Violation("OneVote", f"{voter} voted for {known} and {candidate} in {epoch}")


class DurableVote:
    """9. A vote is on disk before it is sent, the candidate's own vote too."""

    def __init__(self, oracle: Oracle) -> None:
        self.sending = {VoteResponse: self._granted, VoteRequest: self._campaign}

    def _granted(self, member: CoreMember, response: VoteResponse) -> None:
        if response.granted and not response.pre_vote:
            self._must_be_durable(member, response.epoch, response.receiver)

    def _campaign(self, member: CoreMember, request: VoteRequest) -> None:
        if not request.pre_vote:
            self._must_be_durable(member, request.epoch, member.me)

    def _must_be_durable(self, member: CoreMember, epoch: int, candidate: Voter) -> None:
        stored = member.disk.hard_state
        if stored.epoch < epoch or (stored.epoch == epoch and stored.vote != candidate):
            raise Violation(
                "DurableVote",
                f"{member.name} sends its vote for {candidate} in epoch {epoch}, on disk is"
                f" {stored}",
            )


class UpToDateVote:
    """14. A candidate that gets a vote has every entry that the voter has committed, and its log
    is at least as up to date (Raft §5.4.1)."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._votes: dict[tuple[Voter, int], Voter] = {}
        # (voter, candidate, epoch): the candidate's log was at least as up to date at the request.
        self._fitted: set[tuple[Voter, Voter, int]] = set()
        self.sending = {VoteResponse: self._promised}

    def delivered(self, member: CoreMember, message: object, before: Delivered) -> None:
        if type(message) is VoteRequest:
            raft = member.raft
            assert raft is not None, "a message without a process"
            if message.log_end >= member.state.log.end:
                self._fitted.add((member.me, message.sender, message.epoch))

    def _promised(self, member: CoreMember, response: VoteResponse) -> None:
        """Check a pre-vote against both logs at the time of the request: after a power cut one
        may be shorter by now, and the other longer."""
        if not response.granted or not response.pre_vote:
            return
        if (member.me, response.receiver, response.epoch) not in self._fitted:
            raise Violation(
                "UpToDateVote",
                f"{member.name} with {log_end_of(member.log)} grants a pre-vote to"
                f" {response.receiver}, with a log that was never as up to date",
            )

    def settled(self, member: CoreMember) -> None:
        raft = member.raft
        assert raft is not None, "settled without a process"
        vote = member.state.vote
        if vote is None or vote == member.me or (member.me, member.state.epoch) in self._votes:
            return
        self._votes[member.me, member.state.epoch] = vote
        candidate = self._oracle.member_of(vote)
        if (
            candidate is None
            or candidate.raft is None
            or candidate.state.epoch != member.state.epoch
        ):
            return
        if candidate.raft.role.name not in ("candidate", "leader"):
            return  # it restarted and lost its tail: the vote has no effect
        ends, needed = log_end_of(candidate.log), log_end_of(member.log)
        if ends < needed:
            raise Violation(
                "UpToDateVote",
                f"{member.name} with {needed} votes for {candidate.name} with {ends}",
            )
        end = member.state.high_watermark
        chain = member.log.chains.get(end)
        if chain is not None and not candidate.log.holds(end, chain):
            raise Violation(
                "UpToDateVote",
                f"{member.name} has committed up to {end}, its candidate {candidate.name} has not",
            )


class PreVoteChangesNothing:
    """21. A pre-vote without a newer epoch changes neither epoch, vote, log nor role (thesis
    9.6)."""

    def __init__(self, oracle: Oracle) -> None:
        pass

    def delivered(self, member: CoreMember, message: object, before: Delivered) -> None:
        if type(message) is not VoteRequest or not message.pre_vote:
            return
        raft = member.raft
        assert raft is not None, "a message without a process"
        epoch, vote, end, role = before
        if message.epoch <= epoch and (
            member.state.epoch,
            member.state.vote,
            member.state.log.end_offset,
        ) != (
            epoch,
            vote,
            end,
        ):
            raise Violation("PreVoteChangesNothing", f"{member.name} changed by {message}")
        if message.epoch <= epoch and raft.role is not role:
            raise Violation("PreVoteChangesNothing", f"{member.name} left its role by {message}")
