"""Options of a run of level `partitions`, drawn from the seed."""

from dataclasses import dataclass, fields

from quorumlog.simulation.entropy import SimEntropy


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationOptions:
    """Options of one run. Times are microseconds of virtual time, mean intervals of faults
    milliseconds; 0: no faults."""

    brokers: int = 3
    topics: int = 3
    partitions: int = 3  # of each topic
    replication_factor: int = 3
    min_isr: int = 2
    fsync: bool = False  # flush.policy
    events: int = 8_000  # the safety phase lasts for that many events
    lag_time_max_ms: int = 2_000
    session_timeout_ms: int = 1_000
    latency_us: tuple[int, int] = (100, 2_000)
    metadata_us: tuple[int, int] = (500, 5_000)  # until a broker has applied a change
    flush_us: tuple[int, int] = (100, 2_000)  # of a flush under flush.policy=fsync
    fetch_entries_max: int = 5
    appends_per_s: float = 200.0
    loss: float = 0.0  # probability, of messages
    late: float = 0.0  # probability, of fetches: delivered again, later
    # probability, of changes: a broker receives them up to two seconds later
    metadata_stall: float = 0.0
    crash_every_ms: int = 0
    power_every_ms: int = 0  # a machine's power: unflushed data are lost
    strike_every_ms: int = 0  # several replicas of one partition are killed within a few messages
    stop_every_ms: int = 0  # controlled shutdowns
    pause_every_ms: int = 0  # a process is paused, possibly beyond its session
    move_every_ms: int = 0  # reassignments
    elect_every_ms: int = 0  # preferred leaders
    is_unclean: bool = False  # unclean.leader.election.enable
    is_lossy: bool = False  # any number of machines may lose unflushed data at once
    wipe_every_ms: int = 0  # a disk is replaced; unclean topics only
    delete_every_ms: int = 0  # the first records of a partition are deleted
    deposed: float = 0.0  # probability, of ISR requests: they reach a deposed controller
    racks: int = 0  # 0: brokers have none
    waits_max: int = 0  # waiting produce requests of a partition; 0: unbounded
    timeout_ms: int = 0  # after which clients give up waiting; 0: never
    has_mirror: bool = False  # the first topic is a mirror
    requests_per_s: float = 0.0  # of clients with old or new metadata, at any broker

    def differing(self) -> str:
        """Return every option that differs from its default, as text."""
        drawn = (
            f"{each.name}={getattr(self, each.name)}"
            for each in fields(self)
            if getattr(self, each.name) != each.default
        )
        return " ".join(drawn)


def draw(entropy: SimEntropy) -> ReplicationOptions:
    """Draw the options of a run; each class of faults is on or off."""
    replication_factor = (1, 2, 2, 3, 3, 3, 3, 4)[entropy.below(8)]
    min_isr = 2 if entropy.chance(0.6) else 1 + entropy.below(replication_factor)
    brokers = max(2, replication_factor + entropy.below(3))

    def mean(low: int, high: int) -> int:
        return entropy.spread(low, high) if entropy.chance(0.6) else 0

    def rare(name: str, probability: float, low: int, high: int) -> int:
        drawn = entropy.stream(name)
        return drawn.spread(low, high) if drawn.chance(probability) else 0

    is_unclean = entropy.stream("unclean").chance(0.15)
    return ReplicationOptions(
        brokers=brokers,
        topics=1 + entropy.below(3),
        partitions=1 + entropy.below(4),
        replication_factor=replication_factor,
        min_isr=min(min_isr, replication_factor),
        fsync=entropy.chance(0.4),
        lag_time_max_ms=entropy.spread(50, 5_000),
        session_timeout_ms=entropy.spread(200, 3_000),
        latency_us=(100, entropy.spread(200, 200_000)),
        metadata_us=(200, entropy.spread(500, 300_000)),
        flush_us=(100, entropy.spread(200, 200_000)),
        fetch_entries_max=entropy.spread(1, 50),
        appends_per_s=entropy.spread(50, 2_000),
        loss=0.3 * entropy.uniform(0, 1) if entropy.chance(0.5) else 0.0,
        late=0.2 if entropy.chance(0.4) else 0.0,
        metadata_stall=0.1 if entropy.chance(0.4) else 0.0,
        crash_every_ms=mean(100, 3_000),
        power_every_ms=mean(200, 3_000),
        strike_every_ms=mean(100, 1_000),
        stop_every_ms=mean(500, 8_000),
        pause_every_ms=mean(500, 5_000),
        move_every_ms=mean(300, 5_000),
        elect_every_ms=mean(300, 5_000),
        is_unclean=is_unclean,
        is_lossy=entropy.stream("lossy").chance(0.12),
        wipe_every_ms=rare("wipes", 0.5, 300, 3_000) if is_unclean else 0,
        delete_every_ms=rare("deletions", 0.3, 20, 2_000),
        deposed=0.2 if entropy.stream("deposed").chance(0.3) else 0.0,
        racks=rare("racks", 0.6, 2, 4),
        waits_max=rare("waits", 0.3, 2, 50),
        timeout_ms=rare("timeouts", 0.4, 1, 300),
        has_mirror=entropy.stream("mirrors").chance(0.2),
        requests_per_s=entropy.stream("requests").spread(5, 100),
    )
