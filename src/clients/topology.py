"""Who leads what, as far as a client knows: topics, their partitions' leaders, brokers' addresses.

Pure. Filled from DescribeTopics answers; an answer that is older than what is known (a smaller
leader epoch of the same topic id) never replaces it. It must not know how answers are obtained.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..errors import NotLeaderOrFollower, UnknownTopicOrPartition
from ..ids import NO_NODE, Epoch, NodeId
from ..proto import admin_pb2

MESSAGE_BYTES_MAX = "max.message.bytes"
DOUBTED_MS = -(2**62)  # before every time: whatever the age allowed, it is over


@dataclass(frozen=True, slots=True)
class Leader:
    """Where a partition's calls go now."""

    address: str  # "host:port" of the leading broker
    epoch: Epoch  # the leader epoch, sent along so that a deposed leader refuses
    topic_id: bytes = b""  # sent along so that no topic made anew is taken for the one before


@dataclass(frozen=True, slots=True)
class PartitionLeadership:
    """What the metadata said of one partition."""

    leader: NodeId  # NO_NODE when there is none
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """A topic as the metadata described it."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionLeadership, ...]  # by partition index, without gaps
    message_bytes_max: int | None  # its max.message.bytes, None where it is the default
    refreshed_ms: int  # Clock.now_ms() of the answer


class Topology:
    """The cache. Bounded by the topics that this client uses."""

    __slots__ = ("_addresses", "_topics", "metadata_offset")

    def __init__(self) -> None:
        self._topics: dict[str, TopicLayout] = {}
        self._addresses: dict[NodeId, str] = {}
        self.metadata_offset = 0  # newest seen; presented with every read (read-your-writes)

    def topic(self, name: str) -> TopicLayout | None:
        """Return what is known of the topic, however old; None when nothing is."""
        return self._topics.get(name)

    def topics(self) -> tuple[str, ...]:
        """Return the names of the topics known, in the order of their first use."""
        return tuple(self._topics)

    def leader(self, name: str, partition: int) -> Leader | None:
        """Return the partition's leader; None when unknown, absent, or without an address."""
        layout = self._topics.get(name)
        if layout is None or not 0 <= partition < len(layout.partitions):
            return None
        leadership = layout.partitions[partition]
        address = self._addresses.get(leadership.leader)
        if leadership.leader == NO_NODE or address is None:
            return None
        return Leader(address, leadership.epoch, layout.topic_id)

    def leaderless(self, name: str) -> frozenset[int]:
        """Return the partitions of a topic that nobody leads, as far as is known."""
        layout = self._topics.get(name)
        count = len(layout.partitions) if layout is not None else 0
        return frozenset(index for index in range(count) if self.leader(name, index) is None)

    def addresses(self) -> tuple[str, ...]:
        """Return the addresses of the brokers known, by ascending node id."""
        return tuple(self._addresses[node] for node in sorted(self._addresses))

    def address_of(self, node_id: int) -> str | None:
        """Return a broker's address, None when it is unknown."""
        return self._addresses.get(NodeId(node_id))

    def doubt(self, name: str) -> None:
        """Note that what is known of the topic is old; its epochs still win over older ones."""
        known = self._topics.get(name)
        if known is not None:
            self._topics[name] = replace(known, refreshed_ms=DOUBTED_MS)

    def forget(self, name: str) -> None:
        """Drop a topic that is gone."""
        self._topics.pop(name, None)

    def saw_offset(self, metadata_offset: int) -> None:
        """Note the metadata offset stamped on an answer."""
        self.metadata_offset = max(self.metadata_offset, metadata_offset)

    def saw_brokers(self, brokers: Iterable[admin_pb2.BrokerDescription]) -> None:
        """Note addresses; brokers not named keep theirs."""
        for broker in brokers:
            if broker.grpc_address:
                self._addresses[NodeId(broker.id)] = broker.grpc_address

    def saw_leader(
        self, name: str, partition: int, *, leader: int, epoch: int, address: str
    ) -> bool:
        """Take over who leads a partition now, as a broker said that does not; return whether that
        is newer than what was known. What else is known of the topic is as old as before."""
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

    def saw_topic(self, topic: admin_pb2.TopicDescription, now_ms: int) -> TopicLayout:
        """Take an answer over and return what is now known, the newer epoch winning."""
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
    """The error for a partition that a topic of `partitions` does not have."""
    return UnknownTopicOrPartition(
        f"the topic has {numbered(partitions)}", topic=topic, partition=partition
    )


def numbered(partitions: int) -> str:
    """Say how many partitions a topic has, and how they are numbered."""
    if partitions == 1:
        return "1 partition, number 0"
    return f"{partitions} partitions, numbered from 0"


def leaderless(topic: str, partition: int) -> NotLeaderOrFollower:
    """The error for a partition that nobody leads now."""
    return NotLeaderOrFollower(
        "the partition has no leader now: its replicas are down or being elected",
        topic=topic,
        partition=partition,
    )
