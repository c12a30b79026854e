"""Invariants of messages and their senders."""

from quorumlog.raftlog.messages import (
    AppendRequest,
    EndEpoch,
    Heartbeat,
    HeartbeatResponse,
    SnapshotChunk,
    TimeoutNow,
)
from quorumlog.raftlog.ready import ReadReady
from quorumlog.raftlog.voters import Voter

from ....checkers.violation import Violation
from ..clients import PendingRead
from ..member import CoreMember
from ..network import MESSAGES
from ..oracle import Oracle

OF_LEADERS = (AppendRequest, Heartbeat, SnapshotChunk, TimeoutNow, EndEpoch)


class HonestEpoch:
    """13. A message carries an epoch that its sender has reached, and the sender's identity."""

    def __init__(self, oracle: Oracle) -> None:
        self.sending = dict.fromkeys(MESSAGES, self._any)

    def _any(self, member: CoreMember, message: AppendRequest) -> None:
        if message.epoch > member.epoch or message.sender != member.me:
            raise Violation("HonestEpoch", f"{member.name} in epoch {member.epoch} sends {message}")


class OneSender:
    """13. Only the leader of an epoch sends appends, heartbeats and snapshots."""

    def __init__(self, oracle: Oracle) -> None:
        self._leaders = oracle.leaders
        self.sending = dict.fromkeys(OF_LEADERS, self._of_leader)

    def _of_leader(self, member: CoreMember, message: AppendRequest) -> None:
        if self._leaders.get(message.epoch) != member.me:
            raise Violation(
                "OneSender", f"{member.name} does not lead epoch {message.epoch}: {message}"
            )


class ReadAfterQuorum:
    """22. A read waits for a commit of its leader's own epoch and for responses of a majority
    sent after it began, and sees every write answered before. Results are checked again when
    clients get them."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        # (voter, epoch) -> time of its last response
        self._answers: dict[tuple[Voter, int], int] = {}
        self.sending = {HeartbeatResponse: self._answered}

    def _answered(self, member: CoreMember, response: HeartbeatResponse) -> None:
        self._answers[member.me, response.epoch] = self._oracle.now_us

    def read_ready(self, member: CoreMember, ready: ReadReady, read: PendingRead) -> None:
        raft = member.raft
        assert raft is not None, "a read without a process"
        # Of the epoch that it led: it may have seen a newer one in the same turn.
        voters, answers, epoch = (
            list(member.state.voters.latest),
            self._answers,
            member.led_epoch,
        )
        heard = sum(
            1
            for voter in voters
            if voter == member.me or answers.get((voter, epoch), -1) >= read.began_us
        )
        if heard * 2 <= len(voters):
            raise Violation(
                "ReadAfterQuorum",
                f"{member.name} answers read {read.number}, which began at {read.began_us} us:"
                f" {heard} of {len(voters)} voters have answered since",
            )
        if ready.offset < read.floor:
            raise Violation(
                "ReadAfterQuorum",
                f"{member.name} gives read {read.number} the index {ready.offset}, {read.floor} was"
                " answered before it began",
            )
        committed = member.log.start.offset < ready.offset
        if (
            committed
            and member.state.is_leader
            and member.state.log.epoch_before(ready.offset) != member.state.epoch
        ):
            raise Violation(
                "ReadAfterQuorum",
                f"{member.name} gives {ready.offset} before a commit of epoch {member.state.epoch}",
            )
