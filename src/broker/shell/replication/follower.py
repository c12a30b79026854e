"""Follows one leader broker: one stream and one loop for all partitions that it leads and this node
follows.

Requests and answers alternate. A request has the changes of the follower's logs since the previous
one, and so acknowledges the previous answer; it is sent once that is in the logs. Small answers are
written at once, by the call that received them, which also sends the next request; a task waits for
other ones. While the leader
holds a request for new records, changes here (a flush, a newly followed partition) are sent at the
end of the loop's iteration, in a request without an answer: one with `max_bytes` 0.

After a failure, the next stream starts with the full state. Late messages of an older stream are
fenced by epochs, not by their order. The failure of one partition delays only that partition, which
fetches again: the leader's log has all records.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from ....errors import (
    DiskFailed,
    InvalidRequest,
    OutcomeUnknown,
    QuorumlogError,
    Stopping,
    StreamBroken,
)
from ....ids import NO_NODE, ClusterId, Epoch, NodeId, Offset, TopicId
from ....native import RunTail
from ....proto import replica_pb2 as pb
from ....runtime import Clock, Runtime, Scope
from ....runtime.error_detail import decode_error
from ....runtime.frame_stream import FrameReader, FrameStream, open_stream
from ....runtime.node_identity import BROKER_ROLE, check_sender
from ....runtime.rate_limit import Throttle
from ....services import REPLICA_ENDPOINT
from ....storage import AppendOrigin
from ....storage.shell.append_queue import PendingAppend
from ....storage.shell.data_directory import DataDirectory
from ....storage.shell.writer import SMALL_BYTES
from ...config import ReplicationConfig
from ...partition_follower import Append, FollowAnswer, Reset, Skip, Truncate
from ...replication_frames import ReplicationFrame, ReplicationFrameFormat, encode_frame
from ..replica import Replica

RETRY_MS: Final = (50, 2_000)
"""The delays after failures, doubled each time."""


class FollowedPartition:
    """One partition followed from one leader: its state for requests, and the handling of answers.

    The pure partition decides; this class appends to, truncates and resets the log.
    """

    __slots__ = (
        "_backoff_ms",
        "_changed",
        "_clock",
        "_directory",
        "_logged_error",
        "_moves_start",
        "_pause",
        "_scope",
        "delay_ms",
        "epoch",
        "index",
        "is_unchanged",
        "received_bytes",
        "replica",
        "topic_id",
    )

    def __init__(
        self,
        replica: Replica,
        clock: Clock,
        scope: Scope,
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
        # The last answer had nothing to acknowledge: the leader does not wait for a request.
        self.is_unchanged = False
        self.delay_ms = 0  # of the next fetch; 0: at once
        # Set while fetches are delayed; acknowledgements are still sent.
        self._pause: asyncio.TimerHandle | None = None
        self._backoff_ms = 0
        self._clock = clock
        self._scope = scope
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
        part.last_epoch = log.epochs.latest
        part.leader_epoch = self.epoch
        part.high_watermark = partition.high_watermark
        part.max_bytes = -1 if self._pause is not None else max_bytes

    def take(self, result: pb.FollowResult, records: memoryview) -> Awaitable[None] | None:
        """Apply an answer; None: done already. Sets `delay_ms` after a failure."""
        replica = self.replica
        self.delay_ms = self.received_bytes = 0
        self.is_unchanged = False
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
            Epoch(result.leader_epoch),
            Offset(result.high_watermark),
            Offset(result.log_start_offset),
            Offset(int.from_bytes(records[:8])) if records else None,
            (Epoch(result.diverging.epoch), Offset(result.diverging.end_offset))
            if result.HasField("diverging")
            else None,
        )
        step = replica.partition.take(
            answer,
            log_start_offset=Offset(log.log_start_offset),
            log_end_offset=Offset(log.log_end_offset),
            end_offset_for=lambda epoch: log.epochs.end_offset_for(epoch, log.log_end_offset),
        )
        match step:
            case Append():
                return self._append(answer, records)
            case Skip(reason=""):
                if answer.diverging is None:
                    self.is_unchanged = True
                    self._replicated(answer)
            case Skip():
                _LOG.debug("broker.answer_dropped log=%s reason=%s", log.name, step.reason)
            case Truncate():
                return self._truncate(step.offset)
            case Reset():
                return self._reset(step.offset, answer, records)
        return None

    # --- the log ------------------------------------------------------------------------------

    def _append(self, answer: FollowAnswer, records: memoryview) -> Awaitable[None] | None:
        run = self._append_run(records)
        if run is not None:
            self._appended(run.error, answer, run.size)
            if run.error is not None or run.size == len(records):
                return None
            records = records[run.size :]
        try:
            append = self._directory.append_nowait(
                self.replica.log,
                records,
                leader_epoch=answer.leader_epoch,
                origin=AppendOrigin.REPLICATED,
                flush=False,
            )
        except QuorumlogError as error:
            self._failed(error)
            return None
        if append.outcome() is None:
            return self._finish(append, answer, len(records))
        self._appended(append.error, answer, len(records))
        return None

    def _append_run(self, records: memoryview) -> RunTail | None:
        """Write the usual batches that come first, on the loop; return their run, None if the first
        one is not usual. Large records of an fsync log wait for the device anyway."""
        replica, size = self.replica, len(records)
        if replica.flushes and size > SMALL_BYTES:
            return None
        log, inline, wall_ms = replica.log, self._directory.inline, self._clock.wall_ms()
        tail = inline.begin_run(replica, log, log.epochs.latest, wall_ms, size=size)
        if tail is None or not tail.place_replicated(records):
            return None
        inline.end_run(log, tail)
        return tail

    async def _finish(self, append: PendingAppend, answer: FollowAnswer, size: int) -> None:
        with suppress(QuorumlogError):  # handled by _appended
            await append
        self._appended(append.error, answer, size)

    def _appended(self, error: QuorumlogError | None, answer: FollowAnswer, size: int) -> None:
        if error is not None:
            self._failed(error)
            return
        self.replica.figures.replicated_bytes += size
        self._replicated(answer)

    def _replicated(self, answer: FollowAnswer) -> None:
        """Advance the high watermark after the answer's records were appended."""
        replica = self.replica
        if replica.is_given_up:
            return
        self._backoff_ms, self._logged_error = 0, ""
        log = replica.log
        progress = replica.partition.replicated(
            leader_epoch=answer.leader_epoch,
            leader_high_watermark=answer.high_watermark,
            log_end_offset=log.log_end_offset,
        )
        replica.progressed(progress)
        start = answer.log_start_offset
        if log.log_start_offset < start <= log.high_watermark and not self._moves_start:
            self._moves_start = True
            name = f"log start {replica.partition.name}"
            self._scope.spawn(self._move_start(start), name=name)

    async def _move_start(self, offset: int) -> None:
        """Delete the records that the leader has deleted."""
        try:
            await self._directory.truncation.delete_records(
                self.replica.log, offset, is_replicated=True
            )
        except QuorumlogError as error:
            self._log_error(error)  # the next answer has the offset again
        else:
            self._changed(self)
        finally:
            self._moves_start = False

    async def _expect_gaps(self) -> None:
        """Record that the log may have gaps, for recovery: the leader compacted it under another
        config."""
        try:
            await self._directory.expect_gaps(self.replica.log)
        except OSError as error:
            self._failed(DiskFailed(f"{self.replica.log.folder}: {error}"))

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
            await self._directory.truncation.truncate(log, offset)
        except QuorumlogError as error:
            self._failed(error)
        else:
            if self._is_current:
                self.replica.partition.truncated(Offset(log.log_end_offset))

    async def _reset(self, offset: int, answer: FollowAnswer, records: memoryview) -> None:
        log = self.replica.log
        _LOG.info(
            "broker.log_reset log=%s offset=%d log_end_offset=%d leader_epoch=%d",
            log.name,
            offset,
            log.log_end_offset,
            self.epoch,
        )
        try:
            await self._directory.truncation.reset(log, offset)
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
        if not isinstance(error, Stopping | DiskFailed):  # logged where they occur
            self._log_error(error)

    def _log_error(self, error: QuorumlogError) -> None:
        if error.name != self._logged_error:
            self._logged_error = error.name
            level = logging.DEBUG if error.retriable else logging.WARNING
            name = self.replica.partition.name
            _LOG.log(level, "broker.not_followed log=%s error=%s: %s", name, error.name, error)


ASKED_BYTES_MIN: Final = 4 << 10
"""The minimum fetch size at low rates; the delay after it is longer then."""


class ReassignmentThrottle:
    """The throttle for replicas that a reassignment adds to this broker.

    It limits the average rate: after each answer, the partition's next fetch is delayed. In-sync
    replicas are not throttled.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._bytes_per_second = -1
        self._throttle: Throttle | None = None  # None: unlimited

    def set_rate(self, bytes_per_second: int) -> bool:
        """Set the rate, -1: unlimited; return True if it has changed."""
        if bytes_per_second == self._bytes_per_second:
            return False
        self._bytes_per_second = bytes_per_second
        self._throttle = Throttle(max(1, bytes_per_second)) if bytes_per_second >= 0 else None
        return True

    def fetch_bytes(self, wanted: int) -> int:
        """Return the fetch size of one partition, at most `wanted`."""
        if self._throttle is None:
            return wanted
        return min(wanted, max(ASKED_BYTES_MIN, self._bytes_per_second // 4))

    def spend(self, size: int) -> int:
        """Count `size` received bytes; return the delay in ms before the next fetch."""
        return 0 if self._throttle is None else self._throttle.spend(size, self._clock.now_ms())


_LOG = logging.getLogger("quorumlog.broker")

Answer = ReplicationFrame[pb.FollowResponse]
"""A response and the records of its results, concatenated."""
Key = tuple[TopicId, int]
PendingPart = tuple[FollowedPartition, Awaitable[None]]
"""A partition of an answer, and the rest of its work."""
UnfinishedAnswer = tuple[Answer, list[PendingPart]]

PARTITIONS_A_REQUEST: Final = 5_000
"""About 300 KiB; a stream starts with as many requests as needed."""


class FetcherLink(Protocol):
    """The broker's session with the controllers."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of the current registration, -1: never registered."""

    def is_lapsed(self) -> bool:
        """Return True if the controllers may have fenced this broker."""

    def is_behind(self, *, for_ms: int) -> bool:
        """Return True if metadata committed longer than `for_ms` ago may be missing here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerIdentity:
    """The identity that a follower sends to its leaders."""

    cluster_id: ClusterId
    node_id: NodeId
    broker_epoch: Callable[[], int]  # of the current registration, -1: none yet


class ReplicaFetcher:
    """Follows all partitions of one leading broker; `run` must run."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        directory: DataDirectory,
        identity: FollowerIdentity,
        *,
        leader_id: NodeId,
        address: str,
        config: ReplicationConfig,
        throttle: ReassignmentThrottle,
    ) -> None:
        self.leader_id = leader_id
        self.address = address  # "host:port"; "": unknown
        self._runtime = runtime
        self._scope = scope
        self._directory = directory
        self._identity = identity
        self._config = config
        self._throttle = throttle
        self._entropy = runtime.entropy.stream(f"broker.fetcher.{leader_id}")
        self._followed: dict[Key, FollowedPartition] = {}
        self._changed: dict[FollowedPartition, None] = {}  # to send in the next request
        self._forgotten: dict[Key, None] = {}  # to send in the next request
        self._work = asyncio.Event()  # a partition is followed, or close() was called
        self._stream: FrameStream[Answer] | None = None  # the current one
        self._reader: FrameReader[Answer] | None = None  # of the current stream
        self._is_held = False  # the leader holds a request
        self._requested_ms = 0  # the time of that request
        self._silence_timer: asyncio.TimerHandle | None = None  # the next check of that time
        # The next answer that `run` has to finish, while it waits for one.
        self._handed_over: asyncio.Future[UnfinishedAnswer] | None = None
        self._is_first = True  # the stream's first request was not sent yet
        self._is_send_scheduled = False  # changes are sent at the end of this iteration of the loop
        self._is_closed = False
        self._logged_error = ""  # the last logged error, so that each is logged once

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def is_writing(self) -> bool:
        """True while an answer is being appended, so none is awaited."""
        return self._stream is not None and not self._is_held

    # --- followed partitions ----------------------------------------------------------------------

    def follow(self, replica: Replica) -> None:
        """Follow a partition, or follow it in a newer epoch."""
        key = (replica.topic_id, replica.partition.index)
        before = self._followed.get(key)
        if before is not None:
            self._drop(before)
        followed = self._followed[key] = FollowedPartition(
            replica, self._runtime.clock, self._scope, self._directory, self._mark_changed
        )
        self._forgotten.pop(key, None)
        self._mark_changed(followed)
        self._work.set()

    def unfollow(self, replica: Replica) -> None:
        """Stop following a partition."""
        key = (replica.topic_id, replica.partition.index)
        followed = self._followed.get(key)
        if followed is not None and followed.replica is replica:
            del self._followed[key]
            self._drop(followed)
            self._forgotten[key] = None
            self._send_changes_soon()

    def set_address(self, address: str) -> None:
        """Use the new address of the leader: abort the stream and open one there."""
        self.address = address
        if self._stream is not None:
            self._stream.abort(f"broker {self.leader_id} is at {address} now")
        self._work.set()

    def resume(self) -> None:
        """Fetch at once for all delayed partitions, because the rate has changed."""
        for followed in self._followed.values():
            followed.resume()

    def close(self) -> None:
        """Follow nothing any more; the caller cancels the task of run()."""
        self._is_closed = True
        if self._stream is not None:
            self._stream.abort("the follower stops")

    def _drop(self, followed: FollowedPartition) -> None:
        followed.unfollow()
        self._changed.pop(followed, None)

    def _mark_changed(self, followed: FollowedPartition) -> None:
        """Send the partition's state in the next request, at once if the leader holds one."""
        self._changed[followed] = None
        self._send_changes_soon()

    # --- the loop -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a stream while a partition is followed, until close()."""
        attempt = 0
        while not self._is_closed:
            if not self._followed or not self.address:
                self._work.clear()
                await self._work.wait()
                continue
            if self._identity.broker_epoch() < 0:  # not registered yet
                await asyncio.sleep(self._config.backoff_ms_min / 1000)
                continue
            try:
                await self._run_stream()
                attempt = 0
            except QuorumlogError as error:
                attempt = 1 if self._logged_error == "" else attempt + 1
                self._log_error(error)
            await self._pause(attempt)

    async def _pause(self, attempt: int) -> None:
        config = self._config
        if self._is_closed or not attempt:
            return
        longest = min(config.backoff_ms_min << min(attempt, 16), config.backoff_ms_max)
        await asyncio.sleep(self._entropy.uniform(config.backoff_ms_min, longest) / 1000)

    def _log_error(self, error: QuorumlogError) -> None:
        if error.name != self._logged_error:
            self._logged_error = error.name
            _LOG.info(
                "broker.not_following leader=%d address=%s error=%s: %s",
                self.leader_id,
                self.address,
                error.name,
                error,
            )

    async def _run_stream(self) -> None:
        """Run one stream until it ends; raise the reason."""
        self._reader = reader = FrameReader(
            ReplicationFrameFormat(pb.FollowResponse, is_unidentified=False)
        )
        self._stream = stream = await self._open_stream(reader)
        try:
            self._is_first = True
            self._forgotten.clear()
            self._changed = dict.fromkeys(self._followed.values())
            while self._followed or self._forgotten:
                if stream.is_over:  # ended while an answer was appended
                    raise stream.error or self._closed_error()
                self._handed_over = asyncio.get_running_loop().create_future()
                self._fetch(stream)
                answer, waiting = await self._handed_over
                await self._finish(waiting)
                reader.recycle(answer.records)
        finally:
            self._stream = self._reader = self._handed_over = None
            self._is_held = False
            if self._silence_timer is not None:
                self._silence_timer.cancel()
                self._silence_timer = None
            stream.abort("the follower is done with it")

    async def _open_stream(self, reader: FrameReader[Answer]) -> FrameStream[Answer]:
        """Get the leader's stream port, and connect. Raises ConnectionFailed,
        OutcomeUnknown, TimedOut, or the leader's error."""
        network, config = self._runtime.network, self._config
        request = pb.ReplicaEndpointRequest(
            cluster_id=self._identity.cluster_id, leader_id=self.leader_id
        )
        channel = network.channel(self.address)
        try:
            answer = await channel.call(REPLICA_ENDPOINT, request, timeout_ms=config.silence_ms_max)
        finally:
            await channel.close()
        address = f"{self.address.rpartition(':')[0]}:{answer.port}"
        try:
            async with asyncio.timeout(config.silence_ms_max / 1000):
                return await open_stream(
                    network,
                    address,
                    reader,
                    take=self._answered,
                    ended=partial(self._ended, reader),
                )
        except TimeoutError:
            raise OutcomeUnknown(f"{address}: no connection in time") from None

    # --- requests and answers -----------------------------------------------------------------

    def _fetch(self, stream: FrameStream[Answer]) -> None:
        """Send a request. A leader without an answer in time counts as lost, as a cut link does not
        reset the connection."""
        config = self._config
        while len(self._changed) > PARTITIONS_A_REQUEST:
            stream.send(encode_frame(self._request()))
        request = self._request()
        request.max_wait_ms = config.fetch_wait_max_ms
        request.max_bytes = config.fetch_bytes_max
        self._is_held, self._requested_ms = True, self._runtime.clock.now_ms()
        if self._silence_timer is None:
            self._check_silence()
        stream.send(encode_frame(request))

    def _check_silence(self) -> None:
        """End the stream if the answer is overdue. One timer serves all requests of a stream."""
        limit_ms = self._config.fetch_wait_max_ms + self._config.silence_ms_max
        left_ms = limit_ms
        if self._is_held:
            left_ms -= self._runtime.clock.now_ms() - self._requested_ms
        if left_ms > 0:
            loop = asyncio.get_running_loop()
            self._silence_timer = loop.call_later(left_ms / 1000, self._check_silence)
            return
        self._silence_timer = None
        self._fail(OutcomeUnknown(f"broker {self.leader_id} at {self.address}: no answer in time"))

    def _answered(self, answer: Answer) -> None:
        """Apply an answer, and send the next request unless `run` has to wait for something. Raise
        InvalidRequest if none was requested."""
        stream, reader, handed_over = self._stream, self._reader, self._handed_over
        if not self._is_held or stream is None or handed_over is None or handed_over.done():
            raise InvalidRequest("the answer came before its request")
        assert reader is not None, "a stream without a reader"
        check_sender(stream.client, self.leader_id, role=BROKER_ROLE)
        self._is_held = False
        if self._logged_error:
            _LOG.info("broker.following leader=%d address=%s", self.leader_id, self.address)
            self._logged_error = ""
        try:
            waiting = self._apply(answer)
            if waiting or stream.is_over or not (self._followed or self._forgotten):
                handed_over.set_result((answer, waiting))
            else:
                reader.recycle(answer.records)
                self._fetch(stream)
        except Exception as error:  # `run` raises it
            handed_over.set_exception(error)

    def _ended(self, reader: FrameReader[Answer], error: QuorumlogError | None) -> None:
        """Handle the end of a stream; a later stream is not affected."""
        if reader is self._reader:
            self._fail(error or self._closed_error())

    def _fail(self, error: QuorumlogError) -> None:
        """End the current stream with an error, unless `run` finishes an answer: then it checks the
        stream afterwards."""
        if self._handed_over is not None and not self._handed_over.done():
            self._handed_over.set_exception(error)

    def _closed_error(self) -> StreamBroken:
        return StreamBroken(f"broker {self.leader_id} at {self.address}: closed the connection")

    def _send_changes_soon(self) -> None:
        """Send changes at the end of this iteration if the leader holds a request; otherwise the
        next request has them."""
        if self._is_held and not self._is_send_scheduled:
            self._is_send_scheduled = True
            asyncio.get_running_loop().call_soon(self._send_changes)

    def _send_changes(self) -> None:
        self._is_send_scheduled = False
        if self._is_held and self._stream is not None:
            while self._changed or self._forgotten:
                self._stream.send(encode_frame(self._request()))

    def _request(self) -> pb.FollowRequest:
        """Build a request with at most PARTITIONS_A_REQUEST of the changes."""
        request = pb.FollowRequest()
        if self._is_first:
            self._is_first = False
            request.cluster_id = self._identity.cluster_id
            request.broker_id = self._identity.node_id
            request.broker_epoch = self._identity.broker_epoch()
            request.leader_id = self.leader_id
        if self._forgotten:
            for topic_id, index in self._forgotten:
                request.forgotten.add(topic_id=topic_id, partition=index)
            self._forgotten.clear()
        taken, left = self._changed, {}
        if len(taken) > PARTITIONS_A_REQUEST:
            each = list(taken)
            taken = dict.fromkeys(each[:PARTITIONS_A_REQUEST])
            left = dict.fromkeys(each[PARTITIONS_A_REQUEST:])
        self._changed = left
        parts, bytes_max = request.partitions, self._config.partition_bytes_max
        for followed in taken:
            if not followed.replica.is_given_up:
                paced = followed.replica.is_moving_in
                asked = self._throttle.fetch_bytes(bytes_max) if paced else bytes_max
                followed.fill(parts.add(), asked)
        return request

    def _apply(self, answer: Answer) -> list[PendingPart]:
        """Apply an answer to the logs of its partitions; return those that are not done."""
        at = 0
        waiting: list[PendingPart] = []
        for result in answer.message.results:
            followed = self._followed.get((TopicId(result.topic_id), result.partition))
            begin, at = at, at + result.records_len
            if followed is None:
                continue
            work = followed.take(result, answer.records[begin:at])
            if work is not None:
                waiting.append((followed, work))
            elif not followed.is_unchanged:
                self._schedule_next(followed)
        return waiting

    async def _finish(self, waiting: list[PendingPart]) -> None:
        """Wait for the partitions of an answer that could not be done at once, concurrently."""
        if len(waiting) == 1:
            await waiting[0][1]
        elif waiting:
            await asyncio.gather(*[work for _, work in waiting])
        for followed, _ in waiting:
            self._schedule_next(followed)

    def _schedule_next(self, followed: FollowedPartition) -> None:
        """Schedule the next fetch of a partition, delayed after a failure or by the throttle."""
        if followed.replica.is_moving_in and followed.received_bytes:
            pause_ms = self._throttle.spend(followed.received_bytes)
            followed.delay_ms = max(followed.delay_ms, pause_ms)
        if self._followed.get((followed.topic_id, followed.index)) is followed:
            self._changed[followed] = None  # its log state is sent in any case
            if followed.delay_ms:
                followed.pause()


class ReplicaFetcherManager:
    """The fetchers of a node, one for each leading broker."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        directory: DataDirectory,
        identity: FollowerIdentity,
        *,
        address_of: Callable[[NodeId], str],
        config: ReplicationConfig,
    ) -> None:
        self._runtime = runtime
        self._scope = scope
        self._directory = directory
        self._identity = identity
        self._address_of = address_of  # of a broker, for followers; "": unknown
        self._config = config
        self.throttle = ReassignmentThrottle(runtime.clock)
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}
        self._running: list[asyncio.Task[None]] = []
        self._is_closed = False

    def follow(self, replica: Replica) -> None:
        """Follow the leader of the partition; its log must be open."""
        leader_id = replica.partition.followed
        if leader_id == NO_NODE or self._is_closed:
            return
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = ReplicaFetcher(
                self._runtime,
                self._scope,
                self._directory,
                self._identity,
                leader_id=leader_id,
                address=self._address_of(leader_id),
                config=self._config,
                throttle=self.throttle,
            )
            task = self._scope.spawn(fetcher.run(), name=f"broker.fetcher.{leader_id}")
            self._running.append(task)
        fetcher.follow(replica)

    def set_rate(self, bytes_per_second: int) -> None:
        """Set the rate of reassignments, -1: unlimited."""
        if self.throttle.set_rate(bytes_per_second):
            for fetcher in self._fetchers.values():
                fetcher.resume()

    def unfollow(self, replica: Replica) -> None:
        """Stop following a partition, whichever leader it had."""
        for fetcher in self._fetchers.values():
            fetcher.unfollow(replica)

    def of(self, leader_id: NodeId) -> ReplicaFetcher:
        """Return the fetcher of a leading broker; raise KeyError if there was none."""
        return self._fetchers[leader_id]

    def broker_changed(self, node_id: NodeId) -> None:
        """Apply a change of a broker's metadata."""
        fetcher = self._fetchers.get(node_id)
        if fetcher is not None:
            address = self._address_of(node_id)
            if address != fetcher.address:
                fetcher.set_address(address)

    async def close(self) -> None:
        """Stop all fetchers."""
        self._is_closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
