"""Brokers and controllers on separate simulated machines: registration, fencing, rejection."""

import asyncio

import pytest
from tests.kit.simulated_cluster import CLUSTER, Play, cluster

from quorumlog.clients.log import make_log
from quorumlog.errors import DuplicateBrokerRegistration, InconsistentClusterId, InvalidRequest
from quorumlog.ids import NodeId
from quorumlog.metadata.config import ControllerConfig
from quorumlog.runtime import Runtime
from quorumlog.server.node import Node
from quorumlog.simulation.links import apart

LONG_SESSION_MS = 30_000


def test_broker_only_nodes_serve_with_three_controllers_and_do_not_vote() -> None:
    async def client(runtime: Runtime) -> tuple[list[int], list[int], list[int]]:
        async with make_log(runtime, "n1:9094") as log:
            await log.admin.create_topic("t", partitions=4)
            async with log.producer() as producer:
                for number in range(20):
                    await producer.send("t", str(number), partition=number % 4)
            async with log.consumer("t", until_end=True) as consumer:
                records = sorted([int(record.value or b"") async for record in consumer])
            quorum = await log.admin.describe_quorum()
        return records, [v.id for v in quorum.voters], sorted(o.id for o in quorum.observers)

    with cluster() as play:
        assert play.ask(client) == ([*range(20)], [101, 102, 103], [1, 2])
        leaders = {p.leader for t in play[1].image.sorted_topics() for p in t.partitions.values()}
        assert leaders == {1, 2}, "both brokers lead"


def test_brokers_continue_when_the_active_controller_is_killed() -> None:
    async def client(runtime: Runtime) -> None:
        async with make_log(runtime, "n1:9094") as log:
            await log.admin.create_topic("t", partitions=2)

    with cluster() as play:
        dead = play.controller()
        assert dead is not None
        dead.sim.crash()
        play.until(lambda: play.controller() not in (None, dead))
        play.ask(client)
        play.world.run_for(5_000)
        assert not play.is_fenced(1)
        assert not play.is_fenced(2)


def test_a_killed_broker_is_fenced_long_before_its_session_ends() -> None:
    with cluster(controller=ControllerConfig(session_timeout_ms=LONG_SESSION_MS)) as play:
        play[2].sim.crash()
        assert play.until(lambda: play.is_fenced(2)) < 1_000
        assert not play.is_fenced(1)


@pytest.mark.parametrize("how", ["paused", "powerless", "cut off"])
def test_a_broker_that_may_be_alive_is_fenced_by_the_session_timeout_alone(how: str) -> None:
    with cluster(controller=ControllerConfig(session_timeout_ms=3_000)) as play:
        play.world.run_for(100)
        if how == "paused":
            play[2].sim.pause()
        elif how == "powerless":
            play[2].sim.power_cut()
        else:
            others = [machine.sim.name for machine in play.machines.values()]
            play.world.fabric.barriers.close(apart(["n2"], others))
        assert 2_400 < play.until(lambda: play.is_fenced(2)) < 4_000


def test_new_controller_fences_a_broker_that_died_with_the_old_one_after_a_second() -> None:
    with cluster(
        brokers=3, combined=True, controller=ControllerConfig(session_timeout_ms=LONG_SESSION_MS)
    ) as play:
        dead = play.controller()
        assert dead is not None
        dead.sim.crash()
        play.until(lambda: play.controller() not in (None, dead))
        took_ms = play.until(lambda: play.is_fenced(dead.config.node_id))
        assert 900 < took_ms < 2_000


def test_broker_that_shuts_down_moves_its_leaderships_and_is_fenced_at_once() -> None:
    async def client(runtime: Runtime) -> None:
        async with make_log(runtime, "n1:9094") as log:
            await log.admin.create_topic("t", partitions=6, replication=2)

    with cluster(controller=ControllerConfig(session_timeout_ms=LONG_SESSION_MS)) as play:
        play.ask(client)
        led_at_the_end: list[int] = []

        def note() -> bool:
            if play[2].sim.alive:
                image = play[1].image
                led_at_the_end[:] = [
                    index
                    for topic in image.sorted_topics()
                    for index, partition in topic.partitions.items()
                    if partition.leader == 2
                ]
            return not play[2].sim.alive

        play[2].stop_in_order()
        assert play.until(note) < 3_000
        assert play[2].sim.exit_error is None
        assert led_at_the_end == []
        assert play.until(lambda: play.is_fenced(2)) < 1_000
        leaders = {p.leader for t in play[1].image.sorted_topics() for p in t.partitions.values()}
        assert leaders == {1}


def test_all_nodes_stop_in_order_at_once() -> None:
    with cluster(brokers=3, combined=True) as play:
        for machine in play.machines.values():
            machine.stop_in_order()
        everybody = play.machines.values()
        assert play.until(lambda: not any(m.sim.alive for m in everybody)) < 10_000
        assert [m.sim.exit_error for m in everybody] == [None] * 3


def test_restarted_broker_registers_again_and_serves() -> None:
    with cluster() as play:
        before = play.broker(2)
        play[2].sim.crash()
        play[2].start()
        play.until(lambda: play[2].is_ready)
        after = play.broker(2)
        assert before is not None
        assert after is not None
        assert after.epoch > before.epoch
        assert after.directory_id == before.directory_id
        assert after.incarnation_id != before.incarnation_id
        assert after.features == before.features != ()


@pytest.mark.slow
def test_a_start_that_ends_before_the_broker_is_registered_leaves_no_clean_marker() -> None:
    """The registration must report possible losses of a power cut; no other node detects them."""

    async def client(runtime: Runtime) -> None:
        async with make_log(runtime, "n1:9094") as log:
            await log.admin.create_topic("t", partitions=2, replication=2)
            async with log.producer() as producer:
                await producer.send("t", "a", partition=0)

    async def start(runtime: Runtime) -> None:
        node = Node(runtime, play[2].config)
        lives.append((node, asyncio.ensure_future(node.start())))
        await asyncio.wait([lives[0][1]])

    async def give_up(_: Runtime) -> None:
        lives[0][1].cancel()

    lives: list[tuple[Node, asyncio.Future[object]]] = []
    with cluster() as play:
        play.ask(client)
        play[2].sim.power_cut()
        play[2].sim.spawn(start)
        play.until(lambda: bool(lives) and lives[0][0].parts.session is not None)
        cut = apart(["n2"], ["n101", "n102", "n103"])
        play.world.fabric.barriers.close(cut)
        play.world.run_for(2_000)  # its logs are recovered and open by now
        session = lives[0][0].parts.session
        assert session is not None
        assert session.broker_epoch == -1
        play[2].sim.attach(give_up, name="stop")
        play.until(lambda: not play[2].sim.alive)
        assert play[2].sim.exit_error is None
        play.world.fabric.barriers.open(cut)
        found = []
        for _ in range(2):
            play[2].start()
            play.until(lambda: play[2].is_ready)
            assert play[2].node is not None
            assert play[2].node.parts.directory is not None
            found.append(play[2].node.parts.directory.was_clean)
            play[2].stop_in_order()
            play.until(lambda: not play[2].sim.alive)
        assert found == [False, True], "and a registered broker leaves it"


def stranger(play: Play, node_id: int, **fields: object) -> BaseException | None:
    """Start one more broker. Return the error that ends it."""
    machine = play.add(
        node_id,
        "stranger",
        roles=("broker",),
        controller_bootstrap=("n101:9093", "n102:9093", "n103:9093"),
    )
    machine.start(cluster_id=str(fields.get("cluster_id", CLUSTER)))
    play.until(lambda: not machine.sim.alive)
    return machine.sim.exit_error


def test_broker_of_another_cluster_stops_and_names_both_clusters() -> None:
    with cluster() as play:
        error = stranger(play, 7, cluster_id="other")
        assert isinstance(error, InconsistentClusterId)
        assert f"belongs to cluster '{CLUSTER}'" in error.message
        assert "'other'" in error.message
        assert play.broker(7) is None


def test_second_broker_under_a_live_id_stops_and_the_first_continues() -> None:
    with cluster() as play:
        before = play.broker(2)
        error = stranger(play, 2)
        assert isinstance(error, DuplicateBrokerRegistration)
        assert "n2:9094" in error.message
        assert play.broker(2) == before
        assert NodeId(2) in play[1].image.brokers


@pytest.mark.parametrize("seed", range(1, 6))
def test_second_broker_does_not_get_a_live_id_during_a_controller_failover(seed: int) -> None:
    with cluster(seed=seed) as play:
        before = play.broker(2)
        play.add(
            2, "stranger", roles=("broker",), controller_bootstrap=("n101:9093", "n102:9093")
        ).start()
        play.world.run_for(1_500)
        dead = play.controller()
        assert dead is not None
        dead.sim.crash()
        play.until(lambda: play.controller() not in (None, dead))
        play.world.run_for(3_000)
        assert play.broker(2) == before, "its replicas are still in sync"


def partitions(play: Play) -> list[tuple[int, tuple[int, ...]]]:
    """Return leader and ISR of every partition in the controller's metadata."""
    controller = play.controller()
    if controller is None:
        return []
    return [
        (partition.leader, partition.isr)
        for topic in controller.image.sorted_topics()
        for _, partition in topic.sorted_partitions()
    ]


def test_balance_round_returns_leaderships_to_a_restarted_broker() -> None:
    async def client(runtime: Runtime) -> None:
        async with make_log(runtime, "n1:9094") as log:
            configs = {"leader.imbalance.check.interval.seconds": "20"}
            await log.admin.alter_cluster_configs(configs)
            await log.admin.create_topic("t", partitions=6, replication=2)

    with cluster() as play:
        play.ask(client)
        assert sorted(leader for leader, _ in partitions(play)) == [1, 1, 1, 2, 2, 2]
        play[2].sim.crash()
        play.until(lambda: all(leader == 1 for leader, _ in partitions(play)))
        play[2].start()
        play.until(lambda: all(len(isr) == 2 for _, isr in partitions(play)))
        assert {leader for leader, _ in partitions(play)} == {1}, "not before the round"
        play.until(lambda: sorted(led for led, _ in partitions(play)) == [1, 1, 1, 2, 2, 2])


def test_isr_change_succeeds_during_a_controller_failover() -> None:
    """The leader retries at the next active controller."""

    async def client(runtime: Runtime) -> None:
        async with make_log(runtime, "n1:9094") as log:
            await log.admin.create_topic("t", partitions=2, replication=2)

    with cluster() as play:
        play.ask(client)
        play[2].sim.crash()
        play.until(lambda: play.is_fenced(2))
        play[2].start()
        dead = play.controller()
        assert dead is not None
        dead.sim.crash()
        play.until(lambda: play.controller() not in (None, dead))
        play.until(lambda: all(len(isr) == 2 for _, isr in partitions(play)))
        assert len(partitions(play)) == 2


def test_broker_only_node_cannot_become_a_voter() -> None:
    async def client(runtime: Runtime) -> str:
        async with make_log(runtime, "n1:9094") as log:
            with pytest.raises(InvalidRequest) as caught:
                await log.admin.add_voter(2)
        return caught.value.message

    with cluster() as play:
        assert "node 2: without the role controller" in play.ask(client)
