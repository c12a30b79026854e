"""A data directory, crashed at every file operation of a drawn life.

The life is played once on the simulated disk and recorded: format, open, append (small, large, many
at once, with a leader's gaps), flush, roll, truncate, delete records, checkpoint, change
configs, delete a topic, close, come back clean and unclean. Then each moment's wrecks are opened by
a process of their own: what was promised by then is there, nothing else is, and the directory is
used, closed and opened once more. Some wrecks' recoveries are crashed at each of their own file
operations too.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ...errors import QuorumlogError
from ...ids import ClusterId, NodeId, TopicId
from ...records.batch import iterate_batches
from ...records.codec import decode_all, encode_batch
from ...records.record import Record
from ...runtime import Runtime
from ...storage import DirectoryConfig, FlushPolicy, Log, LogConfig, Origin
from ...storage.inspection.directory import Known, check
from ...storage.inspection.findings import Kind
from ...storage.shell import Directory
from ..disk import Disk
from ..entropy import SimEntropy
from ..world import SimNode, SimWorld
from ..wreckage import Operation, Recording, Wreck, content_digest, wrecks
from .promises import Book, Kept, Life, Owed, Stored, check_kept

DATA: Final = "/var/data"
STATE: Final = "quorum-state"
CLUSTER, NODE = ClusterId("c" * 22), NodeId(1)
DIRECTORY: Final = DirectoryConfig(
    write_group_bytes_max=1_200, inline_write_bytes_max=600, checkpoint_interval_ms=50
)
SMALL: Final = LogConfig(
    segment_bytes=2_600, index_interval_bytes=150, message_bytes_max=2_500, segment_ms=10**12
)
SURE: Final = replace(SMALL, flush_policy=FlushPolicy.FSYNC)
CONFIGS: Final = {
    "sure-0": SURE,  # every answer promises the disk
    "fast-0": SMALL,  # what was flushed, or lies below a checkpoint, is on the disk
    "gaps-0": replace(SMALL, compacted=True),  # a follower's: a leader's offsets, with gaps
    "gone-0": SURE,  # deleted, and made anew
}
LIVES: Final = 3
LIFE_MS_MAX: Final = 600_000


@dataclass(slots=True)
class Story:
    """What one directory was asked and what it answered, over its lives."""

    node: SimNode
    entropy: SimEntropy
    steps: int  # of each life
    is_hindered: bool = False  # errors are drawn: an answer may be one
    books: dict[str, Book] = field(default_factory=dict)
    configs: dict[str, LogConfig] = field(default_factory=lambda: dict(CONFIGS))
    states: list[tuple[int, bytes | None]] = field(default_factory=lambda: [(0, None)])
    formatted: int = 1 << 62  # operation from which on the directory is
    batches: int = 0
    topics: int = 0
    epoch: int = 0
    errors: int = 0

    def __post_init__(self) -> None:
        self.books = {name: Book(Owed(topic_id=self.next_topic())) for name in CONFIGS}

    @property
    def moment(self) -> int:
        """Number of the last file operation."""
        return self.node.device.operations

    def next_topic(self) -> TopicId:
        """Return the id of a topic that never was."""
        self.topics += 1
        return TopicId(self.topics.to_bytes(16, "big"))

    def states_at(self, operation: int) -> set[bytes | None]:
        """Return what the small file may say: the last answered, and what was asked for since."""
        past = [number for number, (at, _) in enumerate(self.states) if at <= operation]
        answered = [n for n in past if n % 2 == 0]  # asked and answered take turns
        return {self.states[n][1] for n in past[answered[-1] :]} if answered else {None}


# --- living --------------------------------------------------------------------------------------


async def live(runtime: Runtime, story: Story, *, life: int) -> None:
    """One life; the last one and every other one end by a close."""
    if life == 0:
        await Directory.format(runtime, DATA, cluster_id=CLUSTER, node_id=NODE)
        story.formatted = story.moment
    async with runtime.tasks.scope("life") as scope:
        directory = await Directory.open(runtime, scope, DATA, config=DIRECTORY)
        logs = {name: await open_log(directory, story, name) for name in CONFIGS}
        for _ in range(story.steps):
            name = sorted(logs)[story.entropy.below(len(logs))]
            try:
                await step(directory, story, logs, name)
            except (QuorumlogError, OSError):  # a checkpoint's errors are the disk's own
                story.errors += 1
                if not story.is_hindered:
                    raise
        if life % 2 == 0 or life == LIVES - 1:
            await directory.close()
        scope.cancel()


async def open_log(directory: Directory, story: Story, name: str) -> Log:
    book = story.books[name]
    log = await directory.open_log(name, story.configs[name], topic_id=book.now.topic_id)
    book.durable(story.moment, log.flushed_end_offset)

    def moved() -> None:
        if log.failure is None and story.books[name].now.topic_id == log.topic_id:
            story.books[name].durable(story.moment, log.flushed_end_offset)

    directory.on_appended(log, moved)
    return log


async def step(directory: Directory, story: Story, logs: dict[str, Log], name: str) -> None:
    """Do one drawn thing to one log."""
    match story.entropy.below(16):
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
        case 6 if name == "gone-0":
            await delete(directory, story, logs)
        case _:
            await write(directory, story, logs[name])


async def write(directory: Directory, story: Story, log: Log) -> None:
    """Append in one of the ways there are: small, large, many at once; or in a new epoch."""
    entropy = story.entropy
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


async def append(directory: Directory, story: Story, log: Log, *, size: int) -> None:
    """Append one batch; a follower's may leave a gap before it."""
    book, entropy = story.books[log.name], story.entropy
    story.batches += 1
    gap = entropy.below(4) if log.name == "gaps-0" else 0
    count = 1 + entropy.below(3)
    kept = [
        Kept(
            b"%d.%d " % (story.batches, index) + b"v" * (size // count),
            b"k%d" % entropy.below(4),
            story.epoch,
            story.batches,
        )
        for index in range(count)
    ]
    base = len(book.now.newest) + gap
    content = encode_batch(
        [
            Record(offset=0, timestamp_ms=1_000 + base, key=k.key, value=k.value, headers=())
            for k in kept
        ],
        base_offset=base,
        leader_epoch=story.epoch,
    )
    origin = Origin.REPLICATED if log.name == "gaps-0" else Origin.CLIENT
    is_sure = log.config.flush_policy is FlushPolicy.FSYNC or entropy.chance(0.2)
    topic_id = book.now.topic_id
    book.asked(story.moment, [*[None] * gap, *kept])
    try:
        appended = await directory.append(
            log, content, leader_epoch=story.epoch, origin=origin, flush=is_sure
        )
    except QuorumlogError:
        book.refused(story.moment, story.batches)
        raise
    assert topic_id == book.now.topic_id, f"{log.name} was deleted under an append"
    assert appended.base_offset == base, f"{log.name}: {appended} where {base} was next"
    book.written(story.moment, appended.next_offset)
    if is_sure:
        book.durable(story.moment, appended.next_offset)


async def truncate(directory: Directory, story: Story, log: Log) -> None:
    """Cut the end off, above what was committed."""
    span = log.log_end_offset - max(log.high_watermark, log.log_start_offset)
    if span == 0:
        return
    offset = log.log_end_offset - story.entropy.below(min(span, 12)) - 1
    book = story.books[log.name]
    book.truncating(story.moment, offset)
    await directory.truncate(log, offset)
    if not story.is_hindered:
        assert log.log_end_offset == len(book.now.newest), f"{log.name} was cut elsewhere"
        book.truncated(story.moment)


async def delete_records(directory: Directory, story: Story, log: Log) -> None:
    """Delete the first records."""
    log.note_high_watermark(log.log_end_offset)
    span = log.log_end_offset - log.log_start_offset
    offset = log.log_start_offset + story.entropy.below(span + 1)
    book = story.books[log.name]
    book.starting(story.moment, offset)
    start = await directory.delete_records(log, offset)
    assert start >= offset, f"{log.name} starts at {start}, not {offset}"
    book.started(story.moment, start)


async def store_state(directory: Directory, story: Story) -> None:
    fields = '{"leaderId": -1, "leaderEpoch": %d, "votedId": -1, "votedDirectoryId": "", '
    state = (fields % len(story.states) + '"data_version": 1}').encode()
    story.states.append((story.moment, state))
    await directory.store_file(STATE, state)
    story.states.append((story.moment, state))


def change_config(directory: Directory, story: Story, log: Log) -> None:
    policy = story.configs[log.name].flush_policy
    other = FlushPolicy.REPLICATED if policy is FlushPolicy.FSYNC else FlushPolicy.FSYNC
    story.configs[log.name] = replace(story.configs[log.name], flush_policy=other)
    directory.configure(log, story.configs[log.name])


async def delete(directory: Directory, story: Story, logs: dict[str, Log]) -> None:
    book = story.books["gone-0"]
    book.deleting(story.moment)
    await directory.delete_log(logs["gone-0"])
    book.deleted(story.moment, story.next_topic())
    logs["gone-0"] = await open_log(directory, story, "gone-0")


# --- looking -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Look:
    """How one wreck is judged."""

    story: Story
    moment: int  # the last file operation before the crash
    is_power_cut: bool
    is_used: bool = True  # what was found is appended to, closed and opened again
    recording: Recording | None = None  # ends with the recovery

    async def check(self, runtime: Runtime) -> None:
        """Open what is left, compare it with what was promised, use it and close it."""
        story, moment = self.story, self.moment
        if moment < story.formatted:
            await Directory.format(runtime, DATA, cluster_id=CLUSTER, node_id=NODE)
        async with runtime.tasks.scope("look") as scope:
            directory = await Directory.open(runtime, scope, DATA, config=DIRECTORY)
            state = directory.load_file(STATE)
            assert state in story.states_at(moment), f"{state!r} is none that was stored"
            names = directory.log_names()
            opened: list[tuple[Log, Stored]] = []
            for name, book in story.books.items():
                owed = book.at(moment)
                assert owed.life is not Life.GONE or name not in names, f"{name} came back"
                log = await directory.open_log(name, CONFIGS[name], topic_id=owed.topic_id)
                if owed.life is Life.DELETING:
                    continue  # what a deletion left of it is nobody's any more
                found = await read_all(directory, log)
                check_kept(name, owed, found, is_power_cut=self.is_power_cut)
                opened.append((log, found))
            if self.recording is not None:
                self.recording.stop()
            if not self.is_used:
                scope.cancel()
                return
            used = {log.name: await self._use(directory, log, found) for log, found in opened}
            await directory.close()
            await self._look_again(runtime, used)

    async def _use(self, directory: Directory, log: Log, found: Stored) -> Stored:
        """The log that was found goes on."""
        assert log.flushed_end_offset == log.log_end_offset, f"{log.name}: found, but not durable"
        epoch = max(self.story.epoch, log.latest_epoch)
        record = Record(offset=0, timestamp_ms=1, key=b"k", value=b"after", headers=())
        content = encode_batch([record], base_offset=log.log_end_offset, leader_epoch=epoch)
        appended = await directory.append(
            log, content, leader_epoch=epoch, origin=Origin.CLIENT, flush=True
        )
        assert appended.base_offset == found.end_offset, f"{appended} after {found.end_offset}"
        records = {**found.records, found.end_offset: (b"after", epoch)}
        return Stored(found.start_offset, found.end_offset + 1, records)

    async def _look_again(self, runtime: Runtime, used: dict[str, Stored]) -> None:
        async with runtime.tasks.scope("look again") as scope:
            directory = await Directory.open(runtime, scope, DATA, config=DIRECTORY)
            assert directory.was_clean, "closed, but not clean"
            for name, stored in used.items():
                topic_id = self.story.books[name].at(self.moment).topic_id
                log = await directory.open_log(name, CONFIGS[name], topic_id=topic_id)
                again = await read_all(directory, log)
                assert again == stored, f"{name} is not what was closed"
            await directory.close()


async def read_all(directory: Directory, log: Log) -> Stored:
    """Read a log from its start to its end; raises AssertionError where it is no log."""
    records: dict[int, tuple[bytes, int]] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        taken = log.read(offset, max_bytes=1_500)
        assert taken is not None, f"{log.name}: nothing at {offset} of {log.log_end_offset}"
        content = await directory.read(taken)
        epochs: dict[int, int] = {}
        for _, header in iterate_batches(content):
            for covered in range(header.base_offset, header.next_offset):
                epochs[covered] = header.leader_epoch
            known = log.epoch_at(max(header.base_offset, log.log_start_offset))
            assert known == header.leader_epoch, f"{log.name}: epoch at {header.base_offset}"
        for record in decode_all(content):
            if record.offset >= log.log_start_offset:
                assert record.offset not in records, f"{log.name}: {record.offset} twice"
                records[record.offset] = (record.value or b"", epochs[record.offset])
        assert taken.next_offset > offset, f"{log.name} stands still at {offset}"
        offset = taken.next_offset
    return Stored(log.log_start_offset, offset, records)


# --- the scenario --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much of what could be tried is tried."""

    steps: int = 12  # of a life
    draws: int = 2  # power cuts with torn and reordered writes, of each moment
    choices_max: int = 4  # power cuts that keep or drop changes whole, of each moment
    every: int = 1  # of how many moments one is looked at
    used: int = 3  # of how many wrecks one is appended to, closed and opened again
    deeper: int = 40  # of how many wrecks one is crashed again while it recovers


@dataclass(slots=True)
class Tally:
    """What was looked at."""

    made: int = 0
    wrecks: int = 0  # of them, no two alike
    deeper: int = 0


def record(world: SimWorld, effort: Effort) -> tuple[Story, Recording]:
    """Play the life of a seed; return what was promised and every moment of its disk."""
    node = world.node("node")
    recording = Recording.attach(node.device)
    story = Story(node, world.entropy.stream("story"), effort.steps)
    for life in range(LIVES):
        play_life(world, node, story, life=life)
        assert node.exit_error is None, f"life {life} ended by {node.exit_error!r}"
    return story, recording


def play_life(world: SimWorld, node: SimNode, story: Story, *, life: int) -> None:
    """Run one life to its end, whichever that is."""

    async def main(runtime: Runtime) -> None:
        await live(runtime, story, life=life)

    node.spawn(main)
    world.run_until(lambda: not node.alive, virtual_ms=LIFE_MS_MAX, why="the end of a life")


def play(world: SimWorld, *, effort: Effort | None = None) -> dict[str, int]:
    """Record a life and look at its wrecks; raises AssertionError that says where it failed."""
    effort = effort or Effort()
    story, recording = record(world, effort)
    entropy = world.entropy.stream("wrecks")
    tally = Tally()
    seen: set[object] = set()  # contents with what was owed then
    for operation in recording.operations[:: effort.every]:
        drawn = entropy.stream(f"{operation.number}")
        owed = tuple(id(book.at(operation.number)) for book in story.books.values())
        for wreck in wrecks(
            operation.disk, drawn, draws=effort.draws, choices_max=effort.choices_max
        ):
            tally.made += 1
            known = (owed, wreck.is_power_cut, content_digest(wreck.disk))
            if known in seen:
                continue
            seen.add(known)
            tally.wrecks += 1
            is_used = tally.wrecks % effort.used == 0
            is_deep = effort.deeper > 0 and tally.wrecks % effort.deeper == 0
            look = Look(story, operation.number, wreck.is_power_cut, is_used)
            try:
                recovery = look_at(look, wreck.disk, is_recorded=is_deep)
                tally.deeper += look_deeper(look, recovery, drawn)
            except Exception as error:
                error.add_note(explain(recording, operation, wreck))
                raise
    return {
        "operations": story.moment,
        "states": tally.made,
        "looks": tally.wrecks,
        "deeper": tally.deeper,
        "batches": story.batches,
    }


def look_at(look: Look, disk: Disk, *, is_recorded: bool = False) -> Sequence[Operation]:
    """Open a wreck in a world of its own; return its recovery's operations when asked to."""
    with SimWorld(0) as world:
        node = world.node("node")
        node.device.disk = disk
        if look.is_used and look.moment >= look.story.formatted:
            prove_whole(node)  # a torn end is no damage
        look.recording = Recording.attach(node.device) if is_recorded else None
        node.spawn(look.check)
        world.run_until(lambda: not node.alive, virtual_ms=LIFE_MS_MAX, why="a look")
        if node.exit_error is not None:
            raise node.exit_error
        if look.is_used:
            prove_whole(node)
        return look.recording.operations if look.recording is not None else ()


def prove_whole(node: SimNode) -> None:
    """Let `check` look at what is there; raises AssertionError with the problems it finds."""
    node.start_process()
    report = check(node.runtime().files, DATA, known=Known(compacted=frozenset({"gaps"})))
    problems = [
        finding
        for finding in report.all_findings()
        # A log of which everything was deleted forgets the epochs of what still lies on the disk.
        if finding.severity == "problem" and finding.kind is not Kind.EPOCH_FILE_WRONG
    ]
    assert not problems, f"check finds {problems[:5]}"
    node.crash()


def look_deeper(look: Look, operations: Sequence[Operation], entropy: SimEntropy) -> int:
    """Crash a recovery at each of its own operations."""
    count = 0
    for operation in operations[1:]:
        drawn = entropy.stream(f"deeper/{operation.number}")
        for wreck in wrecks(operation.disk, drawn, draws=1, choices_max=0):
            count += 1
            is_power_cut = look.is_power_cut or wreck.is_power_cut
            again = Look(look.story, look.moment, is_power_cut, is_used=False)
            try:
                look_at(again, wreck.disk)
            except Exception as error:
                error.add_note(f"... crashed again at {operation}, {wreck.name}")
                raise
    return count


def explain(recording: Recording, operation: Operation, wreck: Wreck) -> str:
    """Say which wreck it was, and what was done around it."""
    return f"wreck: {wreck.name}, after operation\n{recording.around(operation.number)}"


def play_hindered(
    world: SimWorld, *, number: int, fault: int, is_short: bool = False, steps: int = 12
) -> int:
    """Play one life whose operation of this number fails with an errno, or writes a part only;
    then look at what may be left. Returns how many errors the life was told.

    A log may refuse what comes after it, but what it had promised is there.
    """
    node = world.node("node")
    story = Story(node, world.entropy.stream("story"), steps, is_hindered=True)
    recording = Recording.attach(node.device)
    if is_short:
        node.device.short_at = number
    else:
        node.device.faults_at[number] = fault
    play_life(world, node, story, life=0)
    if node.exit_error is not None:
        if not isinstance(node.exit_error, QuorumlogError):
            raise node.exit_error
        story.errors += 1  # it could not even be formatted or opened
    last = recording.operations[-1]
    for wreck in wrecks(last.disk, world.entropy.stream("wrecks"), draws=2, choices_max=2):
        try:
            look_at(Look(story, last.number, wreck.is_power_cut, is_used=True), wreck.disk)
        except Exception as error:
            error.add_note(f"fault {fault} at {recording.around(number)}\n")
            error.add_note(explain(recording, last, wreck))
            raise
    return story.errors
