"""A follower's stream, on its leader: what it has of each partition, and what it is to get next.

The stream remembers its partitions (KIP-227): a request names those that changed. What the logs
here gain is noted for the streams that follow them, so that a turn of the loop costs what happened
in it, however many partitions are followed. One wake-up answers for all of them, in turn where not
all of it fits; a high watermark alone waits for a moment, and goes along with records before that.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ....errors import (
    QuorumlogError,
    StaleBrokerEpoch,
    UnknownLeaderEpoch,
    UnknownTopicOrPartition,
)
from ....ids import Epoch, NodeId, Offset, TopicId
from ....proto import replica_pb2 as pb
from ....runtime import Clock
from ....runtime.error_detail import encode_error
from ....storage.shell.data_directory import Directory
from ...partition import FollowerFetch, divergence
from ..replica import Replica
from .follow_stream import FollowStream

LeaderStream = FollowStream[pb.FollowRequest]
Find = Callable[[TopicId, int], Replica | None]

NEWS_S: Final = 0.02
"""So long a high watermark waits for records to go along with."""

FOLLOWER_SILENCE_MS: Final = 60_000
"""A follower that acknowledges nothing for so long has lost its stream: it brings a full answer
into its logs within it, or begins anew."""

_RESULT_BYTES: Final = 40
"""What a result takes of an answer besides its records."""


class FollowedHere:
    """One partition of a stream."""

    __slots__ = (
        "diverging",
        "error",
        "fetch",
        "index",
        "is_under_way",
        "last_epoch",
        "max_bytes",
        "replica",
        "session",
        "told_high_watermark",
        "told_log_start",
        "topic_id",
    )

    def __init__(self, session: "FollowSession", topic_id: TopicId, index: int) -> None:
        self.session = session
        self.topic_id = topic_id
        self.index = index
        self.replica: Replica | None = None
        self.fetch: FollowerFetch | None = None  # the newest
        self.last_epoch = -1  # of the follower's last batch
        self.max_bytes = 0
        self.told_high_watermark = -1
        self.told_log_start = -1
        # Nothing is sent: the follower has not answered what is out, or wants nothing for now.
        self.is_under_way = False
        self.diverging: tuple[Epoch, Offset] | None = None
        self.error: QuorumlogError | None = None

    @property
    def is_behind(self) -> bool:
        """Whether the follower was not told yet how far all is committed, or where the log starts
        now; of a partition that is led here."""
        assert self.replica is not None, "only what is led here is told"
        return (
            self.replica.partition.high_watermark > self.told_high_watermark
            or self.replica.log.log_start_offset > self.told_log_start
        )

    # What the replica calls as its Watcher.

    def grew(self) -> None:
        """The leader's log has more."""
        if not self.is_under_way:
            self.session.note(self)

    def committed(self) -> None:
        """The high watermark moved, or the log's start."""
        if not self.is_under_way:
            self.session.note_mark(self)

    def role_changed(self) -> None:
        """Judge the newest fetch anew."""
        self.is_under_way = False
        self.session.judge(self)


class FollowSession:
    """One stream of one follower; `run` answers on it."""

    def __init__(
        self,
        clock: Clock,
        directory: Directory,
        stream: LeaderStream,
        *,
        follower: NodeId,
        broker_epoch: Offset,
        find: Find,
        look_at_isr: Callable[[Replica], None],
    ) -> None:
        self.follower = follower
        self._clock = clock
        self._directory = directory
        self._stream = stream
        self._broker_epoch = broker_epoch
        self._find = find
        self._look_at_isr = look_at_isr
        self._followed: dict[tuple[TopicId, int], FollowedHere] = {}
        self._ready: dict[FollowedHere, None] = {}  # with something to send, the first one first
        self._marks: dict[FollowedHere, None] = {}  # with a high watermark and nothing else
        self._wanted: pb.FollowRequest | None = None  # the request that is to be answered
        self._is_due = False  # it is to be answered with whatever there is
        self._timer: asyncio.TimerHandle | None = None  # until then
        self._marks_timer: asyncio.TimerHandle | None = None
        self._heard_ms = clock.now_ms()
        self._answered_ms: int | None = None  # when it was answered last
        self._followed_ms: int | None = None  # when the answer went that its newest request follows
        self._silence: asyncio.TimerHandle | None = None  # when to look whether it lives
        self._wake: asyncio.Future[None] | None = None  # of the task that answers
        self._is_over = False

    def followed_ms(self, topic_id: TopicId, index: int, leader_epoch: Epoch) -> int | None:
        """When the follower has followed a partition for certain, by the clock here: it has asked
        on after what it was sent then, and would have said that it does no more. None: unknown."""
        each = self._followed.get((topic_id, index))
        if each is None or each.fetch is None or each.fetch.leader_epoch != leader_epoch:
            return None
        return None if self._is_over else self._followed_ms

    # --- the stream ---------------------------------------------------------------------------

    async def run(self) -> None:
        """Answer every request that wants it, until the session is over."""
        self._look_for_silence()
        try:
            while (request := await self._next_wanted()) is not None:
                self._wanted = None
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                response, records = await self._response(request.max_bytes)
                self._answered_ms = self._clock.now_ms()
                self._stream.send(response, records)
        except QuorumlogError as error:
            self.end(error)
        finally:
            self._leave()

    def close(self) -> None:
        """The stream is over."""
        self._is_over = True
        self._wake_up()

    def supersede(self) -> None:
        """A newer stream of the follower has come."""
        self.end(StaleBrokerEpoch(f"broker {self.follower} has begun a newer stream"))

    def end(self, error: QuorumlogError) -> None:
        """End the stream with an error."""
        if not self._is_over:
            self._stream.refuse(error)
            self.close()

    def reconsider(self) -> None:
        """The metadata says something new of the follower: it may be in sync now."""
        for each in self._followed.values():
            replica = each.replica
            if replica is not None and replica.partition.is_leader:
                self._look_at_isr(replica)

    def _leave(self) -> None:
        for each in self._followed.values():
            if each.replica is not None:
                each.replica.watchers.pop(each, None)
        self._followed.clear()
        for timer in (self._timer, self._marks_timer, self._silence):
            if timer is not None:
                timer.cancel()

    def _look_for_silence(self) -> None:
        silent_ms = self._clock.now_ms() - self._heard_ms
        if silent_ms >= FOLLOWER_SILENCE_MS and self._wanted is None:
            self._stream.abort(f"broker {self.follower} is silent")
            return
        loop = asyncio.get_running_loop()
        self._silence = loop.call_later(FOLLOWER_SILENCE_MS / 1000, self._look_for_silence)

    # --- requests -----------------------------------------------------------------------------

    def take(self, request: pb.FollowRequest) -> None:
        """Take in what a request tells, and answer it in its time if it wants that."""
        self._heard_ms = self._clock.now_ms()
        if request.max_bytes > 0:
            self._followed_ms = self._answered_ms
        for place in request.forgotten:
            each = self._followed.pop((TopicId(place.topic_id), place.partition), None)
            if each is not None:
                self._ready.pop(each, None)
                self._marks.pop(each, None)
                if each.replica is not None:
                    each.replica.watchers.pop(each, None)
        for part in request.partitions:
            self._take_part(part)
        if request.max_bytes > 0:
            self._wanted, self._is_due = request, False
            loop = asyncio.get_running_loop()
            if request.max_wait_ms <= 0:
                self._is_due = True
            else:
                self._timer = loop.call_later(request.max_wait_ms / 1000, self._due)
        self._wake_up()

    def _take_part(self, part: pb.FollowPartition) -> None:
        key = (TopicId(part.topic_id), part.partition)
        each = self._followed.get(key)
        if each is None:
            each = self._followed[key] = FollowedHere(self, *key)
        each.fetch = FollowerFetch(
            broker_epoch=self._broker_epoch,
            leader_epoch=Epoch(part.leader_epoch),
            log_end_offset=Offset(part.log_end_offset),
            flushed_end_offset=Offset(part.flushed_end_offset),
            log_start_offset=Offset(part.log_start_offset),
        )
        each.last_epoch = part.last_epoch
        each.max_bytes = part.max_bytes
        each.is_under_way = part.max_bytes < 0
        self.judge(each)

    def judge(self, each: FollowedHere) -> None:
        """Hold the newest fetch of a partition against what the replica is here."""
        self._ready.pop(each, None)
        each.error = each.diverging = None
        replica = self._replica_of(each)
        try:
            if replica is None:
                raise UnknownTopicOrPartition(
                    "no such partition here; the metadata may be on its way", partition=each.index
                )
            self._take_fetch(each, replica)
        except UnknownLeaderEpoch:  # the metadata is on its way here, or the log is not open yet
            assert replica is not None, "a replica that is not there knows no epoch"
            replica.begin_open()
        except StaleBrokerEpoch as error:
            self.end(error)
        except QuorumlogError as error:
            each.error = error
            if not each.is_under_way:  # or it was told so, and asks again in its time
                self.note(each)
        else:
            self._look(each, replica)

    def _take_fetch(self, each: FollowedHere, replica: Replica) -> None:
        """Have the partition count what the follower has, unless its log parts from the one here;
        raises why it may not be asked."""
        fetch, partition = each.fetch, replica.partition
        assert fetch is not None, "a partition is judged before its first fetch"
        if replica.is_given_up:
            replica.check()
        partition.check_leader(fetch.leader_epoch)
        each.diverging = _divergence(replica, each.last_epoch, fetch.log_end_offset)
        if each.diverging is None:
            replica.progressed(partition.fetched(self.follower, fetch, self._clock.now_ms()))

    def _look(self, each: FollowedHere, replica: Replica) -> None:
        """See what a fetch that counts leaves to do."""
        partition, fetch = replica.partition, each.fetch
        leader = partition.leader
        if leader is not None and self.follower not in leader.isr:
            self._look_at_isr(replica)
        if each.is_under_way or fetch is None:
            return
        if each.diverging is not None or fetch.log_end_offset < replica.log.log_end_offset:
            self.note(each)
        elif each.is_behind:
            self.note_mark(each)

    def _replica_of(self, each: FollowedHere) -> Replica | None:
        replica = self._find(each.topic_id, each.index)
        if replica is not each.replica:
            if each.replica is not None:
                each.replica.watchers.pop(each, None)
            each.replica = replica
            each.told_high_watermark = each.told_log_start = -1
            if replica is not None:
                replica.watchers[each] = None
        return replica

    # --- notifications ----------------------------------------------------------------------------

    def note(self, each: FollowedHere) -> None:
        """There is something to send of a partition."""
        self._ready[each] = None
        self._wake_up()

    def note_mark(self, each: FollowedHere) -> None:
        """A partition's high watermark moved; it is sent soon."""
        self._marks[each] = None
        if self._marks_timer is None:
            loop = asyncio.get_running_loop()
            self._marks_timer = loop.call_later(NEWS_S, self._marks_due)

    def _marks_due(self) -> None:
        self._marks_timer = None
        if self._marks:
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

    async def _next_wanted(self) -> pb.FollowRequest | None:
        """Return the request to answer now; None: the session is over."""
        while not self._is_over:
            if self._wanted is not None and (self._ready or self._is_due):
                return self._wanted
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
                continue  # a request of meanwhile said otherwise
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
        for each in list(self._marks):
            if each.replica is not None and each.replica.partition.is_leader:
                result = response.results.add(topic_id=each.topic_id, partition=each.index)
                self._fill_head(each, each.replica, result)
        self._marks.clear()
        self._is_due = False
        return response, records

    async def _fill(
        self, each: FollowedHere, result: pb.FollowResult, left: int, *, is_first: bool
    ) -> bytes | None:
        """Say what there is of one partition; return its records, None: nothing after all."""
        replica = each.replica
        try:
            if each.error is not None:
                raise each.error
            assert replica is not None, "a partition without a replica has an error"
            if not replica.partition.is_leader:
                return None  # it is judged again by the next role
            self._fill_head(each, replica, result)
            if each.diverging is not None:
                result.diverging.epoch, result.diverging.end_offset = each.diverging
                each.is_under_way = True
                return b""
            return await self._read(each, replica, left, is_first=is_first)
        except QuorumlogError as error:
            each.is_under_way = True
            result.error.CopyFrom(encode_error(error))
            return b""

    async def _read(
        self, each: FollowedHere, replica: Replica, left: int, *, is_first: bool
    ) -> bytes | None:
        """Return what comes next in a partition; None: what is left of the answer is too little."""
        log, fetch = replica.log, each.fetch
        assert fetch is not None, "a partition is answered before its first fetch"
        start = fetch.log_end_offset
        if not log.log_start_offset <= start < log.log_end_offset:
            each.is_under_way = start < log.log_start_offset  # it begins anew
            return b""
        size = min(each.max_bytes, left) if each.max_bytes > 0 else left
        found = log.read(start, max_bytes=size, min_one=is_first)
        if found is None:
            if not is_first:
                self._ready[each] = None  # the next time
            return None
        each.is_under_way = True
        return await self._directory.read(found)

    def _fill_head(self, each: FollowedHere, replica: Replica, result: pb.FollowResult) -> None:
        partition = replica.partition
        self._marks.pop(each, None)
        result.leader_epoch = partition.leader_epoch
        result.high_watermark = each.told_high_watermark = partition.high_watermark
        result.log_start_offset = each.told_log_start = replica.log.log_start_offset
        result.may_have_gaps = replica.log.was_compacted


def _divergence(
    replica: Replica, last_epoch: int, log_end_offset: int
) -> tuple[Epoch, Offset] | None:
    """Where the log here parts from a follower's; None: not before its end."""
    log = replica.log
    if log_end_offset <= log.log_start_offset:
        return None  # all that it has was deleted here, with the epochs that could tell
    return divergence(
        last_epoch,
        log_end_offset,
        end_offset_for=log.end_offset_for,
        latest_epoch=log.latest_epoch,
        leader_end_offset=log.log_end_offset,
    )
