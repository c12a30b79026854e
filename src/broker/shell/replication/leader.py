"""The stream of one follower, on its leader: the state of its partitions, and the next answer.

The stream keeps the state of its partitions (KIP-227), and a request has only those that changed.
Progress of the logs here is recorded for the streams that follow them, so the cost of an iteration
of the loop depends on the changes, not on the number of partitions. All changes of an iteration are
answered together at its end, without a task, in rotation if they do not fit. Only records outside
of the page cache are read by a task. A partition's high watermark is sent with its records;
otherwise it is delayed for a moment.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from ....errors import QuorumlogError, StaleBrokerEpoch, UnknownLeaderEpoch, UnknownTopicOrPartition
from ....ids import Epoch, NodeId, Offset, TopicId
from ....proto import replica_pb2 as pb
from ....runtime import Clock
from ....runtime.error_detail import encode_error
from ....runtime.frame_stream import FrameStream
from ....storage import Log
from ....storage.read import SegmentRange
from ....storage.shell.data_directory import DataDirectory
from ...isr import FollowerFetch
from ...partition import Partition
from ...partition_follower import divergence
from ...partition_leader import NO_PROGRESS
from ...replication_frames import ReplicationFrame, encode_frame
from ..replica import Replica

LeaderStream = FrameStream[ReplicationFrame[pb.FollowRequest]]
Find = Callable[[TopicId, int], Replica | None]

HIGH_WATERMARK_DELAY_MS: Final = 20
"""The delay of a high watermark that is sent without records of its partition."""

FOLLOWER_TIMEOUT_MS: Final = 60_000
"""The timeout of a follower's stream: within it, a follower appends a full answer and acknowledges
it, or opens a new stream."""

_RESULT_BYTES: Final = 40
"""The size of a result in an answer without its records."""

ColdRead: TypeAlias = tuple[int, Replica, pb.FollowResult, SegmentRange]
"""Records of an answer to be read by the task: their place in the list of records, the replica, the
result, and the range."""


SHARED_BYTES_MAX: Final = 16 << 20
"""Limit on the memory of `SharedReads`; one read may exceed it."""


class SharedReads:
    """The newest records read for followers, one read for each partition: its other followers
    usually fetch the same ones next."""

    def __init__(self) -> None:
        # By replica, the oldest first: leader epoch, range of offsets, and content.
        self._reads: dict[Replica, tuple[Epoch, Offset, int, bytes]] = {}
        self._bytes = 0

    def find(self, replica: Replica, start: Offset, size_max: int) -> bytes | None:
        """Return the records from `start` to the log end if they were read in this leader epoch, in
        which the leader does not truncate."""
        read = self._reads.get(replica)
        if read is None:
            return None
        leader_epoch, begin, end, content = read
        is_same = begin == start and end == replica.log.log_end_offset
        is_same = is_same and leader_epoch == replica.partition.leader_epoch
        return content if is_same and len(content) <= size_max else None

    def keep(self, replica: Replica, start: Offset, content: bytes) -> None:
        """Keep the records from `start` to the log end."""
        self.drop(replica)
        end = replica.log.log_end_offset
        self._reads[replica] = replica.partition.leader_epoch, start, end, content
        self._bytes += len(content)
        while self._bytes > SHARED_BYTES_MAX and len(self._reads) > 1:
            self.drop(next(iter(self._reads)))

    def drop(self, replica: Replica) -> None:
        """Drop the read of a partition, if there is one."""
        read = self._reads.pop(replica, None)
        if read is not None:
            self._bytes -= len(read[3])


class FollowerPartition:
    """One partition of a follower's stream."""

    __slots__ = (
        "diverging",
        "error",
        "fetch",
        "index",
        "is_blocked",
        "last_epoch",
        "max_bytes",
        "replica",
        "sent_high_watermark",
        "sent_log_start",
        "session",
        "topic_id",
    )

    def __init__(self, session: "FollowerSession", topic_id: TopicId, index: int) -> None:
        self.session = session
        self.topic_id = topic_id
        self.index = index
        self.replica: Replica | None = None
        self.fetch: FollowerFetch | None = None  # the latest one
        self.last_epoch = -1  # of the follower's last batch
        self.max_bytes = 0
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        # No data is sent: the follower has not acknowledged the last answer, or requests none for
        # now.
        self.is_blocked = False
        self.diverging: tuple[Epoch, Offset] | None = None
        self.error: QuorumlogError | None = None

    @property
    def is_behind(self) -> bool:
        """True if the follower's high watermark or log start offset is outdated; only for a
        partition led here."""
        assert self.replica is not None, "the partition is not led here"
        return (
            self.replica.partition.high_watermark > self.sent_high_watermark
            or self.replica.log.log_start_offset > self.sent_log_start
        )

    # Methods of `Watcher`.

    def grew(self) -> None:
        """Send the new records."""
        if not self.is_blocked:
            self.session.note(self)

    def committed(self) -> None:
        """Send the new high watermark or log start offset."""
        if not self.is_blocked:
            self.session.note_high_watermark(self)

    def role_changed(self) -> None:
        """Evaluate the latest fetch again."""
        self.is_blocked = False
        self.session.evaluate(self)


class FollowerSession:
    """The stream of one follower; `run` must run."""

    def __init__(
        self,
        clock: Clock,
        directory: DataDirectory,
        stream: LeaderStream,
        *,
        follower: NodeId,
        broker_epoch: Offset,
        shared: SharedReads,
        find: Find,
        review_isr: Callable[[Replica], None],
    ) -> None:
        self.follower = follower
        self._clock = clock
        self._reader = directory.reader
        self._completed = directory.completed
        self._stream = stream
        self._broker_epoch = broker_epoch
        self._shared = shared
        self._find = find
        self._review_isr = review_isr
        self._followed: dict[tuple[TopicId, int], FollowerPartition] = {}
        self._ready: dict[FollowerPartition, None] = {}  # with data to send, in order
        # Partitions with a new high watermark only, by the time since when; the oldest first.
        self._high_watermarks: dict[FollowerPartition, int] = {}
        self._request: pb.FollowRequest | None = None  # the request to answer
        self._is_due = False  # answer even without data
        self._due_ms = 0  # of the clock: the request is answered then at the latest
        self._timer: asyncio.TimerHandle | None = None  # the next check of `_due_ms`
        self._timer_ms = 0  # of the clock: the time of that check
        self._is_answer_scheduled = False  # at the end of this iteration of the loop
        self._high_watermark_timer: asyncio.TimerHandle | None = None
        self._received_ms = clock.now_ms()
        self._answered_ms: int | None = None  # the time of the last answer
        self._followed_ms: int | None = None  # of the answer that was acknowledged
        self._timeout_timer: asyncio.TimerHandle | None = None  # the next check of the timeout
        # An answer that needs reads of the device.
        self._cold: tuple[pb.FollowResponse, list[bytes], list[ColdRead]] | None = None
        self._failure: Exception | None = None  # a bug, raised by the task
        self._wake: asyncio.Future[None] | None = None  # of the task
        self._is_over = False

    def followed_ms(self, topic_id: TopicId, index: int, leader_epoch: Epoch) -> int | None:
        """Return the time until which the follower has provably followed a partition, by the clock
        here; None: unknown. It has requested more after the answer sent then, and would have
        reported a change of its leader."""
        each = self._followed.get((topic_id, index))
        if each is None or each.fetch is None or each.fetch.leader_epoch != leader_epoch:
            return None
        return None if self._is_over else self._followed_ms

    # --- the stream ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Read the records that are not in the page cache, until the session ends."""
        self._check_timeout()
        try:
            while not self._is_over:
                if self._failure is not None:
                    raise self._failure
                if self._cold is None:
                    self._wake = asyncio.get_running_loop().create_future()
                    await self._wake
                else:
                    (response, records, cold), self._cold = self._cold, None
                    await self._read_cold(records, cold)
                    self._send(response, records)
        except QuorumlogError as error:
            self.end(error)
        finally:
            self._leave()

    def close(self) -> None:
        """End the session."""
        self._is_over = True
        self._wake_up()

    def supersede(self) -> None:
        """End the session because the follower has opened a newer stream."""
        self.end(StaleBrokerEpoch(f"broker {self.follower} has opened a newer stream"))

    def end(self, error: QuorumlogError) -> None:
        """End the stream with an error."""
        if not self._is_over:
            self._stream.refuse(error)
            self.close()

    def review(self) -> None:
        """Review the ISR after a metadata change of the follower."""
        for each in self._followed.values():
            replica = each.replica
            if replica is not None and replica.partition.is_leader:
                self._review_isr(replica)

    def _leave(self) -> None:
        self._is_over = True
        if self._cold is not None:
            for *_, found in self._cold[2]:
                found.release()
        for each in self._followed.values():
            if each.replica is not None:
                each.replica.watchers.discard(each)
        self._followed.clear()
        for timer in (self._timer, self._high_watermark_timer, self._timeout_timer):
            if timer is not None:
                timer.cancel()

    def _check_timeout(self) -> None:
        silent_ms = self._clock.now_ms() - self._received_ms
        if silent_ms >= FOLLOWER_TIMEOUT_MS and self._request is None:
            self._stream.abort(f"broker {self.follower} sent nothing for {FOLLOWER_TIMEOUT_MS} ms")
            return
        loop = asyncio.get_running_loop()
        self._timeout_timer = loop.call_later(FOLLOWER_TIMEOUT_MS / 1000, self._check_timeout)

    # --- requests -----------------------------------------------------------------------------

    def take(self, request: pb.FollowRequest) -> None:
        """Apply a request, and answer it later if it expects that."""
        self._received_ms = self._clock.now_ms()
        if request.max_bytes > 0:
            self._followed_ms = self._answered_ms
        for place in request.forgotten:
            each = self._followed.pop((TopicId(place.topic_id), place.partition), None)
            if each is not None:
                self._ready.pop(each, None)
                self._high_watermarks.pop(each, None)
                if each.replica is not None:
                    each.replica.watchers.discard(each)
        for part in request.partitions:
            self._apply_part(part)
        if request.max_bytes > 0:
            self._request = request
            # The timer of the delayed high watermarks has fired without a request to answer.
            is_overdue = bool(self._high_watermarks) and self._high_watermark_timer is None
            self._is_due = request.max_wait_ms <= 0 or is_overdue
            self._due_ms = self._received_ms + request.max_wait_ms
            if self._timer is None or self._timer_ms > self._due_ms:
                self._check_due_in(request.max_wait_ms)
        self._completed.complete_all()  # producers wait for what this request acknowledges
        self._answer_soon()

    def _apply_part(self, part: pb.FollowPartition) -> None:
        key = (TopicId(part.topic_id), part.partition)
        each = self._followed.get(key)
        if each is None:
            each = self._followed[key] = FollowerPartition(self, *key)
        each.fetch = FollowerFetch(
            self._broker_epoch,
            Epoch(part.leader_epoch),
            Offset(part.log_end_offset),
            Offset(part.flushed_end_offset),
            Offset(part.log_start_offset),
        )
        each.last_epoch = part.last_epoch
        each.max_bytes = part.max_bytes
        each.is_blocked = part.max_bytes < 0
        self.evaluate(each)

    def evaluate(self, each: FollowerPartition) -> None:
        """Evaluate the latest fetch of a partition against the replica here."""
        self._ready.pop(each, None)
        each.error = each.diverging = None
        replica = self._replica_of(each)
        try:
            if replica is None:
                raise UnknownTopicOrPartition(
                    "this broker has no such partition; its metadata may be behind",
                    partition=each.index,
                )
            self._apply_fetch(each, replica)
        except UnknownLeaderEpoch:  # metadata is behind, or the log is not open yet
            assert replica is not None, "a missing replica has no epoch"
            replica.begin_open()
        except StaleBrokerEpoch as error:
            self.end(error)
        except QuorumlogError as error:
            each.error = error
            if not each.is_blocked:  # otherwise the follower has the error, and fetches again later
                self.note(each)
        else:
            self._schedule_answer(each, replica)

    def _apply_fetch(self, each: FollowerPartition, replica: Replica) -> None:
        """Record the follower's progress, unless its log diverges; raise an error if the partition
        cannot be fetched here."""
        fetch, partition = each.fetch, replica.partition
        assert fetch is not None, "not fetched yet"
        if replica.is_given_up:
            replica.check()
        leader = partition.check_leader(fetch.leader_epoch)
        each.diverging = _divergence(replica.log, each.last_epoch, fetch.log_end_offset)
        if each.diverging is None:
            progress = leader.fetched(self.follower, fetch, self._clock.now_ms())
            if progress is not NO_PROGRESS:
                replica.progressed(progress)

    def _schedule_answer(self, each: FollowerPartition, replica: Replica) -> None:
        """Schedule the answer to an accepted fetch."""
        leader, fetch = replica.partition.leader, each.fetch
        if leader is not None and self.follower not in leader.isr.state.isr:
            self._review_isr(replica)
        if each.is_blocked or fetch is None:
            return
        if each.diverging is not None or fetch.log_end_offset < replica.log.log_end_offset:
            self.note(each)
        elif each.is_behind:
            self.note_high_watermark(each)

    def _replica_of(self, each: FollowerPartition) -> Replica | None:
        replica = self._find(each.topic_id, each.index)
        if replica is not each.replica:
            if each.replica is not None:
                each.replica.watchers.discard(each)
            each.replica = replica
            each.sent_high_watermark = each.sent_log_start = -1
            if replica is not None:
                replica.watchers.add(each)
        return replica

    # --- notifications ----------------------------------------------------------------------------

    def note(self, each: FollowerPartition) -> None:
        """Send data of a partition in the next answer."""
        self._ready[each] = None
        self._answer_soon()

    def note_high_watermark(self, each: FollowerPartition) -> None:
        """Send a partition's high watermark after a delay, unless its records are sent before."""
        if each not in self._high_watermarks:
            self._high_watermarks[each] = self._clock.now_ms()
        if self._high_watermark_timer is None:
            self._check_high_watermarks_in(HIGH_WATERMARK_DELAY_MS)

    def _check_high_watermarks_in(self, delay_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._high_watermark_timer = loop.call_later(delay_ms / 1000, self._check_high_watermarks)

    def _check_high_watermarks(self) -> None:
        """Answer if a high watermark has waited long enough."""
        self._high_watermark_timer = None
        for since_ms in self._high_watermarks.values():
            left_ms = since_ms + HIGH_WATERMARK_DELAY_MS - self._clock.now_ms()
            if left_ms > 0:
                self._check_high_watermarks_in(left_ms)
            else:
                self._is_due = True
                self._answer_soon()
            return  # the first one is the oldest

    def _check_due_in(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = self._clock.now_ms() + delay_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._check_due)

    def _check_due(self) -> None:
        """Answer the request if its wait is over; otherwise check again at its end. Most requests
        are answered before, and share one timer."""
        self._timer = None
        if self._request is None:
            return  # the next one starts the timer
        left_ms = self._due_ms - self._clock.now_ms()
        if left_ms > 0:
            self._check_due_in(left_ms)
            return
        self._is_due = True
        self._answer_soon()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # --- answers ------------------------------------------------------------------------------

    def _answer_soon(self) -> None:
        """Answer the request at the end of this iteration of the loop, if that is possible."""
        if self._is_answer_scheduled or self._request is None:
            return
        if self._ready or self._is_due:
            self._is_answer_scheduled = True
            asyncio.get_running_loop().call_soon(self._answer)

    def _answer(self) -> None:
        """Answer the request if there is data, or if it is due."""
        self._is_answer_scheduled = False
        request = self._request
        if request is None or self._is_over or not (self._ready or self._is_due):
            return
        self._request = None
        try:
            response, records, cold = self._response(request.max_bytes)
            if not cold:
                self._send(response, records)
                return
            self._cold = response, records, cold
            self._wake_up()
        except QuorumlogError as error:
            self.end(error)
        except Exception as error:  # a bug: the task raises it
            self._failure = error
            self._wake_up()

    def _send(self, response: pb.FollowResponse, records: list[bytes]) -> None:
        """Send an answer. Raises MessageTooLarge."""
        self._answered_ms = self._clock.now_ms()
        self._stream.send(encode_frame(response, records), now=True)

    def _response(self, max_bytes: int) -> tuple[pb.FollowResponse, list[bytes], list[ColdRead]]:
        """Return an answer of about `max_bytes`, the records of its results, and those that must be
        read first."""
        response = pb.FollowResponse()
        results = response.results
        records: list[bytes] = []
        cold: list[ColdRead] = []
        left = max_bytes
        for each in list(self._ready):
            if left <= 0:
                break
            del self._ready[each]
            result = results.add(topic_id=each.topic_id, partition=each.index)
            found = self._fill(each, result, left, is_first=not records)
            if found is None:
                del results[-1]
                continue
            if isinstance(found, SegmentRange):
                assert each.replica is not None, "records without a replica"
                cold.append((len(records), each.replica, result, found))
                records.append(b"")
                left -= found.size
            elif found:
                result.records_len = len(found)
                records.append(found)
                left -= len(found)
            left -= _RESULT_BYTES
        if self._is_due:
            for each in list(self._high_watermarks):
                if each.replica is not None and each.replica.partition.is_leader:
                    result = results.add(topic_id=each.topic_id, partition=each.index)
                    self._fill_head(each, each.replica.partition, each.replica.log, result)
            self._high_watermarks.clear()
            self._is_due = False
        return response, records, cold

    async def _read_cold(self, records: list[bytes], cold: list[ColdRead]) -> None:
        """Read the records of an answer that are not in the page cache."""
        try:
            for place, replica, result, found in cold:
                try:
                    content = await self._reader.read(found)
                    # As a follower, this node may have truncated and rewritten the file.
                    replica.partition.check_leader(result.leader_epoch)
                except QuorumlogError as error:
                    result.error.CopyFrom(encode_error(error))
                else:
                    records[place] = content
                    result.records_len = len(content)
        finally:
            for *_, found in cold:
                found.release()

    def _fill(
        self, each: FollowerPartition, result: pb.FollowResult, left: int, *, is_first: bool
    ) -> bytes | SegmentRange | None:
        """Fill the result of one partition; return its records, their range if they are not in the
        page cache, or None if there is nothing to send."""
        replica = each.replica
        try:
            if each.error is not None:
                raise each.error
            assert replica is not None, "neither a replica nor an error"
            if not replica.partition.is_leader:
                return None  # evaluated again after the role change
            log = replica.log
            self._fill_head(each, replica.partition, log, result)
            if each.diverging is not None:
                result.diverging.epoch, result.diverging.end_offset = each.diverging
                each.is_blocked = True
                return b""
            return self._read(each, replica, log, left, is_first=is_first)
        except QuorumlogError as error:
            each.is_blocked = True
            result.error.CopyFrom(encode_error(error))
            return b""

    def _read(
        self, each: FollowerPartition, replica: Replica, log: Log, left: int, *, is_first: bool
    ) -> bytes | SegmentRange | None:
        """Return the next records of a partition, their range if they are not in the page cache, or
        None if the rest of the answer is too small."""
        fetch = each.fetch
        assert fetch is not None, "not fetched yet"
        start = fetch.log_end_offset
        if not log.log_start_offset <= start < log.log_end_offset:
            each.is_blocked = start < log.log_start_offset  # the follower resets its log
            return b""
        size = min(each.max_bytes, left) if each.max_bytes > 0 else left
        content = self._shared.find(replica, start, size)
        if content is not None:
            each.is_blocked = True
            return content
        found = log.read(start, max_bytes=size, min_one=is_first)
        if found is None:
            if not is_first:
                self._ready[each] = None  # in the next answer
            return None
        each.is_blocked = True
        content = self._reader.read_cached(found)
        if content is None:
            return found
        if found.next_offset == log.log_end_offset and len(replica.watchers) > 1:
            self._shared.keep(replica, start, content)
        return content

    def _fill_head(
        self, each: FollowerPartition, partition: Partition, log: Log, result: pb.FollowResult
    ) -> None:
        self._high_watermarks.pop(each, None)
        result.leader_epoch = partition.leader_epoch
        result.high_watermark = each.sent_high_watermark = partition.high_watermark
        result.log_start_offset = each.sent_log_start = log.log_start_offset
        result.may_have_gaps = log.was_compacted


def _divergence(log: Log, last_epoch: int, log_end_offset: int) -> tuple[Epoch, Offset] | None:
    """Return the epoch end at which a follower's log diverges, or None."""
    return divergence(
        last_epoch,
        log_end_offset,
        end_offset_for=lambda epoch: log.epochs.end_offset_for(epoch, log.log_end_offset),
        latest_epoch=log.epochs.latest,
        leader_start_offset=log.log_start_offset,
        leader_end_offset=log.log_end_offset,
    )
