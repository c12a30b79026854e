"""How far groups have read this broker's logs: asked of their coordinators, wherever they are.

For retention, which asks again and again: a coordinator that did not answer is left alone for a
while, with all groups of its partition of the topic of offsets; a broker that was waited for in
vain, with all groups that it coordinates.
"""

from typing import Final

from ....errors import CoordinatorNotAvailable, QuorumlogError
from ....runtime import Channel, Runtime
from .coordinator import GroupCoordinator

ANSWER_MS: Final = 2_000
"""How long retention waits for one answer."""

SILENT_MS: Final = 30_000
"""For so long a coordinator is not asked after it has not answered."""


class CommittedOffsets:
    """Belongs to the loop's thread."""

    def __init__(self, runtime: Runtime, groups: GroupCoordinator) -> None:
        self._runtime = runtime
        self._groups = groups
        self._silent_until_ms: dict[int, int] = {}  # by partition; monotonic
        self._hung_until_ms: dict[int, int] = {}  # by broker; the same
        self._channels: dict[str, Channel] = {}  # to the other brokers

    async def __call__(self, log: str, group: str) -> int | None:
        """Return the next offset that a group reads of a log ("topic-index"), as it is committed;
        None: nothing is. Raises QuorumlogError where nobody can say."""
        now_ms = self._runtime.clock.now_ms()
        partition = self._groups.partition_of(group)
        if self._silent_until_ms.get(partition, 0) > now_ms:
            raise CoordinatorNotAvailable(f"the coordinator of group {group} did not answer lately")
        if not self._groups.has_topic:
            return None  # no group has committed anything, and none shall be made by asking
        deadline_ms = now_ms + ANSWER_MS
        try:
            node_id = await self._groups.coordinator_of(group, deadline_ms=deadline_ms)
            offset = await self._ask_node(node_id, group, log, deadline_ms)
        except QuorumlogError:
            self._silent_until_ms[partition] = self._runtime.clock.now_ms() + SILENT_MS
            raise
        self._silent_until_ms.pop(partition, None)
        return None if offset < 0 else offset

    async def _ask_node(self, node_id: int, group: str, log: str, deadline_ms: int) -> int:
        """Ask a broker, unless it was waited for in vain lately."""
        clock = self._runtime.clock
        if self._hung_until_ms.get(node_id, 0) > clock.now_ms():
            raise CoordinatorNotAvailable(f"broker {node_id} did not answer lately")
        topic, _, index = log.rpartition("-")
        try:
            return await self._ask(node_id, group, topic, int(index), deadline_ms)
        except QuorumlogError:
            now_ms = clock.now_ms()
            if now_ms >= deadline_ms:
                self._hung_until_ms[node_id] = now_ms + SILENT_MS
            raise

    async def _ask(self, node_id: int, group: str, topic: str, index: int, deadline_ms: int) -> int:
        from ..requests import FetchOffsets

        if node_id == self._groups.node_id:
            asked = FetchOffsets(group=group, partitions=((topic, index),))
            (found,) = await self._groups.ask(asked, deadline_ms=deadline_ms)
            if found.error is not None:
                raise found.error
            return found.offset
        return await self._ask_there(node_id, group, topic, index)

    async def _ask_there(self, node_id: int, group: str, topic: str, index: int) -> int:
        from ....proto import groups_pb2 as pb
        from ....runtime.error_detail import decode_error
        from ....services import GROUPS_FETCH_OFFSETS

        broker = self._groups.image.broker(node_id)
        if broker is None:
            raise CoordinatorNotAvailable(f"broker {node_id} is not known any more: ask again")
        asked = pb.FetchOffsetsRequest(
            group=group,
            partitions=[pb.GroupPartition(topic=topic, partition=index)],
            passed_on=True,
        )
        channel = self._channels.get(broker.grpc_address)
        if channel is None:
            channel = self._runtime.network.channel(broker.grpc_address)
            self._channels[broker.grpc_address] = channel
        answer = await channel.call(GROUPS_FETCH_OFFSETS, asked, timeout_ms=ANSWER_MS)
        if len(answer.results) != 1:
            raise CoordinatorNotAvailable(
                f"broker {node_id} answers {len(answer.results)} offsets where one was asked for"
            )
        (result,) = answer.results
        if result.HasField("error"):
            raise decode_error(result.error)
        return result.offset.offset
