"""The runs that docs/raft.md shows: scripted, without faults but those of the story, each from one
seed. A story returns its trace from the moment on that it is about.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from quorumlog.ids import NodeId
from quorumlog.simulation.entropy import SimEntropy

from ..levels.core.harness import Harness
from ..levels.core.member import Member
from ..levels.core.options import QuorumOptions
from ..levels.core.run import make_members
from ..levels.core.trace import HighWatermark, LinksCut, RoleTaken, TraceEvent, VotersSet

MS: Final = 1000
PATIENCE_MS: Final = 10_000  # of virtual time, for each thing that a story waits for
CALM: Final = QuorumOptions(
    heartbeat_ms=100,
    election_timeout_ms_min=300,
    election_timeout_ms_max=600,
    latency_us=(400, 2_000),
    write_us=(500, 2_000),
    proposals_per_s=0.0,
    reads_per_s=0.0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A picture to be drawn."""

    name: str  # of its file
    title: str
    play: Callable[["Stage"], None]
    seed: int
    voters: int = 3
    observers: int = 0


class Stage:
    """A cluster, and the trace of what happens on it."""

    def __init__(self, story: Story) -> None:
        options = replace(CALM, voters=story.voters, observers=story.observers)
        entropy = SimEntropy(f"story/{story.name}/{story.seed}")
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
    def leader(self) -> Member | None:
        """Who leads the newest epoch."""
        leading = [m for m in self.members if m.raft is not None and m.raft.is_leader]
        return max(leading, key=lambda m: m.epoch, default=None)

    def leads(self) -> Member:
        """Who leads; there must be one."""
        assert self.leader is not None, "nobody leads"
        return self.leader

    def wait(self, condition: Callable[[], bool], why: str) -> None:
        """Let time pass until the condition holds."""
        end_us = self.harness.now_us + PATIENCE_MS * MS
        while not condition():
            assert self.harness.now_us < end_us, f"the story waits in vain: {why}"
            self.harness.run(until_us=self.harness.now_us + MS // 2)

    def pass_ms(self, milliseconds: int) -> None:
        """Let time pass."""
        self.harness.run(until_us=self.harness.now_us + milliseconds * MS)

    def wait_settled(self) -> None:
        """Until everybody has committed everything."""
        self.wait(
            lambda: (
                self.leader is not None
                and len({m.high_watermark for m in self.members}) == 1
                and self.members[0].high_watermark == self.leads().log.end
            ),
            "all is committed everywhere",
        )

    def begin(self) -> None:
        """The picture starts here, with what each member is by now."""
        self._begin_us = now_us = self.harness.now_us
        for member in self.members:
            raft, node = member.raft, member.number
            assert raft is not None, f"{member.name} is down"
            voters = tuple(voter.node_id for voter in raft.voters.latest)
            self.trace += [
                RoleTaken(at_us=now_us, node=node, role=raft.role.name, epoch=raft.epoch),
                HighWatermark(at_us=now_us, node=node, offset=raft.high_watermark),
                VotersSet(at_us=now_us, node=node, voters=voters),
            ]

    def told(self) -> list[TraceEvent]:
        """What the picture shows; what was on its way at its start is left out."""
        return [event for event in self.trace if event.at_us >= self._begin_us]

    def propose(self, member: Member) -> None:
        """Have a leader append one record."""
        assert member.raft is not None, "the leader is down"
        payload = self.harness.payloads.batch(
            1, base_offset=member.raft.log.end_offset, epoch=member.raft.epoch, count=1, size=100
        )
        member.raft.propose(count=1, payload=payload)
        self.harness.settle(member, 0)

    def cut_off(self, member: Member) -> None:
        """Cut every link of a member, both ways."""
        links = []
        for other in self.members:
            if other is not member:
                self.harness.network.cut[member.index][other.index] = True
                self.harness.network.cut[other.index][member.index] = True
                links += [(member.number, other.number), (other.number, member.number)]
        self.trace.append(LinksCut(at_us=self.harness.now_us, links=tuple(links)))

    def heal(self) -> None:
        """Make every link whole."""
        for row in self.harness.network.cut:
            row[:] = [False] * len(row)
        self.trace.append(LinksCut(at_us=self.harness.now_us, links=()))


def _election(stage: Stage) -> None:
    stage.wait_settled()
    stage.pass_ms(2)


def _partition(stage: Stage) -> None:
    stage.wait_settled()
    old = stage.leads()
    stage.pass_ms(5)
    stage.begin()
    stage.cut_off(old)
    stage.propose(old)
    stage.wait(lambda: stage.leader not in (None, old), "another one leads")
    stage.wait(lambda: old.raft is not None and not old.raft.is_leader, "the old one gives up")
    stage.propose(stage.leads())
    stage.pass_ms(8)
    stage.heal()
    stage.wait_settled()
    stage.pass_ms(3)


def _membership(stage: Stage) -> None:
    stage.wait_settled()
    leader, joining = stage.leads(), stage.members[-1]
    assert leader.raft is not None, "the leader is down"
    stage.wait(lambda: joining.high_watermark == leader.high_watermark, "the new node follows")
    stage.pass_ms(3)
    stage.begin()
    leader.raft.add_voter(joining.me, joining.address, leader.now_ms(stage.harness.now_us))
    stage.harness.settle(leader, 0)
    stage.wait_settled()
    stage.pass_ms(6)
    removed = next(member for member in stage.members if member is not leader)
    leader.raft.remove_voter(removed.me, leader.now_ms(stage.harness.now_us))
    stage.harness.settle(leader, 0)
    stage.wait_settled()
    stage.pass_ms(3)


STORIES: Final = (
    Story(name="election", title="Three voters start and elect a leader", play=_election, seed=1),
    Story(
        name="partition",
        title="The leader is cut off, another one is elected, the links heal",
        play=_partition,
        seed=1,
    ),
    Story(
        name="membership",
        title="A node that follows becomes a voter, then another one is removed",
        play=_membership,
        seed=1,
        observers=1,
    ),
)


def tell(story: Story) -> tuple[list[TraceEvent], list[int]]:
    """Play a story; its trace and its members."""
    stage = Stage(story)
    story.play(stage)
    return stage.told(), [NodeId(member.number) for member in stage.members]
