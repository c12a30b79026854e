"""Calls of the driver and of tasks to brokers, over blocking channels.

Spark's Python processes have no event loop. They are forked and reused, so channels are pooled per
process: a fork gets new channels, since a channel does not survive a fork. Leaders, offsets and
retries are decided by the pure modules of `quorumlog.clients`.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from google.protobuf.message import Message

from quorumlog.clients.credentials import sync_login
from quorumlog.clients.offsets import BEYOND, list_offsets_request, listed_offsets
from quorumlog.clients.retry import (
    Backoff,
    BlockingRetrier,
    RetryLimit,
    failures_text,
    is_retriable,
)
from quorumlog.clients.topology import PartitionLeader, Topology, by_address, leaderless
from quorumlog.errors import (
    ConnectionFailed,
    OffsetOutOfRange,
    QuorumlogError,
    TimedOut,
    TransportError,
    UnknownTopicOrPartition,
)
from quorumlog.ids import TopicPartition
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.runtime import Method
from quorumlog.runtime.grpc_network import SyncChannel
from quorumlog.services import (
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_LOG_DIRS,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
    LOG_LIST_OFFSETS,
)
from quorumlog.spark.admission import Density
from quorumlog.spark.cluster_access import ClusterAccess
from quorumlog.spark.offsets import EARLIEST, LATEST, Offsets
from quorumlog.spark.options import (
    Assigned,
    Isolation,
    Selection,
    Subscribed,
    SubscribedPattern,
)
from quorumlog.spark.plan import Bounds

T = TypeVar("T")
Q = TypeVar("Q", bound=Message)
R = TypeVar("R", bound=Message)

CALL_TIMEOUT_MS: Final = 30_000
ATTEMPTS: Final = 8
"""The number of attempts of a call, about 7 s with pauses: enough for a failover with the
broker.session.timeout.ms of 3 s."""

PATIENT_ATTEMPTS: Final = 18
"""The same for calls that a query cannot continue without: about 27 s."""

PAUSE_MS: Final = 100
PAUSE_MS_MAX: Final = 2_000
"""Bounds of the pause between attempts, which doubles each time."""

logger = logging.getLogger(__name__)

# Module-level state: Spark reuses a worker process for many tasks and jobs, and only module state
# survives between them.
_channels: dict[tuple[int, str, ClusterAccess], SyncChannel] = {}
_responded: set[tuple[int, ClusterAccess]] = set()


def now_ms() -> int:
    """Return the time of the monotonic clock in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def backoff() -> Backoff:
    """Return the backoff of every retry; without jitter, so that attempts take a known time."""
    return Backoff(None, PAUSE_MS, PAUSE_MS_MAX)


class Cluster:
    """The cluster behind bootstrap addresses. Cheap to create; channels are pooled."""

    def __init__(self, access: ClusterAccess, *, patience_ms: int = 0) -> None:
        """`patience_ms` is the minimum time of retries while no broker responds. It applies only
        after a first response in this process, so that a wrong address fails soon."""
        self._access = access
        self._patience_ms = patience_ms
        self._topology = Topology()

    def channel_to(self, address: str) -> SyncChannel:
        """Return this process's channel to an address; it connects at its first call."""
        access = self._access
        key = (os.getpid(), address, access)
        if key not in _channels:
            tls = None if access.tls is None else access.tls.files()
            _channels[key] = SyncChannel(address, tls=tls, login=sync_login(access.credentials))
        return _channels[key]

    def record_response(self) -> None:
        """Record that a broker has responded."""
        _responded.add((os.getpid(), self._access))

    def retry_limit(self, attempts: int = ATTEMPTS) -> RetryLimit:
        """Return the limit of the retries that begin now."""
        has_responded = (os.getpid(), self._access) in _responded
        return RetryLimit(now_ms() + (self._patience_ms if has_responded else 0), attempts)

    def repeat(self, what: str, job: Callable[[int], T], *, limit: RetryLimit | None = None) -> T:
        """Return the result of `job(failures)`, retrying it after retriable errors.

        Raises the last error at the limit (default: `retry_limit()`), and UnknownTopicOrPartition
        after the limit's number of attempts. Logs one warning before the additional attempts.
        """
        limit = self.retry_limit() if limit is None else limit
        failures = 0

        def attempt(failed: int) -> T:
            nonlocal failures
            failures = failed + 1  # if this attempt fails
            return job(failed)

        def retry_on(error: BaseException) -> bool:
            is_last = isinstance(error, UnknownTopicOrPartition) and failures >= limit.attempts
            return is_retriable(error) and not is_last

        def on_retry(failed: int, error: BaseException) -> None:
            if failed == limit.attempts:
                logger.warning(
                    "spark.waits what=%s: retrying for %.0f s: %s",
                    what,
                    (limit.deadline_ms - now_ms()) / 1000,
                    error,
                )
            logger.info("spark.repeat what=%s attempt=%d error=%s", what, failed - 1, error)

        found = BlockingRetrier(now_ms, time.sleep, backoff()).run(
            attempt, limit=limit, retry_on=retry_on, on_retry=on_retry
        )
        self.record_response()
        return found

    def cluster_id(self) -> str:
        """Return the cluster id."""
        request = admin_pb2.DescribeClusterRequest()
        return self.call("describe_cluster", ADMIN_DESCRIBE_CLUSTER, request).cluster_id

    def leaders(
        self, selection: Selection, *, must_exist: bool = True
    ) -> dict[TopicPartition, PartitionLeader]:
        """Return the partitions of a selection, in order, with their leaders.

        With `must_exist`, raises UnknownTopicOrPartition for a topic or an assigned partition that
        does not exist; a pattern may match no topic.
        """
        match selection:
            case Assigned(places):
                topics = dict.fromkeys(place.topic for place in places)
                known = self._described(topics, must_exist=must_exist)
                if not must_exist:
                    return {place: known[place] for place in places if place in known}
                for place in places:
                    if place not in known:
                        raise UnknownTopicOrPartition(
                            "the partition in option 'assign' does not exist",
                            topic=place.topic,
                            partition=place.partition,
                        )
                return {place: known[place] for place in places}
            case Subscribed(topics):
                return self._described(topics, must_exist=must_exist)
            case SubscribedPattern(pattern):
                return self._described(self._matching(pattern), must_exist=False)

    def leader(self, place: TopicPartition) -> PartitionLeader:
        """Return a partition's current leader without retries; raise UnknownTopicOrPartition."""
        return self._leaders_now((place,), 0)[place]

    def _leaders_now(
        self, places: Iterable[TopicPartition], attempt: int
    ) -> dict[TopicPartition, PartitionLeader]:
        wanted = tuple(places)
        known, _ = self._describe(list(dict.fromkeys(place.topic for place in wanted)), attempt)
        for place in wanted:
            if place not in known:
                raise UnknownTopicOrPartition(
                    "the partition does not exist any more",
                    topic=place.topic,
                    partition=place.partition,
                )
        return {place: known[place] for place in wanted}

    def bounds(
        self, leaders: Mapping[TopicPartition, PartitionLeader], isolation: Isolation
    ) -> dict[TopicPartition, Bounds]:
        """Return the current bounds of each partition."""
        # Earliest first: retention may move the start between the two calls, never the end.
        earliest = self.earliest(leaders, isolation)
        latest = self.latest(leaders, isolation)
        return {place: Bounds(earliest=earliest[place], latest=latest[place]) for place in leaders}

    def earliest(
        self, leaders: Mapping[TopicPartition, PartitionLeader], isolation: Isolation
    ) -> Offsets:
        """Return the log start offset of each partition."""
        return self._bound(EARLIEST, leaders, isolation)

    def latest(
        self, leaders: Mapping[TopicPartition, PartitionLeader], isolation: Isolation
    ) -> Offsets:
        """Return the end of the readable offsets of each partition."""
        return self._bound(LATEST, leaders, isolation)

    def _bound(
        self, which: int, leaders: Mapping[TopicPartition, PartitionLeader], isolation: Isolation
    ) -> Offsets:
        found = self.offsets_at(dict.fromkeys(leaders, which), leaders, isolation)
        return {place: offset or 0 for place, offset in found.items()}

    def offsets_at(
        self,
        times_ms: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, PartitionLeader],
        isolation: Isolation,
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after a time for each partition, None if there is none; the
        times -2 and -1 stand for the bounds.

        Raises UnknownTopicOrPartition for a partition deleted since `leaders` was looked up, and
        OffsetOutOfRange for a recreated topic.
        """

        def ask(attempt: int) -> dict[TopicPartition, int | None] | UnknownTopicOrPartition:
            now = leaders
            if attempt:
                try:
                    now = self._leaders_now(times_ms, attempt)
                except UnknownTopicOrPartition as gone:  # certain after a lookup: no retry
                    return gone
            for place in times_ms:
                check_same_topic(place, leaders[place].topic_id, now[place].topic_id)
            found: dict[TopicPartition, int | None] = {}
            topic_ids = {place.topic: now[place].topic_id for place in times_ms}
            for address, places in by_address({place: now[place] for place in times_ms}).items():
                mine = {place: times_ms[place] for place in places}
                channel = self.channel_to(address)
                found |= _list_offsets(channel, mine, topic_ids, isolation)
            return {place: found[place] for place in times_ms}

        answer = self.repeat("list_offsets", ask) if times_ms else {}
        if isinstance(answer, UnknownTopicOrPartition):
            raise answer
        return answer

    def densities(
        self, leaders: Mapping[TopicPartition, PartitionLeader]
    ) -> dict[TopicPartition, Density]:
        """Return the size and offset count of each partition on its leader's disk, if available."""
        topics = sorted({place.topic for place in leaders})
        found: dict[TopicPartition, Density] = {}
        for address in by_address(leaders):
            request = admin_pb2.DescribeLogDirsRequest(topics=topics)
            channel = self.channel_to(address)
            response = channel.call(ADMIN_DESCRIBE_LOG_DIRS, request, timeout_ms=CALL_TIMEOUT_MS)
            for log in (log for each in response.directories for log in each.logs):
                place = TopicPartition(log.topic, log.partition)
                if place in leaders and leaders[place].address == address:
                    offsets = log.log_end_offset - log.log_start_offset
                    found[place] = Density(log.size_bytes, offsets)
        return found

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the non-default configs of each topic that exists."""
        request = admin_pb2.DescribeTopicsRequest(names=list(topics))
        response = self.call("describe_topics", ADMIN_DESCRIBE_TOPICS, request)
        return {
            result.name: {entry.name: entry.value for entry in result.topic.configs}
            for result in response.results
            if result.HasField("topic")
        }

    def call(
        self,
        what: str,
        method: Method[Q, R],
        request: Q,
        *,
        attempts: int = ATTEMPTS,
        timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> R:
        """Call any broker, with retries as in `repeat`; `timeout_ms` bounds one attempt."""

        def ask(attempt: int) -> R:
            return self._call(method, request, attempt, timeout_ms)

        return self.repeat(what, ask, limit=self.retry_limit(attempts))

    def _described(
        self, topics: Iterable[str], *, must_exist: bool = True
    ) -> dict[TopicPartition, PartitionLeader]:
        names = list(topics)
        if not names:
            return {}

        def ask(attempt: int) -> tuple[dict[TopicPartition, PartitionLeader], list[str]]:
            return self._describe(names, attempt)

        leaders, missing = self.repeat("describe_topics", ask)
        if missing and must_exist:
            # No retry: a topic is usable on every broker before `create_topic` returns.
            raise UnknownTopicOrPartition(
                "the topic does not exist; create it, or correct the option that names it",
                topic=missing[0],
            )
        return dict(sorted(leaders.items()))

    def _describe(
        self, names: Sequence[str], attempt: int
    ) -> tuple[dict[TopicPartition, PartitionLeader], list[str]]:
        """Return the leader of each partition of these topics, and the topics that do not
        exist."""
        request = admin_pb2.DescribeTopicsRequest(names=names)
        answer = self._call(ADMIN_DESCRIBE_TOPICS, request, attempt)
        leaders: dict[TopicPartition, PartitionLeader] = {}
        missing: list[str] = []
        for name, layout in self._topology.merge_topics(answer, names, now_ms()).items():
            if isinstance(layout, UnknownTopicOrPartition):
                self._topology.forget(name)
                missing.append(name)
                continue
            if isinstance(layout, QuorumlogError):
                raise layout
            for partition in range(len(layout.partitions)):
                leader = self._topology.leader(name, partition)
                if leader is None:
                    raise leaderless(name, partition)
                leaders[TopicPartition(name, partition)] = leader
        return leaders, missing

    def _matching(self, pattern: str) -> list[str]:
        def ask(attempt: int) -> list[str]:
            response = self._call(ADMIN_LIST_TOPICS, admin_pb2.ListTopicsRequest(), attempt)
            return [topic.name for topic in response.topics if re.fullmatch(pattern, topic.name)]

        return self.repeat("list_topics", ask)

    def _call(
        self, method: Method[Q, R], request: Q, attempt: int, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> R:
        """Try each bootstrap address in turn, starting with another one in each attempt."""
        bootstrap = self._access.bootstrap
        count = len(bootstrap)
        failures: dict[str, QuorumlogError] = {}  # by address
        for index in range(count):
            address = bootstrap[(attempt + index) % count]
            try:
                return self.channel_to(address).call(method, request, timeout_ms=timeout_ms)
            except (TransportError, TimedOut) as error:
                failures[address] = error
        kinds = map(type, failures.values())
        kind = next((kind for kind in kinds if kind is not ConnectionFailed), ConnectionFailed)
        raise kind(
            f"no broker responds at {', '.join(bootstrap)} (option 'bootstrap'):"
            f" {failures_text(failures)}"
        ) from failures[bootstrap[attempt % count]]


def _list_offsets(
    channel: SyncChannel,
    times_ms: Mapping[TopicPartition, int],
    topic_ids: Mapping[str, bytes],
    isolation: Isolation,
) -> dict[TopicPartition, int | None]:
    """Return the first offset at or after a time for each partition of one leader."""
    request = list_offsets_request(times_ms, topic_ids, isolation=isolation_number(isolation))
    answer = channel.call(LOG_LIST_OFFSETS, request, timeout_ms=CALL_TIMEOUT_MS)
    found: dict[TopicPartition, int | None] = {}
    for place, offset in listed_offsets(answer, times_ms).items():
        if isinstance(offset, QuorumlogError):
            raise offset
        found[place] = None if offset == BEYOND else offset
    return found


def check_same_topic(place: TopicPartition, before: bytes, now: bytes) -> None:
    """Raise OffsetOutOfRange if a topic has another id than before."""
    if before != now:
        raise OffsetOutOfRange(
            "the topic was deleted and recreated, so the offsets of the read are invalid; start a "
            "new read, or a stream with a new checkpoint",
            topic=place.topic,
            partition=place.partition,
        )


def isolation_number(isolation: Isolation) -> log_pb2.Isolation:
    """Return the protocol's number for an isolation level."""
    match isolation:
        case Isolation.READ_COMMITTED:
            return log_pb2.ISOLATION_READ_COMMITTED
        case Isolation.READ_UNCOMMITTED:
            return log_pb2.ISOLATION_READ_UNCOMMITTED
