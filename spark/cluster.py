"""Calls of the driver and of tasks to brokers, over blocking channels.

Spark's Python processes have no event loop. They are forked and reused, so channels are pooled per
process: a fork gets new channels, since a channel does not survive a fork.
"""

import itertools
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from google.protobuf.message import Message

from quorumlog.errors import (
    NotLeaderOrFollower,
    OffsetOutOfRange,
    OutcomeUnknown,
    QuorumlogError,
    TimedOut,
    UnknownTopicOrPartition,
)
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.runtime import Method
from quorumlog.runtime.error_detail import decode_error
from quorumlog.runtime.grpc_network import SyncChannel
from quorumlog.services import (
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_LOG_DIRS,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
    LOG_LIST_OFFSETS,
)
from quorumlog.spark.admission import Density
from quorumlog.spark.offsets import EARLIEST, LATEST, Offsets, TopicPartition
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


class Leader(NamedTuple):
    """The leader's address of a partition, and the id of its topic."""

    address: str  # "host:port"
    topic_id: bytes  # another id is another topic


CALL_TIMEOUT_MS: Final = 30_000
ATTEMPTS_MAX: Final = 8
"""The maximum number of attempts of a call, about 7 s with pauses: enough for a failover with the
broker.session.timeout.ms of 3 s."""

PATIENT_ATTEMPTS_MAX: Final = 18
"""The same for calls that a query cannot continue without: about 27 s."""

PAUSE_MS: Final = 100
PAUSE_MS_MAX: Final = 2_000
"""Bounds of the pause between attempts, which doubles each time."""

logger = logging.getLogger(__name__)

# Module-level state: Spark reuses a worker process for many tasks and jobs, and only module state
# survives between them.
_channels: dict[tuple[int, str], SyncChannel] = {}
_answered: set[tuple[int, tuple[str, ...]]] = set()


def channel_to(address: str) -> SyncChannel:
    """Return this process's channel to an address; it connects at its first call."""
    key = (os.getpid(), address)
    if key not in _channels:
        _channels[key] = SyncChannel(address)
    return _channels[key]


def repeat(
    what: str,
    job: Callable[[int], T],
    *,
    attempts_max: int = ATTEMPTS_MAX,
    patience_ms: int = 0,
) -> T:
    """Return the result of `job(attempt)`, retrying it after retriable errors.

    Attempts count from 0, with doubling pauses. There are `attempts_max`, and more until
    `patience_ms` have passed, except after UnknownTopicOrPartition; then raises the last error.
    Logs one warning before the additional attempts.
    """
    until_s = time.monotonic() + patience_ms / 1000
    for attempt in itertools.count():
        try:
            return job(attempt)
        except QuorumlogError as error:
            if not error.retriable:
                raise
            is_away = time.monotonic() < until_s and not isinstance(error, UnknownTopicOrPartition)
            if attempt + 1 >= attempts_max and not is_away:
                raise
            if attempt + 1 == attempts_max:
                logger.warning(
                    "spark.waits what=%s: it is tried on for %.0f s: %s",
                    what,
                    until_s - time.monotonic(),
                    error,
                )
            logger.info("spark.repeat what=%s attempt=%d error=%s", what, attempt, error)
        pause(attempt)
    raise AssertionError("a count has no end")


def pause(attempt: int) -> None:
    """Sleep after failed attempt number `attempt`, counted from 0."""
    time.sleep(min(PAUSE_MS * 2 ** min(attempt, 16), PAUSE_MS_MAX) / 1000)


class Cluster:
    """The cluster behind bootstrap addresses. Cheap to create; channels are pooled."""

    def __init__(self, bootstrap: Sequence[str], *, patience_ms: int = 0) -> None:
        """`patience_ms` is the minimum time of retries while no broker responds. It applies only
        after a first response in this process, so that a wrong address fails soon."""
        self._bootstrap = tuple(bootstrap)  # "host:port", at least one
        self._patience_ms = patience_ms

    @property
    def patience_ms(self) -> int:
        """The minimum time of retries that applies now."""
        return self._patience_ms if (os.getpid(), self._bootstrap) in _answered else 0

    def has_answered(self) -> None:
        """Record that a broker has responded."""
        _answered.add((os.getpid(), self._bootstrap))

    def _repeat(self, what: str, job: Callable[[int], T], *, attempts_max: int = ATTEMPTS_MAX) -> T:
        found = repeat(what, job, attempts_max=attempts_max, patience_ms=self.patience_ms)
        self.has_answered()
        return found

    def cluster_id(self) -> str:
        """Return the cluster id."""
        request = admin_pb2.DescribeClusterRequest()
        return self.call("describe_cluster", ADMIN_DESCRIBE_CLUSTER, request).cluster_id

    def leaders(
        self, selection: Selection, *, must_exist: bool = True
    ) -> dict[TopicPartition, Leader]:
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

    def leader(self, place: TopicPartition) -> Leader:
        """Return a partition's current leader without retries; raise UnknownTopicOrPartition."""
        return self._leaders_now((place,), 0)[place]

    def _leaders_now(
        self, places: Iterable[TopicPartition], attempt: int
    ) -> dict[TopicPartition, Leader]:
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
        self, leaders: Mapping[TopicPartition, Leader], isolation: Isolation
    ) -> dict[TopicPartition, Bounds]:
        """Return the current bounds of each partition."""
        # Earliest first: retention may move the start between the two calls, never the end.
        earliest = self.earliest(leaders, isolation)
        latest = self.latest(leaders, isolation)
        return {place: Bounds(earliest=earliest[place], latest=latest[place]) for place in leaders}

    def earliest(self, leaders: Mapping[TopicPartition, Leader], isolation: Isolation) -> Offsets:
        """Return the log start offset of each partition."""
        return self._bound(EARLIEST, leaders, isolation)

    def latest(self, leaders: Mapping[TopicPartition, Leader], isolation: Isolation) -> Offsets:
        """Return the end of the readable offsets of each partition."""
        return self._bound(LATEST, leaders, isolation)

    def _bound(
        self, which: int, leaders: Mapping[TopicPartition, Leader], isolation: Isolation
    ) -> Offsets:
        found = self.offsets_at(dict.fromkeys(leaders, which), leaders, isolation)
        return {place: offset or 0 for place, offset in found.items()}

    def offsets_at(
        self,
        times_ms: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, Leader],
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
            for address in dict.fromkeys(now[place].address for place in times_ms):
                mine = {
                    place: (ms, now[place].topic_id)
                    for place, ms in times_ms.items()
                    if now[place].address == address
                }
                found |= _list_offsets(address, mine, isolation)
            return {place: found[place] for place in times_ms}

        answer = self._repeat("list_offsets", ask) if times_ms else {}
        if isinstance(answer, UnknownTopicOrPartition):
            raise answer
        return answer

    def densities(self, leaders: Mapping[TopicPartition, Leader]) -> dict[TopicPartition, Density]:
        """Return the size and offset count of each partition on its leader's disk, if available."""
        topics = sorted({place.topic for place in leaders})
        found: dict[TopicPartition, Density] = {}
        for address in dict.fromkeys(leader.address for leader in leaders.values()):
            request = admin_pb2.DescribeLogDirsRequest(topics=topics)
            channel = channel_to(address)
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
        attempts_max: int = ATTEMPTS_MAX,
        timeout_ms: int = CALL_TIMEOUT_MS,
    ) -> R:
        """Call any broker, with retries as in `repeat`; `timeout_ms` bounds one attempt."""

        def ask(attempt: int) -> R:
            return self._call(method, request, attempt, timeout_ms)

        return self._repeat(what, ask, attempts_max=attempts_max)

    def _described(
        self, topics: Iterable[str], *, must_exist: bool = True
    ) -> dict[TopicPartition, Leader]:
        names = list(topics)
        if not names:
            return {}

        def ask(attempt: int) -> tuple[dict[TopicPartition, Leader], list[str]]:
            return self._describe(names, attempt)

        leaders, missing = self._repeat("describe_topics", ask)
        if (
            missing and must_exist
        ):  # not repeated: a created topic is usable everywhere before its creator knows
            raise UnknownTopicOrPartition(
                "the topic does not exist; create it, or correct the option that names it",
                topic=missing[0],
            )
        return dict(sorted(leaders.items()))

    def _describe(
        self, names: Sequence[str], attempt: int
    ) -> tuple[dict[TopicPartition, Leader], list[str]]:
        request = admin_pb2.DescribeTopicsRequest(names=names)
        return _leaders_of(self._call(ADMIN_DESCRIBE_TOPICS, request, attempt))

    def _matching(self, pattern: str) -> list[str]:
        def ask(attempt: int) -> list[str]:
            response = self._call(ADMIN_LIST_TOPICS, admin_pb2.ListTopicsRequest(), attempt)
            return [topic.name for topic in response.topics if re.fullmatch(pattern, topic.name)]

        return self._repeat("list_topics", ask)

    def _call(
        self, method: Method[Q, R], request: Q, attempt: int, timeout_ms: int = CALL_TIMEOUT_MS
    ) -> R:
        """Try each bootstrap address in turn, starting with another one in each attempt."""
        count = len(self._bootstrap)
        failure: QuorumlogError | None = None
        for index in range(count):
            address = self._bootstrap[(attempt + index) % count]
            try:
                return channel_to(address).call(method, request, timeout_ms=timeout_ms)
            except (OutcomeUnknown, TimedOut) as error:
                failure = error
        assert failure is not None, "no bootstrap address"
        raise type(failure)(
            f"no broker responds at {', '.join(self._bootstrap)} (option 'bootstrap'): {failure}"
        ) from failure


def _leaders_of(
    response: admin_pb2.DescribeTopicsResponse,
) -> tuple[dict[TopicPartition, Leader], list[str]]:
    """Return the leader of each partition, and the topics that do not exist."""
    addresses = {broker.id: broker.grpc_address for broker in response.brokers}
    leaders: dict[TopicPartition, Leader] = {}
    missing: list[str] = []
    for result in response.results:
        if result.HasField("error"):
            error = decode_error(result.error)
            if not isinstance(error, UnknownTopicOrPartition):
                raise error
            missing.append(result.name)
        for partition in result.topic.partitions:
            place = TopicPartition(result.name, partition.partition)
            if partition.leader not in addresses:
                raise NotLeaderOrFollower(
                    "the partition has no leader now", topic=place.topic, partition=place.partition
                )
            leaders[place] = Leader(addresses[partition.leader], result.topic.topic_id)
    return leaders, missing


def _list_offsets(
    address: str, wanted: Mapping[TopicPartition, tuple[int, bytes]], isolation: Isolation
) -> dict[TopicPartition, int | None]:
    request = log_pb2.ListOffsetsRequest(
        partitions=[
            log_pb2.ListOffsetsPartition(
                topic=place.topic, partition=place.partition, timestamp_ms=ms, topic_id=topic_id
            )
            for place, (ms, topic_id) in wanted.items()
        ],
        isolation=isolation_number(isolation),
    )
    response = channel_to(address).call(LOG_LIST_OFFSETS, request, timeout_ms=CALL_TIMEOUT_MS)
    found: dict[TopicPartition, int | None] = {}
    for result in response.results:
        if result.HasField("error"):
            raise decode_error(result.error)
        place = TopicPartition(result.topic, result.partition)
        found[place] = result.offset if result.offset >= 0 else None
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
