"""A client's way to the cluster: channels by address, the topology, and calls that are repeated.

Owns the channels. Every wait has a deadline, every retriable error is repeated within it (see
`retry`), and the metadata offset of each answer is presented with the next read, so that a client
sees its own changes whichever broker it asks.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from google.protobuf.message import Message

from ..errors import (
    InvalidRequest,
    Lost,
    NotImplementedHere,
    NotLeaderOrFollower,
    NotSent,
    QuorumlogError,
    Stopping,
    TimedOut,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ..proto import admin_pb2, quorum_pb2
from ..runtime import Channel, Method, Runtime
from ..services import ADMIN_DESCRIBE_CLUSTER, ADMIN_DESCRIBE_TOPICS, QUORUM_DESCRIBE
from .answers import described_topic
from .config import ClientConfig
from .retry import Backoff, Retrier, is_retriable
from .topology import Leader, TopicLayout, Topology, absent, leaderless

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
T = TypeVar("T")

LOOK_UP_MS = 2_000  # of one broker, while there are others to ask; longer from try to try
UNKNOWN_TOPIC_TIMEOUT_MS = 1_000  # a topic that is still absent after it does not exist


class Connection:
    """See the module. One for each open client."""

    def __init__(self, runtime: Runtime, addresses: Sequence[str], config: ClientConfig) -> None:
        # Clients of one runtime must not draw the same topic ids, partitions and pauses.
        own = runtime.entropy.stream(f"client/{runtime.entropy.token(8).hex()}")
        self.runtime = runtime = replace(runtime, entropy=own)
        self.config = config
        self.topology = Topology()
        self._bootstrap = tuple(addresses)
        self._channels: dict[str, Channel] = {}
        self._next_broker = 0  # index into _any_addresses(), moved on when a broker fails
        self._refreshing = asyncio.Lock()
        self._is_closed = False
        self.backoff = Backoff(
            runtime.entropy.stream("retry"),
            config.retry_backoff_ms_min,
            config.retry_backoff_ms_max,
        )
        self._retrier = Retrier(runtime.clock, self.backoff)

    async def open(self) -> None:
        """Learn who the brokers are; raises Lost when none answers within connect_timeout_ms.

        What answers may be a controller without clients: calls about the quorum go there too.
        """
        deadline_ms = self.runtime.clock.now_ms() + self.config.connect_timeout_ms
        try:
            answer = await self.call_any(
                ADMIN_DESCRIBE_CLUSTER,
                admin_pb2.DescribeClusterRequest(),
                deadline_ms=deadline_ms,
            )
        except Lost as error:
            raise type(error)(
                f"no broker answers at {','.join(self._bootstrap)} ({error.message}): check the "
                "address, or start one with `quorumlog dev`"
            ) from error
        except NotImplementedHere:
            # A controller's port: it has no topics, and answers what concerns the quorum.
            await self.call_any(
                QUORUM_DESCRIBE,
                quorum_pb2.DescribeQuorumRequest(local=True),
                deadline_ms=deadline_ms,
            )
            return
        self.topology.saw_offset(answer.metadata_offset)
        self.topology.saw_brokers(answer.brokers)

    async def close(self) -> None:
        """Break what is under way and free the channels; from now on every call is refused."""
        self._is_closed = True
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    def channel(self, address: str) -> Channel:
        """Return the one channel to an address; raises Stopping when the client is closed."""
        if self._is_closed:
            raise Stopping("the client is closed")
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self.runtime.network.channel(address)
        return channel

    # --- calls -------------------------------------------------------------------------------

    async def call_any(
        self,
        method: Method[Q, R],
        request: Q,
        *,
        deadline_ms: int | None = None,
        retry_on: Callable[[BaseException], bool] = is_retriable,
        answers_soon: bool = False,
    ) -> R:
        """Call whichever broker answers, repeating retriable errors until the deadline.

        `answers_soon`: a broker that takes longer than `LOOK_UP_MS` may be hanging, and the next
        one is asked. Raises what a broker said last: that another one is not reached, or that the
        time is over, says less, and the former not that nothing was done.
        """
        deadline_ms = self.deadline_ms(deadline_ms)
        said: QuorumlogError | None = None
        soon_ms = LOOK_UP_MS

        async def attempt(remaining_ms: int) -> R:
            nonlocal said, soon_ms
            addresses = self._any_addresses()
            address = addresses[self._next_broker % len(addresses)]
            timeout_ms = min(remaining_ms, self.config.request_timeout_ms)
            if answers_soon and len(addresses) > 1:
                timeout_ms, soon_ms = min(timeout_ms, soon_ms), 2 * soon_ms
            try:
                return await self.channel(address).call(method, request, timeout_ms=timeout_ms)
            except NotImplementedHere as error:
                raise NotImplementedHere(
                    f"what answers at {address} is no broker's port for clients: give the gRPC "
                    "address, 127.0.0.1:9094 unless it was changed, not the controller's"
                ) from error
            except QuorumlogError as error:
                if error.retriable:
                    self._next_broker += 1
                if not isinstance(error, NotSent) and self.runtime.clock.now_ms() < deadline_ms:
                    said = error
                raise

        try:
            return await self._repeat(attempt, deadline_ms, retry_on)
        except (NotSent, TimedOut):
            if said is None:
                raise
            raise said from None

    async def call_broker(
        self,
        node_id: int,
        method: Method[Q, R],
        request: Q,
        *,
        deadline_ms: int | None = None,
        retry_on: Callable[[BaseException], bool] = is_retriable,
    ) -> R:
        """Call one broker, repeating retriable errors; raises InvalidRequest when there is none of
        this id."""
        deadline_ms = self.deadline_ms(deadline_ms)
        if self.topology.address_of(node_id) is None:
            answer = await self.call_any(
                ADMIN_DESCRIBE_CLUSTER,
                admin_pb2.DescribeClusterRequest(min_metadata_offset=self.topology.metadata_offset),
                deadline_ms=deadline_ms,
            )
            self.topology.saw_offset(answer.metadata_offset)
            self.topology.saw_brokers(answer.brokers)
        address = self.topology.address_of(node_id)
        if address is None:
            ids = ", ".join(str(broker.id) for broker in answer.brokers)
            raise InvalidRequest(f"there is no broker {node_id}; registered are: {ids}")

        async def attempt(remaining_ms: int) -> R:
            timeout_ms = min(remaining_ms, self.config.request_timeout_ms)
            return await self.channel(address).call(method, request, timeout_ms=timeout_ms)

        return await self._repeat(attempt, deadline_ms, retry_on)

    async def call_leader(
        self,
        topic: str,
        partition: int,
        call: Callable[[Leader, int], Awaitable[T]],
        *,
        deadline_ms: int | None = None,
    ) -> T:
        """Run `call(leader, timeout_ms)` for a partition, following it when it moves.

        Raises UnknownTopicOrPartition as soon as the metadata says that it does not exist.
        """
        deadline = self.deadline_ms(deadline_ms)
        absent: QuorumlogError | None = None

        async def attempt(remaining_ms: int) -> T:
            nonlocal absent
            try:
                leader = await self.leader(topic, partition, deadline_ms=deadline)
            except UnknownTopicOrPartition as error:
                absent = error
                raise
            try:
                return await call(leader, min(remaining_ms, self.config.request_timeout_ms))
            except QuorumlogError as error:
                if error.retriable:
                    self.learn(topic, partition, error)
                raise

        return await self._repeat(
            attempt, deadline, lambda error: error is not absent and is_retriable(error)
        )

    async def repeat(
        self,
        attempt: Callable[[int], Awaitable[T]],
        *,
        deadline_ms: int | None = None,
        retry_on: Callable[[BaseException], bool] = is_retriable,
    ) -> T:
        """Run `attempt(remaining_ms)` until it succeeds, its error may not be repeated, or the
        deadline (default: `call_timeout_ms` from now) is near."""
        return await self._repeat(attempt, self.deadline_ms(deadline_ms), retry_on)

    async def _repeat(
        self,
        attempt: Callable[[int], Awaitable[T]],
        deadline_ms: int,
        retry_on: Callable[[BaseException], bool],
    ) -> T:
        return await self._retrier.run(
            attempt,
            deadline_ms=deadline_ms,
            retry_on=lambda error: not self._is_closed and retry_on(error),
        )

    # --- topology ----------------------------------------------------------------------------

    async def layout(self, topic: str, *, deadline_ms: int | None = None) -> TopicLayout:
        """Return a topic's layout, asking for it when it is unknown or too old.

        Raises UnknownTopicOrPartition when the topic does not appear within a second.
        """
        known = self.topology.topic(topic)
        if known is not None and self._is_fresh(known):
            return known
        return await self.refresh(topic, deadline_ms=deadline_ms)

    async def refresh(self, topic: str, *, deadline_ms: int | None = None) -> TopicLayout:
        """Ask for a topic's layout now; callers at one time share an answer."""
        asked_ms = self.runtime.clock.now_ms()
        deadline_ms = self.deadline_ms(deadline_ms)
        unknown_until_ms = min(deadline_ms, asked_ms + UNKNOWN_TOPIC_TIMEOUT_MS)

        def retry_on(error: BaseException) -> bool:
            if isinstance(error, UnknownTopicOrPartition | UnknownTopicId):
                return self.runtime.clock.now_ms() < unknown_until_ms
            return is_retriable(error)

        async def attempt(remaining_ms: int) -> TopicLayout:
            async with self._turn(topic, remaining_ms):
                known = self.topology.topic(topic)
                if known is not None and known.refreshed_ms >= asked_ms:
                    return known
                return await self._describe(topic, deadline_ms)

        try:
            return await self._repeat(attempt, deadline_ms, retry_on)
        except UnknownTopicOrPartition:
            self.topology.forget(topic)
            raise

    @asynccontextmanager
    async def _turn(self, topic: str, remaining_ms: int) -> AsyncIterator[None]:
        """Wait for the look-up before, which may have a later deadline than this one."""
        try:
            async with asyncio.timeout(remaining_ms / 1000):
                await self._refreshing.acquire()
        except TimeoutError:
            raise TimedOut("no broker said in time who leads it", topic=topic) from None
        try:
            yield
        finally:
            self._refreshing.release()

    async def leader(self, topic: str, partition: int, *, deadline_ms: int | None = None) -> Leader:
        """Return a partition's leader, asking when it is unknown; raises NotLeaderOrFollower when
        it has none (retriable), UnknownTopicOrPartition when it does not exist."""
        layout = await self.layout(topic, deadline_ms=deadline_ms)
        if not 0 <= partition < len(layout.partitions):
            layout = await self.refresh(topic, deadline_ms=deadline_ms)
        if not 0 <= partition < len(layout.partitions):
            raise absent(topic, partition, len(layout.partitions))
        leader = self.topology.leader(topic, partition)
        if leader is None:
            self.doubt(topic)
            raise leaderless(topic, partition)
        return leader

    def leader_now(self, topic: str, partition: int) -> Leader | None:
        """Return a partition's leader if it is known and neither doubted nor too old."""
        return self.topology.leader(topic, partition) if self.is_known(topic) else None

    def is_known(self, topic: str) -> bool:
        """Whether the topic's layout is known, and neither doubted nor too old."""
        layout = self.topology.topic(topic)
        return layout is not None and self._is_fresh(layout)

    def doubt(self, topic: str) -> None:
        """Something said that the layout is old: the next use of the topic asks again."""
        self.topology.doubt(topic)

    def learn(self, topic: str, partition: int, error: QuorumlogError) -> bool:
        """A partition's call failed in a way that may pass: take over who leads it now where the
        error says so, and return True; otherwise the next use of the topic asks again, and another
        broker: who said where to go may be cut off from those who know better."""
        if isinstance(error, NotLeaderOrFollower) and self.topology.saw_leader(
            topic,
            partition,
            leader=error.leader_id,
            epoch=error.leader_epoch,
            address=error.leader_address,
        ):
            return True
        self.doubt(topic)
        self._next_broker += 1
        return False

    def _is_fresh(self, layout: TopicLayout) -> bool:
        age_ms = self.runtime.clock.now_ms() - layout.refreshed_ms
        return age_ms < self.config.metadata_age_ms_max

    async def _describe(self, topic: str, deadline_ms: int) -> TopicLayout:
        answer = await self.call_any(
            ADMIN_DESCRIBE_TOPICS,
            admin_pb2.DescribeTopicsRequest(
                names=[topic], min_metadata_offset=self.topology.metadata_offset
            ),
            deadline_ms=deadline_ms,
            answers_soon=True,
        )
        self.topology.saw_offset(answer.metadata_offset)
        self.topology.saw_brokers(answer.brokers)
        described = described_topic(answer, topic)
        return self.topology.saw_topic(described, self.runtime.clock.now_ms())

    def _any_addresses(self) -> tuple[str, ...]:
        """Bootstrap addresses first, then the brokers known beyond them."""
        more = (a for a in self.topology.addresses() if a not in self._bootstrap)
        return (*self._bootstrap, *more)

    def deadline_ms(self, deadline_ms: int | None = None) -> int:
        """Return a caller's deadline, or the one of a call that begins now."""
        if deadline_ms is not None:
            return deadline_ms
        return self.runtime.clock.now_ms() + self.config.call_timeout_ms
