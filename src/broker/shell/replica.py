"""One partition's replica: the pure `Partition` over its log.

Owns the tie between the two: it tells the partition how far the log has come, and wakes whom that
satisfies. The log of a lone replica is opened at the first request, that of a follower when it
follows. A failure of the disk ends the replica's life here: it gives the partition up with the
error, and every later request is answered with it.

Who leads may change at any moment; what was queued for the log in the old role ends first. So the
new role is taken when the log's end stands still: a leader then knows where its epoch begins, and a
follower where to go on reading (R14).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from ...errors import (
    CorruptionError,
    DiskFull,
    NotLeaderOrFollower,
    Overloaded,
    QuorumlogError,
    Stopping,
    StorageError,
)
from ...ids import NO_NODE, Offset, TopicId
from ...metadata import INTERNAL_TOPICS
from ...runtime import Clock, Scope
from ...storage import FlushPolicy, Log, LogConfig
from ...storage.shell.data_directory import Directory
from ...storage.shell.maintenance import ClosedLog
from ..partition import FollowerState, LeaderState, Partition, Progress, Wait
from .figures import ReplicationFigures

_LOG = logging.getLogger("quorumlog.broker")

OPEN_AGAIN_S: Final = 1.0
"""After so long a log that others hold too is tried again; lone ones are when they are asked."""


class Watcher(Protocol):
    """Who reads along as this replica leads: a follower's stream. Called on the loop."""

    def grew(self) -> None:
        """The log's end moved, or its flushed end."""

    def committed(self) -> None:
        """The high watermark moved, or the log's start."""

    def role_changed(self) -> None:
        """The replica leads now, or does no more, or was given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the replicas of one node have in common; the callables never wait."""

    clock: Clock
    scope: Scope  # of what outlives a request: the opening of logs
    directory: Directory
    follow: Callable[["Replica"], None]  # its log is ready to follow its leader
    forget: Callable[["Replica"], None]  # it follows no more where it did
    look_at_isr: Callable[["Replica"], None]  # other replicas may be in sync now
    failed: Callable[["Replica", QuorumlogError], None]  # its log cannot be used any more
    figures: ReplicationFigures = field(default_factory=ReplicationFigures)


class Replica:
    """A partition that this node leads or follows, with its log."""

    def __init__(
        self,
        around: Surroundings,
        partition: Partition,
        *,
        topic_id: TopicId,
        config: LogConfig,
        after: asyncio.Event | None,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.is_internal = partition.topic in INTERNAL_TOPICS  # no client writes it
        self.watchers: dict[Watcher, None] = {}
        # What is here counts for nothing: another node leads, and this one is neither in sync nor
        # may be elected for what it has.
        self.may_begin_anew = False
        self.is_moving_in = False  # a reassignment adds it here, and it is not in sync yet
        self.on_moved: Callable[[], None] | None = None  # as a follower: the log's ends moved
        self.on_joined: Callable[[], None] | None = None  # ... it is not moving in any more
        self.figures = around.figures
        self._around = around
        self._directory = around.directory
        # What the image says; the partition takes it once the log is open and stands still.
        self._role: LeaderState | FollowerState | None = None
        self._config = config
        self._after = after  # set when the folder of a deleted namesake is gone
        self._log: Log | None = None
        self._error: QuorumlogError | None = None  # why the replica was given up
        self._opened: asyncio.Event | None = None  # exists from the first request on
        self._turned: asyncio.Event | None = None  # exists while a role waits for the log
        self._lacking: QuorumlogError | None = None  # why the last attempt to open it failed
        self._damage: CorruptionError | None = None  # of the log of a follower, which waits for it
        self._is_put_aside = False  # the log is to be put aside before it is opened
        # Fetches that wait for records here, in order of arrival; woken by setting a result.
        self._fetches: dict[asyncio.Future[None], None] = {}

    # --- the log ------------------------------------------------------------------------------

    def begin_open(self) -> None:
        """Have the log opened, unless it is or was."""
        if self._opened is None and self._error is None:
            self._opened = asyncio.Event()
            self._around.scope.spawn(self._open(self._opened), name=f"open {self.partition.name}")

    async def opened(self) -> Log:
        """Return the log, opening it at the first call; raises why the replica was given up, or
        what was lacking this time. By then the newest role is taken."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # or it keeps the frames of all it was told to
        if self._log is None:
            self.begin_open()
            assert self._opened is not None, "opening has begun"
            await self._opened.wait()
            self._check_opened()
        while self._turned is not None:
            await self._turned.wait()
        return self.log

    @property
    def is_open(self) -> bool:
        """Whether `opened` answers at once: with the log, or why the replica was given up."""
        return self._error is not None or (self._log is not None and self._turned is None)

    def check_open(self) -> None:
        """Raise what `opened` would raise or wait for."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._log is None or self._turned is not None:
            raise (self._lacking or Overloaded("the log is being opened; repeat")).with_traceback(
                None
            )

    @property
    def closed_log(self) -> ClosedLog | None:
        """The log while nobody has asked for it, for who keeps house."""
        if self._opened is not None or self._error is not None:
            return None
        return ClosedLog(name=self.partition.name, config=self._config, open=self.opened)

    @property
    def log(self) -> Log:
        """The open log; raises why the replica was given up."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # or it keeps the frames of all it was told to
        assert self._log is not None, f"{self.partition.name} is used before it is open"
        return self._log

    @property
    def flushes(self) -> bool:
        """Whether an append is acknowledged only after its fsync."""
        return self._config.flush_policy is FlushPolicy.FSYNC

    @property
    def is_given_up(self) -> bool:
        """Whether nothing is served here any more."""
        return self._error is not None

    @property
    def is_shared(self) -> bool:
        """Whether other nodes hold the partition too."""
        role = self._role
        return isinstance(role, FollowerState) or (role is not None and len(role.replicas) > 1)

    def check(self) -> None:
        """Raise why nothing is served here: given up, or led by another node."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # or it keeps the frames of all it was told to
        self.partition.check_leader(None)

    # --- roles --------------------------------------------------------------------------------

    def lead(self, leader: LeaderState, config: LogConfig) -> None:
        """Take a change of the image: a new leadership, ISR or configuration."""
        self._role = leader
        self._configure(config)
        self.may_begin_anew = False
        if self._damage is not None and self._error is None:
            self._fail(self._damage)
        if self._error is not None:
            return
        if not self.partition.is_leader:
            if self.partition.follower is not None:
                self._around.forget(self)
                soon = _leads_soon(self.partition)
                _wake(self.partition.resign(soon))
            self._turn()
        elif self._log is not None:
            self._take_leadership(self._log)

    def follow(
        self, follower: FollowerState, config: LogConfig, error: NotLeaderOrFollower
    ) -> None:
        """Take a change of the image: another node leads, or nobody; `error` says so."""
        before = self.partition.follower
        self._role = follower
        self._configure(config)
        if self._error is not None:
            return
        is_same = before is not None and (before.leader_id, before.leader_epoch) == (
            follower.leader_id,
            follower.leader_epoch,
        )
        _wake(self.partition.become_follower(follower, error))
        if self._damage is not None:
            self._begin_anew(self._damage)
        if is_same:
            if self.on_joined is not None and not self.is_moving_in:
                self.on_joined()
            return
        self._around.forget(self)
        self._role_changed()
        if follower.leader_id != NO_NODE:
            self._turn()
            self.begin_open()

    def give_up(self, error: QuorumlogError) -> None:
        """Answer everything that waits, and everything to come, with `error`."""
        if self._error is not None:
            return
        self._error = error
        _wake(self.partition.resign(error))
        self._around.forget(self)
        self._role_changed()
        if self._turned is not None:
            self._turned.set()
            self._turned = None

    async def delete(self) -> None:
        """Remove the log from the disk; the replica was given up before. Raises StorageError."""
        assert self._error is not None, f"{self.partition.name} is deleted while it serves"
        if self._opened is not None:
            await self._opened.wait()
        if self._after is not None:
            await self._after.wait()
        if self._log is not None:
            await self._directory.delete_log(self._log)
        else:
            await self._directory.delete_folder(self.partition.name)

    # --- waits ------------------------------------------------------------------------------------

    def wait_for_records(self, wake: "asyncio.Future[None]") -> None:
        """Have `wake` set when the high watermark moves or the replica changes its role."""
        self._fetches[wake] = None

    def forget(self, wake: "asyncio.Future[None]") -> None:
        """Undo `wait_for_records`."""
        self._fetches.pop(wake, None)

    def progressed(self, progress: Progress) -> None:
        """Tell whom it concerns what a change of the partition brought about."""
        if progress.high_watermark_moved:
            self.mark_moved()
        _wake(progress.released)

    def mark_moved(self) -> None:
        """The partition's high watermark moved."""
        self.log.note_high_watermark(self.partition.high_watermark)
        for watcher in self.watchers:
            watcher.committed()
        self._wake_fetches()

    def start_moved(self) -> None:
        """The log's start moved: the followers delete as much."""
        for watcher in self.watchers:
            watcher.committed()

    def spawn(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Have something done for this replica that nobody waits for."""
        self._around.scope.spawn(work, name=f"{name} {self.partition.name}")

    # --- open -------------------------------------------------------------------------------------

    async def _open(self, opened: asyncio.Event) -> None:
        try:
            if self._after is not None:
                await self._after.wait()
            if self._is_put_aside:
                await self._put_aside()
            await self._drop_stray()
            log = await self._directory.open_log(
                self.partition.name, self._config, topic_id=self.topic_id
            )
            if self.flushes and log.flushed_end_offset < log.log_end_offset:
                await self._directory.flush(log)  # what recovery found counts once it is durable
        except (Overloaded, DiskFull, StorageError, CorruptionError, Stopping) as error:
            self._not_opened(error)
        except asyncio.CancelledError:
            self.give_up(Stopping(f"{self.partition.name} was being opened when the node stopped"))
            raise
        else:
            self._log = log
            self._directory.configure(log, self._config)  # it may have changed meanwhile
            self._directory.on_appended(log, self._on_moved)
            self._directory.on_failed(log, self._fail)
            self.partition.high_watermark = Offset(log.high_watermark)  # as it was checkpointed
            self._turn()
        finally:
            opened.set()

    def _not_opened(self, error: QuorumlogError) -> None:
        name = self.partition.name
        if self._error is not None:
            return
        self._lacking = error
        if isinstance(error, Overloaded | DiskFull):  # that passes: the next request tries again
            _LOG.warning("broker.not_opened log=%s error=%s", name, error)
            self._opened = None
            if self.is_shared:  # the other replicas do not ask twice
                asyncio.get_running_loop().call_later(OPEN_AGAIN_S, self.begin_open)
        elif isinstance(error, CorruptionError) and isinstance(self._role, FollowerState):
            _LOG.error("broker.log_damaged log=%s error=%s", name, error)
            self._begin_anew(error)
        elif isinstance(error, Stopping):
            self.give_up(error)
        else:
            self._fail(error)

    def _begin_anew(self, damage: CorruptionError) -> None:
        """Have the damaged log put aside and everything fetched again, but not before the metadata
        say that nothing depends on what it has. Until then it lags, and so leaves the in-sync
        replicas; where they would be too few without it, it stays as it is."""
        self._damage = damage
        if self.may_begin_anew:
            self._damage, self._opened, self._is_put_aside = None, None, True
            self.begin_open()

    async def _put_aside(self) -> None:
        if self.may_begin_anew:
            kept = await self._directory.asides.put(self.partition.name)
            _LOG.error("broker.log_put_aside log=%s kept=%s", self.partition.name, kept)
        self._is_put_aside = False  # where it leads by now the damage shows again

    async def _drop_stray(self) -> None:
        """Remove what a deleted topic of this name left when the node died over its deletion
        (R29)."""
        name = self.partition.name
        there = await self._directory.topic_of_folder(name)
        if there is not None and there != self.topic_id:
            _LOG.warning("broker.stray_deleted log=%s topic_id=%s", name, there.hex())
            await self._directory.delete_folder(name)

    def _check_opened(self) -> None:
        if self._log is None and self._error is None:
            if self._damage is not None:
                self.partition.check_leader(None)  # who leads is of more use
            assert self._lacking is not None, "an opening ends with a log or with an error"
            raise self._lacking.with_traceback(None)

    def _configure(self, config: LogConfig) -> None:
        if config is not self._config:
            self._config = config
            if self._log is not None and self._error is None:
                self._directory.configure(self._log, config)

    def _fail(self, error: QuorumlogError) -> None:
        self.give_up(error)
        self._around.failed(self, error)

    # --- taking a role ------------------------------------------------------------------------

    def _turn(self) -> None:
        """Take the role that the image says, once the log is open and stands still."""
        log = self._log
        if log is None or self._error is not None or self._turned is not None:
            return
        settled = self._directory.settle(log)
        if settled is None:
            self._take_role(log)
        else:
            self._turned = asyncio.Event()
            settled.add_done_callback(self._settled)

    def _settled(self, settled: "asyncio.Future[None]") -> None:
        turned, self._turned = self._turned, None
        log = self._log
        if settled.exception() is None and self._error is None:
            assert log is not None, f"{self.partition.name} stands still before it is open"
            self._take_role(log)
        if turned is not None:
            turned.set()

    def _take_role(self, log: Log) -> None:
        partition, role = self.partition, self._role
        if partition.high_watermark > log.log_end_offset:
            partition.truncated(Offset(log.log_end_offset))
        if partition.high_watermark < log.log_start_offset:
            partition.restarted(Offset(log.log_start_offset))
        if isinstance(role, LeaderState):
            self._take_leadership(log)
        elif role is not None and role.leader_id != NO_NODE:
            self._around.follow(self)

    def _take_leadership(self, log: Log) -> None:
        role = self._role
        assert isinstance(role, LeaderState), f"{self.partition.name} takes {role}"
        begins = not self.partition.is_leader or role.leader_epoch > self.partition.leader_epoch
        progress = self.partition.become_leader(
            role,
            log_end_offset=Offset(log.log_end_offset),
            flushed_end_offset=Offset(log.flushed_end_offset),
            now_ms=self._around.clock.now_ms(),
        )
        log.note_high_watermark(self.partition.high_watermark)
        self.progressed(progress)
        if begins:
            if role.recovering:
                _LOG.warning(
                    "broker.leads_with_possible_loss log=%s leader_epoch=%d log_end_offset=%d",
                    self.partition.name,
                    role.leader_epoch,
                    log.log_end_offset,
                )
            self._role_changed()
        self._around.look_at_isr(self)

    # --- progress -----------------------------------------------------------------------------

    def _on_moved(self) -> None:
        log, partition = self._log, self.partition
        assert log is not None, f"{partition.name}: progress before the log is open"
        if partition.is_leader:
            progress = partition.advance(
                log_end_offset=Offset(log.log_end_offset),
                flushed_end_offset=Offset(log.flushed_end_offset),
            )
            for watcher in self.watchers:
                watcher.grew()
            self.progressed(progress)
        elif self.on_moved is not None:
            self.on_moved()

    def _role_changed(self) -> None:
        for watcher in list(self.watchers):
            watcher.role_changed()
        self._wake_fetches()

    def _wake_fetches(self) -> None:
        if self._fetches:
            woken, self._fetches = self._fetches, {}
            for wake in woken:
                if not wake.done():
                    wake.set_result(None)


Find: TypeAlias = Callable[[str, int, bytes], Replica]
"""By topic, partition and topic id (empty: any); raises UnknownTopicOrPartition, UnknownTopicId,
NotLeaderOrFollower."""


def _leads_soon(partition: Partition) -> NotLeaderOrFollower:
    return NotLeaderOrFollower(
        "this node is about to lead this partition; repeat after a moment",
        topic=partition.topic,
        partition=partition.index,
    )


def _wake(waits: Iterable[Wait]) -> None:
    for wait in waits:
        future: asyncio.Future[None] = wait.token
        if future.done():
            continue  # its caller was cancelled; forget() follows
        if wait.error is None:
            future.set_result(None)
        else:
            future.set_exception(wait.error)
