"""The fault injector of a run: each class of faults recurs at drawn times.

Disks are wiped only while every voter set in force keeps a majority of disks with their data:
consensus tolerates no more.
"""

from collections.abc import Callable
from functools import partial
from math import log
from random import Random

from quorumlog.ids import DirectoryId
from quorumlog.raftlog.voters import Voter, VoterSet

from .disks import MemberDisk
from .harness import Harness
from .member import CoreMember, directory_of
from .recorder import EventKind
from .trace import LinksCut

NO_VOTERS = VoterSet(())


class CoreFaultInjector:
    """Injects faults, until `end_all`."""

    def __init__(self, harness: Harness, random: Random) -> None:
        self._harness = harness
        self._random = random
        self.is_over = False
        self._generations = [0] * len(harness.members)
        self.crashes = self.partitions = self.wipes = 0
        harness.crash = self._crash

    def begin(self) -> None:
        """Schedule the first fault of every enabled class."""
        options = self._harness.options
        self.every(options.crash_every_ms, self._crash_one)
        self.every(options.pause_every_ms, self._pause)
        self.every(options.jump_every_ms, self._jump)
        self.every(options.clog_every_ms, self._clog)
        self.every(options.partition_every_ms, self._partition)

    def every(self, mean_ms: int, action: Callable[[], object]) -> None:
        """Schedule an action repeatedly, on average every `mean_ms` of virtual time, until the
        faults end; 0: never."""
        if mean_ms == 0:
            return

        wait_us = int(-log(1 - self._random.random()) * mean_ms * 1000)
        happen = partial(self._happen, action, mean_ms)
        self._harness.later(self._harness.now_us + wait_us + 1, happen)

    def _happen(self, action: Callable[[], object], mean_ms: int) -> None:
        if not self.is_over:
            action()
            self.every(mean_ms, action)

    def end_all(self) -> None:
        """End all faults; stopped members stay down."""
        harness = self._harness
        self.is_over = True
        harness.is_faulty = harness.network.is_faulty = False
        harness.network.end_clogs()
        for member in harness.members:
            harness.resume(member)
            member.crash_in_steps = -1

    def isolate(self, members: list[CoreMember]) -> None:
        """Cut the members off from all others; all other links work."""
        network = self._harness.network
        network.heal()
        for member in members:
            for other in self._harness.members:
                if other is not member:
                    network.cut[member.index][other.index] = True
                    network.cut[other.index][member.index] = True
        self._trace_links()

    # --- processes and machines ------------------------------------------------------------------

    def _draw_member(self, *, running: bool = True) -> CoreMember | None:
        """Draw a member; leaders are drawn more often."""
        members = [m for m in self._harness.members if (m.raft is not None) == running]
        leaders = [m for m in members if m.raft is not None and m.state.is_leader]
        chosen = leaders if leaders and self._random.random() < 0.5 else members
        return chosen[int(self._random.random() * len(chosen))] if chosen else None

    def _crash_one(self) -> None:
        member = self._draw_member()
        if member is None:
            return
        if self._random.random() < self._harness.options.armed:
            member.crash_in_steps = int(self._random.random() * 8)
        else:
            self._crash(member)
        if self._random.random() < 0.1:  # the power of all machines fails
            for other in self._harness.members:
                if other.raft is not None:
                    self._crash(other)

    def _crash(self, member: CoreMember) -> None:
        """Kill a process; the durable part of its current write is drawn."""
        if member.raft is None:
            return
        harness, options = self._harness, self._harness.options
        self.crashes += 1
        if self._random.random() < options.lost_tail:
            member.tear(self._random)
        harness.stop(member)
        if self._random.random() < options.wipe and self._may_wipe(member):
            self.wipe(member)
        down_ms = options.election_timeout_ms_max * 4 * self._random.random() ** 2
        harness.later(harness.now_us + int(down_ms * 1000), partial(self._start, member))

    def _start(self, member: CoreMember) -> None:
        if member.raft is None and not member.is_retired:
            self._harness.start(member)

    def _may_wipe(self, member: CoreMember) -> bool:
        oracle = self._harness.oracle
        for voters in oracle.known_voter_sets():
            if member.me not in voters:
                continue
            gone = sum(1 for voter in voters if oracle.is_gone(voter) or voter == member.me)
            if (len(voters) - gone) * 2 <= len(voters):
                return False
        return True

    def wipe(self, member: CoreMember) -> None:
        """Replace the disk by an empty one with another directory id; the old one is kept for
        the invariants."""
        self.wipes += 1
        member.disk.is_wiped = True
        self._generations[member.index] += 1
        generation = self._generations[member.index]
        node_id = member.me.node_id
        directory_id = DirectoryId(directory_of(node_id, generation))
        member.disk = MemberDisk(node_id, directory_id, NO_VOTERS)
        self._harness.oracle.disks[Voter(node_id, directory_id)] = member.disk
        self._harness.note(EventKind.WIPE, member)

    def _pause(self) -> None:
        member = self._draw_member()
        if member is not None:
            options = self._harness.options
            span_ms = options.election_timeout_ms_max * 4 * self._random.random()
            member.paused_until_us = self._harness.now_us + int(span_ms * 1000)
            self._harness.note(EventKind.PAUSE, member)

    def _jump(self) -> None:
        member = self._draw_member()
        if member is not None:
            ahead_ms = (
                self._harness.options.election_timeout_ms_max * 3 * self._random.random() ** 2
            )
            member.jump(self._harness.now_us, int(ahead_ms))
            self._harness.note(EventKind.JUMP, member)

    # --- links -----------------------------------------------------------------------------------

    def _clog(self) -> None:
        harness, members = self._harness, self._harness.members
        source = members[int(self._random.random() * len(members))]
        target = members[int(self._random.random() * len(members))]
        span_ms = harness.options.election_timeout_ms_max * 2 * self._random.random() ** 2
        until_us = harness.now_us + int(span_ms * 1000)
        harness.network.clogged_until_us[source.index][target.index] = until_us
        harness.note(EventKind.CLOG, source, target.number)

    def _partition(self) -> None:
        """Cut the members into two parts, one member off, or one link, for a while."""
        harness, random = self._harness, self._random.random
        network, count = harness.network, len(harness.members)
        network.heal()
        if count < 2:
            return
        self.partitions += 1
        span_ms = harness.options.election_timeout_ms_max * (0.5 + 6 * random() ** 2)
        number = self.partitions
        harness.later(harness.now_us + int(span_ms * 1000), partial(self._heal, number))
        kind = int(random() * 3)
        if kind == 0:  # one member
            drawn = self._draw_member()
            parts = [member is drawn for member in harness.members]
        elif kind == 1:
            parts = [random() < 0.5 for _ in range(count)]
        else:  # one link: both ends still reach the others
            source, target = int(random() * count), int(random() * count)
            network.cut[source][target] = source != target
            if random() >= harness.options.one_way:
                network.cut[target][source] = source != target
            harness.note(EventKind.CUT)
            self._trace_links()
            return
        one_way = random() < harness.options.one_way
        for source in range(count):
            for target in range(count):
                if parts[source] != parts[target] and (not one_way or parts[source]):
                    network.cut[source][target] = True
        harness.note(EventKind.CUT)
        self._trace_links()

    def _heal(self, number: int) -> None:
        """End a partition, unless a newer one is in force."""
        if number == self.partitions and not self.is_over:
            self._harness.network.heal()
            self._harness.note(EventKind.HEAL)
            self._trace_links()

    def _trace_links(self) -> None:
        harness = self._harness
        if harness.tracer is None:
            return
        links = tuple(
            (source + 1, target + 1)
            for source, row in enumerate(harness.network.cut)
            for target, is_cut in enumerate(row)
            if is_cut
        )
        harness.tracer(LinksCut(at_us=harness.now_us, links=links))
