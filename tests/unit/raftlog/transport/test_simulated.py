"""Links under faults of the simulated network that a real network shows too rarely."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.errors import StreamBroken
from quorumlog.ids import Epoch, Offset
from quorumlog.proto import raft_pb2 as pb
from quorumlog.raftlog.frames import encode_frame
from quorumlog.raftlog.log_view import LogEnd, SnapshotId
from quorumlog.raftlog.messages import (
    AppendRequest,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    SnapshotChunk,
    VoteResponse,
)
from quorumlog.raftlog.shell.transport import TransportConfig
from quorumlog.raftlog.voters import VoterSet
from quorumlog.runtime import Runtime
from quorumlog.simulation import Faults, SimWorld

from .conftest import QUICK, Member, batch, call_on, introduced, join, leave, members, voter

ADDRESSES = {number: f"n{number}:9093" for number in (1, 2, 3)}
Life = Callable[[Runtime], Coroutine[Any, Any, None]]


def run_member(number: int, lives: dict[int, Member], *, config: TransportConfig = QUICK) -> Life:
    """Run a member that sends the others a heartbeat and an entry every 20 ms."""

    async def main(runtime: Runtime) -> None:
        async with runtime.tasks.scope("life") as scope:
            me = await join(runtime, scope, voter(number), config=config, address=ADDRESSES[number])
            lives[number] = me
            for other, address in ADDRESSES.items():
                me.transport.learn(voter(other), address)
            round_ = 0
            while True:
                round_ += 1
                for other in ADDRESSES:
                    if other != number:
                        me.append(voter(other), batch(round_))
                        me.heartbeat(voter(other), round_)
                await asyncio.sleep(0.02)

    return main


def rounds(member: Member, sender: int) -> list[int]:
    return [beat.round for beat in member.of(Heartbeat) if beat.sender == voter(sender)]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_faulty_streams_deliver_in_order_and_reconnect(
    seed: int,
) -> None:
    faults = Faults(
        link_break=0.9,
        link_break_frames=(1, 150),
        end_never_learns=0.4,
        late_suffix=0.7,
        late_suffix_ms=(10, 3_000),
        network_stall=0.01,
        silent_death=0.5,
    )
    lives: dict[int, Member] = {}
    with SimWorld(seed, faults=faults) as world:
        for number in ADDRESSES:
            world.node(f"n{number}").spawn(run_member(number, lives))
        world.run_for(10_000)
        assert world.fabric.links_broken > 5, "the faults occurred"
        for number, member in lives.items():
            for other in ADDRESSES:
                heard = rounds(member, other)
                assert heard == sorted(set(heard)), (
                    f"{number} received messages of {other} out of order"
                )
        world.faults.end_all()
        world.run_for(4_000)  # silent links are detected, broken ones are opened again
        before = {number: len(member.received) for number, member in lives.items()}
        world.run_for(1_000)
        for number, member in lives.items():
            news = member.received[before[number] :]
            for other in ADDRESSES:
                if other != number:
                    kinds = {type(m) for m in news if m.sender == voter(other)}
                    assert {Heartbeat, AppendRequest, HeartbeatResponse} <= kinds, (number, other)


@pytest.mark.slow
def test_peer_without_power_is_unreachable_and_reached_again_after_its_restart() -> None:
    lives: dict[int, Member] = {}
    with SimWorld(3) as world:
        for number in ADDRESSES:
            world.node(f"n{number}").spawn(run_member(number, lives))
        world.run_for(1_000)
        one, dead = lives[1], world.node("n2")
        assert one.lost == []
        dead.power_cut()
        world.run_until(lambda: one.lost == [voter(2)], virtual_ms=QUICK.silence_ms_max * 2)
        world.run_for(2_000)
        answered = len(one.of(HeartbeatResponse))
        dead.restart()
        world.run_until(lambda: bool(rounds(lives[2], 1)), virtual_ms=2_000)
        world.run_until(
            lambda: any(
                answer.sender == voter(2) for answer in one.of(HeartbeatResponse)[answered:]
            ),
            virtual_ms=1_000,
        )


@pytest.mark.slow
def test_paused_node_does_not_close_its_healthy_links() -> None:
    lives: dict[int, Member] = {}
    with SimWorld(4, faults=Faults(latency_us=(10_000, 15_000))) as world:
        for number in ADDRESSES:
            world.node(f"n{number}").spawn(run_member(number, lives))
        world.run_for(500)
        for pause_ms in (900, 910):  # at any moment
            world.node("n1").pause()
            world.run_for(pause_ms)
            world.node("n1").resume()
            world.run_for(pause_ms)
        assert lives[1].lost == []
        assert voter(1) in lives[2].lost


def test_silent_incoming_stream_is_closed() -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 1, config=QUICK) as (one,):
            caller = await call_on(runtime, one)
            caller.stream.send(encode_frame(pb.RaftFrame(introduction=introduced(one))))
            begun_ms = runtime.clock.now_ms()
            with pytest.raises(StreamBroken):
                await caller.receive()
            assert QUICK.idle_ms_max < runtime.clock.now_ms() - begun_ms < 2 * QUICK.idle_ms_max
            assert one.transport.statistics().streams_served == 0

    simulation.run(main)


def test_idle_links_close_and_reopen_on_demand() -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2, config=QUICK) as (one, two):
            for round_ in (1, 2):
                one.heartbeat(two, round_)
                await asyncio.sleep(QUICK.idle_ms_max * 3 / 1000)
                assert len(one.of(HeartbeatResponse)) == round_
                assert one.transport.statistics().links == ()
                assert two.transport.statistics().streams_served == 0
            assert one.lost == [], "no message was lost"

    simulation.run(main)


def test_new_port_of_a_restarted_peer_is_looked_up_at_once() -> None:
    async def main(runtime: Runtime) -> None:
        hasty = TransportConfig(
            silence_ms_max=200, idle_ms_max=1_000, backoff_ms_min=20_000, backoff_ms_max=20_000
        )
        async with (
            members(runtime, 2, config=hasty) as (one, two),
            runtime.tasks.scope("later") as scope,
        ):
            one.heartbeat(two, 1)
            await asyncio.sleep(hasty.idle_ms_max * 3 / 1000)
            assert one.transport.statistics().links == ()
            address = two.address
            await leave(two)
            again = await join(runtime, scope, two.me, address=address)
            one.heartbeat(again, 2)
            await one.until(lambda: len(one.of(HeartbeatResponse)) == 2, within_ms=1_000)
            assert one.lost == []
            await leave(again)

    simulation.run(main)


def test_queue_to_an_unreachable_peer_is_bounded_and_drops_are_counted() -> None:
    async def main(runtime: Runtime) -> None:
        config = TransportConfig()
        async with members(runtime, 1, config=config) as (one,):
            one.transport.learn(voter(2), "silent:1")
            entry = batch(0, size=1_000_000)
            for _ in range(100):
                one.append(voter(2), entry)
            statistics = one.transport.statistics()
            assert statistics.links[0].queued_bytes <= config.queue.bytes_max
            assert statistics.dropped > 60
            await one.until(lambda: one.lost == [voter(2)])
            assert one.transport.statistics().links[0].queued_bytes == 0

    simulation.run(main)


def test_heartbeats_do_not_wait_for_a_snapshot() -> None:
    """The snapshot's stream is full; it has a connection of its own."""

    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2, config=TransportConfig()) as (one, two):
            size = 20 * 1_000_000
            for position in range(0, size, 1_000_000):
                one.transport.send(
                    SnapshotChunk(
                        sender=one.me,
                        receiver=two.me,
                        epoch=Epoch(1),
                        snapshot=SnapshotId(Offset(9), Epoch(1)),
                        voters=VoterSet(()),
                        size=size,
                        position=position,
                        content=b"c" * 1_000_000,
                    )
                )
            one.heartbeat(two, 1)
            await one.until(lambda: len(one.of(HeartbeatResponse)) == 1)
            assert len(two.of(SnapshotChunk)) < 20
            await two.until(lambda: len(two.of(SnapshotChunk)) == 20)
            assert [chunk.position for chunk in two.of(SnapshotChunk)] == list(
                range(0, size, 1_000_000)
            )

    simulation.run(main)


def test_newer_vote_request_replaces_an_unanswered_one() -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2) as (one, two):
            two.is_silent = True
            one.ask_vote(two, epoch=1)
            await two.until(lambda: len(two.received) == 1)
            one.ask_vote(two, epoch=1)  # the same message, which is in flight already
            two.is_silent = False
            one.ask_vote(two, epoch=2)
            await one.until(lambda: len(one.of(VoteResponse)) == 1)
            await asyncio.sleep(1)
            assert [answer.epoch for answer in one.of(VoteResponse)] == [2]
            assert len(two.received) == 2

    simulation.run(main)


@pytest.mark.slow
def test_oversized_message_is_dropped_and_the_stream_continues() -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2) as (one, two):
            whole = batch(0, size=(64 << 20) + (64 << 10))
            one.append(two, whole)
            await asyncio.sleep(0.1)
            one.append(two, batch(5))
            one.heartbeat(two, 1)
            await one.until(lambda: len(one.of(HeartbeatResponse)) == 1)
            assert [answer.match_end for answer in one.of(AppendResponse)] == [6]
            assert one.lost == []
            assert one.transport.statistics().dropped == 1
            request = two.of(AppendRequest)[0]
            assert request.prev == LogEnd(Epoch(1), Offset(5))

    simulation.run(main)
