"""One partition's replica: the pure `Partition` over its log, opened at the first request.

Owns the tie between the two: it tells the partition how far the log has come, and wakes the
requests that this satisfies. A failure of the disk ends the replica's life here: it gives the
partition up with the error, and every later request is answered with it.
"""

import asyncio
import logging
from collections.abc import Iterable

from ...errors import (
    CorruptionError,
    DiskFull,
    Overloaded,
    QuorumlogError,
    Stopping,
    StorageError,
)
from ...ids import Epoch, Offset, TopicId
from ...runtime import Scope
from ...storage import FlushPolicy, Log, LogConfig
from ...storage.shell.directory import Directory
from ...storage.shell.housekeeping import ClosedLog
from ..partition import LeaderState, Partition, Wait

_LOG = logging.getLogger("quorumlog.broker")


class Replica:
    """A partition that this node leads, with its log."""

    def __init__(
        self,
        scope: Scope,
        directory: Directory,
        partition: Partition,
        *,
        topic_id: TopicId,
        leader: LeaderState | None,
        config: LogConfig,
        after: asyncio.Event | None,
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self._scope = scope
        self._directory = directory
        self._leader = leader  # what the image says; the partition takes it once the log is open
        self._config = config
        self._after = after  # set when the folder of a deleted namesake is gone
        self._log: Log | None = None
        self._error: QuorumlogError | None = None  # why the replica was given up
        self._opened: asyncio.Event | None = None  # exists from the first request on
        self._lacking: QuorumlogError | None = None  # why the last attempt to open it failed
        # Fetches that wait for records here, in order of arrival; woken by setting a result.
        self._fetches: dict[asyncio.Future[None], None] = {}

    def begin_open(self) -> None:
        """Have the log opened, unless it is or was."""
        if self._opened is None and self._error is None:
            self._opened = asyncio.Event()
            self._scope.spawn(self._open(self._opened), name=f"open {self.partition.name}")

    async def opened(self) -> Log:
        """Return the log, opening it at the first call; raises why the replica was given up, or
        what was lacking this time."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # or it keeps the frames of all it was told to
        if self._log is None:
            self.begin_open()
            assert self._opened is not None, "opening has begun"
            await self._opened.wait()
            self._check_opened()
        return self.log

    @property
    def is_open(self) -> bool:
        """Whether `opened` answers at once: with the log, or why the replica was given up."""
        return self._log is not None or self._error is not None

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

    def check(self) -> None:
        """Raise why nothing is served here: given up, or led by another node."""
        if self._error is not None:
            raise self._error.with_traceback(None)  # or it keeps the frames of all it was told to
        self.partition.check_leader(None)

    def lead(self, leader: LeaderState, config: LogConfig) -> None:
        """Take a change of the image: a new leadership, ISR or configuration."""
        self._leader, self._config = leader, config
        if self._log is not None and self._error is None:
            self._directory.configure(self._log, config)
            self._take_leadership(self._log)

    def resign(self, error: QuorumlogError, epoch: Epoch) -> None:
        """Lead no more in the epoch the image has reached; the log stays for the next time."""
        self._leader = None
        _wake(self.partition.resign(error, epoch=epoch))
        self._wake_fetches()

    def give_up(self, error: QuorumlogError) -> None:
        """Answer everything that waits, and everything to come, with `error`."""
        if self._error is not None:
            return
        self._error = error
        _wake(self.partition.resign(error))
        self._wake_fetches()

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

    def _check_opened(self) -> None:
        if self._log is None and self._error is None:
            assert self._lacking is not None, "an opening ends with a log or with an error"
            raise self._lacking.with_traceback(None)

    def wait_for_records(self, wake: "asyncio.Future[None]") -> None:
        """Have `wake` set when the high watermark moves or the replica is given up."""
        self._fetches[wake] = None

    def forget(self, wake: "asyncio.Future[None]") -> None:
        """Undo `wait_for_records`."""
        self._fetches.pop(wake, None)

    async def _open(self, opened: asyncio.Event) -> None:
        try:
            if self._after is not None:
                await self._after.wait()
            await self._drop_stray()
            log = await self._directory.open_log(
                self.partition.name, self._config, topic_id=self.topic_id
            )
            if self.flushes and log.flushed_end_offset < log.log_end_offset:
                await self._directory.flush(log)  # what recovery found counts once it is durable
        except (Overloaded, DiskFull) as error:  # that passes: the next request tries again
            _LOG.warning("broker.not_opened log=%s error=%s", self.partition.name, error)
            self._lacking, self._opened = error, None
        except (StorageError, CorruptionError, Stopping) as error:
            self.give_up(error)
        except asyncio.CancelledError:
            self.give_up(Stopping(f"{self.partition.name} was being opened when the node stopped"))
            raise
        else:
            self._log = log
            self._directory.configure(log, self._config)  # it may have changed meanwhile
            self._directory.on_appended(log, self._on_appended)
            self._directory.on_failed(log, self.give_up)
            if self._error is None:
                self._take_leadership(log)
        finally:
            opened.set()

    async def _drop_stray(self) -> None:
        """Remove what a deleted topic of this name left when the node died over its deletion
        (R29)."""
        name = self.partition.name
        there = await self._directory.topic_of_folder(name)
        if there is not None and there != self.topic_id:
            _LOG.warning("broker.stray_deleted log=%s topic_id=%s", name, there.hex())
            await self._directory.delete_folder(name)

    def _take_leadership(self, log: Log) -> None:
        if self._leader is None:
            return
        progress = self.partition.become_leader(
            self._leader,
            log_end_offset=Offset(log.log_end_offset),
            flushed_end_offset=Offset(log.flushed_end_offset),
            now_ms=int(asyncio.get_running_loop().time() * 1000),
        )
        log.note_high_watermark(self.partition.high_watermark)
        _wake(progress.released)
        self._wake_fetches()

    def _on_appended(self) -> None:
        log = self._log
        assert log is not None, f"{self.partition.name}: progress before the log is open"
        progress = self.partition.advance(
            log_end_offset=Offset(log.log_end_offset),
            flushed_end_offset=Offset(log.flushed_end_offset),
        )
        if progress.high_watermark_moved:
            log.note_high_watermark(self.partition.high_watermark)
        _wake(progress.released)
        if progress.high_watermark_moved:
            self._wake_fetches()

    def _wake_fetches(self) -> None:
        woken, self._fetches = self._fetches, {}
        for wake in woken:
            if not wake.done():
                wake.set_result(None)


def _wake(waits: Iterable[Wait]) -> None:
    for wait in waits:
        future: asyncio.Future[None] = wait.token
        if future.done():
            continue  # its caller was cancelled; forget() follows
        if wait.error is None:
            future.set_result(None)
        else:
            future.set_exception(wait.error)
