"""Committed offsets of this broker's logs, queried from the group coordinators of the cluster.

For retention, which queries repeatedly. After a failed query, all groups of the same partition of
`__consumer_offsets` are skipped for a while; after a timeout, all groups of the same coordinator.
"""

from typing import Final

from ....errors import CoordinatorNotAvailable, QuorumlogError
from ....ids import NodeId
from ....runtime import Runtime
from ...shell.broker_calls import BrokerCalls
from .coordinator import GroupCoordinator

ANSWER_MS: Final = 2_000
"""The timeout of one query."""

SILENT_MS: Final = 30_000
"""The time for which a coordinator is skipped after a failed query."""


class CommittedOffsets:
    """Queries committed offsets. Belongs to the loop's thread."""

    def __init__(self, runtime: Runtime, groups: GroupCoordinator) -> None:
        self._runtime = runtime
        self._groups = groups
        self._partition_retry_ms: dict[int, int] = {}  # by partition; monotonic
        self._node_retry_ms: dict[int, int] = {}  # by broker; monotonic
        self._calls = BrokerCalls(runtime.network, lambda: groups.image)

    async def __call__(self, log: str, group: str) -> int | None:
        """Return the offset that a group has committed for a log ("topic-index"), or None.

        Raises QuorumlogError if the coordinator cannot be queried.
        """
        now_ms = self._runtime.clock.now_ms()
        partition = self._groups.partition_of(group)
        if self._partition_retry_ms.get(partition, 0) > now_ms:
            raise CoordinatorNotAvailable(
                f"group {group}: its coordinator failed to answer recently; retry later"
            )
        if not self._groups.has_topic:
            return None  # no group has committed an offset; a query must not create the topic
        deadline_ms = now_ms + ANSWER_MS
        try:
            node_id = await self._groups.coordinator_of(group, deadline_ms=deadline_ms)
            offset = await self._query_node(node_id, group, log, deadline_ms)
        except QuorumlogError:
            self._partition_retry_ms[partition] = self._runtime.clock.now_ms() + SILENT_MS
            raise
        self._partition_retry_ms.pop(partition, None)
        return None if offset < 0 else offset

    async def _query_node(self, node_id: int, group: str, log: str, deadline_ms: int) -> int:
        """Query a broker, unless a recent query to it timed out."""
        clock = self._runtime.clock
        if self._node_retry_ms.get(node_id, 0) > clock.now_ms():
            raise CoordinatorNotAvailable(f"broker {node_id} timed out recently; retry later")
        topic, _, index = log.rpartition("-")
        try:
            return await self._query(node_id, group, topic, int(index), deadline_ms)
        except QuorumlogError:
            now_ms = clock.now_ms()
            if now_ms >= deadline_ms:
                self._node_retry_ms[node_id] = now_ms + SILENT_MS
            raise

    async def _query(
        self, node_id: int, group: str, topic: str, index: int, deadline_ms: int
    ) -> int:
        from ..requests import FetchOffsets

        if node_id == self._groups.node_id:
            asked = FetchOffsets(group=group, partitions=((topic, index),))
            (found,) = await self._groups.ask(asked, deadline_ms=deadline_ms)
            if found.error is not None:
                raise found.error
            return found.offset
        return await self._query_remote(node_id, group, topic, index)

    async def _query_remote(self, node_id: int, group: str, topic: str, index: int) -> int:
        from ....proto import groups_pb2 as pb
        from ....runtime.error_detail import decode_error
        from ....services import GROUPS_FETCH_OFFSETS

        asked = pb.FetchOffsetsRequest(
            group=group,
            partitions=[pb.GroupPartition(topic=topic, partition=index)],
        )
        answer = await self._calls.call(
            NodeId(node_id), GROUPS_FETCH_OFFSETS, asked, timeout_ms=ANSWER_MS
        )
        if len(answer.results) != 1:
            raise CoordinatorNotAvailable(
                f"broker {node_id}: returned {len(answer.results)} offsets in place of one"
            )
        (result,) = answer.results
        if result.HasField("error"):
            raise decode_error(result.error)
        return result.offset.offset
