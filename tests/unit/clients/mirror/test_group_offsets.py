"""Consumer groups continue in the copy at their committed offsets."""

import asyncio
from collections.abc import Mapping
from typing import Any

from tests.kit.replica_cluster import Cluster

from quorumlog.clients.connection import Connection
from quorumlog.clients.groups import coordinator
from quorumlog.clients.groups.coordinator import CommittedOffset
from quorumlog.clients.log import AsyncLog
from quorumlog.clients.mirror.group_offsets import (
    CopiedOffsets,
    CopyEnd,
    copy_group_offsets,
    offsets_to_commit,
)
from quorumlog.clients.offsets import PartitionLike
from quorumlog.errors import GroupNotFound

from .clusters import Clusters

P, Q, R = ("t", 0), ("t", 1), ("u", 0)


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, "note", leader_epoch=4, commit_ms=9)


def ends(offsets: Mapping[PartitionLike, int]) -> dict[PartitionLike, CopyEnd]:
    return {place: CopyEnd(offset, offset) for place, offset in offsets.items()}


def test_an_offset_behind_a_marker_becomes_the_end_of_the_copy() -> None:
    behind = {P: CopyEnd(5, 6)}
    assert offsets_to_commit({P: at(6)}, {}, behind) == {P: CommittedOffset(5, "note")}
    assert offsets_to_commit({P: at(6)}, {P: at(5)}, behind) == {}
    assert offsets_to_commit({P: at(7)}, {}, behind) == {}


def test_offsets_advance_to_the_copied_end_without_source_epochs() -> None:
    theirs = {P: at(5), Q: at(7), R: at(3)}
    news = offsets_to_commit(theirs, {Q: at(8)}, ends({P: 5, Q: 10, R: 2}))
    assert news == {P: CommittedOffset(5, "note")}, (
        "Q is further in the copy, R is not copied so far"
    )
    assert offsets_to_commit(theirs, {P: at(5), Q: at(6)}, ends({P: 9, Q: 9})) == {
        Q: CommittedOffset(7, "note")
    }


def commit(cluster: Cluster, group: str, offset: int) -> None:
    async def work(log: AsyncLog) -> None:
        connection = log._connection
        deadline_ms = connection.deadline_ms()
        await coordinator.commit(
            connection, group, {P: CommittedOffset(offset)}, deadline_ms=deadline_ms
        )

    cluster.run(work)


def committed(cluster: Cluster, group: str) -> int | None:
    async def work(log: AsyncLog) -> int | None:
        connection = log._connection
        deadline_ms = connection.deadline_ms()
        found = await coordinator.fetch(connection, group, None, deadline_ms=deadline_ms)
        stored = found.get(P)
        return None if stored is None else stored.offset

    return cluster.run(work)


def test_group_continues_in_the_copy_and_its_offsets_never_decrease(
    clusters: Clusters,
) -> None:
    clusters.create("t")
    clusters.send("t", b"a", b"b", b"c")
    commit(clusters.source, "billing", 2)
    assert clusters.once().problems == ()
    assert committed(clusters.target, "billing") == 2
    commit(clusters.target, "billing", 3)
    clusters.once()
    assert committed(clusters.target, "billing") == 3


class MissingGroup(Connection):
    """A cluster that lists group `a` but cannot describe it."""

    async def call_any(self, method: Any, request: Any, **how: Any) -> Any:
        if getattr(request, "group", "") == "a":
            raise GroupNotFound("it was deleted")
        return await super().call_any(method, request, **how)


def test_group_that_cannot_be_read_delays_no_other(clusters: Clusters) -> None:
    """The group may be deleted after the listing, or its coordinator may be unavailable."""
    clusters.create("t")
    clusters.send("t", b"a", b"b", b"c")
    commit(clusters.source, "a", 1)
    commit(clusters.source, "b", 2)
    clusters.once()

    async def work(log: AsyncLog) -> None:
        target = log._connection
        source = MissingGroup(target.runtime, target._bootstrap, target.config)
        await source.open()
        try:
            done = await copy_group_offsets(source, target, ends({P: 3}))
        finally:
            await source.close()
        assert done.groups == 1, "group b"
        assert "it was deleted" in done.refused["a"]

    clusters.in_source(work)


def test_groups_are_copied_by_one_pass_at_a_time(clusters: Clusters) -> None:
    """Of two concurrent passes, the earlier one could lower the offsets that the later one set."""
    clusters.create("t")
    clusters.send("t", b"a")
    under_way, most = 0, 0

    async def copy(ends: Mapping[PartitionLike, CopyEnd]) -> CopiedOffsets:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(3)
        under_way -= 1
        return CopiedOffsets(groups=1, offsets=0, refused={})

    clusters.copy_groups = copy
    clusters.once()
    assert most == 1
