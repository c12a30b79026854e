"""A run of level `core`: a safety phase with faults, then a liveness phase without.

The seed draws the cluster size, the options and the faults. In the safety phase only the invariants
must hold. Then a connected subset of the members with a majority of every voter set in force is
chosen; its faults end, the others stay cut off or down. It must elect a leader, commit new
proposals, complete every change of voters and converge within a bound of virtual time. Then the
others return, and all must converge.
"""

import gc
from typing import Final

from quorumlog.ids import DirectoryId, NodeId
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.simulation.entropy import SimEntropy

from ...shrink.script import EventScript, plain_random
from .disks import MemberDisk
from .faults import CoreFaultInjector
from .harness import Harness
from .liveness import Liveness
from .member import CoreMember, directory_of
from .operators import Operators
from .options import CoreOptions, draw
from .recorder import EventKind
from .scripted import ScriptedHarness
from .trace import Tracer

NO_VOTERS: Final = VoterSet(())


class CoreRun:
    """A run of one seed; `play` raises Violation or the core's own AssertionError."""

    def __init__(
        self,
        seed: int,
        *,
        options: CoreOptions | None = None,
        tracer: Tracer | None = None,
        script: EventScript | None = None,
    ) -> None:
        entropy = SimEntropy(f"core/{seed}")
        self.options = options or draw(entropy.stream("options"))
        if script is not None:
            self.options = script.options("options", self.options)
        members = make_members(self.options, entropy)
        make_random = plain_random if script is None else script.random
        self.harness = (
            Harness(self.options, members, entropy, tracer=tracer)
            if script is None
            else ScriptedHarness(self.options, members, entropy, script, tracer=tracer)
        )
        self._random = make_random("weather", entropy.stream("weather").below(1 << 62))
        self.faults = CoreFaultInjector(self.harness, self._random)
        self.operators = Operators(
            self.harness,
            self.faults,
            make_random("operators", entropy.stream("operators").below(1 << 62)),
        )
        self.facts: dict[str, int] = {}

    @property
    def event_count(self) -> int:
        """The number of events so far."""
        return self.harness.recorder.count

    def play(self) -> None:
        """Run both phases."""
        was_collecting = gc.isenabled()
        gc.disable()
        try:
            self._play()
        finally:
            if was_collecting:
                gc.enable()

    def _play(self) -> None:
        harness, options = self.harness, self.options
        for member in harness.members:
            harness.start(member)
        self.operators.begin()
        self.faults.begin()
        harness.run(until_us=options.safety_ms_max * 1000, events=options.events)
        harness.note(EventKind.PHASE)
        Liveness(harness, self.faults, self.operators, self._random).play()
        for finished in harness.checks.finished:
            finished()
        history = harness.history
        self.facts = {
            "members": len(harness.members),
            "committed": harness.oracle.committed.end,
            "epochs": max((member.epoch for member in harness.members), default=0),
            "answered": history.proposals_answered,
            "reads": history.reads_answered,
            "crashes": self.faults.crashes,
            "wipes": self.faults.wipes,
            "changes": self.operators.changes,
        }


def make_members(options: CoreOptions, entropy: SimEntropy) -> list[CoreMember]:
    """Return the machines, not started."""
    count = options.voters + options.observers
    ids = [Voter(NodeId(n), DirectoryId(directory_of(NodeId(n), 0))) for n in range(1, count + 1)]
    formatted = VoterSet.of((voter, f"n{voter.node_id}:1") for voter in ids[: options.voters])
    clocks, disks = entropy.stream("clocks"), entropy.stream("disks")
    members = []
    for index, voter in enumerate(ids):
        known = formatted if index < options.voters else NO_VOTERS
        drift_ppm = clocks.below(2 * options.drift_ppm_max + 1) - options.drift_ppm_max
        disk = MemberDisk(voter.node_id, voter.directory_id, known)
        member = CoreMember(index, disk, drift_ppm=drift_ppm, base_ms=clocks.below(1_000_000_000))
        member.has_slow_disk = options.slow_append_ms > 0 and disks.chance(0.4)
        members.append(member)
    return members
