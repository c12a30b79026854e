"""Invariant 25, liveness: after the faults a connected majority elects, commits, completes
changes and converges within a bound; then the other members return."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from quorumlog.errors import Overloaded
from quorumlog.raftlog.messages import AppendRequest
from quorumlog.raftlog.status import describe_quorum
from quorumlog.raftlog.voters import Voter

from ...checkers.violation import Violation
from .clients import CoreHistory
from .faults import CoreFaultInjector
from .harness import Harness
from .member import CoreMember
from .operators import Operators
from .recorder import EventKind

ROUNDS_MAX: Final = 60
"""Bound in longest election time-outs until the core of the cluster serves again. A split vote
costs one; pending work and a large snapshot cost more."""
BACKLOG_SLOWNESS: Final = 100
"""Factor by which clients propose less often after a third of the rounds: some drawn links carry
less than is proposed, and followers that lag only because of that are not stuck."""
STABLE_ROUNDS: Final = 5
DRAIN_ROUNDS: Final = 600
"""Bound in longest election time-outs for a backlog; slow links need many."""
PROMPT_PROPOSALS: Final = 10
PROMPT_HOPS: Final = 8
"""Messages, each with its reads and writes, that an operation may take without faults and load."""
QUIET_HEARTBEATS: Final = 10


class Liveness:
    """The second phase of a run."""

    def __init__(
        self, harness: Harness, faults: CoreFaultInjector, operators: Operators, random: Random
    ) -> None:
        self._harness = harness
        self._faults = faults
        self._operators = operators
        self._random = random
        self._round_us = harness.options.election_timeout_ms_max * 1000 + 4 * (
            harness.options.latency_us[1] + harness.options.write_us[1]
        )

    def play(self) -> None:
        """Run the phase; raises Violation if the cluster does not recover."""
        harness = self._harness
        self._faults.end_all()
        core = self._choose()
        rest = [member for member in harness.members if member not in core]
        self._faults.isolate(rest)
        for member in rest:
            if member.raft is not None and self._random.random() < 0.5:
                harness.stop(member)
        self._revive(core)
        self._must(core, "the chosen majority")
        harness.note(EventKind.PHASE)
        self._faults.isolate([])
        leader = self._leader(core)
        epoch = 0 if leader is None else leader.epoch
        quiet = all(member.epoch <= epoch for member in rest)
        self._revive(rest)
        if quiet:
            self._must_be_stable(epoch)
        self._must(harness.members, "all members")
        self._operators.is_over = True
        self._must_drain()
        self._must_be_prompt()

    def _choose(self) -> list[CoreMember]:
        """Return a drawn subset of the members with a majority of every voter set in force."""
        harness = self._harness
        sets = harness.oracle.known_voter_sets()
        core = list(harness.members)
        for _ in range(len(core)):
            leaver = core[int(self._random.random() * len(core))]
            smaller = [member for member in core if member is not leaver]
            ids = [member.me for member in smaller]
            if all(2 * sum(1 for voter in s if voter in ids) > len(s) for s in sets):
                core = smaller
        return core

    def _revive(self, members: list[CoreMember]) -> None:
        for member in members:
            if member.raft is None:
                self._harness.start(member)

    # --- what must come to be --------------------------------------------------------------------

    def _must(self, members: list[CoreMember], description: str) -> None:
        """Wait until the members serve; raises Violation if they do not within the bound."""
        harness = self._harness
        history: CoreHistory = harness.history
        answered, reads = history.proposals_answered, history.reads_answered
        missing = ""
        for number in range(ROUNDS_MAX):
            if number == ROUNDS_MAX // 3:
                self._operators.slowness = BACKLOG_SLOWNESS
            harness.run(until_us=harness.now_us + self._round_us)
            missing = self._missing(members)
            if not missing and history.proposals_answered <= answered:
                missing = "no new proposal was committed"
            if not missing and harness.options.reads_per_s and history.reads_answered <= reads:
                missing = "no read was answered"
            if not missing:
                return
        states = ", ".join(self._state(member) for member in harness.members)
        raise Violation(
            "Liveness",
            f"{ROUNDS_MAX} election time-outs after the faults of {description} ended"
            f" ({[member.name for member in members]}): {missing}; {states}",
        )

    def _missing(self, members: list[CoreMember]) -> str:
        """Return the first missing condition, "" if there is none."""
        leader = self._leader(members)
        if leader is None:
            return "there is no leader"
        raft = leader.raft
        assert raft is not None, "a leader without a process"
        if leader.state.voters.latest_offset >= leader.state.high_watermark:
            return "a change of the voters is not committed"
        if leader.me not in leader.state.voters.latest:
            return "the leader is no voter"
        floor = leader.state.high_watermark - self._slack()
        for member in members:
            assert member.raft is not None, "a revived member without a process"
            if member.state.epoch != leader.state.epoch or member.state.leader != leader.me:
                return f"{member.name} does not follow {leader.name}"
            if member.state_end < floor:
                return f"{member.name} applied {member.state_end} of {leader.state.high_watermark}"
        now_ms = leader.now_ms(self._harness.now_us)
        status = describe_quorum(leader.state, raft.role, now_ms)
        ids = [member.me for member in members]
        for each in (*status.voters, *status.observers):
            if each.member in ids and each.member != leader.me and each.state != "replicate":
                return f"{leader.name} is stuck in {each.state} with node {each.member.node_id}"
        return ""

    def _slack(self) -> int:
        """Return the lag that a follower may have under load: the proposals of a few round
        trips."""
        options = self._harness.options
        span_us = 8 * (
            options.latency_us[1] + options.write_us[1] + options.apply_us[1] + options.read_us[1]
        )
        span_us += 2 * options.heartbeat_ms * 1000 + 2 * options.turn_us
        return 20 + int(span_us / 1e6 * options.proposals_per_s * options.records_max * 3)

    def _leader(self, members: list[CoreMember]) -> CoreMember | None:
        leaders = [m for m in members if m.raft is not None and m.state.is_leader]
        return max(leaders, key=lambda m: m.epoch, default=None)

    def _must_be_stable(self, epoch: int) -> None:
        """Check 21: a returning member without a newer epoch does not depose a leader that a
        majority follows."""
        harness = self._harness
        harness.run(until_us=harness.now_us + STABLE_ROUNDS * self._round_us)
        newest = max(member.epoch for member in harness.members)
        if newest != epoch:
            raise Violation(
                "StableLeadership", f"epoch {epoch} had a leader, a returning node made it {newest}"
            )

    # --- what takes a few messages, not heartbeats ---------------------------------------------

    def _must_drain(self) -> None:
        """Wait until every member has applied everything that was proposed."""
        harness = self._harness
        for _ in range(DRAIN_ROUNDS):
            harness.run(until_us=harness.now_us + self._round_us)
            leader = self._leader(harness.members)
            if leader is None or self._missing(harness.members):
                continue
            if all_have(harness.members, leader.state.log.end_offset):
                return
        states = ", ".join(self._state(member) for member in harness.members)
        raise Violation("Liveness", f"{DRAIN_ROUNDS} election time-outs without load: {states}")

    def _must_be_prompt(self) -> None:
        """Without faults and load, check that a proposal, a read and a transfer take a few
        messages each, and that idle members send heartbeats alone.

        Messages and disks become fast, so that the bound is below the interval of heartbeats.
        """
        harness = self._harness
        heartbeat_us = 1_000 * harness.options.heartbeat_ms
        options = harness.options.faster(heartbeat_us // (2 * PROMPT_HOPS))
        harness.options = harness.network.options = options
        harness.run(until_us=harness.now_us + STABLE_ROUNDS * self._round_us)
        leader = self._leader(harness.members)
        assert leader is not None, "no leader"
        history, members = harness.history, harness.members
        for _ in range(PROMPT_PROPOSALS):
            harness.propose(leader, 1, 1)
            end = leader.state.log.end_offset
            self._within(
                partial(all_have, members, end), f"a proposal of {leader.name} is not applied"
            )
        self._must_send_once(leader)
        answered = history.reads_answered
        harness.read(leader)
        self._within(
            lambda: history.reads_answered > answered, f"a read of {leader.name} is not answered"
        )
        self._must_be_quiet(leader)
        self._must_transfer(leader)

    def _must_send_once(self, leader: CoreMember) -> None:
        """Check that entries proposed one after the other are sent once to every follower. The
        leader has them in memory: reads from the disk would overtake each other here."""
        harness = self._harness
        options = harness.options
        harness.options = replace(options, read_us=(0, 0))
        first = leader.state.log.end_offset
        sent: Counter[Voter] = Counter()

        def count(_: CoreMember, request: AppendRequest) -> None:
            sent[request.receiver] += sum(1 for e in request.entries if e.base_offset >= first)

        counting = harness.checks.sending.setdefault(AppendRequest, [])
        counting.append(count)
        for _ in range(PROMPT_PROPOSALS):
            harness.propose(leader, 1, 1)
            harness.run(until_us=harness.now_us + harness.options.latency_us[1])
        end = leader.state.log.end_offset
        self._within(partial(all_have, harness.members, end), "pipelined proposals are not applied")
        counting.remove(count)
        harness.options = options
        followers = [member.me for member in harness.members if member is not leader]
        counts = {voter: sent[voter] for voter in followers}
        if any(number != PROMPT_PROPOSALS for number in counts.values()):
            raise Violation("Prompt", f"{PROMPT_PROPOSALS} entries were sent so often: {counts}")

    def _must_transfer(self, leader: CoreMember) -> None:
        harness, raft = self._harness, leader.raft
        assert raft is not None, "a leader without a process"
        voters = [m for m in harness.members if m.me in leader.state.voters.latest]
        others = [member for member in voters if member is not leader]
        if not others:
            return
        to = others[int(self._random.random() * len(others))]
        raft.transfer_leadership(to.me.node_id, leader.now_ms(harness.now_us))
        try:
            harness.propose(leader, 1, 1)
        except Overloaded:
            pass
        else:
            raise Violation("Prompt", f"{leader.name} accepts a proposal during a transfer")
        harness.settle(leader, EventKind.TRANSFER << 16)
        self._within(
            lambda: to.state.is_leader and all(m.state.leader == to.me for m in voters),
            f"{to.name} does not lead after a transfer",
        )
        outside = [member for member in harness.members if member not in voters]
        self._must_be_found(to, outside)

    def _must_be_found(self, leader: CoreMember, outside: list[CoreMember]) -> None:
        """Check that observers find a new leader: each asks, after an election time-out without
        one, every two to four heartbeats, and another voter names the leader."""
        harness, options = self._harness, self._harness.options
        bound_ms = options.election_timeout_ms_max + 4 * (len(outside) + 2) * options.heartbeat_ms
        slow_us = bound_ms * options.drift_ppm_max // 1_000
        harness.run(until_us=harness.now_us + 1_000 * bound_ms + slow_us)
        lost = [member.name for member in outside if member.state.leader != leader.me]
        if lost:
            raise Violation("Prompt", f"{lost} do not find {leader.name} within {bound_ms} ms")

    def _within(self, holds: Callable[[], bool], description: str) -> None:
        """Check that a condition holds after the longest time of a few messages."""
        harness = self._harness
        bound_us = PROMPT_HOPS * harness.options.hop_us
        harness.run(until_us=harness.now_us + bound_us)
        if not holds():
            states = ", ".join(self._state(member) for member in harness.members)
            raise Violation("Prompt", f"{description} within {bound_us} us; {states}")

    def _must_be_quiet(self, leader: CoreMember) -> None:
        """Check that idle members send a heartbeat and its response for each interval alone."""
        harness = self._harness
        assert leader.raft is not None, "a leader without a process"
        now_ms = leader.now_ms(harness.now_us)
        status = describe_quorum(leader.state, leader.raft.role, now_ms)
        peers = len(status.voters) + len(status.observers) - 1  # lost disks for a while too
        needed = 2 * peers * (QUIET_HEARTBEATS + 2)
        sent = harness.network.sent
        harness.run(
            until_us=harness.now_us + QUIET_HEARTBEATS * 1000 * harness.options.heartbeat_ms
        )
        if harness.network.sent - sent > needed:
            raise Violation(
                "Quiet",
                f"{harness.network.sent - sent} messages in {QUIET_HEARTBEATS} heartbeats to"
                f" {peers} idle members, at most {needed} are needed",
            )

    def _state(self, member: CoreMember) -> str:
        raft = member.raft
        if raft is None:
            return f"{member.name} down"
        state = member.state
        voters = [voter.node_id for voter in state.voters.latest]
        return (
            f"{member.name} {raft.role.name} epoch {state.epoch} voters {voters}"
            f" [{state.log.start.offset}, {state.log.end_offset}) committed {state.high_watermark}"
            f" applied {member.state_end}"
        )


def all_have(members: list[CoreMember], end: int) -> bool:
    """Return True if all members have applied everything below the offset."""
    return all(member.state_end >= end for member in members)
