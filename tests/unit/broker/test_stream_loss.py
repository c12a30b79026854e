"""A follower whose stream ends during each step of replication, on simulated nodes."""

import asyncio

from tests.kit.replica_cluster import Cluster, world

from quorumlog.broker import Acks
from quorumlog.broker.shell.replication.follower import ReplicaFetcher
from quorumlog.ids import NodeId
from quorumlog.runtime import Runtime


def fetcher(cluster: Cluster, follower: int, leader: int) -> ReplicaFetcher:
    manager = cluster.nodes[follower].parts.replicas
    assert manager is not None
    return manager.replication.fetchers.of(NodeId(leader))


def test_stream_that_ends_while_a_response_is_written_is_reopened_at_once() -> None:
    """Without a check, the next request was lost, and the follower waited until the leader counted
    as silent."""
    with world() as sim:
        cluster = Cluster(sim)
        cluster.start()
        cluster.create(1, 2, flush_policy="fsync")  # its large records are not written at once
        cluster.send(b"small")
        following = fetcher(cluster, 2, 1)
        task = cluster.append(1, "t", b"x" * 900_000, acks=Acks.ALL)

        async def break_it(_: Runtime) -> None:
            while not following.is_writing:  # noqa: ASYNC110
                await asyncio.sleep(0.000_1)
            following.set_address(following.address)

        cluster.until(cluster.machine(2).attach(break_it, name="break").done)
        begun_ms = sim.now_ms()
        cluster.until(task.done)
        task.result()
        assert sim.now_ms() - begun_ms < 1_000
