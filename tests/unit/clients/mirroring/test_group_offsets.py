"""Groups go on at their offsets in the copy."""

from collections.abc import Iterator

import pytest

from quorumlog.clients import AsyncLog
from quorumlog.clients.consuming.grouping import calls
from quorumlog.clients.consuming.grouping.calls import CommittedOffset
from quorumlog.clients.mirroring.group_offsets import to_set

from ...broker.whole_nodes import Cluster, world
from .clusters import Clusters

P, Q, R = ("t", 0), ("t", 1), ("u", 0)


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, "note", leader_epoch=4, commit_ms=9)


def test_offsets_go_forward_to_what_is_copied_and_without_the_sources_epochs() -> None:
    theirs = {P: at(5), Q: at(7), R: at(3)}
    news = to_set(theirs, {Q: at(8)}, {P: 5, Q: 10, R: 2})
    assert news == {P: CommittedOffset(5, "note")}, "Q is further here, R is not copied so far"
    assert to_set(theirs, {P: at(5), Q: at(6)}, {P: 9, Q: 9}) == {Q: CommittedOffset(7, "note")}


@pytest.fixture
def clusters() -> Iterator[Clusters]:
    with world() as simulated:
        yield Clusters(simulated)


def commit(cluster: Cluster, group: str, offset: int) -> None:
    async def work(log: AsyncLog) -> None:
        connection = log._connection
        deadline_ms = connection.deadline_ms()
        await calls.commit(connection, group, {P: CommittedOffset(offset)}, deadline_ms=deadline_ms)

    cluster.run(work)


def committed(cluster: Cluster, group: str) -> int | None:
    async def work(log: AsyncLog) -> int | None:
        connection = log._connection
        deadline_ms = connection.deadline_ms()
        found = await calls.fetch(connection, group, None, deadline_ms=deadline_ms)
        stored = found.get(P)
        return None if stored is None else stored.offset

    return cluster.run(work)


def test_a_group_goes_on_in_the_copy_where_it_stopped_and_is_never_set_back(
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
