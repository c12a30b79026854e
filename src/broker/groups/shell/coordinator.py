"""The group coordinator of a broker: serves the groups in the partitions of `__consumer_offsets`
that it leads."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ....errors import CoordinatorLoading, CoordinatorNotAvailable, QuorumlogError
from ....ids import Epoch
from ....runtime.steps import collect
from ...coordinator.shell.coordinator import Coordinator, CoordinatorContext, CoordinatorMetrics
from ...coordinator.shell.internal_topic import CoordinatorNames, InternalTopicSettings
from ...verification import Verification, Verifier
from ..config import OFFSETS_TOPIC, GroupConfig
from .group_ids import check_group

if TYPE_CHECKING:
    from ....metadata.image import MetadataImage
    from ....records.control import TransactionMarker
    from ...coordinator.shell.coordinator_shard import CoordinatorDeps
    from ..member_bytes import MemberBytesLimits
    from ..requests import (
        CommitOutcome,
        CommitTransactionalOffsets,
        ListedGroup,
        PlainCommit,
    )
    from .group_coordinator_shard import GroupCoordinatorShard


@dataclass(slots=True)
class GroupCensus:
    """Numbers of groups, members and offsets of a broker at one moment."""

    groups_by_state: dict[str, int] = field(default_factory=dict)
    members: int = 0
    offsets: int = 0
    partitions_served: int = 0
    partitions_read: int = 0  # being loaded


class GroupMetrics(CoordinatorMetrics):
    """Counters since the start."""

    __slots__ = ("commits", "generations")

    def __init__(self) -> None:
        super().__init__()
        self.commits = 0  # committed offsets
        self.generations = 0  # generations of classic groups, and group epochs of KIP-848 groups


LISTED_A_STEP: Final = 500
"""The groups of a list that are checked before the loop continues: a few milliseconds."""

NAMES: Final = CoordinatorNames(topic=OFFSETS_TOPIC, entity="group", entities="groups")


class GroupCoordinator(Coordinator["GroupCoordinatorShard"]):
    """The groups of this broker. Its keys are group ids."""

    def __init__(self, context: CoordinatorContext, config: GroupConfig) -> None:
        entropy = context.runtime.entropy
        self.figures = GroupMetrics()
        self.verifier: Verifier | None = None  # set when the broker has a transaction coordinator
        self._config = config
        self._members = entropy.stream("group members")
        self._member_limits: MemberBytesLimits | None = None
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

    async def ask_transactional(
        self,
        request: "CommitTransactionalOffsets",
        *,
        deadline_ms: int,
        authorize: Callable[[], None] = lambda: None,
    ) -> "CommitOutcome":
        """Store offsets until their transaction ends, like `ask`. Before the first ones of a
        transaction, or of a transactional id, its coordinator verifies or adds the partition of
        the group (KIP-890). `authorize` raises the denial of the client, which may have lost its
        rights during that wait."""
        self.check_key(request.group)
        shard = self._shard_of(request.group)
        state = shard.serving_state(request)
        guard = state.verification_guard(request.producer, request.transactional_id)
        if guard is not None:
            try:
                await self._verify(request, deadline_ms)
            except CoordinatorLoading:
                shard.serving_state(request)  # clients retry the error at this broker
                raise
            authorize()
            request = replace(request, guard=guard)
        return await self.ask(request, deadline_ms=deadline_ms)

    async def _verify(self, request: "CommitTransactionalOffsets", deadline_ms: int) -> None:
        """Raise the error of a commit that is not in the producer's open transaction;
        CoordinatorLoading, which clients retry at this coordinator, if that is not known."""
        if self.verifier is None or self._stored is None:
            raise CoordinatorNotAvailable("the broker is starting; retry")
        answered: asyncio.Future[QuorumlogError | None] = asyncio.get_running_loop().create_future()

        def answer(error: QuorumlogError | None) -> None:
            if not answered.done():
                answered.set_result(error)

        question = Verification(
            request.transactional_id,
            request.producer,
            OFFSETS_TOPIC,
            self.partition_of(request.group),
            self._stored.id,
            request.adds,
        )
        self.verifier.verify(question, answer)
        left_ms = max(0, deadline_ms - self._context.runtime.clock.now_ms())
        try:
            async with asyncio.timeout(left_ms / 1000):
                error = await answered
        except TimeoutError:
            error = CoordinatorNotAvailable("the transaction coordinator did not answer in time")
        if error is not None and error.retriable:
            raise CoordinatorLoading(
                f"group {request.group}: the transaction could not be verified: {error.message};"
                " retry"
            )
        if error is not None:
            raise error

    def commit_at_once(self, commit: "PlainCommit", image: "MetadataImage") -> bool:
        """Store the commit of a member of a stable group without a decision, if that completes
        within this call: return True once the offsets are committed. Return False if the commit
        must be sent with `submit`; it has no effect then, or the same one. `image` has the topics.
        Raises the error of an invalid group id, and NotCoordinator."""
        return self._shard_of(commit.group).commit_at_once(commit, image)

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

    async def list_groups(self, is_listed: Callable[[str], bool]) -> "list[ListedGroup]":
        """Return the groups that this broker coordinates and `is_listed` accepts, by ascending
        name. Yields to the loop between steps. Raises CoordinatorLoading while some of them are
        loading."""
        shards = [shard.loaded_state() for _, shard in sorted(self._shards.items())]
        lines = (line for shard in shards for line in shard.listings(is_listed))
        found = await collect(lines, LISTED_A_STEP)
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
            for line in filter(None, groups.listings()):
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
            limits=self._limits(),
        )

    def _limits(self) -> "MemberBytesLimits":
        from ..member_bytes import MemberBytesLimits

        if self._member_limits is None:
            self._member_limits = MemberBytesLimits(self._member_bytes, self._bytes_of)
        return self._member_limits

    def _member_bytes(self) -> int:
        states = (shard.state for shard in self._shards.values())
        return sum(state.members.total for state in states if state is not None)

    def _bytes_of(self, partition: int, group: str) -> int:
        shard = self._shards.get(partition)
        state = None if shard is None else shard.state
        return 0 if state is None else state.members.of_group(group)

    def _draw(self) -> str:
        return self._members.token(16).hex()
