"""Following one leader broker: one stream, one loop, for all partitions that it leads of ours.

Requests and answers take turns. A request says what changed here since the last one, and so
acknowledges what the answer before brought; the next is sent when all of it is in the logs. While
the leader holds a request back for news, what changes here (a flush, a partition that is followed
from now on) is told at the end of the turn in a request that wants no answer: one with `max_bytes`
0.

Whatever breaks the stream, the next one begins with everything: what a late message of an older
stream says is fenced by epochs, never by arrival.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from ....errors import InvalidRequest, Lost, QuorumlogError
from ....ids import NO_NODE, ClusterId, NodeId, TopicId
from ....proto import replica_pb2 as pb
from ....runtime import ByteConnection, Runtime, Scope
from ....services import REPLICA_ENDPOINT
from ....storage.shell.data_directory import Directory
from ..replica import Replica
from .follow_stream import FollowStream
from .followed import Followed
from .moving_throttle import MovingThrottle

_LOG = logging.getLogger("quorumlog.broker")

Answer = tuple[pb.FollowResponse, memoryview]
"""With the records of its results, back to back."""
Key = tuple[TopicId, int]

PARTITIONS_A_REQUEST: Final = 5_000
"""Some 300 KiB; a stream begins with as many requests as that takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    """How a broker replicates."""

    lag_time_max_ms: int = 30_000  # replica.lag.time.max.ms
    # Whether acks 0 and 1 are taken while no controller is heard.
    lapsed_accepts_acks_one: bool = False
    fetch_wait_max_ms: int = 500  # replica.fetch.wait.max.ms: how long a leader waits for news
    fetch_bytes_max: int = 10 << 20  # replica.fetch.response.max.bytes: of one answer
    partition_bytes_max: int = 1 << 20  # replica.fetch.max.bytes: of one partition in an answer
    silence_ms_max: int = 3_000  # beyond fetch_wait_max_ms; then a stream is given up
    backoff_ms_min: int = 50  # between two attempts to connect
    backoff_ms_max: int = 1_000


DEFAULT_REPLICATION: Final = ReplicationConfig()


class ControllerLink(Protocol):
    """What replication asks of the broker's session with the controllers."""

    @property
    def broker_epoch(self) -> int:
        """Of the present registration, -1: never registered."""

    def is_lapsed(self) -> bool:
        """Whether the controllers may have given this broker up; looked up at the call."""

    def is_behind(self, *, for_ms: int) -> bool:
        """Whether it may lack metadata that were committed longer ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowerIdentity:
    """Who follows, as its leaders are told."""

    cluster_id: ClusterId
    node_id: NodeId
    broker_epoch: Callable[[], int]  # of the present registration, -1: none yet


class Fetcher:
    """All that is followed from one broker; `run` must run."""

    def __init__(
        self,
        runtime: Runtime,
        directory: Directory,
        me: FollowerIdentity,
        *,
        leader_id: NodeId,
        address: str,
        config: ReplicationConfig,
        throttle: MovingThrottle,
    ) -> None:
        self.leader_id = leader_id
        self.address = address  # "host:port"; "": not known yet
        self._runtime = runtime
        self._directory = directory
        self._me = me
        self._config = config
        self._throttle = throttle
        self._entropy = runtime.entropy.stream(f"broker.fetcher.{leader_id}")
        self._followed: dict[Key, Followed] = {}
        self._changed: dict[Followed, None] = {}  # to be told in the next request
        self._forgotten: dict[Key, None] = {}  # the same
        self._work = asyncio.Event()  # there is something to follow, or it was closed
        self._stream: FollowStream[pb.FollowResponse] | None = None  # the present one
        self._answer: asyncio.Future[Answer] | None = None  # which is waited for
        self._is_held = False  # the leader holds a request of ours
        self._is_first = True  # the stream's first request is not sent yet
        self._is_telling = False  # what changed is told at the end of this turn of the loop
        self._is_closed = False
        self._said = ""  # the last complaint, which is logged once

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def is_writing(self) -> bool:
        """Whether it brings an answer into the logs, and so waits for none."""
        return self._stream is not None and self._answer is None

    # --- followed partitions ----------------------------------------------------------------------

    def follow(self, replica: Replica) -> None:
        """Follow a partition from now on, or in a newer epoch."""
        key = (replica.topic_id, replica.partition.index)
        before = self._followed.get(key)
        if before is not None:
            self._drop(before)
        followed = self._followed[key] = Followed(replica, self._directory, self._note)
        self._forgotten.pop(key, None)
        self._note(followed)
        self._work.set()

    def forget(self, replica: Replica) -> None:
        """Follow a partition no more."""
        key = (replica.topic_id, replica.partition.index)
        followed = self._followed.get(key)
        if followed is not None and followed.replica is replica:
            del self._followed[key]
            self._drop(followed)
            self._forgotten[key] = None
            self._tell_soon()

    def move(self, address: str) -> None:
        """The leader's broker is reached elsewhere now: begin a stream there."""
        self.address = address
        if self._stream is not None:
            self._stream.abort(f"broker {self.leader_id} is at {address} now")
        self._work.set()

    def hurry(self) -> None:
        """Ask at once for all that was to wait: the rate of moves is another one."""
        for followed in self._followed.values():
            followed.hurry()

    def close(self) -> None:
        """Follow nothing any more; the task of run() is to be cancelled."""
        self._is_closed = True
        if self._stream is not None:
            self._stream.abort("the follower stops")

    def _drop(self, followed: Followed) -> None:
        followed.forget()
        self._changed.pop(followed, None)

    def _note(self, followed: Followed) -> None:
        """Tell of it in the next request, and at once where the leader holds one."""
        self._changed[followed] = None
        self._tell_soon()

    # --- the loop -----------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep a stream while something is followed, until close()."""
        attempt = 0
        while not self._is_closed:
            if not self._followed or not self.address:
                self._work.clear()
                await self._work.wait()
                continue
            if self._me.broker_epoch() < 0:  # it registers now
                await asyncio.sleep(self._config.backoff_ms_min / 1000)
                continue
            try:
                await self._connect_once()
                attempt = 0
            except QuorumlogError as error:
                attempt = 1 if self._said == "" else attempt + 1
                self._complain(error)
            await self._pause(attempt)

    async def _pause(self, attempt: int) -> None:
        config = self._config
        if self._is_closed or not attempt:
            return
        longest = min(config.backoff_ms_min << min(attempt, 16), config.backoff_ms_max)
        await asyncio.sleep(self._entropy.uniform(config.backoff_ms_min, longest) / 1000)

    def _complain(self, error: QuorumlogError) -> None:
        if error.name != self._said:
            self._said = error.name
            _LOG.info(
                "broker.not_following leader=%d address=%s error=%s: %s",
                self.leader_id,
                self.address,
                error.name,
                error,
            )

    async def _connect_once(self) -> None:
        """One stream from its start to its end; raises why it ended."""
        self._stream = await self._open_stream()
        try:
            self._is_first = True
            self._forgotten.clear()
            self._changed = dict.fromkeys(self._followed.values())
            while self._followed or self._forgotten:
                response, records = await self._ask()
                await self._apply(response, records)
                self._stream.recycle(records)
        finally:
            stream, self._stream = self._stream, None
            self._is_held = False
            stream.abort("the follower is done with it")

    async def _open_stream(self) -> FollowStream[pb.FollowResponse]:
        """Ask the leader where it takes streams, and connect; raises Lost, or what it says."""
        network, config = self._runtime.network, self._config
        request = pb.ReplicaEndpointRequest(
            cluster_id=self._me.cluster_id, leader_id=self.leader_id
        )
        channel = network.channel(self.address)
        try:
            answer = await channel.call(REPLICA_ENDPOINT, request, timeout_ms=config.silence_ms_max)
        finally:
            await channel.close()
        made: list[FollowStream[pb.FollowResponse]] = []

        def make(connection: ByteConnection) -> FollowStream[pb.FollowResponse]:
            stream = FollowStream(
                connection,
                pb.FollowResponse,
                is_stranger=False,
                take=self._answered,
                ended=lambda error: self._ended(stream, error),
            )
            made.append(stream)
            return stream

        host = self.address.rpartition(":")[0]
        try:
            async with asyncio.timeout(config.silence_ms_max / 1000):
                await network.connect_bytes(f"{host}:{answer.port}", make)
        except TimeoutError:
            raise Lost(f"{host}:{answer.port} does not answer") from None
        return made[0]

    # --- requests and answers -----------------------------------------------------------------

    async def _ask(self) -> Answer:
        """Send a request and return its answer; a silent leader is lost: a cut link without reset
        looks so."""
        stream, config = self._stream, self._config
        assert stream is not None, "asked without a stream"
        if stream.ending is not None:  # since then the answer before was written
            raise stream.ending
        answer = self._answer = asyncio.get_running_loop().create_future()
        while len(self._changed) > PARTITIONS_A_REQUEST:
            stream.send(self._request())
        request = self._request()
        request.max_wait_ms = config.fetch_wait_max_ms
        request.max_bytes = config.fetch_bytes_max
        self._is_held = True
        stream.send(request)
        try:
            async with asyncio.timeout((config.fetch_wait_max_ms + config.silence_ms_max) / 1000):
                found: Answer = await answer
        except TimeoutError:
            raise Lost(f"broker {self.leader_id} at {self.address} is silent") from None
        finally:
            self._answer, self._is_held = None, False
        if self._said:
            _LOG.info("broker.following leader=%d address=%s", self.leader_id, self.address)
            self._said = ""
        return found

    def _answered(self, response: pb.FollowResponse, records: memoryview) -> None:
        """Take what the leader sends; raises InvalidRequest for what was not asked for."""
        answer = self._answer
        if answer is None or answer.done():
            raise InvalidRequest("an answer came before its request")
        answer.set_result((response, records))

    def _ended(self, stream: FollowStream[pb.FollowResponse], error: QuorumlogError) -> None:
        """A stream is over; whoever waits for an answer on a later one is not told."""
        if stream is self._stream and self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _tell_soon(self) -> None:
        """Tell what changed at the end of this turn, where the leader holds a request: else the
        next one tells it."""
        if self._is_held and not self._is_telling:
            self._is_telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._is_telling = False
        if self._is_held and self._stream is not None:
            while self._changed or self._forgotten:
                self._stream.send(self._request())

    def _request(self) -> pb.FollowRequest:
        """Take what is to be told, at most PARTITIONS_A_REQUEST of it."""
        request = pb.FollowRequest()
        if self._is_first:
            self._is_first = False
            request.cluster_id = self._me.cluster_id
            request.broker_id = self._me.node_id
            request.broker_epoch = self._me.broker_epoch()
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
                asked = self._throttle.asked_bytes(bytes_max) if paced else bytes_max
                followed.fill(parts.add(), asked)
        return request

    async def _apply(self, response: pb.FollowResponse, records: memoryview) -> None:
        """Bring an answer into the logs, all partitions side by side."""
        at = 0
        waiting: list[tuple[Followed, Awaitable[None]]] = []
        for result in response.results:
            followed = self._followed.get((TopicId(result.topic_id), result.partition))
            begin, at = at, at + result.records_len
            if followed is None:
                continue
            work = followed.take(result, records[begin:at])
            if work is None:
                self._settle(followed)
            else:
                waiting.append((followed, work))
        if len(waiting) == 1:
            await waiting[0][1]
        elif waiting:
            await asyncio.gather(*[work for _, work in waiting])
        for followed, _ in waiting:
            self._settle(followed)

    def _settle(self, followed: Followed) -> None:
        """An answer was dealt with: ask for more, later after a failure or where it is paced."""
        if followed.replica.is_moving_in and followed.taken_bytes:
            pause_ms = self._throttle.spend(followed.taken_bytes)
            followed.delay_ms = max(followed.delay_ms, pause_ms)
        if self._followed.get((followed.topic_id, followed.index)) is followed:
            self._changed[followed] = None  # what it has is told in any case
            if followed.delay_ms:
                followed.pause()


class Fetchers:
    """The fetchers of a node, one a broker that leads something of ours."""

    def __init__(
        self,
        runtime: Runtime,
        scope: Scope,
        directory: Directory,
        me: FollowerIdentity,
        *,
        address_of: Callable[[NodeId], str],
        config: ReplicationConfig,
    ) -> None:
        self._runtime = runtime
        self._scope = scope
        self._directory = directory
        self._me = me
        self._address_of = address_of  # of a broker, for followers; "": not known
        self._config = config
        self.throttle = MovingThrottle(runtime.clock)
        self._fetchers: dict[NodeId, Fetcher] = {}
        self._running: list[asyncio.Task[None]] = []
        self._is_closed = False

    def follow(self, replica: Replica) -> None:
        """Follow where the partition says; its log is open."""
        leader_id = replica.partition.followed
        if leader_id == NO_NODE or self._is_closed:
            return
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(
                self._runtime,
                self._directory,
                self._me,
                leader_id=leader_id,
                address=self._address_of(leader_id),
                config=self._config,
                throttle=self.throttle,
            )
            task = self._scope.spawn(fetcher.run(), name=f"broker.fetcher.{leader_id}")
            self._running.append(task)
        fetcher.follow(replica)

    def set_rate(self, bytes_per_second: int) -> None:
        """Have moves keep to a rate from now on, -1: to none."""
        if self.throttle.set_rate(bytes_per_second):
            for fetcher in self._fetchers.values():
                fetcher.hurry()

    def forget(self, replica: Replica) -> None:
        """Follow it no more, wherever it was followed."""
        for fetcher in self._fetchers.values():
            fetcher.forget(replica)

    def of(self, leader_id: NodeId) -> Fetcher:
        """The one of a leading broker, for whoever looks; raises KeyError where nothing is, or was,
        followed from it."""
        return self._fetchers[leader_id]

    def broker_changed(self, node_id: NodeId) -> None:
        """The image says something new of a broker."""
        fetcher = self._fetchers.get(node_id)
        if fetcher is not None:
            address = self._address_of(node_id)
            if address != fetcher.address:
                fetcher.move(address)

    async def close(self) -> None:
        """End all of them."""
        self._is_closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
