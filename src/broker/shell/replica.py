"""The replica of one partition: the pure `Partition` and its log.

The replica reports the log's progress to the partition, and wakes the waits that it releases. The
log of an unreplicated partition is opened by its first request, that of a follower when it starts
to follow. After a disk failure the replica is failed: every later request gets the error.

A role change first waits for the appends queued in the previous role, so that the log end stands
still. A leader then has a definite epoch start offset, and a follower a definite fetch offset
(R14).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from ...errors import (
    CorruptionError,
    DiskFailed,
    DiskFull,
    NotLeaderOrFollower,
    Overloaded,
    QuorumlogError,
    Stopping,
)
from ...ids import NO_NODE, Offset, TopicId
from ...metadata import INTERNAL_TOPICS
from ...runtime import Clock, Scope
from ...storage import FlushPolicy, Log, LogConfig
from ...storage.shell.data_directory import DataDirectory
from ...storage.shell.maintenance import ClosedLog
from ..isr import LeaderAndIsr
from ..partition import Partition
from ..partition_follower import FollowerState
from ..partition_leader import PartitionLeader, PartitionProgress
from ..purgatory import PurgatoryEntry
from .metrics import ReplicationMetrics

_LOG = logging.getLogger("quorumlog.broker")

OPEN_RETRY_S: Final = 1.0
"""The pause before the log of a replicated partition is opened again. An unreplicated one is opened
again by the next request."""


class Watcher(Protocol):
    """An observer of a replica, such as a follower's stream. Called on the loop."""

    def grew(self) -> None:
        """Handle a change of the log end or flushed end offset."""

    def committed(self) -> None:
        """Handle a change of the high watermark or log start offset."""

    def role_changed(self) -> None:
        """Handle the start or end of leadership, and failure."""


class ReplicaWatchers:
    """The observers of one replica, and the fetches that wait for its records."""

    __slots__ = ("_fetches", "_watchers")

    def __init__(self) -> None:
        self._watchers: dict[Watcher, None] = {}
        self._fetches: dict[asyncio.Future[None], None] = {}  # by their results, in arrival order

    def __len__(self) -> int:
        return len(self._watchers)

    def add(self, watcher: Watcher) -> None:
        """Add an observer."""
        self._watchers[watcher] = None

    def discard(self, watcher: Watcher) -> None:
        """Remove an observer; no-op if it was not added."""
        self._watchers.pop(watcher, None)

    def add_fetch(self, wake: "asyncio.Future[None]") -> None:
        """Resolve `wake` when the high watermark moves or the role changes."""
        self._fetches[wake] = None

    def discard_fetch(self, wake: "asyncio.Future[None]") -> None:
        """Remove a fetch that waits no longer."""
        self._fetches.pop(wake, None)

    def log_moved(self) -> None:
        """Report a new log end or flushed end offset."""
        for watcher in self._watchers:
            watcher.grew()

    def log_start_moved(self) -> None:
        """Report a new log start offset; followers delete as much."""
        for watcher in self._watchers:
            watcher.committed()

    def high_watermark_moved(self) -> None:
        """Report a new high watermark."""
        for watcher in self._watchers:
            watcher.committed()
        self._wake_fetches()

    def role_changed(self) -> None:
        """Report the start or end of leadership, or failure."""
        for watcher in list(self._watchers):
            watcher.role_changed()
        self._wake_fetches()

    def _wake_fetches(self) -> None:
        if self._fetches:
            fetches, self._fetches = self._fetches, {}
            for wake in fetches:
                if not wake.done():
                    wake.set_result(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDeps:
    """Dependencies shared by the replicas of one node; no callable blocks."""

    clock: Clock
    scope: Scope  # for tasks that outlive a request, such as opening logs
    directory: DataDirectory
    follow: Callable[["Replica"], None]  # the log is ready to follow its leader
    forget: Callable[["Replica"], None]  # the replica no longer follows as before
    review_isr: Callable[["Replica"], None]  # the ISR may have to change
    failed: Callable[["Replica", QuorumlogError], None]  # the log has failed
    figures: ReplicationMetrics = field(default_factory=ReplicationMetrics)


class ReplicaStorage:
    """The log folder of one replica: opened once in the background, quarantined, deleted."""

    def __init__(
        self,
        deps: ReplicaDeps,
        name: str,
        topic_id: TopicId,
        config: LogConfig,
        *,
        after: asyncio.Event | None,
        may_quarantine: Callable[[], bool],
        opened: Callable[[Log], None],
        failed: Callable[[QuorumlogError], None],
    ) -> None:
        """`after`: set when the log of a deleted topic of the same name is gone. One of `opened`
        and `failed` is called at the end of each attempt."""
        self.config = config
        self._deps = deps
        self._name = name
        self._topic_id = topic_id
        self._after = after
        self._may_quarantine = may_quarantine
        self._on_opened = opened
        self._on_failed = failed
        self._attempt: asyncio.Event | None = None  # set at its end
        self._needs_quarantine = False  # the log must be quarantined before it is opened

    @property
    def is_begun(self) -> bool:
        """True if the log is being opened, or was opened."""
        return self._attempt is not None

    def begin_open(self) -> None:
        """Start to open the log, unless it is or was opened."""
        if self._attempt is None:
            self._attempt = asyncio.Event()
            self._deps.scope.spawn(self._open(self._attempt), name=f"open {self._name}")

    async def wait_open(self) -> None:
        """Wait for the end of the attempt."""
        assert self._attempt is not None, f"{self._name} is not being opened"
        await self._attempt.wait()

    def allow_retry(self, *, quarantine: bool = False) -> None:
        """Let `begin_open` start another attempt, after a quarantine of the log if requested."""
        self._attempt = None
        self._needs_quarantine = self._needs_quarantine or quarantine

    async def delete(self, log: Log | None) -> None:
        """Delete the log after the attempt to open it. Raises DiskFailed."""
        if self._after is not None:
            await self._after.wait()
        if log is not None:
            await self._deps.directory.folders.delete_log(log)
        else:
            await self._deps.directory.folders.delete(self._name)

    async def _open(self, attempt: asyncio.Event) -> None:
        directory = self._deps.directory
        try:
            if self._after is not None:
                await self._after.wait()
            if self._needs_quarantine:
                await self._quarantine()
            await self._drop_stray()
            log = await directory.open_log(self._name, self.config, topic_id=self._topic_id)
            is_fsync = self.config.flush_policy is FlushPolicy.FSYNC
            if is_fsync and log.flushed_end_offset < log.log_end_offset:
                await directory.flush(log)  # recovered records count once they are durable
        except (Overloaded, DiskFull, DiskFailed, CorruptionError, Stopping) as error:
            self._on_failed(error)
        except asyncio.CancelledError:
            self._on_failed(
                Stopping(f"{self._name}: the broker stopped while the log was being opened")
            )
            raise
        else:
            directory.configure(log, self.config)  # it may have changed in between
            self._on_opened(log)
        finally:
            attempt.set()

    async def _quarantine(self) -> None:
        if self._may_quarantine():
            kept = await self._deps.directory.folders.quarantine(self._name)
            _LOG.error("broker.log_put_aside log=%s kept=%s", self._name, kept)
        self._needs_quarantine = False  # as a leader, the damage shows again at the open

    async def _drop_stray(self) -> None:
        """Delete the log of a deleted topic of the same name, if the node crashed during that
        deletion (R29)."""
        there = await self._deps.directory.folders.topic_of(self._name)
        if there is not None and there != self._topic_id:
            _LOG.warning("broker.stray_deleted log=%s topic_id=%s", self._name, there.hex())
            await self._deps.directory.folders.delete(self._name)


class Replica:
    """A partition that this node leads or follows, with its log."""

    def __init__(
        self,
        deps: ReplicaDeps,
        partition: Partition,
        *,
        topic_id: TopicId,
        config: LogConfig,
        after: asyncio.Event | None,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.is_internal = partition.topic in INTERNAL_TOPICS  # no client writes to it
        self.watchers = ReplicaWatchers()
        # The log may be discarded: another node leads, and this replica is neither in the ISR nor
        # electable.
        self.may_discard_log = False
        self.is_moving_in = False  # a reassignment adds it, and it is not in the ISR yet
        self.on_moved: Callable[[], None] | None = None  # of a follower: the log's ends have moved
        self.on_joined: Callable[[], None] | None = None  # of a follower: it is no longer moving in
        self.figures = deps.figures
        self._deps = deps
        # The role in the metadata; the partition takes it once the log is open and stands still.
        self._role: LeaderAndIsr | FollowerState | None = None
        self._storage = ReplicaStorage(
            deps,
            partition.name,
            topic_id,
            config,
            after=after,
            may_quarantine=lambda: self.may_discard_log,
            opened=self._log_opened,
            failed=self._open_failed,
        )
        self._log: Log | None = None
        self._error: QuorumlogError | None = None  # the error of the failed replica
        self._role_pending: asyncio.Event | None = None  # set while a role change waits for the log
        self._open_error: QuorumlogError | None = None  # the failure of the last attempt to open it
        self._damage: CorruptionError | None = None  # of a follower's log, kept so far

    # --- the log ------------------------------------------------------------------------------

    def begin_open(self) -> None:
        """Start to open the log, unless it is or was opened."""
        if self._error is None:
            self._storage.begin_open()

    async def opened(self) -> Log:
        """Return the log, which the first call opens, in the newest role.

        Raises the error of a failed replica, or of the last attempt to open.
        """
        if self._error is not None:
            raise self._error.with_traceback(None)  # without their callers' frames
        if self._log is None:
            self.begin_open()
            await self._storage.wait_open()
            self._check_opened()
        while self._role_pending is not None:
            await self._role_pending.wait()
        return self.log

    @property
    def is_open(self) -> bool:
        """True if `opened` returns or raises without waiting."""
        return self._error is not None or (self._log is not None and self._role_pending is None)

    def check_open(self) -> None:
        """Raise an error unless the log is open."""
        if self._error is not None:
            raise self._error.with_traceback(None)
        if self._log is None or self._role_pending is not None:
            raise (
                self._open_error or Overloaded("the log is being opened; repeat")
            ).with_traceback(None)

    @property
    def closed_log(self) -> ClosedLog | None:
        """The log if no request has opened it, for log cleaning."""
        if self._storage.is_begun or self._error is not None:
            return None
        return ClosedLog(name=self.partition.name, config=self._storage.config, open=self.opened)

    @property
    def log(self) -> Log:
        """The open log; raises the error of a failed replica."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # without their callers' frames
        assert self._log is not None, f"{self.partition.name} is used before it is open"
        return self._log

    @property
    def flushes(self) -> bool:
        """True if an append is acknowledged only after an fsync."""
        return self._storage.config.flush_policy is FlushPolicy.FSYNC

    @property
    def is_given_up(self) -> bool:
        """True if the replica is failed."""
        return self._error is not None

    @property
    def is_shared(self) -> bool:
        """True if the partition has other replicas."""
        role = self._role
        return isinstance(role, FollowerState) or (role is not None and len(role.replicas) > 1)

    def check(self) -> PartitionLeader:
        """Return the leadership; raise an error if the replica is failed or does not lead."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # without their callers' frames
        return self.partition.check_leader(None)

    # --- roles --------------------------------------------------------------------------------

    def lead(self, leader: LeaderAndIsr, config: LogConfig) -> None:
        """Apply metadata: a new leadership, ISR or configuration."""
        self._role = leader
        self._configure(config)
        self.may_discard_log = False
        if self._damage is not None and self._error is None:
            self._fail(self._damage)
        if self._error is not None:
            return
        if not self.partition.is_leader:
            if self.partition.follower is not None:
                self._deps.forget(self)
                soon = _about_to_lead(self.partition)
                _wake(self.partition.resign(soon))
            self._request_role()
        elif self._log is not None:
            self._take_leadership(self._log)

    def follow(
        self, follower: FollowerState, config: LogConfig, error: NotLeaderOrFollower
    ) -> None:
        """Apply metadata: another node leads, or none; `error` answers requests that need the
        leader."""
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
            self._discard_damaged(self._damage)
        if is_same:
            if self.on_joined is not None and not self.is_moving_in:
                self.on_joined()
            return
        self._deps.forget(self)
        self.watchers.role_changed()
        if follower.leader_id != NO_NODE:
            self._request_role()
            self.begin_open()

    def give_up(self, error: QuorumlogError) -> None:
        """Fail every waiting and every later request with `error`."""
        if self._error is not None:
            return
        self._error = error
        self.figures.transactional.pop(self, None)
        _wake(self.partition.resign(error))
        self._deps.forget(self)
        self.watchers.role_changed()
        if self._role_pending is not None:
            self._role_pending.set()
            self._role_pending = None

    async def delete(self) -> None:
        """Delete the log of a failed replica. Raises DiskFailed."""
        assert self._error is not None, f"{self.partition.name} is deleted while it serves"
        if self._storage.is_begun:
            await self._storage.wait_open()
        await self._storage.delete(self._log)

    def progressed(self, progress: PartitionProgress) -> None:
        """Notify the log, watchers and waits of the partition's progress."""
        if progress.high_watermark_moved:
            self.log.note_high_watermark(self.partition.high_watermark)
            self.watchers.high_watermark_moved()
        if progress.released:
            _wake(progress.released)

    # --- open -------------------------------------------------------------------------------------

    def _log_opened(self, log: Log) -> None:
        self._log = log
        self._deps.directory.on_appended(log, self._on_moved)
        self._deps.directory.on_failed(log, self._fail)
        self.partition.high_watermark = Offset(log.high_watermark)  # the checkpointed one
        self._request_role()

    def _open_failed(self, error: QuorumlogError) -> None:
        name = self.partition.name
        if self._error is not None:
            return
        self._open_error = error
        if isinstance(error, Overloaded | DiskFull):  # temporary: the next request retries
            _LOG.warning("broker.not_opened log=%s error=%s", name, error)
            self._storage.allow_retry()
            if self.is_shared:  # followers and leaders send no such request
                asyncio.get_running_loop().call_later(OPEN_RETRY_S, self.begin_open)
        elif isinstance(error, CorruptionError) and isinstance(self._role, FollowerState):
            _LOG.error("broker.log_damaged log=%s error=%s", name, error)
            self._discard_damaged(error)
        elif isinstance(error, Stopping):
            self.give_up(error)
        else:
            self._fail(error)

    def _discard_damaged(self, damage: CorruptionError) -> None:
        """Quarantine the damaged log and fetch it again, once the metadata shows that nothing
        depends on its records. Until then the replica lags, and so leaves the ISR. If the ISR would
        become too small without it, the log stays as it is."""
        self._damage = damage
        if self.may_discard_log:
            self._damage = None
            self._storage.allow_retry(quarantine=True)
            self.begin_open()

    def _check_opened(self) -> None:
        if self._log is None and self._error is None:
            if self._damage is not None:
                self.partition.check_leader(None)  # the address of the leader is more useful
            assert self._open_error is not None, "an open ends with a log or an error"
            raise self._open_error.with_traceback(None)

    def _configure(self, config: LogConfig) -> None:
        if config is not self._storage.config:
            self._storage.config = config
            if self._log is not None and self._error is None:
                self._deps.directory.configure(self._log, config)

    def _fail(self, error: QuorumlogError) -> None:
        self.give_up(error)
        self._deps.failed(self, error)

    # --- taking a role ------------------------------------------------------------------------

    def _request_role(self) -> None:
        """Take the role in the metadata, once the log is open and stands still."""
        log = self._log
        if log is None or self._error is not None or self._role_pending is not None:
            return
        settled = self._deps.directory.settle(log)
        if settled is None:
            self._take_role(log)
        else:
            self._role_pending = asyncio.Event()
            settled.add_done_callback(self._settled)

    def _settled(self, settled: "asyncio.Future[None]") -> None:
        pending, self._role_pending = self._role_pending, None
        log = self._log
        if settled.exception() is None and self._error is None:
            assert log is not None, f"{self.partition.name} stands still before it is open"
            self._take_role(log)
        if pending is not None:
            pending.set()

    def _take_role(self, log: Log) -> None:
        partition, role = self.partition, self._role
        if partition.high_watermark > log.log_end_offset:
            partition.truncated(Offset(log.log_end_offset))
        if partition.high_watermark < log.log_start_offset:
            partition.restarted(Offset(log.log_start_offset))
        if isinstance(role, LeaderAndIsr):
            self._take_leadership(log)
        elif role is not None and role.leader_id != NO_NODE:
            self._deps.follow(self)

    def _take_leadership(self, log: Log) -> None:
        role = self._role
        assert isinstance(role, LeaderAndIsr), f"{self.partition.name} takes {role}"
        begins = not self.partition.is_leader or role.leader_epoch > self.partition.leader_epoch
        if begins and log.producers.states.undecided.open_count:
            # sometimes if role.recovering: an unclean election with an open transaction
            self.figures.transactional[self] = None
        progress = self.partition.become_leader(
            role,
            log_end_offset=Offset(log.log_end_offset),
            flushed_end_offset=Offset(log.flushed_end_offset),
            now_ms=self._deps.clock.now_ms(),
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
            self.watchers.role_changed()
        self._deps.review_isr(self)

    # --- progress -----------------------------------------------------------------------------

    def _on_moved(self) -> None:
        log, partition = self._log, self.partition
        assert log is not None, f"{partition.name}: progress before the log is open"
        leader = partition.leader
        if leader is not None:
            progress = leader.advance(
                log_end_offset=Offset(log.log_end_offset),
                flushed_end_offset=Offset(log.flushed_end_offset),
            )
            self.watchers.log_moved()
            self.progressed(progress)
        elif self.on_moved is not None:
            self.on_moved()


Find: TypeAlias = Callable[[str, int, bytes], Replica]
"""Returns a replica by topic, partition and topic id (empty: any); raises UnknownTopicOrPartition,
UnknownTopicId, NotLeaderOrFollower."""


def _about_to_lead(partition: Partition) -> NotLeaderOrFollower:
    return NotLeaderOrFollower(
        "this broker is about to lead this partition; retry shortly",
        topic=partition.topic,
        partition=partition.index,
    )


def _wake(waits: Iterable[PurgatoryEntry]) -> None:
    for wait in waits:
        if wait.error is None:
            wait.token.acknowledge()
        else:
            wait.token.fail(wait.error)
