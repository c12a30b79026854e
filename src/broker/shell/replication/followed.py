"""One followed partition: its state for the leader, and the handling of an answer.

The pure partition decides; this module appends to, truncates and resets the log. A failure delays
only its partition, which fetches again: the leader's log has all records.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from ....errors import QuorumlogError, Stopping, StorageError
from ....ids import Epoch, Offset
from ....proto import replica_pb2 as pb
from ....runtime import Buffer
from ....runtime.error_detail import decode_error
from ....storage import AppendOrigin
from ....storage.shell.append_queue import Appended
from ....storage.shell.data_directory import DataDirectory
from ...partition import Append, FollowAnswer, Reset, Skip, Truncate
from ..replica import Replica

_LOG = logging.getLogger("quorumlog.broker")

RETRY_MS: Final = (50, 2_000)
"""The delays after failures, doubled each time."""


class FollowedPartition:
    """One partition followed from one leader."""

    __slots__ = (
        "_backoff_ms",
        "_changed",
        "_directory",
        "_logged_error",
        "_moves_start",
        "_pause",
        "delay_ms",
        "epoch",
        "index",
        "received_bytes",
        "replica",
        "topic_id",
    )

    def __init__(
        self,
        replica: Replica,
        directory: DataDirectory,
        changed: Callable[["FollowedPartition"], None],
    ) -> None:
        """`changed` is called when the log has moved other than by an answer, or a delay has
        ended."""
        self.replica = replica
        self.topic_id = replica.topic_id
        self.index = replica.partition.index
        self.epoch = replica.partition.leader_epoch  # in which it is followed
        self.received_bytes = 0  # of the last answer
        self.delay_ms = 0  # of the next fetch; 0: at once
        # Set while fetches are delayed; acknowledgements are still sent.
        self._pause: asyncio.TimerHandle | None = None
        self._backoff_ms = 0
        self._directory = directory
        self._changed = changed
        self._moves_start = False  # the log start is being moved to the leader's
        self._logged_error = ""  # the last logged error, so that each is logged once
        replica.on_moved = self._on_log_moved
        replica.on_joined = self.resume

    def unfollow(self) -> None:
        """Stop following."""
        if self._pause is not None:
            self._pause.cancel()
        if self.replica.on_moved == self._on_log_moved:
            self.replica.on_moved = self.replica.on_joined = None

    def pause(self) -> None:
        """Delay the next fetch by `delay_ms`."""
        if self._pause is not None:
            self._pause.cancel()
        loop = asyncio.get_running_loop()
        self._pause = loop.call_later(self.delay_ms / 1000, self.resume)

    def resume(self) -> None:
        """End the delay, if there is one."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
            self._changed(self)

    def fill(self, part: pb.FollowPartition, max_bytes: int) -> None:
        """Write the log's state and the fetch size into a request."""
        log, partition = self.replica.log, self.replica.partition
        part.topic_id = self.topic_id
        part.partition = self.index
        part.log_end_offset = log.log_end_offset
        part.flushed_end_offset = log.flushed_end_offset
        part.log_start_offset = log.log_start_offset
        part.last_epoch = log.latest_epoch
        part.leader_epoch = self.epoch
        part.high_watermark = partition.high_watermark
        part.max_bytes = -1 if self._pause is not None else max_bytes

    def take(self, result: pb.FollowResult, records: Buffer) -> Awaitable[None] | None:
        """Apply an answer; None: done already. Sets `delay_ms` after a failure."""
        replica = self.replica
        self.delay_ms = self.received_bytes = 0
        if replica.is_given_up:
            return None
        if result.HasField("error"):
            self._failed(decode_error(result.error))
            return None
        log = replica.log
        self.received_bytes = len(records)
        if result.may_have_gaps and not log.was_compacted:
            return self._expect_gaps()
        answer = FollowAnswer(
            leader_epoch=Epoch(result.leader_epoch),
            high_watermark=Offset(result.high_watermark),
            log_start_offset=Offset(result.log_start_offset),
            first_offset=Offset(int.from_bytes(records[:8])) if records else None,
            diverging=(Epoch(result.diverging.epoch), Offset(result.diverging.end_offset))
            if result.HasField("diverging")
            else None,
        )
        step = replica.partition.take(
            answer,
            log_start_offset=Offset(log.log_start_offset),
            log_end_offset=Offset(log.log_end_offset),
            end_offset_for=log.end_offset_for,
        )
        match step:
            case Append():
                return self._append(answer, records)
            case Skip(reason=""):
                if answer.diverging is None:
                    self._replicated(answer)
            case Skip():
                _LOG.debug("broker.answer_dropped log=%s reason=%s", log.name, step.reason)
            case Truncate():
                return self._truncate(step.offset)
            case Reset():
                return self._reset(step.offset, answer, records)
        return None

    # --- the log ------------------------------------------------------------------------------

    def _append(self, answer: FollowAnswer, records: Buffer) -> Awaitable[None] | None:
        try:
            future = self._directory.append_nowait(
                self.replica.log,
                records,
                leader_epoch=answer.leader_epoch,
                origin=AppendOrigin.REPLICATED,
                flush=False,
            )
        except QuorumlogError as error:
            self._failed(error)
            return None
        if future.done():
            self._appended(future, answer, len(records))
            return None
        return self._finish(future, answer, len(records))

    async def _finish(
        self, future: "asyncio.Future[Appended]", answer: FollowAnswer, size: int
    ) -> None:
        with suppress(QuorumlogError):  # handled by _appended
            await future
        self._appended(future, answer, size)

    def _appended(
        self, future: "asyncio.Future[Appended]", answer: FollowAnswer, size: int
    ) -> None:
        error = future.exception()
        if error is None:
            self.replica.figures.replicated_bytes += size
            self._replicated(answer)
        elif isinstance(error, QuorumlogError):
            self._failed(error)
        else:
            raise error

    def _replicated(self, answer: FollowAnswer) -> None:
        """Advance the high watermark after the answer's records were appended."""
        replica = self.replica
        if replica.is_given_up:
            return
        self._backoff_ms, self._logged_error = 0, ""
        log = replica.log
        moved = replica.partition.replicated(
            leader_epoch=answer.leader_epoch,
            leader_high_watermark=answer.high_watermark,
            log_end_offset=log.log_end_offset,
        )
        if moved:
            replica.high_watermark_moved()
        start = answer.log_start_offset
        if log.log_start_offset < start <= log.high_watermark and not self._moves_start:
            self._moves_start = True
            replica.spawn(self._move_start(start), name="log start")

    async def _move_start(self, offset: int) -> None:
        """Delete the records that the leader has deleted."""
        try:
            await self._directory.delete_records(self.replica.log, offset)
        except QuorumlogError as error:
            self._log_error(error)  # the next answer has the offset again
        finally:
            self._moves_start = False

    async def _expect_gaps(self) -> None:
        """Record that the log may have gaps, for recovery: the leader compacted it under another
        config."""
        try:
            await self._directory.expect_gaps(self.replica.log)
        except OSError as error:
            self._failed(StorageError(f"{self.replica.log.folder}: {error}"))

    async def _truncate(self, offset: int) -> None:
        log = self.replica.log
        _LOG.info(
            "broker.truncated log=%s offset=%d log_end_offset=%d leader_epoch=%d",
            log.name,
            offset,
            log.log_end_offset,
            self.epoch,
        )
        try:
            await self._directory.truncate(log, offset)
        except QuorumlogError as error:
            self._failed(error)
        else:
            if self._is_current:
                self.replica.partition.truncated(Offset(log.log_end_offset))

    async def _reset(self, offset: int, answer: FollowAnswer, records: Buffer) -> None:
        log = self.replica.log
        _LOG.info(
            "broker.log_reset log=%s offset=%d log_end_offset=%d leader_epoch=%d",
            log.name,
            offset,
            log.log_end_offset,
            self.epoch,
        )
        try:
            await self._directory.reset_log(log, offset)
        except QuorumlogError as error:
            self._failed(error)
            return
        if self._is_current:
            self.replica.partition.restarted(Offset(offset))
            if answer.first_offset == offset:
                appending = self._append(answer, records)
                if appending is not None:
                    await appending

    # --- helpers ----------------------------------------------------------------------------------

    @property
    def _is_current(self) -> bool:
        """True if the partition is still followed in this epoch."""
        partition = self.replica.partition
        return partition.follower is not None and partition.leader_epoch == self.epoch

    def _on_log_moved(self) -> None:
        """Report a flush; the leader counts flushed end offsets if the policy is fsync."""
        if self.replica.flushes:
            self._changed(self)

    def _failed(self, error: QuorumlogError) -> None:
        self.delay_ms = self._backoff_ms = min(max(RETRY_MS[0], 2 * self._backoff_ms), RETRY_MS[1])
        if not isinstance(error, Stopping | StorageError):  # logged where they occur
            self._log_error(error)

    def _log_error(self, error: QuorumlogError) -> None:
        if error.name != self._logged_error:
            self._logged_error = error.name
            level = logging.DEBUG if error.retriable else logging.WARNING
            name = self.replica.partition.name
            _LOG.log(level, "broker.not_followed log=%s error=%s: %s", name, error.name, error)
