"""The scripted runs of the diagrams in docs/raft.md, each with one seed and its own faults only.

A script returns the trace from its start mark on.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from quorumlog.ids import NodeId
from quorumlog.raftlog.voters import VoterAddition, VoterRemoval
from quorumlog.simulation.entropy import SimEntropy

from ..levels.core.harness import Harness
from ..levels.core.member import CoreMember
from ..levels.core.options import CoreOptions
from ..levels.core.run import make_members
from ..levels.core.trace import HighWatermark, LinksCut, RoleTaken, TraceEvent, VotersSet

MS: Final = 1000
WAIT_MS: Final = 10_000  # bound of each wait, of virtual time
NO_FAULTS: Final = CoreOptions(
    heartbeat_ms=100,
    election_timeout_ms_min=300,
    election_timeout_ms_max=600,
    latency_us=(400, 2_000),
    write_us=(500, 2_000),
    proposals_per_s=0.0,
    reads_per_s=0.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagramSpec:
    """A diagram and its script."""

    name: str  # file name
    title: str
    play: Callable[["DiagramScript"], None]
    seed: int
    voters: int = 3
    observers: int = 0


class DiagramScript:
    """A cluster and its trace."""

    def __init__(self, spec: DiagramSpec) -> None:
        options = replace(NO_FAULTS, voters=spec.voters, observers=spec.observers)
        entropy = SimEntropy(f"story/{spec.name}/{spec.seed}")
        self.trace: list[TraceEvent] = []
        self.harness = Harness(
            options, make_members(options, entropy), entropy, tracer=self.trace.append
        )
        self.members = self.harness.members
        self.harness.is_faulty = self.harness.network.is_faulty = False
        self._begin_us = 0
        for member in self.members:
            self.harness.start(member)

    @property
    def leader(self) -> CoreMember | None:
        """The leader of the newest epoch."""
        leading = [m for m in self.members if m.raft is not None and m.state.is_leader]
        return max(leading, key=lambda m: m.epoch, default=None)

    def leads(self) -> CoreMember:
        """Return the leader; there must be one."""
        assert self.leader is not None, "there is no leader"
        return self.leader

    def wait(self, condition: Callable[[], bool], why: str) -> None:
        """Let time pass until the condition holds."""
        end_us = self.harness.now_us + WAIT_MS * MS
        while not condition():
            assert self.harness.now_us < end_us, f"not reached in time: {why}"
            self.harness.run(until_us=self.harness.now_us + MS // 2)

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass."""
        self.harness.run(until_us=self.harness.now_us + milliseconds * MS)

    def wait_settled(self) -> None:
        """Wait until every member has committed the leader's log."""
        self.wait(
            lambda: (
                self.leader is not None
                and len({m.high_watermark for m in self.members}) == 1
                and self.members[0].high_watermark == self.leads().log.end
            ),
            "every member has committed everything",
        )

    def begin(self) -> None:
        """Start the diagram here, with the state of each member."""
        self._begin_us = now_us = self.harness.now_us
        for member in self.members:
            raft, node = member.raft, member.number
            assert raft is not None, f"{member.name} is down"
            voters = tuple(voter.node_id for voter in member.state.voters.latest)
            self.trace += [
                RoleTaken(at_us=now_us, node=node, role=raft.role.name, epoch=member.state.epoch),
                HighWatermark(at_us=now_us, node=node, offset=member.state.high_watermark),
                VotersSet(at_us=now_us, node=node, voters=voters),
            ]

    def visible_events(self) -> list[TraceEvent]:
        """Return the events since the start mark; messages in flight then are left out."""
        return [event for event in self.trace if event.at_us >= self._begin_us]

    def propose(self, member: CoreMember) -> None:
        """Append one record at a leader."""
        assert member.raft is not None, "the leader is down"
        payload = self.harness.payloads.batch(
            1,
            base_offset=member.state.log.end_offset,
            epoch=member.state.epoch,
            count=1,
            size=100,
        )
        member.raft.propose(count=1, payload=payload)
        self.harness.settle(member, 0)

    def cut_off(self, member: CoreMember) -> None:
        """Cut every link of a member, in both directions."""
        links = []
        for other in self.members:
            if other is not member:
                self.harness.network.cut[member.index][other.index] = True
                self.harness.network.cut[other.index][member.index] = True
                links += [(member.number, other.number), (other.number, member.number)]
        self.trace.append(LinksCut(at_us=self.harness.now_us, links=tuple(links)))

    def heal(self) -> None:
        """Remove all cuts."""
        for row in self.harness.network.cut:
            row[:] = [False] * len(row)
        self.trace.append(LinksCut(at_us=self.harness.now_us, links=()))


def _election(stage: DiagramScript) -> None:
    stage.wait_settled()
    stage.pass_ms(2)


def _partition(stage: DiagramScript) -> None:
    stage.wait_settled()
    old = stage.leads()
    stage.pass_ms(5)
    stage.begin()
    stage.cut_off(old)
    stage.propose(old)
    stage.wait(lambda: stage.leader not in (None, old), "another leader is elected")
    stage.wait(
        lambda: old.raft is not None and not old.state.is_leader, "the old leader steps down"
    )
    stage.propose(stage.leads())
    stage.pass_ms(8)
    stage.heal()
    stage.wait_settled()
    stage.pass_ms(3)


def _membership(stage: DiagramScript) -> None:
    stage.wait_settled()
    leader, joining = stage.leads(), stage.members[-1]
    assert leader.raft is not None, "the leader is down"
    stage.wait(lambda: joining.high_watermark == leader.high_watermark, "the new node follows")
    stage.pass_ms(3)
    stage.begin()
    change = VoterAddition(joining.me, joining.address)
    leader.raft.change_voters(change, leader.now_ms(stage.harness.now_us))
    stage.harness.settle(leader, 0)
    stage.wait_settled()
    stage.pass_ms(6)
    removed = next(member for member in stage.members if member is not leader)
    leader.raft.change_voters(VoterRemoval(removed.me), leader.now_ms(stage.harness.now_us))
    stage.harness.settle(leader, 0)
    stage.wait_settled()
    stage.pass_ms(3)


DIAGRAMS: Final = (
    DiagramSpec(
        name="election", title="Three voters start and elect a leader", play=_election, seed=1
    ),
    DiagramSpec(
        name="partition",
        title="The leader is cut off, another one is elected, the links heal",
        play=_partition,
        seed=1,
    ),
    DiagramSpec(
        name="membership",
        title="A node that follows becomes a voter, then another one is removed",
        play=_membership,
        seed=1,
        observers=1,
    ),
)


def play_diagram(spec: DiagramSpec) -> tuple[list[TraceEvent], list[int]]:
    """Run a script; return its trace and its members."""
    stage = DiagramScript(spec)
    spec.play(stage)
    return stage.visible_events(), [NodeId(member.number) for member in stage.members]
