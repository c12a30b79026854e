"""State of a test cluster, read from its nodes without loading a client.

Each node is queried separately; if answers differ, as in a network partition, the newest counts.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ..errors import InvalidRequest, QuorumlogError, UnknownTopicOrPartition
from ..proto import admin_pb2, quorum_pb2
from ..runtime.grpc_network import SyncChannel
from ..services import (
    ADMIN_CREATE_TOPIC,
    ADMIN_DESCRIBE_CLUSTER,
    ADMIN_DESCRIBE_TOPICS,
    ADMIN_LIST_TOPICS,
    QUORUM_DESCRIBE,
)

if TYPE_CHECKING:
    from ..runtime.tls import TlsFiles

T = TypeVar("T")


class NodeAddress(NamedTuple):
    """The address of a node's listener."""

    address: str  # "host:port"
    tls: "TlsFiles | None" = None  # None: it has no TLS


ANSWER_MS: Final = 2_000  # bound of a query
CHANGE_MS: Final = 10_000  # bound of a change
AGAIN_S: Final = 0.05  # pause after a round without an answer


def create_topic(
    nodes: Sequence[NodeAddress],
    name: str,
    *,
    partitions: int,
    replication: int | None,
    configs: Mapping[str, str | int | bool],
    timeout_s: float,
) -> None:
    """Create a topic through the first of the brokers at these addresses that can.

    Raises non-retriable errors at once, and the last error after `timeout_s`.
    """
    if not nodes:
        raise InvalidRequest("no broker is up: start one first")
    request = admin_pb2.CreateTopicRequest(
        name=name,
        topic_id=os.urandom(16),  # identifies a repeated request
        partitions=partitions,
        replication_factor=replication or 0,
    )
    for key, value in configs.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        request.configs.add(name=key, value=text)
    end = time.monotonic() + timeout_s
    while True:
        for node in nodes:
            try:
                with SyncChannel(node.address, tls=node.tls) as channel:
                    channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=CHANGE_MS)
                return
            except QuorumlogError as error:
                if not error.retriable or time.monotonic() > end:
                    raise
        time.sleep(AGAIN_S)


def leader_of(nodes: Iterable[NodeAddress], topic: str, partition: int) -> int | None:
    """Return the leader of a partition, None if it has none, by the newest metadata at these
    nodes. Raises UnknownTopicOrPartition."""

    def ask(channel: SyncChannel) -> tuple[int, admin_pb2.DescribeTopicResult]:
        request = admin_pb2.DescribeTopicsRequest(names=[topic])
        answer = channel.call(ADMIN_DESCRIBE_TOPICS, request, timeout_ms=ANSWER_MS)
        return answer.metadata_offset, answer.results[0]

    found = _newest(nodes, ask)
    if found is None:
        return None
    for each in found.topic.partitions:
        if each.partition == partition:
            return each.leader if each.leader >= 0 else None
    raise UnknownTopicOrPartition("no such partition", topic=topic, partition=partition)


def quorum_leader(nodes: Iterable[NodeAddress]) -> int | None:
    """Return the leader of the quorum in its newest epoch, None if there is none, as seen by the
    nodes at these addresses."""

    def ask(channel: SyncChannel) -> tuple[tuple[int, bool], int]:
        request = quorum_pb2.DescribeQuorumRequest(local=True)
        answer = channel.call(QUORUM_DESCRIBE, request, timeout_ms=ANSWER_MS)
        # another node of the same epoch may not have seen the leader
        is_known = answer.leader_id >= 0
        return (answer.leader_epoch, is_known), answer.leader_id

    found = _newest(nodes, ask)
    return None if found is None or found < 0 else found


def unhealthy_reason(nodes: Iterable[NodeAddress], brokers: Sequence[int]) -> str:
    """Return the reason why a cluster of these brokers is unhealthy, "" if it is healthy."""
    found = _newest(nodes, lambda channel: _ailment(channel, brokers))
    return "no broker answers" if found is None else found


def _ailment(channel: SyncChannel, brokers: Sequence[int]) -> tuple[int, str]:
    cluster = channel.call(
        ADMIN_DESCRIBE_CLUSTER, admin_pb2.DescribeClusterRequest(), timeout_ms=ANSWER_MS
    )
    counted_on = {each.id for each in cluster.brokers if not each.fenced and not each.stopping}
    missing = [number for number in brokers if number not in counted_on]
    if missing:
        return cluster.metadata_offset, f"node {missing[0]} is fenced, stopping or not registered"
    listed = channel.call(ADMIN_LIST_TOPICS, admin_pb2.ListTopicsRequest(), timeout_ms=ANSWER_MS)
    if not listed.topics:
        return listed.metadata_offset, ""
    request = admin_pb2.DescribeTopicsRequest(names=[each.name for each in listed.topics])
    described = channel.call(ADMIN_DESCRIBE_TOPICS, request, timeout_ms=ANSWER_MS)
    for result in described.results:
        for each in result.topic.partitions:
            behind = sorted(set(each.replicas) - set(each.isr))
            where = f"partition {each.partition} of {result.name}"
            if each.leader < 0:
                return described.metadata_offset, f"{where} has no leader"
            if behind:
                return described.metadata_offset, f"node {behind[0]} is not in sync with {where}"
    return described.metadata_offset, ""


def _newest(nodes: Iterable[NodeAddress], ask: Callable[[SyncChannel], tuple[Any, T]]) -> T | None:
    """Return the answer with the highest rank; None without an answer."""
    best: tuple[Any, T] | None = None
    for node in nodes:
        try:
            with SyncChannel(node.address, tls=node.tls) as channel:
                answer = ask(channel)
        except QuorumlogError as error:
            if not error.retriable:
                raise
            continue
        if best is None or answer[0] > best[0]:
            best = answer
    return None if best is None else best[1]
