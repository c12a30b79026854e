"""The coordinator of the groups of one partition of `__consumer_offsets`."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ....errors import MessageTooLarge
from ....ids import Epoch
from ....metadata.image import MetadataImage
from ....records import Record
from ...coordinator.shell.coordinator_shard import BatchLimits, CoordinatorDeps, CoordinatorShard
from ...coordinator.shell.internal_topic import CoordinatorNames
from ..config import GroupConfig
from ..formats import decode, encode, encode_plain_commit
from ..member_bytes import MemberBytesLimits
from ..records import (
    ClassicGroup,
    ConsumerGroup,
    GroupRecord,
    OffsetCommitted,
    OffsetForgotten,
    TargetEpoch,
)
from ..requests import (
    ConsumerHeartbeat,
    DescribeGroup,
    FetchOffsets,
    JoinGroup,
    PlainCommit,
    SyncGroup,
)
from ..shard import GroupShard
from .coordinator import GroupMetrics
from .group_ids import check_texts

_LOG = logging.getLogger("quorumlog.groups")

READ_ONLY: Final = (FetchOffsets, DescribeGroup)
GROWING: Final = (JoinGroup, SyncGroup, ConsumerHeartbeat)
"""Requests that may add bytes to their groups."""


class GroupCoordinatorShard(CoordinatorShard[GroupShard]):
    """Stores the decisions of a `GroupShard`."""

    def __init__(
        self,
        deps: CoordinatorDeps,
        names: CoordinatorNames,
        partition: int,
        leader_epoch: Epoch,
        *,
        config: GroupConfig,
        figures: GroupMetrics,
        draw: Callable[[], str],
        limits: MemberBytesLimits,
    ) -> None:
        """`draw` returns a random member id. `limits` are those of all shards of the broker."""
        super().__init__(deps, names, partition, leader_epoch)
        self._config = config
        self._figures = figures
        self._draw = draw
        self._member_limits = limits

    def _new_state(self, limits: BatchLimits) -> GroupShard:
        # Subscriptions leave space to be stored together with assignments of the same size and the
        # small fields.
        fitting = limits.decision_bytes_max * 15 // 32
        bytes_max = min(self._config.group_bytes_max, fitting)
        config = replace(self._config, group_bytes_max=bytes_max)
        return GroupShard(
            config, self._draw, self._deps.directory.producer_limits, self._count_growth
        )

    def _count_growth(self, client: str, group: str, growth: int) -> None:
        self._member_limits.add(client, self.partition, group, growth)

    _encode = staticmethod(encode)

    def _decode(self, record: Record) -> GroupRecord | None:
        found = decode(record.key, record.value, offset=record.offset, partition=self.partition)
        if isinstance(found, TargetEpoch):
            return replace(found, stored_ms=record.timestamp_ms)
        return found

    def _check_request(self, request: Any) -> None:
        check_texts(request)
        if isinstance(request, GROWING):
            now_ms = self._deps.clock.now_ms()
            request.check_growth = partial(
                self._member_limits.check, request.client, request.group, now_ms
            )

    def _is_read_only(self, request: Any) -> bool:
        return isinstance(request, READ_ONLY)

    def _at_once(self, state: GroupShard, request: Any, now_ms: int) -> Any:
        return state.renew_session(request, self._deps.image(), now_ms)

    def commit_at_once(self, commit: PlainCommit, image: MetadataImage) -> bool:
        """Store a commit; see `GroupCoordinator.commit_at_once`."""
        clock = self._deps.clock
        began_ms = clock.now_ms()
        state = self.settled_state(began_ms)
        if state is None or image is not self._deps.image():
            return False
        now_ms = began_ms + self._wall_ahead_ms
        try:
            if not state.commit_at_once(
                commit,
                image,
                now_ms,
                lambda ids: self.append_at_once(encode_plain_commit(commit, ids, now_ms)),
            ):
                return False
        except Exception as error:  # a bug: the state may differ from what is stored
            self._write_failed(error)
            return False
        self._figures.decisions += 1
        self._figures.commits += sum([len(topic.partitions) for topic in commit.topics])
        # After a stall, the usual path stores the commit again, or refuses it.
        return clock.now_ms() == began_ms or not self._may_be_replaced()

    def _log_loaded(self, state: GroupShard, records: int, took_ms: int) -> None:
        _LOG.info(
            "groups.loaded partition=%d leader_epoch=%d records=%d offsets=%d took_ms=%d",
            self.partition,
            self.leader_epoch,
            records,
            state.offset_count,
            took_ms,
        )

    def _may_split_at(self, record: Any) -> bool:
        kind = type(record)
        return kind is OffsetCommitted or kind is OffsetForgotten

    def _count(self, records: Sequence[Any]) -> None:
        figures = self._figures
        figures.decisions += 1
        for record in records:
            kind = type(record)
            if kind is OffsetCommitted:
                figures.commits += 1
            elif kind is ClassicGroup or kind is ConsumerGroup:
                figures.generations += 1

    def _too_large(self, size: int, limit: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"the group's update has {size} bytes, the limit is {limit}; use fewer members or"
            " topics"
        )
