"""The stream of one follower, on its leader: the state of its partitions, and the next answer.

The stream keeps the state of its partitions (KIP-227), and a request has only those that changed.
Progress of the logs here is recorded for the streams that follow them, so the cost of an iteration
of the loop depends on the changes, not on the number of partitions. One wake-up answers for all
partitions, in rotation if they do not fit. A high watermark alone is delayed for a moment, and sent
together with records if there are any.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ....errors import QuorumlogError, StaleBrokerEpoch, UnknownLeaderEpoch, UnknownTopicOrPartition
from ....ids import Epoch, NodeId, Offset, TopicId
from ....proto import replica_pb2 as pb
from ....runtime import Clock
from ....runtime.error_detail import encode_error
from ....runtime.frame_stream import FrameStream
from ....storage.shell.data_directory import DataDirectory
from ...isr import FollowerFetch
from ...partition_follower import divergence
from ...replication_frames import ReplicationFrame, encode_frame
from ..replica import Replica

LeaderStream = FrameStream[ReplicationFrame[pb.FollowRequest]]
Find = Callable[[TopicId, int], Replica | None]

HIGH_WATERMARK_DELAY_S: Final = 0.02
"""The delay of a high watermark, for records to be sent with it."""

FOLLOWER_TIMEOUT_MS: Final = 60_000
"""The timeout of a follower's stream: within it, a follower appends a full answer and acknowledges
it, or opens a new stream."""

_RESULT_BYTES: Final = 40
"""The size of a result in an answer without its records."""


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
    """The stream of one follower; `run` sends the answers."""

    def __init__(
        self,
        clock: Clock,
        directory: DataDirectory,
        stream: LeaderStream,
        *,
        follower: NodeId,
        broker_epoch: Offset,
        find: Find,
        review_isr: Callable[[Replica], None],
    ) -> None:
        self.follower = follower
        self._clock = clock
        self._reader = directory.reader
        self._stream = stream
        self._broker_epoch = broker_epoch
        self._find = find
        self._review_isr = review_isr
        self._followed: dict[tuple[TopicId, int], FollowerPartition] = {}
        self._ready: dict[FollowerPartition, None] = {}  # with data to send, in order
        self._high_watermarks: dict[FollowerPartition, None] = {}  # with a new high watermark only
        self._request: pb.FollowRequest | None = None  # the request to answer
        self._is_due = False  # answer even without data
        self._timer: asyncio.TimerHandle | None = None  # until `_is_due`
        self._high_watermark_timer: asyncio.TimerHandle | None = None
        self._received_ms = clock.now_ms()
        self._answered_ms: int | None = None  # the time of the last answer
        self._followed_ms: int | None = None  # of the answer that was acknowledged
        self._timeout_timer: asyncio.TimerHandle | None = None  # the next check of the timeout
        self._wake: asyncio.Future[None] | None = None  # of the task that answers
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
        """Answer every request that expects it, until the session ends."""
        self._check_timeout()
        try:
            while (request := await self._next_request()) is not None:
                self._request = None
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                response, records = await self._response(request.max_bytes)
                self._answered_ms = self._clock.now_ms()
                self._stream.send(encode_frame(response, records))
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
            self._request, self._is_due = request, False
            loop = asyncio.get_running_loop()
            if request.max_wait_ms <= 0:
                self._is_due = True
            else:
                self._timer = loop.call_later(request.max_wait_ms / 1000, self._due)
        self._wake_up()

    def _apply_part(self, part: pb.FollowPartition) -> None:
        key = (TopicId(part.topic_id), part.partition)
        each = self._followed.get(key)
        if each is None:
            each = self._followed[key] = FollowerPartition(self, *key)
        each.fetch = FollowerFetch(
            broker_epoch=self._broker_epoch,
            leader_epoch=Epoch(part.leader_epoch),
            log_end_offset=Offset(part.log_end_offset),
            flushed_end_offset=Offset(part.flushed_end_offset),
            log_start_offset=Offset(part.log_start_offset),
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
        each.diverging = _divergence(replica, each.last_epoch, fetch.log_end_offset)
        if each.diverging is None:
            replica.progressed(leader.fetched(self.follower, fetch, self._clock.now_ms()))

    def _schedule_answer(self, each: FollowerPartition, replica: Replica) -> None:
        """Schedule the answer to an accepted fetch."""
        leader, fetch = replica.partition.leader, each.fetch
        if leader is not None and self.follower not in leader.state.isr:
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
        self._wake_up()

    def note_high_watermark(self, each: FollowerPartition) -> None:
        """Send a partition's high watermark soon."""
        self._high_watermarks[each] = None
        if self._high_watermark_timer is None:
            loop = asyncio.get_running_loop()
            self._high_watermark_timer = loop.call_later(
                HIGH_WATERMARK_DELAY_S, self._high_watermarks_due
            )

    def _high_watermarks_due(self) -> None:
        self._high_watermark_timer = None
        if self._high_watermarks:
            self._is_due = True
            self._wake_up()

    def _due(self) -> None:
        self._timer = None
        self._is_due = True
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    # --- answers ------------------------------------------------------------------------------

    async def _next_request(self) -> pb.FollowRequest | None:
        """Return the request to answer now, or None at the end of the session."""
        while not self._is_over:
            if self._request is not None and (self._ready or self._is_due):
                return self._request
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        return None

    async def _response(self, max_bytes: int) -> tuple[pb.FollowResponse, list[bytes]]:
        """Return an answer of about `max_bytes`, and the records of its results."""
        response = pb.FollowResponse()
        records: list[bytes] = []
        left = max_bytes
        for each in list(self._ready):
            if left <= 0:
                break
            if each not in self._ready:
                continue  # removed by a request while this call waited
            del self._ready[each]
            result = pb.FollowResult(topic_id=each.topic_id, partition=each.index)
            found = await self._fill(each, result, left, is_first=not records)
            if found is None:
                continue
            if found:
                result.records_len = len(found)
                records.append(found)
            response.results.append(result)
            left -= len(found) + _RESULT_BYTES
        for each in list(self._high_watermarks):
            if each.replica is not None and each.replica.partition.is_leader:
                result = response.results.add(topic_id=each.topic_id, partition=each.index)
                self._fill_head(each, each.replica, result)
        self._high_watermarks.clear()
        self._is_due = False
        return response, records

    async def _fill(
        self, each: FollowerPartition, result: pb.FollowResult, left: int, *, is_first: bool
    ) -> bytes | None:
        """Fill the result of one partition; return its records, or None if there is nothing to
        send."""
        replica = each.replica
        try:
            if each.error is not None:
                raise each.error
            assert replica is not None, "neither a replica nor an error"
            if not replica.partition.is_leader:
                return None  # evaluated again after the role change
            self._fill_head(each, replica, result)
            if each.diverging is not None:
                result.diverging.epoch, result.diverging.end_offset = each.diverging
                each.is_blocked = True
                return b""
            return await self._read(each, replica, left, is_first=is_first)
        except QuorumlogError as error:
            each.is_blocked = True
            result.error.CopyFrom(encode_error(error))
            return b""

    async def _read(
        self, each: FollowerPartition, replica: Replica, left: int, *, is_first: bool
    ) -> bytes | None:
        """Return the next records of a partition, or None if the rest of the answer is too
        small."""
        log, fetch = replica.log, each.fetch
        assert fetch is not None, "not fetched yet"
        start = fetch.log_end_offset
        if not log.log_start_offset <= start < log.log_end_offset:
            each.is_blocked = start < log.log_start_offset  # the follower resets its log
            return b""
        size = min(each.max_bytes, left) if each.max_bytes > 0 else left
        found = log.read(start, max_bytes=size, min_one=is_first)
        if found is None:
            if not is_first:
                self._ready[each] = None  # in the next answer
            return None
        each.is_blocked = True
        return await self._reader.read(found)

    def _fill_head(
        self, each: FollowerPartition, replica: Replica, result: pb.FollowResult
    ) -> None:
        partition = replica.partition
        self._high_watermarks.pop(each, None)
        result.leader_epoch = partition.leader_epoch
        result.high_watermark = each.sent_high_watermark = partition.high_watermark
        result.log_start_offset = each.sent_log_start = replica.log.log_start_offset
        result.may_have_gaps = replica.log.was_compacted


def _divergence(
    replica: Replica, last_epoch: int, log_end_offset: int
) -> tuple[Epoch, Offset] | None:
    """Return the epoch end at which a follower's log diverges, or None."""
    log = replica.log
    if log_end_offset <= log.log_start_offset:
        return None  # all its records are deleted here, with their epochs
    return divergence(
        last_epoch,
        log_end_offset,
        end_offset_for=lambda epoch: log.epochs.end_offset_for(epoch, log.log_end_offset),
        latest_epoch=log.epochs.latest,
        leader_end_offset=log.log_end_offset,
    )
