"""Brokers of another cluster, or with the id of another broker, are rejected."""

import asyncio
from dataclasses import replace

import pytest
from tests.scenarios.cluster.cluster_under_test import PLACE, asked, in_sync, is_fenced, started
from tests.simulation.cluster.nodes import CLUSTER_ID
from tests.simulation.cluster.scripted import ScriptedCluster

from quorumlog.errors import DuplicateBrokerRegistration, InconsistentClusterId
from quorumlog.ids import ClusterId, DirectoryId
from quorumlog.raftlog.voters import VoterSet
from quorumlog.runtime import PeerCertificate, Runtime
from quorumlog.runtime.node_identity import node_uri
from quorumlog.server.config import NodeConfig
from quorumlog.server.directory_format import FormatOptions
from quorumlog.server.node import Node, format_directory
from quorumlog.simulation import SimNode

pytestmark = pytest.mark.slow


def stranger(
    stage: ScriptedCluster, config: NodeConfig, *, cluster_id: str = CLUSTER_ID
) -> SimNode:
    """Start a new broker with its own disk on its own machine, with the certificate of a broker."""
    sim = stage.world.node("stranger")
    uri = node_uri(CLUSTER_ID, config.node_id, config.roles)
    sim.machine.certificate = PeerCertificate("CN=stranger", (uri,), ())
    config = replace(
        config,
        cluster_id="",
        grpc_listener="stranger:9094",
        allow_insecure_listeners=True,
        controller_listener="stranger:9093",
    )
    without_voters = FormatOptions(directory_id=DirectoryId(b"s" * 16), voters=VoterSet(()))

    async def main(runtime: Runtime) -> None:
        await format_directory(
            runtime, config, cluster_id=ClusterId(cluster_id), forming=without_voters
        )
        async with Node(runtime, config):
            await asyncio.Event().wait()

    sim.spawn(main)
    return sim


def test_a_broker_with_another_clusters_id_exits_and_has_no_effect() -> None:
    """It has the id of a broker that is down, and does not take over its registration."""
    with started() as stage:
        written = stage.produce(PLACE, 3)
        down = stage.followers(PLACE)[0]
        stage.take_down(down)
        stage.until(lambda: is_fenced(stage, down), "it is fenced")
        before = stage.cluster.newest_image.broker(down.node_id)
        sim = stranger(stage, down.config, cluster_id="another-cluster")
        stage.until(lambda: not sim.alive, "it has ended")
        assert isinstance(sim.exit_error, InconsistentClusterId)
        assert CLUSTER_ID in sim.exit_error.message
        assert "another-cluster" in sim.exit_error.message
        assert stage.cluster.newest_image.broker(down.node_id) == before
        written += stage.produce(PLACE, 3)
        stage.bring_up(down)
        assert [value for _, value in stage.finish()[PLACE]] == written


@pytest.mark.long
def test_a_second_broker_with_the_id_of_a_leader_exits_and_interrupts_no_write() -> None:
    with started() as stage:
        written = stage.produce(PLACE, 3)
        leader = stage.leader(PLACE)
        before = stage.partition(PLACE)
        writing = stage.begin_to_produce(PLACE, 200)
        sim = stranger(stage, leader.config)
        stage.until(lambda: not sim.alive, "it has ended")
        assert isinstance(sim.exit_error, DuplicateBrokerRegistration)
        assert leader.config.grpc_listener in sim.exit_error.message
        stage.until(writing.done, "all is written")
        written += writing.result()
        assert stage.partition(PLACE) == before, "the leader, its epoch or the ISR changed"
        assert [value for _, value in stage.finish()[PLACE]] == written


@pytest.mark.long
def test_a_second_broker_waits_while_the_first_may_live_also_with_another_controller() -> None:
    """The controller with both registrations has failed: the new one has no session of either."""
    with started() as stage:
        written = stage.produce(PLACE, 3)
        leader = stage.leader(PLACE)
        sim = stranger(stage, leader.config)
        stage.run(500)
        active = stage.cluster.leader()
        assert active is not None
        stage.take_down(active)
        writing = stage.begin_to_produce(PLACE, 50)
        stage.until(lambda: not sim.alive, "it has ended")
        assert isinstance(sim.exit_error, DuplicateBrokerRegistration), repr(sim.exit_error)
        stage.until(writing.done, "all is written")
        written += writing.result()
        assert in_sync(stage, leader)
        stage.bring_up(active)
        assert [value for _, value in stage.finish()[PLACE]] == written


@pytest.mark.long
def test_a_broker_with_a_dead_brokers_id_is_filled_and_the_dead_one_exits_after_its_restart() -> (
    None
):
    """A replacement machine uses the id. The replaced broker finds its id in use, and exits."""
    with started() as stage:
        written = stage.produce(PLACE, 20)
        dead = stage.leader(PLACE)
        stage.take_down(dead)
        stage.cluster.damaged[dead.name] = None  # its disk does not count any more
        stage.until(lambda: is_fenced(stage, dead), "it is fenced")
        written += stage.produce(PLACE, 3)
        sim = stranger(stage, dead.config)
        stage.until(lambda: in_sync(stage, dead), "its successor is in sync")
        dead.excuse = "twin"
        stage.bring_up(dead)
        stage.until(lambda: dead.ends["DuplicateBrokerRegistration"] > 0, "it ends")
        written += stage.produce(PLACE, 3)
        assert sim.alive
        assert in_sync(stage, dead), "its successor is"
        brokers = asked(stage, lambda admin: admin.describe_cluster()).brokers
        assert [b.grpc_address for b in brokers if b.id == dead.node_id] == ["stranger:9094"]
        assert stage.read(PLACE) == written
