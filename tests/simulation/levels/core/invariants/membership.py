"""Invariants of voter sets and their changes."""

from quorumlog.raftlog.log_view import Entry, EntryKind
from quorumlog.raftlog.messages import FollowRequest, Message, VoteRequest
from quorumlog.raftlog.voters import VoterSet

from ....checkers.violation import Violation
from ..checks import Delivered
from ..member import CoreMember
from ..oracle import Oracle


class OneChange:
    """18. A leader changes one voter at a time, after a commit of its own epoch and while no
    other change is uncommitted (thesis 4.1, the bug of 2015), so that majorities of consecutive
    sets intersect."""

    def __init__(self, oracle: Oracle) -> None:
        pass

    def voters_proposed(self, member: CoreMember, entry: Entry) -> None:
        raft = member.raft
        assert raft is not None, "a change without a process"
        if entry.kind is not EntryKind.VOTERS or entry.voters is None:
            raise Violation("OneChange", f"{member.name} changes its voters by {entry}")
        log, end = member.state.log, member.state.high_watermark
        if end == log.start.offset or log.epoch_before(end) != member.state.epoch:
            raise Violation(
                "OneChange",
                f"{member.name} changes the voters in epoch {member.state.epoch}, committed is up"
                f" to {end} of an older one",
            )
        before = member.state.voters.at(entry.base_offset)
        for offset, voters in self._changes(member, end):
            if voters is not entry.voters:
                raise Violation("OneChange", f"the change at {offset} is open, another one is made")
        changed = set(before.members) ^ set(entry.voters.members)
        if len(changed) != 1:
            raise Violation("OneChange", f"from {before} to {entry.voters} in one step")

    def _changes(self, member: CoreMember, start: int) -> list[tuple[int, VoterSet]]:
        entries = member.log.between(start, member.log.end)
        return [(each.base_offset, each.voters) for each in entries if each.voters is not None]


class VotersFollowCommit:
    """16, 19. The voters at a committed offset are the same on every member."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle

    def commit_advanced(self, member: CoreMember, before: int) -> None:
        raft = member.raft
        assert raft is not None, "a commit without a process"
        end = member.state.high_watermark
        mine, known = member.state.voters.at(end), self._oracle.voters_at(end)
        if len(mine) and mine != known:
            raise Violation(
                "VotersFollowCommit", f"{member.name} has {mine} at {end}, committed is {known}"
            )


class OnlyVotersCampaign:
    """19. A member outside its own voter set does not request votes, unless its removal may be
    uncommitted (thesis 4.2.2)."""

    def __init__(self, oracle: Oracle) -> None:
        self.sending = {VoteRequest: self._campaign}

    def _campaign(self, member: CoreMember, request: VoteRequest) -> None:
        raft = member.raft
        if raft is None or member.state.epoch != request.epoch:
            return
        if not request.pre_vote:
            return  # sent once its vote was durable; other voters may be in force by now
        if raft.role.name != "pre_candidate":
            return  # it processed other input before its messages were fetched
        changed = member.state.voters.latest_offset
        may_lead = changed >= member.state.high_watermark and member.me in member.state.voters.at(
            changed
        )
        if member.me not in member.state.voters.latest and not may_lead:
            raise Violation("OnlyVotersCampaign", f"{member.name} campaigns without a vote")


class Identity:
    """20. A message for another directory id changes nothing (KIP-853)."""

    def __init__(self, oracle: Oracle) -> None:
        pass

    def delivered(self, member: CoreMember, message: Message, before: Delivered) -> None:
        if isinstance(message, FollowRequest) or message.receiver == member.me:
            return
        raft = member.raft
        assert raft is not None, "a message without a process"
        if (
            member.state.epoch,
            member.state.vote,
            member.state.log.end_offset,
            raft.role,
        ) != before:
            raise Violation("Identity", f"{member.name} took in a message for {message.receiver}")
