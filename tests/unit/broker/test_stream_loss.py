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


def test_a_stream_that_ends_while_an_answer_is_written_is_begun_anew_at_once() -> None:
    """Its end is not heard by who waits for no answer: without a look a request went nowhere, and
    the leader was waited for until its silence was too long."""
    with world() as sim:
        cluster = Cluster(sim)
        cluster.start()
        cluster.create(1, 2, flush_policy="fsync")  # large records of it are not written at once
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
