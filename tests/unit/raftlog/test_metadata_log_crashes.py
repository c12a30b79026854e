"""A crash at every file operation of a member's durable state.

A restart finds the state before or after the interrupted call, and never a mix.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial

import pytest
from tests.kit.raft_member import batches_of
from tests.simulation.checkers.data_directory import check_directory

from quorumlog.errors import QuorumlogError
from quorumlog.ids import Epoch, Offset
from quorumlog.raftlog.hard_state import HardState
from quorumlog.raftlog.log_view import LogEnd, SnapshotId
from quorumlog.raftlog.messages import SnapshotChunk
from quorumlog.raftlog.shell.metadata_log import MetadataLog
from quorumlog.raftlog.voters import VoterSet
from quorumlog.simulation import SimNode, SimWorld
from quorumlog.simulation.crash_states import Recording, crash_states
from quorumlog.simulation.disk import Disk
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.storage import FlushPolicy, LogConfig

from .durable import (
    ALONE,
    DATA,
    ME,
    PAIR,
    TWO,
    chunks,
    control,
    data,
    live,
    snapshot_bytes,
    snapshot_id,
    values_of,
)

SMALL = LogConfig(flush_policy=FlushPolicy.FSYNC, segment_bytes=250)
"""Two or three batches a segment."""


@dataclass(frozen=True)
class Found:
    """The state that an opening finds."""

    hard_state: HardState
    start: LogEnd
    batches: tuple[tuple[Offset, Offset, Epoch], ...]
    voters: VoterSet
    snapshots: tuple[tuple[SnapshotId, tuple[bytes, ...]], ...]


async def found_by(log: MetadataLog) -> Found:
    snapshots = [(one, tuple(await values_of(log, one))) for one in log.snapshots]
    entries = await log.read_entries(log.view.start_offset, log.view.end_offset)
    batches = tuple(batches_of(log.view, log.view.start_offset))
    assert [entry.base_offset for entry in entries] == [base for base, _, _ in batches]
    return Found(log.hard_state, log.view.start, batches, log.voters.latest, tuple(snapshots))


Step = Callable[[MetadataLog], Awaitable[object]]


def install(snapshot: SnapshotId, *slices: list[bytes]) -> list[Step]:
    """Receive a snapshot in chunks, then install it in place of the log."""
    pieces = chunks(snapshot, snapshot_bytes(snapshot, *slices))

    def write(piece: SnapshotChunk) -> Step:
        return lambda log: log.write_snapshot_chunk(piece)

    return [*map(write, pieces), lambda log: log.install_snapshot(snapshot, PAIR)]


async def maintain(log: MetadataLog) -> None:
    """Let the checkpoints be stored and the segments below the log start be deleted."""
    log._directory.maintenance.check_soon()
    await asyncio.sleep(1.5)


def all_steps() -> list[Step]:
    """Return calls of every kind."""
    one, two = snapshot_id(4), snapshot_id(6)
    far, parted = snapshot_id(30, epoch=4), snapshot_id(33, epoch=5)
    return [
        lambda log: log.store_hard_state(HardState(Epoch(1), ME)),
        lambda log: log.append((control(0), data(1, b"a"), data(2, b"b", b"c"))),
        lambda log: log.append((data(4, b"d"), data(5, b"e"))),
        lambda log: log.append((data(6, b"f"), control(7, voters=PAIR), data(8, b"g"))),
        lambda log: log.write_snapshot(one, ALONE, iter([[b"a"], [b"b", b"c"]])),
        maintain,
        lambda log: log.write_snapshot(two, ALONE, iter([[b"x" * 700]])),
        lambda log: log.clean_to(one),
        lambda log: log.clean_to(two),
        maintain,
        lambda log: log.store_hard_state(HardState(Epoch(2), None)),
        lambda log: log.store_hard_state(HardState(Epoch(2), TWO)),
        lambda log: log.truncate_to(Offset(7)),
        lambda log: log.append((control(7, epoch=2), data(8, b"h", epoch=2))),
        lambda log: log.store_hard_state(HardState(Epoch(4), TWO)),
        *install(far, [b"s"] * 20, [b"t"] * 3),
        lambda log: log.append((control(30, epoch=4), data(31, b"u", epoch=4))),
        maintain,
        lambda log: log.append((data(32, b"v", epoch=4), data(33, b"w", epoch=4))),
        lambda log: log.store_hard_state(HardState(Epoch(6), None)),
        *install(parted, [b"p"] * 9),
        lambda log: log.append((data(33, b"q", epoch=6),)),
    ]


async def take(
    log: MetadataLog, steps: Sequence[Step], ended: Callable[[], None] = lambda: None
) -> None:
    for step in steps:
        await step(log)
        ended()


@cache
def states() -> list[Found]:
    """Return the states after each number of steps and an orderly stop."""
    found = []
    for number in range(len(all_steps()) + 1):
        with SimWorld(0) as world:
            node = world.node("one")
            live(world, node, partial(take, steps=all_steps()[:number]), SMALL)
            found.append(live(world, node, found_by, SMALL))
    return found


def allowed_after(steps: int) -> list[Found]:
    """Return the states that are allowed after so many steps and part of the next one."""
    return between(states()[steps], states()[min(steps + 1, len(all_steps()))])


def between(before: Found, after: Found) -> list[Found]:
    """Return the states that a crash between two states may leave. A truncation may be partial."""
    if after.batches == before.batches[: len(after.batches)] and after.start == before.start:
        cut = range(len(after.batches), len(before.batches) + 1)
        voters = {before.voters, after.voters}
        return [
            replace(state, batches=before.batches[:end], voters=one)
            for end in cut
            for one in voters
            for state in (before, after)
        ]
    return _appended(before, after)


def _appended(before: Found, after: Found) -> list[Found]:
    """Return the states after any prefix of an append, which was not acknowledged."""
    grown = after.batches[: len(before.batches)] == before.batches and after.start == before.start
    if not grown:
        return [before, after]
    ends = range(len(before.batches), len(after.batches) + 1)
    return [
        replace(after, batches=after.batches[:end], voters=one)
        for end in ends
        for one in (before.voters, after.voters)
    ]


def reopen(disk: Disk, *, twice: bool, checked: bool = True) -> Found:
    """Open the directory after a crash.

    `twice`: a second opening finds the same. `checked`: a check finds no problem.
    """
    with SimWorld(0) as world:
        node = world.node("one")
        node.device.disk = disk
        if checked:
            check_directory(node, DATA)
        found = live(world, node, found_by, SMALL)
        if twice:
            assert live(world, node, found_by, SMALL) == found
    return found


def recorded(steps: Sequence[Step]) -> tuple[Recording, list[int]]:
    """Run the steps without a crash. Return the file operations and their number after each
    step."""
    ends: list[int] = []
    with SimWorld(3) as world:
        node = world.node("one")
        live(world, node, found_by, SMALL)
        recording = Recording.attach(node.device)

        async def work(log: MetadataLog) -> None:
            await take(log, steps, lambda: ends.append(node.device.operations))
            recording.stop()

        live(world, node, work, SMALL)
    return recording, ends


@pytest.mark.long
@pytest.mark.parametrize("share", range(4))
def test_a_crash_anywhere_leaves_the_state_before_or_after(share: int) -> None:
    recording, ends = recorded(all_steps())
    looks = 0
    for operation in recording.operations[share::4]:
        done = sum(end <= operation.number for end in ends)
        allowed = allowed_after(done)
        entropy = SimEntropy(f"metadata-log/{operation.number}")
        for wreck in crash_states(operation.disk, entropy, draws=2, choices_max=4):
            looks += 1
            try:
                found = reopen(wreck.disk, twice=looks % 8 == 0)
                assert found in allowed, f"{found}\nafter {done} steps, not one of {allowed}"
            except Exception as error:
                error.add_note(f"{wreck.name}\n{recording.around(operation.number)}")
                raise
    assert looks > 100, looks


@pytest.mark.long
def test_a_crash_while_a_crash_is_repaired_changes_nothing() -> None:
    """The snapshot has its final name and the log is the old one: the opening replaces the log."""
    recording, ends = recorded(all_steps())
    renamed = [op for op in recording.operations if "checkpoint.part" in op.path]
    installs = [op for op in renamed if op.what == "rename"]
    assert len(installs) == 2
    for operation in installs:
        after = sum(end <= operation.number for end in ends) + 1
        with SimWorld(0) as world:
            node = world.node("one")
            node.device.disk = operation.disk.clone()
            node.device.disk.sync_folder("/data/__cluster_metadata-0")
            repair = Recording.attach(node.device)
            assert live(world, node, found_by, SMALL) == states()[after]
            repair.stop()
        for again in repair.operations:
            for wreck in crash_states(again.disk, SimEntropy("again"), draws=1, choices_max=2):
                assert reopen(wreck.disk, twice=False) == states()[after], f"{again} {wreck.name}"


def failing(node: SimNode, operation: str, number: int, part: str) -> None:
    node.device.fail(operation, number, path_part=part, times=1)


@pytest.mark.long
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("share", range(4))
def test_failed_file_operation_loses_no_acknowledged_state(share: int, number: int) -> None:
    """The interrupted call raises or succeeds. The next process finds an acknowledged state, also
    after a power cut."""
    cut_short = 0
    whole, _ = failed_life(0, number)
    assert whole.device.operations > 100
    for operation in range(1 + share, whole.device.operations, 4):
        node, done = failed_life(operation, number)
        cut_short += done < len(all_steps())
        allowed = allowed_after(done)
        entropy = SimEntropy(f"{operation}/{number}")
        for wreck in crash_states(node.device.disk, entropy, draws=1, choices_max=2):
            if not wreck.disk.exists(f"{DATA}/meta.properties"):
                continue  # it was not formatted yet
            found = reopen(wreck.disk, twice=False, checked=False)
            assert found in allowed, f"{operation} {wreck.name}: {found} after {done}, {allowed}"
    assert cut_short > 20, cut_short


def failed_life(operation: int, number: int) -> tuple[SimNode, int]:
    """Fail the file operation of this number (0: none). Return the number of completed steps."""
    done = 0

    async def work(log: MetadataLog) -> None:
        nonlocal done
        for step in all_steps():
            await step(log)
            done += 1

    with SimWorld(1) as world:
        node = world.node("one")
        node.device.faults_at[operation] = number
        with suppress(QuorumlogError):
            live(world, node, work, SMALL)
        return node, done
