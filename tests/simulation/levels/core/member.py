"""One machine of the quorum: its clock, its disk, and the process on it when one runs."""

from collections import deque
from random import Random

from quorumlog.ids import Epoch, NodeId, Offset
from quorumlog.raftlog.log_view import LogEnd, SnapshotId
from quorumlog.raftlog.raft import Raft
from quorumlog.raftlog.ready import Ready
from quorumlog.raftlog.state import EncodeControl
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.simulation.entropy import SimEntropy

from .clients import Proposal, Read
from .disks import MemberDisk, RunningLog
from .options import QuorumOptions


class Job:
    """A round with a token, on its way to the disk: which step of it is under way."""

    __slots__ = ("is_refused", "next_step", "ready", "steps")

    def __init__(self, ready: Ready) -> None:
        self.ready = ready
        self.next_step = 0
        self.is_refused = False  # its snapshot proved bad
        steps = []
        if ready.hard_state is not None:
            steps.append("hard_state")
        steps += ["chunk"] * len(ready.chunks)
        if ready.install is not None:
            steps.append("install")
        if ready.truncate_to is not None:
            steps.append("truncate")
        if ready.append:
            steps.append("append")
        self.steps = steps


class Member:
    """A machine. What is volatile is reset by `start`; the harness changes it."""

    def __init__(self, index: int, disk: MemberDisk, *, drift_ppm: int, base_ms: int) -> None:
        self.index = index  # 0-based; the node id is one more
        self.number = index + 1
        self.address = f"n{self.number}:1"
        self.disk = disk
        self.life = 0  # counts crashes and starts: what is scheduled for another life is void
        self.paused_until_us = 0
        self.has_slow_disk = False
        self.is_retired = False  # stays down for the rest of the run
        # The monotonic clock: reference points, then so many millionths of true time.
        self.clock_us = 0
        self.clock_ms = base_ms
        self.rate = 1_000_000 + drift_ppm
        # The process.
        self.raft: Raft | None = None
        self.log = RunningLog()  # what the core's view says, written or not
        self.role: object = None  # as last seen
        self.epoch = 0
        self.high_watermark = 0
        self.led_epoch = -1  # the newest epoch that it led in this life
        self.is_leading = False  # or was, until the last event: its commits count
        self.voters_seen: VoterSet | None = None
        self.voters_traced: VoterSet | None = None
        self.job: Job | None = None
        self.is_turn_due = False
        self.timer_us: int | None = None  # when the next look at the clock is scheduled
        self.state_end = 0  # the state machine has applied [0, state_end)
        self.state_chain = 0
        self.to_apply: deque[tuple[int, int]] = deque()  # committed ranges, in order
        self.is_applying = False
        self.snapshot_under_way: SnapshotId | None = None
        self.proposals: deque[Proposal] = deque()  # appended here, by offset
        self.reads: dict[int, Read] = {}  # by context, no answer of the core yet
        self.ready_reads: list[tuple[int, Read]] = []  # (offset to be applied, read)
        self.crash_in_steps = -1  # armed: a power cut after so many steps of writes

    @property
    def me(self) -> Voter:
        """The identity of the present disk."""
        return self.disk.me

    @property
    def name(self) -> str:
        """For people."""
        return f"n{self.number}"

    @property
    def is_appending(self) -> bool:
        """Whether the step of the write under way is the append."""
        job = self.job
        return job is not None and job.steps[job.next_step : job.next_step + 1] == ["append"]

    def now_ms(self, now_us: int) -> int:
        """What its clock says."""
        return self.clock_ms + (now_us - self.clock_us) * self.rate // 1_000_000_000

    def due_us(self, deadline_ms: int) -> int:
        """When its clock will say so, unless it jumps."""
        ahead_ms = deadline_ms - self.clock_ms
        return self.clock_us + -(-ahead_ms * 1_000_000_000 // self.rate)

    def jump(self, now_us: int, ahead_ms: int) -> None:
        """The clock jumps ahead."""
        self.clock_ms = self.now_ms(now_us) + ahead_ms
        self.clock_us = now_us

    def start(
        self,
        options: QuorumOptions,
        bootstrap: tuple[str, ...],
        entropy: SimEntropy,
        now_us: int,
        *,
        encode_control: EncodeControl,
    ) -> Raft:
        """Start a process from what is on the disk."""
        disk = self.disk
        disk.forget_part()
        self.life += 1
        self.log.copy_from(disk.log)
        newest = disk.newest
        self.state_end = newest.end_offset if newest else 0
        self.state_chain = disk.log.chains[self.state_end]
        config = options.raft_config(
            node_id=disk.me.node_id,
            directory_id=disk.me.directory_id,
            address=self.address,
            bootstrap=bootstrap,
        )
        raft = Raft(
            config,
            disk.view(),
            disk.hard_state,
            disk.history(),
            entropy,
            snapshots=tuple(disk.snapshots),
            encode_control=encode_control,
            now_ms=self.now_ms(now_us),
        )
        self.raft = raft
        self.role, self.epoch = None, raft.epoch  # so that the first role is looked at
        self.high_watermark = raft.high_watermark
        self.voters_seen = None
        self.led_epoch = -1
        return raft

    def stop(self) -> list[Proposal | Read]:
        """The process is gone with everything volatile; what clients wait for."""
        orphans: list[Proposal | Read] = []
        orphans += [*self.proposals, *self.reads.values(), *(read for _, read in self.ready_reads)]
        self.life += 1
        self.raft = None
        self.is_leading = False
        self.job = None
        self.is_turn_due = self.is_applying = False
        self.timer_us = None
        self.to_apply.clear()
        self.snapshot_under_way = None
        self.proposals.clear()
        self.reads.clear()
        self.ready_reads.clear()
        self.crash_in_steps = -1
        self.paused_until_us = 0
        return orphans

    def tear(self, random: Random) -> None:
        """The power fails in the midst of a step of a write: leave what may be there."""
        job, disk = self.job, self.disk
        if job is None or job.next_step >= len(job.steps):
            return
        ready = job.ready
        match job.steps[job.next_step]:
            case "hard_state":
                if random.random() < 0.5 and ready.hard_state is not None:
                    disk.hard_state = ready.hard_state
            case "truncate":
                offset = ready.truncate_to
                assert offset is not None, "a step without its offset"
                bases = [entry.base_offset for entry in disk.log.between(offset, disk.log.end)]
                bases.append(Offset(disk.log.end))
                disk.log.truncate_to(bases[int(random.random() * len(bases))])
            case "append":
                count = min(len(ready.append), int(random.random() * (len(ready.append) + 2)))
                for entry in ready.append[:count]:
                    disk.log.append(entry)
            case "install":
                if random.random() < 0.5 and ready.install is not None:
                    disk.install(ready.install)
            case _:
                return


def directory_of(node_id: NodeId, generation: int) -> bytes:
    """The directory id of a machine's n-th disk: 16 bytes."""
    return b"%08d%08d" % (node_id, generation)


def log_end_of(log: RunningLog) -> LogEnd:
    """How far it reaches, as elections compare it."""
    return LogEnd(Epoch(log.last_epoch), Offset(log.end))
