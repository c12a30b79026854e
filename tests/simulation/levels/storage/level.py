"""Level `storage`: a data directory that crashes at every file operation of a drawn workload.

The workload runs once on the simulated disk and is recorded. Then the crash states of each moment
are opened by a new process: everything acknowledged by then must be there, and nothing else; the
directory is used, cleaned, closed and opened again. Some recoveries are crashed at each of their
own file operations too.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from quorumlog.errors import QuorumlogError
from quorumlog.ids import NO_EPOCH
from quorumlog.records.codec import encode_batch
from quorumlog.records.record import Record
from quorumlog.runtime import Runtime
from quorumlog.simulation.crash_states import (
    CrashState,
    DiskOperation,
    Recording,
    content_digest,
    crash_states,
)
from quorumlog.simulation.disk import Disk, DiskTruncation
from quorumlog.simulation.entropy import SimEntropy
from quorumlog.simulation.world import SimNode, SimWorld
from quorumlog.storage import AppendOrigin, Log
from quorumlog.storage.inspect.directory_check import KnownMetadata, check
from quorumlog.storage.inspect.findings import FindingKind
from quorumlog.storage.layout import HIGH_WATERMARKS, SNAPSHOT_SUFFIX, join
from quorumlog.storage.shell import DataDirectory

from ...shrink.script import options_of, script_of
from .bounds import USUAL, StorageBounds, draw_bounds
from .expected import Content, FolderState, ReadRecord, Stored, check_cleaned
from .producers import ProducerModels, check_producers
from .reader import check_log, read_all
from .workload import (
    CLUSTER,
    DATA,
    LIVES,
    NODE,
    QUIET_MS,
    STATE,
    StorageWorkload,
    live,
    repeat,
)

COMPACTED: Final = frozenset({"gaps", "keys"})
LIFE_MS_MAX: Final = 600_000


# --- checks ----------------------------------------------------------------------------------


@dataclass(slots=True)
class StateCheck:
    """The check of one crash state."""

    workload: StorageWorkload
    moment: int  # the last file operation before the crash
    is_power_cut: bool
    is_used: bool = True  # append to the reopened logs, close and open them again
    is_damaged: bool = False  # a producer snapshot of the log "once-0"
    recording: Recording | None = None  # ends with the recovery
    senders: ProducerModels = field(
        default_factory=ProducerModels
    )  # producers of the log "once-0", as found

    async def check(self, runtime: Runtime) -> None:
        """Open the directory, compare it with the expected state, use it and close it."""
        workload, moment = self.workload, self.moment
        bounds = workload.bounds
        if moment < workload.formatted:
            await DataDirectory.format(runtime, DATA, cluster_id=CLUSTER, node_id=NODE)
        async with runtime.tasks.scope("look") as scope:
            directory = await DataDirectory.open(
                runtime, scope, DATA, config=workload.bounds.directory
            )
            state = directory.small_files.load(STATE)
            assert state in workload.states_at(moment), f"{state!r} was never stored"
            names = directory.folders.names()
            opened: list[tuple[Log, Stored]] = []
            for name, expected in workload.expectations.items():
                expectation = expected.at(moment)
                assert expectation.life is not FolderState.GONE or name not in names, (
                    f"{name} came back"
                )
                log = await directory.open_log(
                    name, bounds.configs[name], topic_id=expectation.topic_id
                )
                log.check_invariants()
                found, content = await check_log(
                    directory, log, expectation, is_power_cut=self.is_power_cut
                )
                check_epoch(log, content, may_be_unknown=name in workload.cut_down)
                if name == "once-0":
                    self.senders = check_producers(
                        log,
                        content,
                        producers_max=bounds.producers_max,
                        may_be_partial=self.is_damaged or name in workload.partial,
                    )
                if expectation.life is not FolderState.DELETING:
                    opened.append((log, found))
            if self.recording is not None:
                self.recording.stop()
            if not self.is_used:
                scope.cancel()
                return
            used = {log.name: await self._use(directory, log, found) for log, found in opened}
            await clean_logs(directory, [log for log, _ in opened], used)
            await directory.close()
            await self._look_again(runtime, used)

    async def _use(self, directory: DataDirectory, log: Log, found: Stored) -> Stored:
        """Append a record to a reopened log."""
        assert log.flushed_end_offset == log.log_end_offset, f"{log.name}: found, but not durable"
        if log.name == "once-0":
            await self._repeat(directory, log)
        epoch = max(self.workload.epoch, log.epochs.latest)
        record = Record(offset=0, timestamp_ms=1, key=b"k", value=b"after", headers=())
        content = encode_batch([record], base_offset=log.log_end_offset, leader_epoch=epoch)
        appended = await directory.append(
            log, content, leader_epoch=epoch, origin=AppendOrigin.CLIENT, flush=True
        )
        assert appended.base_offset == found.end_offset, f"{appended} after {found.end_offset}"
        records = {**found.records, found.end_offset: ReadRecord(b"k", b"after", epoch)}
        return Stored(found.start_offset, found.end_offset + 1, records)

    async def _repeat(self, directory: DataDirectory, log: Log) -> None:
        """Repeat every batch that a producer may repeat; each must be recognised."""
        for sender in self.senders.by_id.values():
            for base, records in sender.batches:
                await repeat(directory, log, base, records)

    async def _look_again(self, runtime: Runtime, used: dict[str, Stored]) -> None:
        bounds = self.workload.bounds
        async with runtime.tasks.scope("look again") as scope:
            directory = await DataDirectory.open(runtime, scope, DATA, config=bounds.directory)
            assert directory.was_clean, "closed, but not clean"
            for name, stored in used.items():
                topic_id = self.workload.expectations[name].at(self.moment).topic_id
                log = await directory.open_log(name, bounds.configs[name], topic_id=topic_id)
                again = await read_all(directory, log)
                assert again == stored, f"{name} is not what was closed"
            await directory.close()


def check_epoch(log: Log, content: Content, *, may_be_unknown: bool) -> None:
    """Raise AssertionError unless a log has the epoch of its last record. If that is deleted and
    the log was truncated after it, the epoch may be unknown."""
    if not content or content[-1] is None:
        return
    epoch = content[-1].epoch
    is_unknown = log.log_start_offset == log.log_end_offset and log.epochs.latest == NO_EPOCH
    is_right = log.epochs.latest == epoch or (is_unknown and may_be_unknown)
    assert is_right, f"{log.name} is of epoch {log.epochs.latest}, not {epoch}"


async def clean_logs(directory: DataDirectory, logs: list[Log], used: dict[str, Stored]) -> None:
    """Run the cleaning that is due; the contents it leaves go to `used`."""
    for log in logs:
        log.note_high_watermark(log.log_end_offset)
    directory.maintenance.check_soon()
    await asyncio.sleep(QUIET_MS / 1000)
    for log in logs:
        log.check_invariants()
        before, after = used[log.name], await read_all(directory, log)
        start = after.start_offset
        if log.config.compacted:
            check_cleaned(log.name, before, after)
        else:
            left = {offset: one for offset, one in before.records.items() if offset >= start}
            assert (after.end_offset, after.records) == (before.end_offset, left), log.name
        used[log.name] = after


# --- the scenario --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """The extent of the checks."""

    steps: int = 14  # per process
    draws: int = 2  # power cuts with torn and reordered writes, per moment
    choices_max: int = 3  # power cuts that keep or drop whole changes, per moment
    every: int = 4  # check every n-th moment
    used: int = 3  # use every n-th state
    deeper: int = 200  # crash the recovery of every n-th state


@dataclass(slots=True)
class Tally:
    """The counts of checked states."""

    made: int = 0
    states: int = 0  # distinct
    deeper: int = 0


def record(
    world: SimWorld, effort: Effort, bounds: StorageBounds = USUAL
) -> tuple[StorageWorkload, Recording]:
    """Run the workload of a seed; return its expectations and the recorded disk operations."""
    node = world.node("node")
    recording = Recording.attach(node.device)
    workload = StorageWorkload(
        node, world.entropy.stream("story"), effort.steps, bounds, script=script_of(world)
    )
    for life in range(LIVES):
        play_life(world, node, workload, life=life)
        assert node.exit_error is None, f"life {life} ended by {node.exit_error!r}"
    return workload, recording


def play_life(world: SimWorld, node: SimNode, workload: StorageWorkload, *, life: int) -> None:
    """Run one process of the workload to its end."""

    async def main(runtime: Runtime) -> None:
        await live(runtime, workload, life=life)

    node.spawn(main)
    world.run_until(lambda: not node.alive, virtual_ms=LIFE_MS_MAX, why="the end of a life")


def play(world: SimWorld, *, effort: Effort | None = None) -> dict[str, int]:
    """Record a workload and check its crash states; raises AssertionError with the failing one."""
    effort = effort or Effort()
    bounds = options_of(world, "bounds", draw_bounds(world.entropy.stream("bounds")))
    workload, recording = record(world, effort, bounds)
    entropy = world.entropy.stream("wrecks")
    tally = Tally()
    seen: set[object] = set()  # contents with their expectations
    for operation in recording.operations[:: effort.every]:
        drawn = entropy.stream(f"{operation.number}")
        expectation = tuple(
            id(expected.at(operation.number)) for expected in workload.expectations.values()
        )
        for wreck in crash_states(
            operation.disk, drawn, draws=effort.draws, choices_max=effort.choices_max
        ):
            tally.made += 1
            known = (expectation, wreck.is_power_cut, content_digest(wreck.disk))
            if known in seen:
                continue
            seen.add(known)
            tally.states += 1
            is_used = tally.states % effort.used == 0
            is_deep = effort.deeper > 0 and tally.states % effort.deeper == 0
            look = StateCheck(workload, operation.number, wreck.is_power_cut, is_used)
            damage = drawn.stream("damage") if bounds.damages_snapshots and is_used else None
            try:
                recovery = check_state(look, wreck.disk, is_recorded=is_deep, damage=damage)
                tally.deeper += check_recovery_crashes(look, recovery, drawn)
            except Exception as error:
                error.add_note(explain(recording, operation, wreck))
                raise
    return {
        "operations": workload.moment,
        "states": tally.made,
        "looks": tally.states,
        "deeper": tally.deeper,
        "batches": workload.batches,
        "repeated": workload.repeated,
        "removed": workload.removed,
        "cleaned": workload.cleaned,
    }


def check_state(
    look: StateCheck, disk: Disk, *, is_recorded: bool = False, damage: SimEntropy | None = None
) -> Sequence[DiskOperation]:
    """Open a crash state in a new world; return its recovery's operations if requested. With
    `damage`, one of its producer snapshots is damaged first."""
    with SimWorld(0) as world:
        node = world.node("node")
        node.device.disk = disk
        if look.is_used and look.moment >= look.workload.formatted:
            check_directory(node, look)  # a torn end is no damage
        look.is_damaged = damage is not None and damage_snapshot(disk, damage)
        look.recording = Recording.attach(node.device) if is_recorded else None
        node.spawn(look.check)
        world.run_until(lambda: not node.alive, virtual_ms=LIFE_MS_MAX, why="a look")
        if node.exit_error is not None:
            raise node.exit_error
        if look.is_used:
            check_directory(node, look)
        return look.recording.operations if look.recording is not None else ()


def damage_snapshot(disk: Disk, entropy: SimEntropy) -> bool:
    """Flip a bit of the newest producer snapshot of the log "once-0", or cut it off; return False
    if there is none."""
    there = [
        body
        for path, body in disk.files()
        if path.startswith(f"{DATA}/once-0/") and path.endswith(SNAPSHOT_SUFFIX) and body.content
    ]
    if not there:
        return False
    content = there[-1].content
    if entropy.chance(0.5):
        there[-1].flip(entropy.below(len(content)), entropy.below(8))
    else:
        there[-1].change(DiskTruncation(entropy.below(len(content))))
    return True


def check_directory(node: SimNode, look: StateCheck) -> None:
    """Run `check` on the directory; raises AssertionError with its problems.

    A damaged snapshot may remain. After a crash, the stored high watermark of a log that was
    truncated below it may be above the end of the log.
    """
    node.start_process()
    report = check(node.runtime().files, DATA, known=KnownMetadata(compacted=COMPACTED))
    allowed = set()
    if look.is_damaged:
        allowed.add((FindingKind.SNAPSHOT_WRONG, join(DATA, "once-0")))
    if look.workload.partial and not report.is_clean:
        allowed.add((FindingKind.CHECKPOINT_WRONG, join(DATA, HIGH_WATERMARKS)))
    problems = [
        found
        for found in report.all_findings()
        if found.severity == "problem"
        and (found.kind, found.file) not in allowed
        and (found.kind, found.file.rpartition("/")[0]) not in allowed
    ]
    assert not problems, f"check finds {problems[:5]}"
    node.crash()


def check_recovery_crashes(
    look: StateCheck, operations: Sequence[DiskOperation], entropy: SimEntropy
) -> int:
    """Crash a recovery at each of its own operations."""
    count = 0
    for operation in operations[1:]:
        drawn = entropy.stream(f"deeper/{operation.number}")
        for wreck in crash_states(operation.disk, drawn, draws=1, choices_max=0):
            count += 1
            is_power_cut = look.is_power_cut or wreck.is_power_cut
            again = StateCheck(look.workload, look.moment, is_power_cut, is_used=False)
            try:
                check_state(again, wreck.disk)
            except Exception as error:
                error.add_note(f"... crashed again at {operation}, {wreck.name}")
                raise
    return count


def explain(recording: Recording, operation: DiskOperation, wreck: CrashState) -> str:
    """Return the name of the crash state and the operations before it."""
    return f"crash state: {wreck.name}, after operation\n{recording.around(operation.number)}"


def play_with_fault(
    world: SimWorld, *, number: int, fault: int, is_short: bool = False, steps: int = 12
) -> int:
    """Run a workload in which one operation fails with an errno, or writes only a part; then check
    the crash states at its end. Return the number of errors.

    A log may refuse later requests, but everything acknowledged must be there.
    """
    node = world.node("node")
    workload = StorageWorkload(node, world.entropy.stream("story"), steps, has_faults=True)
    recording = Recording.attach(node.device)
    if is_short:
        node.device.short_at = number
    else:
        node.device.faults_at[number] = fault
    for life in range(LIVES):
        play_life(world, node, workload, life=life)
        if node.exit_error is not None:
            if not isinstance(node.exit_error, QuorumlogError):
                raise node.exit_error
            workload.errors += 1  # formatting or opening failed
    last = recording.operations[-1]
    for wreck in crash_states(last.disk, world.entropy.stream("wrecks"), draws=2, choices_max=2):
        try:
            check_state(
                StateCheck(workload, last.number, wreck.is_power_cut, is_used=True), wreck.disk
            )
        except Exception as error:
            error.add_note(f"fault {fault} at {recording.around(number)}\n")
            error.add_note(explain(recording, last, wreck))
            raise
    return workload.errors
