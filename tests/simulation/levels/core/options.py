"""Options of a run of consensus cores and its faults, drawn from the seed.

Swarm testing: each class of faults is on or off for a whole run, so that no fault hides another and
some runs have a single one. A probability is in [0, 1], a span an inclusive (low, high), a mean
interval between faults is 0 if the class is off.
"""

from dataclasses import asdict, dataclass, fields, replace
from typing import Final

from quorumlog.raftlog.config import RaftConfig
from quorumlog.simulation.entropy import SimEntropy

MEMBERS_MAX: Final = 7
EVENTS_MIN: Final = 5_000  # of every run


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreOptions:
    """Options of one run. Times of the network and the disks are microseconds of virtual time."""

    # Members.
    voters: int = 3  # at the start
    observers: int = 0  # machines without a vote at the start
    events: int = EVENTS_MIN  # the safety phase lasts for that many events
    safety_ms_max: int = 600_000  # or that much virtual time

    # Settings of every member.
    heartbeat_ms: int = 50
    election_timeout_ms_min: int = 300
    election_timeout_ms_max: int = 600
    uncommitted_bytes_max: int = 1 << 20
    write_bytes_max: int = 1 << 16
    append_bytes_max: int = 1 << 16
    inflight_requests_max: int = 64
    inflight_bytes_max: int = 1 << 18
    snapshot_chunk_bytes: int = 256
    reads_max: int = 10_000
    observer_timeout_ms: int = 10_000

    # Speeds without faults.
    latency_us: tuple[int, int] = (100, 1_000)
    write_us: tuple[int, int] = (100, 2_000)  # of one step of a write
    read_us: tuple[int, int] = (0, 0)  # read time of entries to send; 0: from memory
    apply_us: tuple[int, int] = (10, 200)
    turn_us: int = 0  # inputs of that span are processed before the core's effects are fetched
    timer_late_us: int = 1_000
    drift_ppm_max: int = 0

    # Load.
    proposals_per_s: float = 50.0
    reads_per_s: float = 10.0
    records_max: int = 3  # of one proposal
    payload_bytes_max: int = 200
    snapshot_every: int = 0  # offsets between two snapshots of a member; 0: none
    snapshot_bytes_max: int = 4_000
    churn_every_ms: int = 0  # interval of changes of voters
    transfer_every_ms: int = 0
    resign_every_ms: int = 0  # a leader transfers and its node stops

    # Faults.
    loss: float = 0.0
    duplicate: float = 0.0
    duplicate_ms_max: int = 2_000  # delay of a duplicate: also into another epoch
    reorder: float = 0.0  # probability of reordering; 0: links keep their order
    reorder_ms_max: int = 500
    clog_every_ms: int = 0  # a link delays all messages for a while
    partition_every_ms: int = 0
    one_way: float = 0.0  # fraction of the partitions
    damage: float = 0.0  # fraction of the snapshot chunks: a bit flips
    absurd: float = 0.0  # fraction of the messages: an invalid copy follows
    crash_every_ms: int = 0
    lost_tail: float = 1.0  # fraction of the crashes: a power cut, unsynced data are lost or torn
    armed: float = 0.5  # fraction of the crashes: between two steps of a write
    pause_every_ms: int = 0
    jump_every_ms: int = 0  # a clock jumps ahead
    wipe: float = 0.0  # fraction of the crashes: the disk is replaced by an empty one
    disk_stall: float = 0.0  # a step of a write takes `disk_stall_ms`
    disk_stall_ms: tuple[int, int] = (50, 1_500)
    slow_append_ms: int = 0  # every append of some members takes up to that long
    through_protobuf: bool = False  # messages are encoded and decoded

    def raft_config(self, **identity: object) -> RaftConfig:
        """Return the settings of a member; `who` is its id, directory and addresses."""
        names = {field.name for field in fields(RaftConfig)} & set(asdict(self))
        return RaftConfig(**{name: getattr(self, name) for name in names}, **identity)  # type: ignore[arg-type]

    @property
    def hop_us(self) -> int:
        """The longest time of a message with the reads, writes and timers before and after it."""
        hop_us = self.latency_us[1] + self.turn_us + self.timer_late_us + self.read_us[1]
        return hop_us + 3 * self.write_us[1] + self.apply_us[1]

    def faster(self, hop_us: int) -> "CoreOptions":
        """Return options with messages and disks so fast that a hop takes about `hop_us`."""
        scale = min(1.0, hop_us / self.hop_us)

        def scaled(span_us: tuple[int, int]) -> tuple[int, int]:
            return int(span_us[0] * scale), int(span_us[1] * scale)

        return replace(
            self,
            latency_us=scaled(self.latency_us),
            write_us=scaled(self.write_us),
            read_us=scaled(self.read_us),
            apply_us=scaled(self.apply_us),
            turn_us=int(self.turn_us * scale),
            timer_late_us=int(self.timer_late_us * scale),
        )

    def differing(self) -> str:
        """Return every option that differs from its default, as text."""
        usual = CoreOptions()
        return ", ".join(
            f"{field.name}={getattr(self, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(usual, field.name)
        )


class _Drawing:
    """Draws options, each from its own stream."""

    def __init__(self, entropy: SimEntropy) -> None:
        self._entropy = entropy

    def chance(self, what: str, low: float, high: float, *, on: float = 0.5) -> float:
        stream = self._entropy.stream(what)
        return stream.uniform(low, high) if stream.chance(on) else 0.0

    def spread(self, what: str, low: int, high: int, *, on: float = 1.0, off: int = 0) -> int:
        stream = self._entropy.stream(what)
        return stream.spread(low, high) if stream.chance(on) else off

    def below(self, what: str, end: int) -> int:
        return self._entropy.stream(what).below(end)


def draw(entropy: SimEntropy) -> CoreOptions:
    """Draw the options of a run."""
    drawing = _Drawing(entropy)
    voters = (1, 2, 3, 3, 3, 3, 4, 5, 5, 5, 6, 7)[drawing.below("voters", 12)]
    heartbeat_ms = drawing.spread("heartbeat", 5, 100)
    election_ms = drawing.spread("election", 3 * heartbeat_ms, 20 * heartbeat_ms)
    unit_ms = election_ms  # faults recur on the scale of elections
    latency_us = drawing.spread("latency", 50, max(51, heartbeat_ms * 200))
    write_us = drawing.spread("write", 20, max(21, heartbeat_ms * 300))
    if drawing.below("slow_disk", 5) == 0:
        write_us *= 10  # leaders change during a write
    small = drawing.below("small", 2) == 1
    read_us = drawing.spread("read", 10, heartbeat_ms * 300, on=0.3)
    return CoreOptions(
        voters=voters,
        observers=drawing.below("observers", MEMBERS_MAX + 1 - voters),
        events=EVENTS_MIN + drawing.below("events", 6_000),
        heartbeat_ms=heartbeat_ms,
        election_timeout_ms_min=election_ms,
        election_timeout_ms_max=election_ms
        + drawing.spread("width", election_ms // 2, election_ms),
        uncommitted_bytes_max=drawing.spread("uncommitted", 500, 1 << 20, on=0.5, off=1 << 20),
        write_bytes_max=drawing.spread("write_bytes", 100, 4_000) if small else 1 << 16,
        append_bytes_max=drawing.spread("append_bytes", 100, 4_000) if small else 1 << 16,
        inflight_requests_max=drawing.spread("inflight", 1, 16) if small else 64,
        inflight_bytes_max=drawing.spread("inflight_bytes", 200, 8_000) if small else 1 << 18,
        snapshot_chunk_bytes=drawing.spread("chunk", 50, 4_000),
        reads_max=drawing.spread("reads_max", 1, 50, on=0.4, off=10_000),
        observer_timeout_ms=drawing.spread("observer", 6 * election_ms, 60 * election_ms),
        latency_us=(latency_us // 4 + 1, latency_us),
        write_us=(write_us // 8 + 1, write_us),
        read_us=(0, read_us),
        apply_us=(5, drawing.spread("apply", 10, heartbeat_ms * 500)),
        turn_us=drawing.spread("turn", 10, 1_000, on=0.3),
        timer_late_us=drawing.spread("timer", 10, heartbeat_ms * 200),
        drift_ppm_max=drawing.spread("drift", 10, 50_000, on=0.5),
        proposals_per_s=drawing.spread("proposals", 50, 3_000) / unit_ms * 20,
        reads_per_s=drawing.spread("reads", 10, 500, on=0.7) / unit_ms * 20,
        records_max=1 + drawing.below("records", 4),
        payload_bytes_max=drawing.spread("payload", 10, 500),
        snapshot_every=drawing.spread("snapshot", 20, 400, on=0.6),
        snapshot_bytes_max=drawing.spread("snapshot_bytes", 100, 10_000),
        churn_every_ms=unit_ms * drawing.spread("churn", 1, 20, on=0.6),
        transfer_every_ms=unit_ms * drawing.spread("transfer", 3, 30, on=0.4),
        resign_every_ms=unit_ms * drawing.spread("resign", 5, 40, on=0.3),
        loss=drawing.chance("loss", 0.001, 0.2),
        duplicate=drawing.chance("duplicate", 0.001, 0.2),
        duplicate_ms_max=unit_ms * drawing.spread("late", 1, 20),
        reorder=drawing.chance("reorder", 0.01, 0.5),
        reorder_ms_max=max(1, drawing.spread("reordering", 1, 4 * unit_ms)),
        clog_every_ms=unit_ms * drawing.spread("clog", 1, 20, on=0.4),
        partition_every_ms=unit_ms * drawing.spread("partition", 3, 30, on=0.5),
        one_way=drawing.chance("one_way", 0.1, 1.0),
        damage=drawing.chance("damage", 0.01, 0.2, on=0.3),
        absurd=drawing.chance("absurd", 0.001, 0.01, on=0.3),
        crash_every_ms=unit_ms * drawing.spread("crash", 3, 30, on=0.6),
        lost_tail=drawing.chance("lost_tail", 0.2, 1.0, on=0.8),
        armed=drawing.chance("armed", 0.2, 1.0, on=0.8),
        pause_every_ms=unit_ms * drawing.spread("pause", 3, 30, on=0.4),
        jump_every_ms=unit_ms * drawing.spread("jump", 5, 40, on=0.2),
        wipe=drawing.chance("wipe", 0.05, 0.4, on=0.3),
        disk_stall=drawing.chance("stall", 0.001, 0.4, on=0.4),
        disk_stall_ms=(1, 3 * unit_ms),
        slow_append_ms=unit_ms * drawing.spread("slow_append", 1, 3, on=0.3),
        through_protobuf=drawing.below("protobuf", 10) == 0,
    )
