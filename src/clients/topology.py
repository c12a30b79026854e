"""Metadata cache of a client (topics, partition leaders, broker addresses), and validation of
responses.

Pure. Filled from DescribeTopics responses. An older response (a smaller leader epoch of the same
topic id) never replaces newer data.

A broker of another version, or another program that speaks the protocol, may return any message
that parses. An inconsistent response raises UnknownServerError, which is not retried: the caller
gets the error, and a background task treats it like any other failed request.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from ..errors import (
    NotLeaderOrFollower,
    QuorumlogError,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from ..ids import NO_NODE, Epoch, NodeId
from ..proto import admin_pb2
from ..runtime.error_detail import decode_error

PlaceT = TypeVar("PlaceT")

MESSAGE_BYTES_MAX = "max.message.bytes"
STALE_MS = -(2**62)  # older than every maximum age


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """The leader of a partition."""

    address: str  # "host:port" of the leading broker
    epoch: Epoch  # the leader epoch; sent with requests to fence a deposed leader
    topic_id: bytes = b""  # sent with requests to reject a topic of the same name created later


@dataclass(frozen=True, slots=True)
class PartitionLeadership:
    """A partition's leader according to the metadata."""

    leader: NodeId  # NO_NODE if there is none
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """A topic according to the metadata."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionLeadership, ...]  # by partition index, without gaps
    message_bytes_max: int | None  # its max.message.bytes; None: not set
    refreshed_ms: int  # Clock.now_ms() of the response


class Topology:
    """The metadata cache. Its size is bounded by the topics that this client uses."""

    __slots__ = ("_addresses", "_topics", "metadata_offset")

    def __init__(self) -> None:
        self._topics: dict[str, TopicLayout] = {}
        self._addresses: dict[NodeId, str] = {}
        self.metadata_offset = 0  # newest seen; sent with every read (read-your-writes)

    def topic(self, name: str) -> TopicLayout | None:
        """Return the topic's layout, however old; None if it is unknown."""
        return self._topics.get(name)

    def topics(self) -> tuple[str, ...]:
        """Return the names of the cached topics, in the order of their first use."""
        return tuple(self._topics)

    def leader(self, name: str, partition: int) -> PartitionLeader | None:
        """Return the partition's leader; None if it is unknown, absent, or has no known address."""
        layout = self._topics.get(name)
        if layout is None or not 0 <= partition < len(layout.partitions):
            return None
        leadership = layout.partitions[partition]
        address = self._addresses.get(leadership.leader)
        if leadership.leader == NO_NODE or address is None:
            return None
        return PartitionLeader(address, leadership.epoch, layout.topic_id)

    def leaderless(self, name: str) -> frozenset[int]:
        """Return the partitions of a topic without a known leader."""
        layout = self._topics.get(name)
        count = len(layout.partitions) if layout is not None else 0
        return frozenset(index for index in range(count) if self.leader(name, index) is None)

    def addresses(self) -> tuple[str, ...]:
        """Return the known broker addresses, by ascending node id."""
        return tuple(self._addresses[node] for node in sorted(self._addresses))

    def address_of(self, node_id: int) -> str | None:
        """Return a broker's address; None if it is unknown."""
        return self._addresses.get(NodeId(node_id))

    def mark_stale(self, name: str) -> None:
        """Mark the topic as stale; its epochs still win over older ones."""
        known = self._topics.get(name)
        if known is not None:
            self._topics[name] = replace(known, refreshed_ms=STALE_MS)

    def forget(self, name: str) -> None:
        """Remove a topic that was deleted."""
        self._topics.pop(name, None)

    def record_offset(self, metadata_offset: int) -> None:
        """Record the metadata offset of a response."""
        self.metadata_offset = max(self.metadata_offset, metadata_offset)

    def record_brokers(self, brokers: Iterable[admin_pb2.BrokerDescription]) -> None:
        """Record broker addresses; other brokers keep theirs."""
        for broker in brokers:
            if broker.grpc_address:
                self._addresses[NodeId(broker.id)] = broker.grpc_address

    def record_leader(
        self, name: str, partition: int, *, leader: int, epoch: int, address: str
    ) -> bool:
        """Record the leader that another broker named in an error; return True if it is newer.

        The rest of the topic's layout keeps its age.
        """
        known = self._topics.get(name)
        if known is None or not 0 <= partition < len(known.partitions):
            return False
        node = NodeId(leader)
        if leader < 0 or epoch <= known.partitions[partition].epoch:
            return False
        if not (address or node in self._addresses):
            return False
        if address:
            self._addresses[node] = address
        partitions = list(known.partitions)
        partitions[partition] = PartitionLeadership(node, Epoch(epoch))
        self._topics[name] = replace(known, partitions=tuple(partitions))
        return True

    def merge_topics(
        self, answer: admin_pb2.DescribeTopicsResponse, names: Sequence[str], now_ms: int
    ) -> dict[str, TopicLayout | QuorumlogError]:
        """Merge the response to a request for these topics; return the layout or the error of
        each.

        Raises UnknownServerError for an inconsistent response.
        """
        described = described_topics(answer, names)
        self.record_offset(answer.metadata_offset)
        self.record_brokers(answer.brokers)
        return {
            name: found if isinstance(found, QuorumlogError) else self.merge_topic(found, now_ms)
            for name, found in described.items()
        }

    def merge_topic(self, topic: admin_pb2.TopicDescription, now_ms: int) -> TopicLayout:
        """Merge a topic description and return the result; per partition the newer epoch wins."""
        known = self._topics.get(topic.name)
        news = [
            PartitionLeadership(NodeId(entry.leader), Epoch(entry.leader_epoch))
            for entry in sorted(topic.partitions, key=lambda entry: entry.partition)
        ]
        if known is not None and known.topic_id == topic.topic_id:
            for index, old in enumerate(known.partitions[: len(news)]):
                if old.epoch > news[index].epoch:
                    news[index] = old
        layout = TopicLayout(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=tuple(news),
            message_bytes_max=_message_bytes_max(topic),
            refreshed_ms=now_ms,
        )
        self._topics[topic.name] = layout
        return layout


def _message_bytes_max(topic: admin_pb2.TopicDescription) -> int | None:
    for config in topic.configs:
        if config.name == MESSAGE_BYTES_MAX and config.value.isdecimal():
            return int(config.value)
    return None


def absent(topic: str, partition: int, partitions: int) -> UnknownTopicOrPartition:
    """Return the error for a partition that a topic of `partitions` does not have."""
    return UnknownTopicOrPartition(
        f"the topic has {numbered(partitions)}", topic=topic, partition=partition
    )


def numbered(partitions: int) -> str:
    """Return the number of partitions as text, with their numbering."""
    if partitions == 1:
        return "1 partition, number 0"
    return f"{partitions} partitions, numbered from 0"


def leaderless(topic: str, partition: int) -> NotLeaderOrFollower:
    """Return the error for a partition without a leader."""
    return NotLeaderOrFollower(
        "the partition has no leader now: its replicas are down, or an election is in progress",
        topic=topic,
        partition=partition,
    )


def described_topics(
    answer: admin_pb2.DescribeTopicsResponse, names: Sequence[str]
) -> dict[str, admin_pb2.TopicDescription | QuorumlogError]:
    """Return the description of each requested topic, or the error that the broker returned.

    Raises UnknownServerError if the response describes other topics.
    """
    if [result.name for result in answer.results] != list(names):
        asked = ", ".join(names)
        raise invalid_response(
            f"describes {len(answer.results)} topics where {asked} was asked for"
        )
    return {
        result.name: decode_error(result.error)
        if result.HasField("error")
        else check_topic(result.topic, result.name)
        for result in answer.results
    }


def described_topic(
    answer: admin_pb2.DescribeTopicsResponse, name: str
) -> admin_pb2.TopicDescription:
    """Return the description of topic `name`; raise the error that the broker returned, or
    UnknownServerError as `described_topics`."""
    found = described_topics(answer, [name])[name]
    if isinstance(found, QuorumlogError):
        raise found
    return found


def by_address(leaders: Mapping[PlaceT, PartitionLeader]) -> dict[str, list[PlaceT]]:
    """Return the partitions of each leader's address, in the order of `leaders`."""
    found: dict[str, list[PlaceT]] = {}
    for place, leader in leaders.items():
        found.setdefault(leader.address, []).append(place)
    return found


def check_topic(topic: admin_pb2.TopicDescription, name: str) -> admin_pb2.TopicDescription:
    """Return the description if it is of topic `name` and numbers its partitions without gaps.

    Raises UnknownServerError otherwise.
    """
    if topic.name != name:
        raise invalid_response(f"describes {topic.name!r} where {name} was asked for")
    numbers = sorted(entry.partition for entry in topic.partitions)
    if not numbers or numbers != list(range(len(numbers))):
        raise invalid_response(f"describes {name} with the partitions {numbers[:10]}")
    return topic


def invalid_response(what: str) -> QuorumlogError:
    """Return the error for an inconsistent response; `what` is a predicate of the broker."""
    return UnknownServerError(f"the broker {what}: is it a broker of this version?")
