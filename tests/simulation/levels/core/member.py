"""A machine of the quorum: its clock, its disk, and its process."""

from collections import deque
from random import Random

from quorumlog.ids import Epoch, NodeId, Offset
from quorumlog.raftlog.log_view import LogEnd, SnapshotId
from quorumlog.raftlog.messages import AppendRequest, SnapshotChunk
from quorumlog.raftlog.raft import Raft
from quorumlog.raftlog.ready import Ready, SendChunk, SendEntries
from quorumlog.raftlog.state import EncodeControl, RaftState
from quorumlog.raftlog.voters import Voter, VoterSet
from quorumlog.simulation.entropy import SimEntropy

from .clients import PendingProposal, PendingRead
from .disks import MemberDisk, RunningLog
from .options import CoreOptions


class WriteJob:
    """A round's write, and its current step."""

    __slots__ = ("is_refused", "next_step", "ready", "steps")

    def __init__(self, ready: Ready) -> None:
        self.ready = ready
        self.next_step = 0
        self.is_refused = False  # its snapshot is corrupt
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


class CoreMember:
    """A machine. `start` resets volatile state; the harness changes it."""

    def __init__(self, index: int, disk: MemberDisk, *, drift_ppm: int, base_ms: int) -> None:
        self.index = index  # 0-based; the node id is one more
        self.number = index + 1
        self.address = f"n{self.number}:1"
        self.disk = disk
        self.life = 0  # counts starts and stops: events of another life are dropped
        self.paused_until_us = 0
        self.has_slow_disk = False
        self.is_retired = False  # it stays down for the rest of the run
        # The monotonic clock: reference points, and the rate in ppm of true time.
        self.clock_us = 0
        self.clock_ms = base_ms
        self.rate = 1_000_000 + drift_ppm
        # The process.
        self.raft: Raft | None = None
        self.state: RaftState  # of the last process
        self.log = RunningLog()  # the core's log view, written or not
        self.role: object = None  # at the last check
        self.epoch = 0
        self.high_watermark = 0
        self.led_epoch = -1  # the newest epoch that it led in this life
        self.is_leading = False  # it leads, or led until the last event: its commits count
        self.voters_seen: VoterSet | None = None
        self.voters_traced: VoterSet | None = None
        self.job: WriteJob | None = None
        self.is_turn_due = False
        self.timer_us: int | None = None  # time of the scheduled timer
        self.state_end = 0  # the state machine has applied [0, state_end)
        self.state_chain = 0
        self.to_apply: deque[tuple[int, int]] = deque()  # committed ranges, in order
        self.is_applying = False
        self.snapshot_under_way: SnapshotId | None = None
        self.proposals: deque[PendingProposal] = deque()  # appended here, by offset
        self.reads: dict[int, PendingRead] = {}  # by context, without an answer of the core
        self.ready_reads: list[tuple[int, PendingRead]] = []  # (offset to be applied, read)
        self.crash_in_steps = -1  # armed: a power cut after that many steps of writes

    @property
    def me(self) -> Voter:
        """The identity of the current disk."""
        return self.disk.me

    @property
    def name(self) -> str:
        """A name for messages."""
        return f"n{self.number}"

    @property
    def is_appending(self) -> bool:
        """True if the current step of the write is the append."""
        job = self.job
        return job is not None and job.steps[job.next_step : job.next_step + 1] == ["append"]

    def now_ms(self, now_us: int) -> int:
        """Return the time of its clock."""
        return self.clock_ms + (now_us - self.clock_us) * self.rate // 1_000_000_000

    def due_us(self, deadline_ms: int) -> int:
        """Return the virtual time at which its clock reaches a time, unless it jumps."""
        ahead_ms = deadline_ms - self.clock_ms
        return self.clock_us + -(-ahead_ms * 1_000_000_000 // self.rate)

    def jump(self, now_us: int, ahead_ms: int) -> None:
        """Move the clock ahead."""
        self.clock_ms = self.now_ms(now_us) + ahead_ms
        self.clock_us = now_us

    def start(
        self,
        options: CoreOptions,
        bootstrap: tuple[str, ...],
        entropy: SimEntropy,
        now_us: int,
        *,
        encode_control: EncodeControl,
    ) -> Raft:
        """Start a process from the state on disk."""
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
        self.state = state = RaftState(
            config,
            disk.view(),
            disk.hard_state,
            disk.history(),
            entropy,
            snapshots=tuple(disk.snapshots),
            encode_control=encode_control,
        )
        self.raft = raft = Raft(state, now_ms=self.now_ms(now_us))
        self.role, self.epoch = None, state.epoch  # so that the first role is checked
        self.high_watermark = state.high_watermark
        self.voters_seen = None
        self.led_epoch = -1
        return raft

    def stop(self) -> list[PendingProposal | PendingRead]:
        """Drop the process with its volatile state; return the operations that clients wait for."""
        orphans: list[PendingProposal | PendingRead] = []
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
        """Leave a drawn part of the current step of a write: the power fails during it."""
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
    """Return the directory id of a machine's n-th disk: 16 bytes."""
    return b"%08d%08d" % (node_id, generation)


def log_end_of(log: RunningLog) -> LogEnd:
    """Return the log end as elections compare it."""
    return LogEnd(Epoch(log.last_epoch), Offset(log.end))


def read_message(
    member: CoreMember, message: SendEntries | SendChunk
) -> AppendRequest | SnapshotChunk | None:
    """Return the message with its entries or chunk; None if the member no longer leads that
    epoch, or the content is gone."""
    raft = member.raft
    assert raft is not None, "a read without a process"
    if not member.state.is_leader or member.state.epoch != message.epoch:
        return None
    if isinstance(message, SendEntries):
        if message.prev.offset < member.log.start.offset:
            return None  # removed since
        return AppendRequest(
            sender=member.me,
            receiver=message.receiver,
            epoch=message.epoch,
            prev=message.prev,
            entries=tuple(member.log.between(message.prev.offset, message.end)),
            high_watermark=message.high_watermark,
        )
    file = member.disk.snapshots.get(message.snapshot)
    if file is None:
        return None
    return SnapshotChunk(
        sender=member.me,
        receiver=message.receiver,
        epoch=message.epoch,
        snapshot=message.snapshot,
        voters=message.voters,
        size=len(file.content),
        position=message.position,
        content=file.content[message.position : message.position + message.bytes_max],
    )
