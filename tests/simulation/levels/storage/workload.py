"""The drawn workload of a data directory.

Format, open, append (small, large, concurrent, with a leader's gaps, with repeats of producers, in
transactions, with compression and timestamps), flush, roll, truncate, delete records, checkpoint,
change configs, clean (retention, compaction), delete a topic, close, restart clean and unclean.
Every request and response is recorded with the number of its file operation.
"""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Final

from quorumlog.errors import QuorumlogError
from quorumlog.ids import ClusterId, NodeId, TopicId
from quorumlog.records import MarkerType
from quorumlog.records.compression import Codec
from quorumlog.runtime import Runtime
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimNode
from quorumlog.storage import AppendOrigin, DirectoryConfig, FlushPolicy, Log, LogConfig
from quorumlog.storage.shell import DataDirectory

from .expected import Book, Kept, Owed, cut_at
from .producers import IDEMPOTENT, TRANSACTIONAL, Senders, batch_of
from .reader import check_log

DATA: Final = "/var/data"
STATE: Final = "quorum-state"
CLUSTER, NODE = ClusterId("c" * 22), NodeId(1)
DIRECTORY: Final = DirectoryConfig(
    write_group_bytes_max=1_200,
    inline_write_bytes_max=600,
    checkpoint_interval_ms=50,
    retention_check_interval_ms=10**9,  # cleaning is triggered explicitly
    clean_slice_bytes=900,
)
SMALL: Final = LogConfig(
    segment_bytes=2_600,
    index_interval_bytes=150,
    message_bytes_max=2_500,
    segment_ms=10**12,
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)
SURE: Final = replace(SMALL, flush_policy=FlushPolicy.FSYNC)
CONFIGS: Final = {
    "sure-0": SURE,  # every response implies durability
    "fast-0": replace(  # flushed data, and data below a checkpoint, are durable
        SMALL,
        compression_type=Codec.LZ4,
        log_append_time=True,
        retention_bytes=4_000,
        file_delete_delay_ms=0,
    ),
    "gaps-0": replace(SMALL, compacted=True),  # a follower's log: a leader's offsets, with gaps
    "gone-0": replace(SURE, retention_ms=1),  # deleted and created again; its records are too old
    "once-0": replace(SMALL, retention_bytes=6_000),  # producers repeat batches
    "keys-0": replace(SURE, compacted=True, file_delete_delay_ms=0),
}
LIVES: Final = 3
QUIET_MS: Final = 2_500
"""Virtual time without a file operation after which the directory is idle."""


@dataclass(slots=True)
class Story:
    """The requests and responses of a directory, over its processes."""

    node: SimNode
    entropy: SimEntropy
    steps: int  # of each process
    is_hindered: bool = False  # errors are drawn: a request may fail
    books: dict[str, Book] = field(default_factory=dict)
    configs: dict[str, LogConfig] = field(default_factory=lambda: dict(CONFIGS))
    states: list[tuple[int, bytes | None]] = field(default_factory=lambda: [(0, None)])
    committed: dict[str, int] = field(default_factory=dict)
    cut_down: set[str] = field(default_factory=set)  # logs truncated down to their start
    formatted: int = 1 << 62  # operation after which the directory is formatted
    batches: int = 0
    topics: int = 0
    epoch: int = 0
    errors: int = 0
    removed: int = 0  # number of times that retention moved a log's start
    cleaned: int = 0  # number of times that compaction shrank a log
    repeated: int = 0  # repeated batches

    def __post_init__(self) -> None:
        self.books = {name: Book(Owed(topic_id=self.next_topic())) for name in CONFIGS}

    @property
    def moment(self) -> int:
        """The number of the last file operation."""
        return self.node.device.operations

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


async def live(runtime: Runtime, story: Story, *, life: int) -> None:
    """Run one process; the last one and every other one end with a close."""
    if story.moment < story.formatted:
        await DataDirectory.format(runtime, DATA, cluster_id=CLUSTER, node_id=NODE)
        story.formatted = story.moment
    async with runtime.tasks.scope("life") as scope:
        directory = await DataDirectory.open(runtime, scope, DATA, config=DIRECTORY)
        logs = {name: await open_log(directory, story, name) for name in CONFIGS}
        for _ in range(story.steps):
            name = sorted(logs)[story.entropy.below(len(logs))]
            try:
                await step(directory, story, logs, name)
            except (QuorumlogError, OSError):  # errors of a checkpoint come from the disk
                story.errors += 1
                if not story.is_hindered:
                    raise
        if life % 2 == 0 or life == LIVES - 1:
            await directory.close()
        scope.cancel()


async def open_log(directory: DataDirectory, story: Story, name: str) -> Log:
    book = story.books[name]
    log = await directory.open_log(name, story.configs[name], topic_id=book.now.topic_id)
    if story.is_hindered:
        # A refused append may be stored, and a failed truncation done: the found content counts
        # from now on.
        _, content = await check_log(directory, log, book.now, is_power_cut=False)
        book.reopened(story.moment, content)
    book.durable(story.moment, log.flushed_end_offset)
    log.note_high_watermark(min(story.committed.get(name, 0), log.log_end_offset))

    def moved() -> None:
        if log.failure is None and story.books[name].now.topic_id == log.topic_id:
            story.books[name].durable(story.moment, log.flushed_end_offset)

    directory.on_appended(log, moved)
    return log


async def step(directory: DataDirectory, story: Story, logs: dict[str, Log], name: str) -> None:
    """Run one drawn operation on one log."""
    match story.entropy.below(18):
        case 0:
            await truncate(directory, story, logs[name])
        case 1:
            await delete_records(directory, story, logs[name])
        case 2:
            await directory.checkpoint()
        case 3:
            await directory.flush(logs[name])
            story.books[name].durable(story.moment, logs[name].flushed_end_offset)
        case 4:
            await store_state(directory, story)
        case 5:
            change_config(directory, story, logs[name])
        case 6:
            await delete(directory, story, logs)
        case 7 | 8:
            await keep_house(directory, story, logs)
        case _:
            await write(directory, story, logs[name])


def commit(story: Story, log: Log) -> None:
    """Commit everything in a log."""
    log.note_high_watermark(log.log_end_offset)
    story.committed[log.name] = log.high_watermark


# --- appends -------------------------------------------------------------------------------------


async def write(directory: DataDirectory, story: Story, log: Log) -> None:
    """Append one of: a small batch, a large one, several at once; or start a new epoch."""
    entropy = story.entropy
    if log.name == "once-0":
        await send(directory, story, log)
        return
    match entropy.below(9):
        case 0:
            story.epoch += 1
        case 1:
            await append(directory, story, log, size=1_000 + entropy.below(1_200))
        case 2 | 3 | 4 if not story.is_hindered:
            sizes = [10 + entropy.below(500) for _ in range(2 + entropy.below(5))]
            await asyncio.gather(*[append(directory, story, log, size=size) for size in sizes])
        case _:
            await append(directory, story, log, size=10 + entropy.below(300))


async def append(directory: DataDirectory, story: Story, log: Log, *, size: int) -> None:
    """Append one batch; a follower's may leave a gap before it, a compacted log gets tombstones."""
    entropy = story.entropy
    story.batches += 1
    gap = entropy.below(4) if log.name == "gaps-0" else 0
    count = 1 + entropy.below(3)
    kept = []
    for index in range(count):
        value: bytes | None = b"%d.%d " % (story.batches, index) + entropy.token(size // count)
        if log.name == "keys-0" and entropy.chance(0.15):
            value = None
        kept.append(Kept(value, b"k%d" % entropy.below(4), story.epoch, story.batches))
    await store(directory, story, log, kept, gap=gap)


async def store(
    directory: DataDirectory, story: Story, log: Log, kept: list[Kept], *, gap: int = 0
) -> None:
    """Append the records of one batch, and record request and response."""
    book = story.books[log.name]
    base = len(book.now.newest) + gap
    origin = AppendOrigin.REPLICATED if log.name == "gaps-0" else AppendOrigin.CLIENT
    if kept[0].marker is not None:
        origin = AppendOrigin.INTERNAL
    is_sure = log.config.flush_policy is FlushPolicy.FSYNC or story.entropy.chance(0.2)
    topic_id = book.now.topic_id
    book.asked(story.moment, [*[None] * gap, *kept])
    try:
        appended = await directory.append(
            log,
            batch_of(kept, base_offset=base),
            leader_epoch=kept[0].epoch,
            origin=origin,
            flush=is_sure,
        )
    except QuorumlogError:
        book.refused(story.moment, kept[0].batch)
        raise
    assert topic_id == book.now.topic_id, f"{log.name} was deleted under an append"
    assert appended.base_offset == base, f"{log.name}: {appended} where {base} was next"
    book.written(story.moment, appended.next_offset)
    if is_sure:
        book.durable(story.moment, appended.next_offset)


async def send(directory: DataDirectory, story: Story, log: Log) -> None:
    """Send a producer's next batch, a repeated batch, or the end of its transaction."""
    entropy = story.entropy
    producer = (IDEMPOTENT, *TRANSACTIONAL)[entropy.below(3)]
    sender = Senders.of(story.books[log.name].now.newest).sender(producer)
    if sender.batches and entropy.chance(0.3):
        base, records = sender.batches[entropy.below(len(sender.batches))]
        await repeat(directory, log, base, records)
        story.repeated += 1
        return
    story.batches += 1
    if sender.transaction_start >= 0 and entropy.chance(0.6):
        kind = MarkerType.ABORT if entropy.chance(0.6) else MarkerType.COMMIT
        end = Kept(None, None, story.epoch, story.batches, producer=producer, marker=kind)
        await store(directory, story, log, [end])
        return
    count, size = 1 + entropy.below(3), 10 + entropy.below(400)
    await store(
        directory,
        story,
        log,
        [
            Kept(
                b"%d.%d " % (story.batches, index) + entropy.token(size // count),
                None,
                story.epoch,
                story.batches,
                producer=producer,
                sequence=sender.next_sequence + index,
                is_transactional=producer in TRANSACTIONAL,
            )
            for index in range(count)
        ],
    )


async def repeat(directory: DataDirectory, log: Log, base_offset: int, records: list[Kept]) -> None:
    """Send a stored batch again: it gets its first response, and nothing is stored."""
    end = log.log_end_offset
    appended = await directory.append(
        log,
        batch_of(records),
        leader_epoch=max(log.latest_epoch, 0),
        origin=AppendOrigin.CLIENT,
        flush=True,
    )
    assert appended.base_offset == base_offset, f"{appended}, a repeat of {base_offset}"
    assert log.log_end_offset == end, f"{log.name}: a repeat of {base_offset} was stored again"


# --- other operations ------------------------------------------------------------------------


async def truncate(directory: DataDirectory, story: Story, log: Log) -> None:
    """Truncate above the committed offset."""
    span = log.log_end_offset - max(log.high_watermark, log.log_start_offset)
    if span == 0:
        return
    offset = log.log_end_offset - story.entropy.below(min(span, 12)) - 1
    book = story.books[log.name]
    book.truncating(story.moment, offset)
    if cut_at(book.now.newest, offset) <= log.log_start_offset:
        story.cut_down.add(log.name)
    await directory.truncate(log, offset)
    if not story.is_hindered:
        assert log.log_end_offset == len(book.now.newest), (
            f"{log.name} was truncated to another offset"
        )
        book.truncated(story.moment)


async def delete_records(directory: DataDirectory, story: Story, log: Log) -> None:
    """Delete the first records."""
    commit(story, log)
    span = log.log_end_offset - log.log_start_offset
    offset = log.log_start_offset + story.entropy.below(span + 1)
    book = story.books[log.name]
    book.starting(story.moment, offset)
    start = await directory.delete_records(log, offset)
    assert start >= offset, f"{log.name} starts at {start}, not {offset}"
    book.started(story.moment, start)


async def keep_house(directory: DataDirectory, story: Story, logs: dict[str, Log]) -> None:
    """Run retention and compaction; return when they are idle."""
    for name, log in logs.items():
        book = story.books[name]
        commit(story, log)
        book.starting(story.moment, log.last_stable_offset)
        if log.config.compacted:
            book.compacting(story.moment)
    before = {name: (log.log_start_offset, log.size_bytes) for name, log in logs.items()}
    directory.maintenance.check_soon()
    before_look = -1
    while story.moment != before_look:
        before_look = story.moment
        await asyncio.sleep(QUIET_MS / 1000)
    for name, log in logs.items():
        start, size = before[name]
        if log.failure is not None:
            continue
        if log.log_start_offset > start:
            story.removed += 1
            is_left = log.size_bytes >= log.config.retention_bytes
            assert is_left, f"{name}: retention left {log.size_bytes} bytes"
        elif log.size_bytes < size:
            story.cleaned += 1
        if log.segment_version % 2 == 0 and not story.is_hindered:
            story.books[name].settled(story.moment, log.log_start_offset)


async def store_state(directory: DataDirectory, story: Story) -> None:
    fields = '{"leaderId": -1, "leaderEpoch": %d, "votedId": -1, "votedDirectoryId": "", '
    state = (fields % len(story.states) + '"data_version": 1}').encode()
    story.states.append((story.moment, state))
    await directory.store_file(STATE, state)
    story.states.append((story.moment, state))


def change_config(directory: DataDirectory, story: Story, log: Log) -> None:
    policy = story.configs[log.name].flush_policy
    other = FlushPolicy.REPLICATED if policy is FlushPolicy.FSYNC else FlushPolicy.FSYNC
    story.configs[log.name] = replace(story.configs[log.name], flush_policy=other)
    directory.configure(log, story.configs[log.name])


async def delete(directory: DataDirectory, story: Story, logs: dict[str, Log]) -> None:
    book = story.books["gone-0"]
    book.deleting(story.moment)
    await directory.delete_log(logs["gone-0"])
    book.deleted(story.moment, story.next_topic())
    story.committed.pop("gone-0", None)
    logs["gone-0"] = await open_log(directory, story, "gone-0")
