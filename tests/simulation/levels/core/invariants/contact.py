"""Invariants of contact: a member answers its live leader and does not depose it; a leader without
contact to a majority resigns, and forgets silent observers."""

from collections import Counter
from typing import Any, Final

from quorumlog.raftlog.messages import (
    AppendRejected,
    AppendRequest,
    AppendResponse,
    EndEpoch,
    FollowRequest,
    Heartbeat,
    HeartbeatResponse,
    Message,
    SnapshotChunk,
    SnapshotResponse,
    VoteRequest,
    VoteResponse,
)
from quorumlog.raftlog.roles import RoleName
from quorumlog.raftlog.voters import Voter

from ....checkers.violation import Violation
from ..checks import Delivered
from ..member import CoreMember
from ..oracle import Oracle

OF_CONTACT: Final = (AppendRequest, Heartbeat, SnapshotChunk)
ANSWERS: Final = (AppendResponse, AppendRejected, SnapshotResponse)


class StableLeader:
    """A member that has a message of its leader within the minimum election time-out neither votes
    nor campaigns, and changes no epoch for a vote request; nor does the leader (thesis 4.2.3, 9.6).
    """

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        # By member: epoch, leader and time on its clock of its leader's last message.
        self._contacts: dict[int, tuple[int, Voter, int]] = {}
        # By member, candidate and epoch: requests that may be granted, without a grant yet.
        self._grantable: Counter[tuple[Voter, Voter, int]] = Counter()
        self.sending = {VoteResponse: self._answered}

    def started(self, member: CoreMember) -> None:
        self._contacts.pop(member.number, None)

    def delivered(self, member: CoreMember, message: Message, before: Delivered) -> None:
        if isinstance(message, VoteRequest):
            self._vote_requested(member, message, before)
        elif isinstance(message, EndEpoch):
            self._contacts.pop(member.number, None)
        elif isinstance(message, OF_CONTACT) and _is_followed(member, message):
            now_ms = member.now_ms(self._oracle.now_us)
            self._contacts[member.number] = (message.epoch, message.sender, now_ms)

    def role_changed(self, member: CoreMember) -> None:
        raft = member.raft
        assert raft is not None, "a role without a process"
        if raft.role.name is RoleName.PRE_CANDIDATE and self._has_contact(
            member, member.state.epoch
        ):
            raise Violation(
                "StableLeader",
                f"{member.name} campaigns in epoch {member.state.epoch} despite its leader",
            )

    def _vote_requested(self, member: CoreMember, request: VoteRequest, before: Delivered) -> None:
        epoch, vote, _, role = before
        if request.receiver != member.me or (request.is_transfer and not request.pre_vote):
            return
        assert isinstance(epoch, int), f"epoch {epoch}"
        name = role.name  # type: ignore[attr-defined]
        if name is not RoleName.LEADER and not (
            name is RoleName.FOLLOWER and self._has_contact(member, epoch, besides=request.sender)
        ):
            self._grantable[member.me, request.sender, request.epoch] += 1
            return
        if (member.state.epoch, member.state.vote) != (epoch, vote):
            raise Violation(
                "StableLeader",
                f"{member.name} goes from epoch {epoch} to {member.state.epoch} at the request of"
                f" {request.sender}, though it has contact to its leader",
            )

    def _answered(self, member: CoreMember, response: VoteResponse) -> None:
        if not response.granted or not response.pre_vote:
            return
        key = (member.me, response.receiver, response.epoch)
        if not self._grantable[key]:
            raise Violation(
                "StableLeader",
                f"{member.name} promises its vote to {response.receiver} in epoch"
                f" {response.epoch}, though it has contact to its leader",
            )
        self._grantable[key] -= 1

    def _has_contact(self, member: CoreMember, epoch: int, besides: Voter | None = None) -> bool:
        known = self._contacts.get(member.number)
        if known is None or known[0] != epoch or known[1] == besides:
            return False
        age_ms = member.now_ms(self._oracle.now_us) - known[2]
        return age_ms < member.state.config.election_timeout_ms_min


class Answered:
    """A follower answers every request of its leader once its disk is idle: one response may
    answer several requests. Without it the leader waits for the next heartbeat."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._owed: dict[int, tuple[int, Voter, int]] = {}  # by member: epoch, leader, time in us
        self._busy: set[int] = set()  # members that were writing at their last event
        self._idle_us: dict[int, int] = {}  # by member: when its last write had ended
        self.sending = dict.fromkeys(ANSWERS, self._answered)

    def started(self, member: CoreMember) -> None:
        self._owed.pop(member.number, None)
        self._busy.discard(member.number)

    def delivered(self, member: CoreMember, message: Message, before: Delivered) -> None:
        if isinstance(message, AppendRequest | SnapshotChunk) and _is_followed(member, message):
            if member.number in self._owed:
                return
            if isinstance(message, SnapshotChunk):
                reception = member.state.reception
                if reception is not None and reception.snapshot != message.snapshot:
                    return  # a late chunk of an earlier snapshot
            elif member.state.is_installing:
                return
            self._owed[member.number] = (message.epoch, message.sender, self._oracle.now_us)

    def settled(self, member: CoreMember) -> None:
        owed = self._owed.get(member.number)
        raft = member.raft
        assert raft is not None, "settled without a process"
        if owed is None:
            return
        epoch, leader, since_us = owed
        if (member.state.epoch, member.state.leader) != (epoch, leader):
            del self._owed[member.number]
            return
        now_us = self._oracle.now_us
        if member.job is not None or raft.has_ready() or member.state.is_installing:
            self._busy.add(member.number)
            return
        if member.number in self._busy:
            self._busy.remove(member.number)
            self._idle_us[member.number] = now_us
        idle_us = now_us - max(
            since_us, member.paused_until_us, self._idle_us.get(member.number, 0)
        )
        if idle_us > self._oracle.release_us:
            raise Violation(
                "Answered",
                f"{member.name} owes {leader} a response since {since_us} us, and has nothing to"
                f" write for {idle_us} us",
            )

    def _answered(self, member: CoreMember, response: Any) -> None:
        owed = self._owed.get(member.number)
        if owed is not None and owed[1] == response.receiver:
            del self._owed[member.number]


class CheckQuorum:
    """A leader without responses of a majority of its voters for the quorum time-out resigns at its
    next heartbeat (thesis 6.2); an observer that is silent for the observer time-out gets none."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        # By leading member: times on its clock of the last response of each peer.
        self._heard_ms: dict[int, dict[Voter, int]] = {}
        self._led_ms: dict[int, int] = {}  # by member: since when it leads
        self._alone_ms: dict[int, int] = {}  # by member: since when it sends without a majority
        self.sending = {Heartbeat: self._beat}

    def role_changed(self, member: CoreMember) -> None:
        self._heard_ms[member.number] = {}
        self._alone_ms.pop(member.number, None)
        self._led_ms[member.number] = member.now_ms(self._oracle.now_us)

    def delivered(self, member: CoreMember, message: Message, before: Delivered) -> None:
        is_response = isinstance(message, (*ANSWERS, HeartbeatResponse))
        if is_response and message.epoch != member.state.epoch:
            return
        if is_response or isinstance(message, FollowRequest):
            now_ms = member.now_ms(self._oracle.now_us)
            heard = self._heard_ms.setdefault(member.number, {})
            if is_response or message.sender not in member.state.voters.latest:
                heard[message.sender] = now_ms

    def _beat(self, member: CoreMember, heartbeat: Heartbeat) -> None:
        config, voters = member.state.config, member.state.voters.latest
        now_ms = member.now_ms(self._oracle.now_us)
        slack_ms = 2 * config.heartbeat_ms + 2 * self._oracle.late_us // 1_000
        heard, led_ms = self._heard_ms[member.number], self._led_ms[member.number]
        silent_ms = now_ms - heard.get(heartbeat.receiver, led_ms)
        if heartbeat.receiver not in voters and silent_ms > config.observer_timeout_ms + slack_ms:
            raise Violation(
                "CheckQuorum",
                f"{member.name} sends a heartbeat to observer {heartbeat.receiver}, silent for"
                f" {silent_ms} ms",
            )
        near = [
            voter
            for voter in voters
            if voter == member.me or now_ms - heard.get(voter, led_ms) < config.quorum_timeout_ms
        ]
        if len(near) >= voters.majority:
            self._alone_ms.pop(member.number, None)
        elif now_ms - self._alone_ms.setdefault(member.number, now_ms) > slack_ms:
            raise Violation(
                "CheckQuorum",
                f"{member.name} leads epoch {member.state.epoch} with responses of {len(near)} of"
                f" {len(voters)} voters for {config.quorum_timeout_ms} ms",
            )


def _is_followed(member: CoreMember, message: Message) -> bool:
    """Return True if a member accepted a message as one of its leader."""
    state = member.state
    return (
        not state.is_leader
        and message.epoch == state.epoch
        and message.sender == state.leader
        and getattr(message, "receiver", None) == member.me
    )
