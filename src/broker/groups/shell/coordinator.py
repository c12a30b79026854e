"""The group coordinator of a broker: serves the groups in the partitions of `__consumer_offsets`
that it leads."""

from functools import partial
from typing import TYPE_CHECKING, Final

from ....errors import QuorumlogError
from ....ids import Epoch
from ...coordinator.shell.coordinator import Coordinator, CoordinatorContext
from ...coordinator.shell.internal_topic import CoordinatorNames, InternalTopicSettings
from ..config import OFFSETS_TOPIC, GroupConfig
from .group_ids import check_group
from .metrics import GroupCensus, GroupMetrics

if TYPE_CHECKING:
    from ....records.control import TransactionMarker
    from ...coordinator.shell.coordinator_shard import CoordinatorDeps
    from ..requests import ListedGroup
    from .group_coordinator_shard import GroupCoordinatorShard

NAMES: Final = CoordinatorNames(topic=OFFSETS_TOPIC, entity="group", entities="groups")


class GroupCoordinator(Coordinator["GroupCoordinatorShard"]):
    """The groups of this broker. Its keys are group ids."""

    def __init__(self, context: CoordinatorContext, config: GroupConfig) -> None:
        entropy = context.runtime.entropy
        self.figures = GroupMetrics()
        self._config = config
        self._members = entropy.stream("group members")
        super().__init__(
            context,
            NAMES,
            InternalTopicSettings(
                name=OFFSETS_TOPIC,
                kind=NAMES.entities,
                partitions=config.offsets_partitions,
                replicas=config.offsets_replicas,
                replicas_setting="offsets.topic.replication.factor",
            ),
            self.figures,
            new_topic_id=partial(entropy.stream("offsets topic").token, 16),
            waits_max=config.waits_max,
            session_ms=min(config.session_timeout_min_ms, config.consumer_session_ms),
        )

    def check_key(self, key: str) -> None:
        """Raise InvalidGroupId."""
        check_group(key)

    async def write_marker(
        self, partition: int, marker: "TransactionMarker", deadline_ms: int
    ) -> QuorumlogError | None:
        """End a transaction for the pending offsets of a partition of `__consumer_offsets`. Return
        None once the marker is committed, or the error: InvalidProducerEpoch,
        TransactionCoordinatorFenced, and those of `ask`."""
        from ..requests import WriteGroupMarker

        try:
            await self.ask_partition(partition, WriteGroupMarker(marker), deadline_ms=deadline_ms)
        except QuorumlogError as error:
            return error
        return None

    def list_groups(self) -> "list[ListedGroup]":
        """Return the groups that this broker coordinates, by ascending name; raise
        CoordinatorLoading while some of them are loading."""
        shards = sorted(self._shards.items())
        found = [line for _, shard in shards for line in shard.loaded_state().listings()]
        return sorted(found, key=lambda line: line.group)

    def census(self) -> GroupCensus:
        """Count the groups, members and offsets; O(groups)."""
        found = GroupCensus()
        for _, shard in sorted(self._shards.items()):
            groups = shard.state
            if groups is None:
                found.partitions_read += 1
                continue
            found.partitions_served += 1
            found.offsets += groups.offset_count
            found.members += groups.member_count()
            for line in groups.listings():
                counted = found.groups_by_state.get(line.state, 0)
                found.groups_by_state[line.state] = counted + 1
        return found

    def _new_shard(
        self, deps: "CoordinatorDeps", partition: int, leader_epoch: Epoch
    ) -> "GroupCoordinatorShard":
        from .group_coordinator_shard import GroupCoordinatorShard

        return GroupCoordinatorShard(
            deps,
            NAMES,
            partition,
            leader_epoch,
            config=self._config,
            figures=self.figures,
            draw=self._draw,
        )

    def _draw(self) -> str:
        return self._members.token(16).hex()
