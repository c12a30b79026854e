"""The drawn workload of a data directory.

Format, open, append (small, large, concurrent, with a leader's gaps, with repeats of producers, in
transactions, with compression and timestamps), flush, roll, truncate, delete records, checkpoint,
change configs, clean (retention, compaction), delete a topic, close, restart clean and unclean.
Every request and response is recorded with the number of its file operation.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from quorumlog.errors import DiskFull, Overloaded, QuorumlogError
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records import MarkerType
from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimNode
from quorumlog.storage import AppendOrigin, FlushPolicy, Log, LogConfig
from quorumlog.storage.shell import DataDirectory

from ...shrink.plan import PlannedEvent
from ...shrink.script import EventScript
from .bounds import CONFIGS, DIRECTORY, USUAL, StorageBounds
from .expected import Expectation, ExpectedRecord, LogExpectations, cut_at
from .producers import IDEMPOTENT, TRANSACTIONAL, ProducerModels, batch_of
from .reader import check_log

DATA: Final = "/var/data"
STATE: Final = "quorum-state"
CLUSTER, NODE = ClusterId("c" * 22), NodeId(1)
LIVES: Final = 3
LAST_US: Final = 1 << 62
OPERATIONS: Final = {
    0: "truncate",
    1: "delete records of",
    2: "checkpoint, beside",
    3: "flush",
    4: "store the quorum state, beside",
    5: "change the config of",
    6: "delete gone-0, beside",
    7: "clean all logs, beside",
    8: "clean all logs, beside",
}
"""The operations of a step by number; every other one writes."""
QUIET_MS: Final = 2_500
"""Virtual time without a file operation after which the directory is idle."""
RETRY_WINDOW_S: Final = 125.0
"""Virtual time in which a log remembers every producer that writes."""


@dataclass(slots=True)
class StorageWorkload:
    """The requests and responses of a directory, over its processes."""

    node: SimNode
    entropy: SimEntropy
    steps: int  # of each process
    bounds: StorageBounds = USUAL
    has_faults: bool = False  # errors are drawn: a request may fail
    script: EventScript | None = None  # the steps are its events
    expectations: dict[str, LogExpectations] = field(default_factory=dict)
    configs: dict[str, LogConfig] = field(default_factory=dict)
    states: list[tuple[int, bytes | None]] = field(default_factory=lambda: [(0, None)])
    committed: dict[str, int] = field(default_factory=dict)
    cut_down: set[str] = field(default_factory=set)  # logs truncated down to their start
    # logs truncated below their committed offset: the producer state may lack deleted records
    partial: set[str] = field(default_factory=set)
    formatted: int = 1 << 62  # operation after which the directory is formatted
    batches: int = 0
    topics: int = 0
    epoch: int = 0
    errors: int = 0
    removed: int = 0  # number of times that retention moved a log's start
    cleaned: int = 0  # number of times that compaction shrank a log
    repeated: int = 0  # repeated batches

    def __post_init__(self) -> None:
        if self.script is not None:
            self.script.adopt("steps", self.entropy)
        self.configs = dict(self.bounds.configs)
        self.expectations = {
            name: LogExpectations(Expectation(topic_id=self.next_topic())) for name in CONFIGS
        }

    @property
    def moment(self) -> int:
        """The number of the last file operation."""
        return self.node.device.operations

    def due_steps(self, life: int) -> Iterator[None]:
        """Yield once for each step of a process: a fixed number, or those of the run's plan."""
        script, key = self.script, f"process {life + 1}:"
        if script is not None and script.is_replaying:
            for event in script.due(LAST_US, prefix=key):
                script.begin(event)
                yield
                script.end()
            return
        for _ in range(self.steps):
            if script is not None:
                script.begin(PlannedEvent(at_us=self.moment, key=key))
            yield
            if script is not None:
                script.end()

    def name_step(self, operation: str, life: int, name: str) -> None:
        """Add the operation of the current step to its key."""
        if self.script is not None:
            self.script.rename(f"process {life + 1}: {operation} {name}")

    def next_topic(self) -> TopicId:
        """Return a new topic id."""
        self.topics += 1
        return TopicId(self.topics.to_bytes(16, "big"))

    def states_at(self, operation: int) -> set[bytes | None]:
        """Return the possible contents of the small file: the last acknowledged one, and those
        requested since."""
        past = [number for number, (at, _) in enumerate(self.states) if at <= operation]
        answered = [n for n in past if n % 2 == 0]  # requests and responses alternate
        return {self.states[n][1] for n in past[answered[-1] :]} if answered else {None}


async def live(runtime: Runtime, workload: StorageWorkload, *, life: int) -> None:
    """Run one process; the last one and every other one end with a close."""
    if workload.moment < workload.formatted:
        await DataDirectory.format(runtime, DATA, cluster_id=CLUSTER, node_id=NODE)
        workload.formatted = workload.moment
    async with runtime.tasks.scope("life") as scope:
        directory = await DataDirectory.open(runtime, scope, DATA, config=workload.bounds.directory)
        logs = {name: await open_log(directory, workload, name) for name in CONFIGS}
        for _ in workload.due_steps(life):
            name = sorted(logs)[workload.entropy.below(len(logs))]
            operation = workload.entropy.below(18)
            workload.name_step(OPERATIONS.get(operation, "write"), life, name)
            try:
                await step(directory, workload, logs, name, operation)
            except (QuorumlogError, OSError):  # errors of a checkpoint come from the disk
                workload.errors += 1
                if not workload.has_faults:
                    raise
            for log in logs.values():
                log.check_invariants()
        if life % 2 == 0 or life == LIVES - 1:
            await directory.close()
        scope.cancel()


async def open_log(directory: DataDirectory, workload: StorageWorkload, name: str) -> Log:
    expected = workload.expectations[name]
    log = await directory.open_log(name, workload.configs[name], topic_id=expected.now.topic_id)
    if workload.has_faults:
        # A refused append may be stored, and a failed truncation done: the found content counts
        # from now on.
        _, content = await check_log(directory, log, expected.now, is_power_cut=False)
        expected.reopened(workload.moment, content)
    expected.durable(workload.moment, log.flushed_end_offset)
    log.note_high_watermark(min(workload.committed.get(name, 0), log.log_end_offset))

    def moved() -> None:
        if log.failure is None and workload.expectations[name].now.topic_id == log.topic_id:
            workload.expectations[name].durable(workload.moment, log.flushed_end_offset)

    directory.on_appended(log, moved)
    return log


async def step(
    directory: DataDirectory,
    workload: StorageWorkload,
    logs: dict[str, Log],
    name: str,
    operation: int,
) -> None:
    """Run one drawn operation on one log."""
    match operation:
        case 0:
            await truncate(directory, workload, logs[name])
        case 1:
            await delete_records(directory, workload, logs[name])
        case 2:
            await directory.checkpoints.checkpoint()
        case 3:
            await directory.flush(logs[name])
            workload.expectations[name].durable(workload.moment, logs[name].flushed_end_offset)
        case 4:
            await store_state(directory, workload)
        case 5:
            change_config(directory, workload, logs[name])
        case 6:
            await delete(directory, workload, logs)
        case 7 | 8:
            await run_cleaning(directory, workload, logs)
        case _:
            await write(directory, workload, logs[name])


def commit(workload: StorageWorkload, log: Log) -> None:
    """Commit everything in a log."""
    log.note_high_watermark(log.log_end_offset)
    workload.committed[log.name] = log.high_watermark


# --- appends -------------------------------------------------------------------------------------


async def write(directory: DataDirectory, workload: StorageWorkload, log: Log) -> None:
    """Append one of: a small batch, a large one, several at once; or start a new epoch."""
    entropy = workload.entropy
    bounds = workload.bounds
    if log.name == "once-0":
        await send(directory, workload, log)
        return
    if log.name == "keys-0" and bounds.is_transactional and entropy.chance(0.5):
        await send(directory, workload, log)
        return
    match entropy.below(9):
        case 0:
            workload.epoch += 1
        case 1:
            least = max(10, bounds.large_max - 1_200)
            size = least + entropy.below(bounds.large_max - least)
            await append(directory, workload, log, size=size)
        case 2 | 3 | 4 if not workload.has_faults:
            sizes = [10 + entropy.below(500) for _ in range(2 + entropy.below(5))]
            await asyncio.gather(*[append(directory, workload, log, size=size) for size in sizes])
        case _:
            await append(directory, workload, log, size=10 + entropy.below(300))


async def append(
    directory: DataDirectory, workload: StorageWorkload, log: Log, *, size: int
) -> None:
    """Append one batch; a follower's may leave a gap before it, a compacted log gets tombstones."""
    entropy = workload.entropy
    workload.batches += 1
    gap = entropy.below(4) if log.name == "gaps-0" else 0
    bounds = workload.bounds
    size = min(size, bounds.large_max)
    count = 1 + entropy.below(bounds.records_max)
    kept = []
    for index in range(count):
        value: bytes | None = b"%d.%d " % (workload.batches, index) + entropy.token(size // count)
        if log.name == "keys-0" and entropy.chance(0.15):
            value = None
        kept.append(
            ExpectedRecord(
                value, b"k%d" % entropy.below(bounds.keys), workload.epoch, workload.batches
            )
        )
    await store(directory, workload, log, kept, gap=gap)


async def store(
    directory: DataDirectory,
    workload: StorageWorkload,
    log: Log,
    kept: list[ExpectedRecord],
    *,
    gap: int = 0,
) -> None:
    """Append the records of one batch, and record request and response."""
    expected = workload.expectations[log.name]
    base = len(expected.now.newest) + gap
    origin = AppendOrigin.REPLICATED if log.name == "gaps-0" else AppendOrigin.CLIENT
    if kept[0].marker is not None:
        origin = AppendOrigin.INTERNAL
    is_sure = log.config.flush_policy is FlushPolicy.FSYNC or workload.entropy.chance(0.2)
    topic_id = expected.now.topic_id
    expected.asked(workload.moment, [*[None] * gap, *kept])
    try:
        appended = await directory.append(
            log,
            batch_of(kept, base_offset=base),
            leader_epoch=kept[0].epoch,
            origin=origin,
            flush=is_sure,
        )
    except QuorumlogError:
        expected.refused(workload.moment, kept[0].batch)
        raise
    assert topic_id == expected.now.topic_id, f"{log.name} was deleted under an append"
    assert appended.base_offset == base, f"{log.name}: {appended} where {base} was next"
    expected.written(workload.moment, appended.next_offset)
    if is_sure:
        expected.durable(workload.moment, appended.next_offset)


async def send(directory: DataDirectory, workload: StorageWorkload, log: Log) -> None:
    """Send a producer's next batch, a repeated batch, or the end of its transaction."""
    entropy, bounds = workload.entropy, workload.bounds
    producer = (IDEMPOTENT, *TRANSACTIONAL)[entropy.below(3)]
    content = workload.expectations[log.name].now.newest
    senders = ProducerModels.of(content, bounds.producers_max)
    if log.name in workload.partial:
        senders.drop_below(log.log_start_offset)
    sender = senders.sender(producer)
    if sender.batches and log.name == "once-0" and entropy.chance(0.3):
        base, records = sender.batches[entropy.below(len(sender.batches))]
        await repeat(directory, log, base, records)
        workload.repeated += 1
        return
    workload.batches += 1
    if sender.transaction_start >= 0 and entropy.chance(0.6):
        kind = MarkerType.ABORT if entropy.chance(0.6) else MarkerType.COMMIT
        end = ExpectedRecord(
            None, None, workload.epoch, workload.batches, producer=producer, marker=kind
        )
        await store(directory, workload, log, [end])
        return
    count, size = 1 + entropy.below(3), min(10 + entropy.below(400), bounds.large_max)
    records = [
        ExpectedRecord(
            b"%d.%d " % (workload.batches, index) + entropy.token(size // count),
            b"k%d" % entropy.below(bounds.keys) if log.config.compacted else None,
            workload.epoch,
            workload.batches,
            producer=producer,
            sequence=sender.next_sequence + index,
            is_transactional=producer in TRANSACTIONAL,
        )
        for index in range(count)
    ]
    try:
        await store(directory, workload, log, records)
    except Overloaded:
        if workload.has_faults or bounds.producers_max == DIRECTORY.producers_max:
            raise
        await asyncio.sleep(RETRY_WINDOW_S)  # then an idle producer may be evicted


async def repeat(
    directory: DataDirectory, log: Log, base_offset: int, records: list[ExpectedRecord]
) -> None:
    """Send a stored batch again: it gets its first response, and nothing is stored."""
    end = log.log_end_offset
    appended = await directory.append(
        log,
        batch_of(records),
        leader_epoch=max(log.epochs.latest, 0),
        origin=AppendOrigin.CLIENT,
        flush=True,
    )
    assert appended.base_offset == base_offset, f"{appended}, a repeat of {base_offset}"
    assert log.log_end_offset == end, f"{log.name}: a repeat of {base_offset} was stored again"


# --- other operations ------------------------------------------------------------------------


async def truncate(directory: DataDirectory, workload: StorageWorkload, log: Log) -> None:
    """Truncate above the committed offset, or below it after an unclean election."""
    is_unclean = workload.bounds.is_unclean and workload.entropy.chance(0.5)
    low = log.log_start_offset if is_unclean else max(log.high_watermark, log.log_start_offset)
    span = log.log_end_offset - low
    if span == 0:
        return
    most = span if is_unclean else 12
    offset = log.log_end_offset - workload.entropy.below(min(span, most)) - 1
    expected = workload.expectations[log.name]
    before = expected.now
    if is_unclean:
        workload.partial.add(log.name)
    if is_unclean and log.config.compacted:
        expected.truncating_compacted(workload.moment, offset)
        workload.cut_down.add(log.name)
    else:
        expected.truncating(workload.moment, offset)
    if cut_at(expected.now.newest, offset) <= log.log_start_offset:
        workload.cut_down.add(log.name)
    try:
        await directory.truncation.truncate(log, offset)
    except DiskFull:
        expected.not_truncated(workload.moment, before)
        raise
    if not workload.has_faults:
        end, wanted = log.log_end_offset, len(expected.now.newest)
        is_right = end == wanted or (is_unclean and log.config.compacted and end < wanted)
        assert is_right, f"{log.name} was truncated to {end}, not {wanted}"
        expected.truncated(workload.moment, end)
        workload.committed[log.name] = min(workload.committed.get(log.name, 0), end)


async def delete_records(directory: DataDirectory, workload: StorageWorkload, log: Log) -> None:
    """Delete the first records, below every open transaction."""
    commit(workload, log)
    span = log.last_stable_offset - log.log_start_offset
    offset = log.log_start_offset + workload.entropy.below(span + 1)
    expected = workload.expectations[log.name]
    expected.starting(workload.moment, offset)
    start = await directory.truncation.delete_records(log, offset)
    assert start >= offset, f"{log.name} starts at {start}, not {offset}"
    expected.started(workload.moment, start)


async def run_cleaning(
    directory: DataDirectory, workload: StorageWorkload, logs: dict[str, Log]
) -> None:
    """Run retention and compaction; return when they are idle."""
    for name, log in logs.items():
        expected = workload.expectations[name]
        commit(workload, log)
        expected.starting(workload.moment, log.last_stable_offset)
        if log.config.compacted:
            expected.compacting(workload.moment)
    before = {name: (log.log_start_offset, log.size_bytes) for name, log in logs.items()}
    directory.maintenance.check_soon()
    before_look = -1
    while workload.moment != before_look:
        before_look = workload.moment
        await asyncio.sleep(QUIET_MS / 1000)
    for name, log in logs.items():
        start, size = before[name]
        if log.failure is not None:
            continue
        if log.log_start_offset > start:
            workload.removed += 1
            is_left = log.size_bytes >= log.config.retention_bytes
            assert is_left, f"{name}: retention left {log.size_bytes} bytes"
        elif log.size_bytes < size:
            workload.cleaned += 1
        if not log.is_changing and not workload.has_faults:
            workload.expectations[name].settled(workload.moment, log.log_start_offset)


async def store_state(directory: DataDirectory, workload: StorageWorkload) -> None:
    fields = '{"leaderId": -1, "leaderEpoch": %d, "votedId": -1, "votedDirectoryId": "", '
    state = (fields % len(workload.states) + '"data_version": 1}').encode()
    workload.states.append((workload.moment, state))
    await directory.small_files.store(STATE, state)
    workload.states.append((workload.moment, state))


def change_config(directory: DataDirectory, workload: StorageWorkload, log: Log) -> None:
    policy = workload.configs[log.name].flush_policy
    other = FlushPolicy.REPLICATED if policy is FlushPolicy.FSYNC else FlushPolicy.FSYNC
    workload.configs[log.name] = replace(workload.configs[log.name], flush_policy=other)
    directory.configure(log, workload.configs[log.name])


async def delete(directory: DataDirectory, workload: StorageWorkload, logs: dict[str, Log]) -> None:
    expected = workload.expectations["gone-0"]
    expected.deleting(workload.moment)
    await directory.folders.delete_log(logs["gone-0"])
    expected.deleted(workload.moment, workload.next_topic())
    workload.committed.pop("gone-0", None)
    logs["gone-0"] = await open_log(directory, workload, "gone-0")
