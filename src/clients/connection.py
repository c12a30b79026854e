"""A client's connection to the cluster: channels by address, metadata, and calls with retries.

Owns the channels. Every wait has a deadline; retriable errors are retried until then (see
`retry`). Each read carries the newest metadata offset seen, so a client reads its own changes from
any broker.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TypeVar

from google.protobuf.message import Message

from ..errors import (
    ClientClosed,
    ConnectionFailed,
    InvalidRequest,
    NotImplementedHere,
    NotLeaderOrFollower,
    QuorumlogError,
    TimedOut,
    TransportError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ..proto import admin_pb2, quorum_pb2
from ..runtime import Channel, Method, Runtime
from ..services import ADMIN_DESCRIBE_CLUSTER, ADMIN_DESCRIBE_TOPICS, QUORUM_DESCRIBE
from .config import ClientConfig
from .credentials import channel_security
from .retry import Backoff, Retrier, failures_text, is_retriable
from .topology import PartitionLeader, TopicLayout, Topology, absent, leaderless

Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)
T = TypeVar("T")

LOOKUP_TIMEOUT_MS = 2_000  # of one broker, if there are others; doubles with each attempt
UNKNOWN_TOPIC_TIMEOUT_MS = 1_000  # a topic that is still unknown after it does not exist


class Connection:
    """The connection of one open client."""

    def __init__(self, runtime: Runtime, addresses: Sequence[str], config: ClientConfig) -> None:
        # Clients of one runtime must draw different topic ids, partitions and backoffs.
        own = runtime.entropy.stream(f"client/{runtime.entropy.token(8).hex()}")
        self.runtime = runtime = replace(runtime, entropy=own)
        self.config = config
        self.topology = Topology()
        self._bootstrap = tuple(addresses)
        self._channels: dict[str, Channel] = {}
        self._next_broker = 0  # index into _any_addresses(), incremented when a broker fails
        self._refreshing = asyncio.Lock()
        self._is_closed = False
        self.backoff = Backoff(
            runtime.entropy.stream("retry"),
            config.retry_backoff_ms,
            config.retry_backoff_max_ms,
        )
        self._security = channel_security(config.tls, config.credentials)
        self._retrier = Retrier(runtime.clock, self.backoff)

    async def open(self) -> None:
        """Discover the brokers; raise ConnectionFailed if none answers within connect_timeout_ms.

        A controller without client services is accepted too: it serves the Quorum service.
        """
        deadline_ms = self.runtime.clock.now_ms() + self.config.connect_timeout_ms
        try:
            await self._discover(deadline_ms)
        except (TransportError, TimedOut) as error:
            remedy = "check the addresses"
            if len(self._bootstrap) == 1:
                remedy = "check the address"
                if "refuse" in error.message:  # nothing listens there
                    remedy += ", or start one with `quorumlog dev`"
            raise ConnectionFailed(
                f"no broker answers at {','.join(self._bootstrap)} ({error.message}): {remedy}"
            ) from error

    async def _discover(self, deadline_ms: int) -> None:
        """Record the brokers that any broker returns; none if a controller answers."""
        try:
            answer = await self.call_any(
                ADMIN_DESCRIBE_CLUSTER,
                admin_pb2.DescribeClusterRequest(),
                deadline_ms=deadline_ms,
            )
        except NotImplementedHere:
            # A controller's port serves the Quorum service only.
            await self.call_any(
                QUORUM_DESCRIBE,
                quorum_pb2.DescribeQuorumRequest(local=True),
                deadline_ms=deadline_ms,
            )
            return
        self.topology.record_offset(answer.metadata_offset)
        self.topology.record_brokers(answer.brokers)

    async def close(self) -> None:
        """Close the channels and fail the calls in flight; further calls raise ClientClosed."""
        self._is_closed = True
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    def channel(self, address: str) -> Channel:
        """Return the channel to an address; raise ClientClosed if the client is closed."""
        if self._is_closed:
            raise ClientClosed("the client is closed")
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self.runtime.network.channel(
                address, self._security
            )
        return channel

    # --- calls -------------------------------------------------------------------------------

    async def call_any(
        self,
        method: Method[Q, R],
        request: Q,
        *,
        deadline_ms: int | None = None,
        retry_on: Callable[[BaseException], bool] = is_retriable,
        is_short: bool = False,
    ) -> R:
        """Call any broker; retry retriable errors until the deadline.

        `is_short`: the first attempt waits at most `LOOKUP_TIMEOUT_MS` and half of the time, then
        the next broker is called: a broker that takes longer may hang. At the deadline raises the
        last error that a broker returned, if there is one: it says more than a refused connection
        or a timeout, and a refused connection would wrongly claim that nothing was executed.
        Without one, the error has the last failure of each address.
        """
        deadline_ms = self.deadline_ms(deadline_ms)
        said: QuorumlogError | None = None
        failures: dict[str, QuorumlogError] = {}  # by address
        soon_ms = min(LOOKUP_TIMEOUT_MS, max(1, (deadline_ms - self.runtime.clock.now_ms()) // 2))

        async def attempt(remaining_ms: int) -> R:
            nonlocal said, soon_ms
            address = self._present_address()
            timeout_ms = min(remaining_ms, self.config.request_timeout_ms)
            if is_short and len(self._any_addresses()) > 1:
                timeout_ms, soon_ms = min(timeout_ms, soon_ms), 2 * soon_ms
            try:
                return await self.channel(address).call(method, request, timeout_ms=timeout_ms)
            except NotImplementedHere as error:
                raise NotImplementedHere(
                    f"{address} is not a broker's gRPC port: give a broker's gRPC address "
                    "(default 127.0.0.1:9094), not a controller's"
                ) from error
            except QuorumlogError as error:
                if error.retriable and self._present_address() == address:
                    self._next_broker += 1  # unless a concurrent call has moved on
                failures[address] = error
                if (
                    not isinstance(error, ConnectionFailed)
                    and self.runtime.clock.now_ms() < deadline_ms
                ):
                    said = error
                raise

        try:
            return await self._repeat(attempt, deadline_ms, retry_on)
        except (ConnectionFailed, TimedOut) as last:
            error = last if said is None else said
            if len(failures) > 1 and isinstance(error, TransportError | TimedOut):
                raise type(error)(failures_text(failures)) from last
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
        """Call one broker; retry retriable errors until the deadline.

        Raises InvalidRequest if no broker with this id is registered.
        """
        deadline_ms = self.deadline_ms(deadline_ms)
        if self.topology.address_of(node_id) is None:
            answer = await self.call_any(
                ADMIN_DESCRIBE_CLUSTER,
                admin_pb2.DescribeClusterRequest(min_metadata_offset=self.topology.metadata_offset),
                deadline_ms=deadline_ms,
            )
            self.topology.record_offset(answer.metadata_offset)
            self.topology.record_brokers(answer.brokers)
        address = self.topology.address_of(node_id)
        if address is None:
            ids = ", ".join(str(broker.id) for broker in answer.brokers)
            raise InvalidRequest(f"broker {node_id} is not registered; registered brokers: {ids}")

        async def attempt(remaining_ms: int) -> R:
            timeout_ms = min(remaining_ms, self.config.request_timeout_ms)
            return await self.channel(address).call(method, request, timeout_ms=timeout_ms)

        return await self._repeat(attempt, deadline_ms, retry_on)

    async def call_leader(
        self,
        topic: str,
        partition: int,
        call: Callable[[PartitionLeader, int], Awaitable[T]],
        *,
        deadline_ms: int | None = None,
    ) -> T:
        """Run `call(leader, timeout_ms)` for a partition; follow leader changes.

        Raises UnknownTopicOrPartition as soon as the metadata does not have the partition.
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
                    self.update_leader(topic, partition, error)
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
        """Run `attempt(remaining_ms)` until it succeeds, fails with an error that `retry_on`
        rejects, or the deadline (default: `call_timeout_ms` from now) is near."""
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
        """Return a topic's layout; look it up if it is unknown or stale.

        Raises UnknownTopicOrPartition if the topic does not appear within 1 s.
        """
        known = self.topology.topic(topic)
        if known is not None and self._is_fresh(known):
            return known
        return await self.refresh(topic, deadline_ms=deadline_ms)

    async def refresh(self, topic: str, *, deadline_ms: int | None = None) -> TopicLayout:
        """Look up a topic's layout now; concurrent callers share a response."""
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
        """Hold the lookup lock; the lookup before may have a later deadline than this one."""
        try:
            async with asyncio.timeout(remaining_ms / 1000):
                await self._refreshing.acquire()
        except TimeoutError:
            raise TimedOut("metadata lookup: no broker answered in time", topic=topic) from None
        try:
            yield
        finally:
            self._refreshing.release()

    async def leader(
        self, topic: str, partition: int, *, deadline_ms: int | None = None
    ) -> PartitionLeader:
        """Return a partition's leader; look it up if it is unknown.

        Raises NotLeaderOrFollower (retriable) if the partition has no leader,
        UnknownTopicOrPartition if it does not exist.
        """
        layout = await self.layout(topic, deadline_ms=deadline_ms)
        if not 0 <= partition < len(layout.partitions):
            layout = await self.refresh(topic, deadline_ms=deadline_ms)
        if not 0 <= partition < len(layout.partitions):
            raise absent(topic, partition, len(layout.partitions))
        leader = self.topology.leader(topic, partition)
        if leader is None:
            self.topology.mark_stale(topic)
            raise leaderless(topic, partition)
        return leader

    def leader_now(self, topic: str, partition: int) -> PartitionLeader | None:
        """Return a partition's leader if it is cached and not stale, otherwise None."""
        return self.topology.leader(topic, partition) if self.is_known(topic) else None

    def is_known(self, topic: str) -> bool:
        """Return True if the topic's layout is cached and not stale."""
        layout = self.topology.topic(topic)
        return layout is not None and self._is_fresh(layout)

    def update_leader(self, topic: str, partition: int, error: QuorumlogError) -> bool:
        """Update the metadata after a retriable error of a partition's call.

        Returns True if the error names a newer leader, which is then used. Otherwise marks the
        topic stale and moves on to another broker: the broker that redirected here may be cut off
        from newer metadata.
        """
        if isinstance(error, NotLeaderOrFollower) and self.topology.record_leader(
            topic,
            partition,
            leader=error.leader_id,
            epoch=error.leader_epoch,
            address=error.leader_address,
        ):
            return True
        self.topology.mark_stale(topic)
        self._next_broker += 1
        return False

    def _is_fresh(self, layout: TopicLayout) -> bool:
        age_ms = self.runtime.clock.now_ms() - layout.refreshed_ms
        return age_ms < self.config.metadata_max_age_ms

    async def _describe(self, topic: str, deadline_ms: int) -> TopicLayout:
        answer = await self.call_any(
            ADMIN_DESCRIBE_TOPICS,
            admin_pb2.DescribeTopicsRequest(
                names=[topic], min_metadata_offset=self.topology.metadata_offset
            ),
            deadline_ms=deadline_ms,
            is_short=True,
        )
        found = self.topology.merge_topics(answer, [topic], self.runtime.clock.now_ms())[topic]
        if isinstance(found, QuorumlogError):
            raise found
        return found

    def _any_addresses(self) -> tuple[str, ...]:
        """Return the bootstrap addresses, then those of the other brokers."""
        more = (a for a in self.topology.addresses() if a not in self._bootstrap)
        return (*self._bootstrap, *more)

    def _present_address(self) -> str:
        """Return the address that calls to any broker use until it fails."""
        addresses = self._any_addresses()
        return addresses[self._next_broker % len(addresses)]

    def deadline_ms(self, deadline_ms: int | None = None) -> int:
        """Return the given deadline, or that of a call that begins now."""
        if deadline_ms is not None:
            return deadline_ms
        return self.runtime.clock.now_ms() + self.config.call_timeout_ms
