"""Faults between members on both networks are reported, logged once, and recovered from."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
from tests.kit.waits import AMPLE_MS, AMPLE_S, run_patiently

from quorumlog.errors import (
    CorruptionError,
    InconsistentClusterId,
    InvalidRequest,
    Overloaded,
    QuorumlogError,
    StreamBroken,
    TimedOut,
    VoterMismatch,
)
from quorumlog.ids import ClusterId, Epoch
from quorumlog.proto import raft_pb2 as pb
from quorumlog.raftlog.codec import encode_message, encode_voter
from quorumlog.raftlog.frames import encode_frame
from quorumlog.raftlog.messages import (
    AppendRequest,
    EndEpoch,
    FollowRequest,
    FollowResponse,
    Heartbeat,
    HeartbeatResponse,
    TimeoutNow,
    VoteResponse,
)
from quorumlog.raftlog.shell.transport import TransportConfig
from quorumlog.runtime import ByteConnection, Runtime
from quorumlog.services import RAFT_FOLLOW, RAFT_VOTE

from .conftest import (
    CLUSTER,
    PATIENT,
    QUICK,
    Main,
    Member,
    batch,
    call_on,
    endpoint,
    introduced,
    join,
    leave,
    members,
    voter,
)

Run = Callable[[Main], None]

QUICK_ONCE_UP = replace(QUICK, connect_ms_max=AMPLE_MS)


def beat(round_: int) -> pb.RaftMessage:
    return pb.RaftMessage(heartbeat=pb.Heartbeat(epoch=1, round=round_))


def has_lost(member: Member, count: int) -> bool:
    return len(member.lost) >= count


async def refusal(runtime: Runtime, member: Member, *frames: pb.RaftFrame) -> QuorumlogError:
    """Return the typed error that ends a stream after these frames."""
    caller = await call_on(runtime, member)
    try:
        for frame in frames:
            caller.stream.send(encode_frame(frame))
        while await caller.receive() is not None:
            pass
    except QuorumlogError as error:
        return error
    raise AssertionError("the stream ended cleanly")


# --- broken and silent links ---------------------------------------------------------------------


def test_restarted_peer_is_reported_unreachable_and_reached_again(
    run: Run,
) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2) as (one, two), runtime.tasks.scope("later") as scope:
            one.heartbeat(two, 1)
            await one.until(lambda: len(one.of(HeartbeatResponse)) == 1)
            address = two.address
            await leave(two)
            await one.until(lambda: two.me in one.lost)
            again = await join(runtime, scope, two.me, address=address)
            await one.insist(
                lambda: one.heartbeat(again, 2), lambda: len(one.of(HeartbeatResponse)) > 1
            )
            await leave(again)

    run(main)


def test_peer_without_heartbeat_responses_is_unreachable_after_the_timeout(
    run: Run,
) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2, config=QUICK_ONCE_UP) as (one, two):
            two.is_silent = True
            start_ms = runtime.clock.now_ms()
            one.heartbeat(two, 1)
            await one.until(lambda: one.lost == [two.me])
            assert runtime.clock.now_ms() - start_ms >= QUICK_ONCE_UP.silence_ms_max
            two.is_silent = False
            await one.insist(
                lambda: one.heartbeat(two, 2), lambda: len(one.of(HeartbeatResponse)) > 0
            )

    run(main)


@pytest.mark.slow
def test_stalled_loop_does_not_report_its_peers_as_silent() -> None:
    """On the real network only: there, timers run before the messages that arrived during the
    stall."""

    async def main(runtime: Runtime) -> None:
        config = replace(PATIENT, silence_ms_max=1_000)
        async with members(runtime, 2, config=config) as (one, two):
            one.heartbeat(two, 1)
            await one.until(lambda: len(one.of(HeartbeatResponse)) == 1)
            two.thinks_s = 2 * config.silence_ms_max / 1000
            one.heartbeat(two, 2)
            await one.until(lambda: len(one.of(HeartbeatResponse)) == 2)
            assert one.lost == []

    run_patiently(main)


def test_peer_is_reached_at_its_new_address(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2) as (one, two), runtime.tasks.scope("later") as scope:
            one.heartbeat(two, 1)
            await one.until(lambda: len(one.of(HeartbeatResponse)) == 1)
            moved = await join(runtime, scope, two.me)
            one.transport.learn(two.me, moved.address)
            await one.until(lambda: two.me in one.lost)
            one.heartbeat(two, 2)
            await one.until(lambda: len(one.of(HeartbeatResponse)) == 2)
            assert [message.round for message in moved.of(Heartbeat)] == [2]
            await leave(moved)

    run(main)


def test_a_vote_is_asked_for_again_while_the_peer_starts(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2) as (one, two), runtime.tasks.scope("later") as scope:
            address = two.address
            await leave(two)
            one.ask_vote(two, epoch=3)
            again = await join(runtime, scope, two.me, address=address)
            await one.until(lambda: len(one.of(VoteResponse)) == 1)
            await leave(again)

    run(main)


def test_a_peer_without_an_address_is_unreachable(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 1) as (one,):
            one.heartbeat(voter(5), 1)
            assert one.lost == [], "send() reports nothing itself"
            await one.until(lambda: one.lost == [voter(5)])

    run(main)


def test_last_messages_of_a_leader_arrive_before_the_close(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2) as (one, two):
            one.heartbeat(two, 1)
            await one.until(lambda: len(one.of(HeartbeatResponse)) == 1)
            for entry in [batch(offset, size=1000) for offset in range(200)]:
                one.append(two, entry)
            one.transport.send(
                EndEpoch(sender=one.me, receiver=two.me, epoch=Epoch(1), successors=(two.me,))
            )
            await one.transport.close(grace_ms=AMPLE_MS)
            assert len(two.of(EndEpoch)) == 1
            assert len(two.of(AppendRequest)) == 200

    run(main)


def test_close_under_load_ends_every_task_and_accepts_nothing_more(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 3) as (one, two, three):

            def load() -> None:
                for offset in range(500):
                    one.append(two, batch(offset, size=2_000))
                    two.append(one, batch(offset, size=2_000))
                    three.ask_vote(one, epoch=offset)
                    three.heartbeat(voter(7), offset)

            await one.insist(load, lambda: len(one.received) > 10)
            for member in (one, two, three):
                await leave(member)
                member.heartbeat(one, 1)
                assert member.transport.statistics().links == ()

    run(main)


# --- wrong receivers -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["another cluster", "another disk", "another node"])
def test_a_wrong_receiver_is_refused_and_both_sides_log_it_once(
    run: Run, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="quorumlog.raftlog")

    async def main(runtime: Runtime) -> None:
        async with members(runtime, 1) as (one,), runtime.tasks.scope("strangers") as scope:
            other = await join(
                runtime,
                scope,
                voter(3 if kind == "another node" else 2, 2 if kind == "another disk" else 1),
                cluster_id=ClusterId("another") if kind == "another cluster" else CLUSTER,
            )
            one.transport.learn(voter(2), other.address)
            for attempts in (1, 2, 3, 4):
                one.heartbeat(voter(2), 1)
                await one.until(partial(has_lost, one, attempts))
            assert other.received == []
            (link,) = one.transport.statistics().links
            name = (InconsistentClusterId if kind == "another cluster" else VoterMismatch).name
            assert link.last_error.startswith(name)
            assert link.breaks >= 4
            logged = [record for record in caplog.records if name in record.getMessage()]
            assert [record.levelname for record in logged] == ["WARNING", "WARNING"]
            await leave(other)

    run(main)


def test_a_call_for_another_disk_is_refused(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 1) as (one,):
            channel = runtime.network.channel(one.address)
            call = pb.VoteCall(introduction=introduced(one), request=pb.VoteRequest(epoch=1))
            call.introduction.receiver.CopyFrom(encode_voter(voter(1, disk=7)))
            with pytest.raises(VoterMismatch):
                await channel.call(RAFT_VOTE, call, timeout_ms=AMPLE_MS)
            follow = pb.FollowQuorumCall(introduction=introduced(one))
            follow.introduction.cluster_id = "another"
            with pytest.raises(InconsistentClusterId):
                await channel.call(RAFT_FOLLOW, follow, timeout_ms=AMPLE_MS)
            assert one.received == []
            await channel.close()

    run(main)


# --- invalid messages ----------------------------------------------------------------------------


def test_invalid_message_ends_a_stream_with_a_typed_error(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 1) as (one,):
            torn = pb.AppendRequest(epoch=1, batches=batch(0).payload[:-1])
            after = bytearray(batch(0).payload)
            after[-1] ^= 1
            flipped = pb.AppendRequest(epoch=1, batches=bytes(after))
            answer = pb.RaftMessage(append_response=pb.AppendResponse(epoch=1))
            crowd = pb.RaftMessage(end_epoch=pb.EndEpoch(successors=[pb.Voter()] * 1_001))
            damaged = pb.SnapshotChunk(size=9, content=b"damaged", crc=1)
            chunk = pb.RaftMessage(snapshot_chunk=damaged)
            cases: tuple[tuple[pb.RaftMessage, type[QuorumlogError]], ...] = (
                (pb.RaftMessage(append_request=torn), CorruptionError),
                (pb.RaftMessage(append_request=flipped), CorruptionError),
                (pb.RaftMessage(), InvalidRequest),
                (pb.RaftMessage(heartbeat=pb.Heartbeat(epoch=-1)), InvalidRequest),
                (answer, InvalidRequest),
                (crowd, InvalidRequest),
                (chunk, CorruptionError),
            )
            for number, (message, expected) in enumerate(cases, start=1):
                frame = pb.RaftFrame(introduction=introduced(one, number=number))
                error = await refusal(runtime, one, frame, pb.RaftFrame(messages=[message]))
                assert type(error) is expected, f"{error!r} for {message}"
            assert one.received == []

    run(main)


def test_stream_without_an_introduction_is_refused(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 1) as (one,):
            served = pb.RaftFrame(messages=[beat(1)])
            assert isinstance(await refusal(runtime, one, served), InconsistentClusterId)
            nameless = pb.RaftFrame(introduction=introduced(one))
            nameless.introduction.sender.directory_id = b"short"
            assert isinstance(await refusal(runtime, one, nameless), InvalidRequest)
            assert one.received == []
        async with members(runtime, 1, config=QUICK_ONCE_UP) as (one,):
            assert isinstance(await refusal(runtime, one), TimedOut), "it sends nothing at all"
            assert one.received == []

    run(main)


def test_what_an_earlier_stream_delivers_late_is_dropped(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 1) as (one,):
            early = await call_on(runtime, one)
            first = pb.RaftFrame(introduction=introduced(one, number=4), messages=[beat(1)])
            early.stream.send(encode_frame(first))
            await one.until(lambda: len(one.received) == 1)
            assert await early.receive() is not None, "the response to it"
            later = await call_on(runtime, one)
            second = pb.RaftFrame(introduction=introduced(one, number=5), messages=[beat(2)])
            later.stream.send(encode_frame(second))
            await one.until(lambda: len(one.received) == 2)
            async with asyncio.timeout(AMPLE_S):
                with pytest.raises(StreamBroken):
                    await early.receive()  # no further response
            late = pb.RaftFrame(introduction=introduced(one, number=3), messages=[beat(9)])
            assert isinstance(await refusal(runtime, one, late), StreamBroken)
            later.stream.send(encode_frame(pb.RaftFrame(messages=[beat(3)])))
            await one.until(lambda: len(one.received) == 3)
            assert [message.round for message in one.of(Heartbeat)] == [1, 2, 3]
            restarted = await call_on(runtime, one)
            fresh = introduced(one, number=1, incarnation=b"restarte")
            restarted.stream.send(
                encode_frame(pb.RaftFrame(introduction=fresh, messages=[beat(4)]))
            )
            await one.until(lambda: len(one.received) == 4)

    run(main)


# --- limits --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_addresses_of_follow_requests_are_kept_up_to_a_bound(
    run: Run,
) -> None:
    async def main(runtime: Runtime) -> None:
        config = TransportConfig(peers_max=100)
        async with members(runtime, 1, config=config) as (one,):
            one.transport.learn(voter(2), "voter:1")
            channel = runtime.network.channel(one.address)
            for number in range(3, 1_003):
                call = pb.FollowQuorumCall(
                    introduction=introduced(one, sender=number),
                    request=pb.FollowQuorumRequest(epoch=0, address=f"observer:{number}"),
                )
                call.introduction.ClearField("receiver")
                answer = await channel.call(RAFT_FOLLOW, call, timeout_ms=AMPLE_MS)
                assert answer.leader == encode_voter(one.me)
            assert len(one.of(FollowRequest)) == 1_000
            assert one.transport.address_of(voter(1_002)) == "observer:1002"
            assert one.transport.address_of(voter(3)) == "", "the oldest is dropped ..."
            assert one.transport.address_of(voter(2)) == "voter:1", "... but no voter"
            await channel.close()

    run(main)


def test_unanswered_requests_wait_up_to_a_bound_and_a_timeout(run: Run) -> None:
    async def refusals(runtime: Runtime, call_ms_max: int) -> list[str]:
        """Return the errors of five concurrent requests, of which three may wait."""
        config = replace(PATIENT, calls_max=3, call_ms_max=call_ms_max)
        async with members(runtime, 1, config=config) as (one,):
            one.is_silent = True
            channel = runtime.network.channel(one.address)
            call = pb.FollowQuorumCall(introduction=introduced(one))
            errors: list[QuorumlogError] = []

            async def ask() -> None:
                with pytest.raises(QuorumlogError) as caught:
                    await channel.call(RAFT_FOLLOW, call, timeout_ms=AMPLE_MS)
                errors.append(caught.value)

            async with runtime.tasks.scope("askers") as scope:
                for number in range(5):
                    scope.spawn(ask(), name=f"{number}")
            assert one.transport.statistics().calls_waiting == 0
            one.is_silent = False
            answer = await channel.call(RAFT_FOLLOW, call, timeout_ms=AMPLE_MS)
            assert answer.leader == encode_voter(one.me)
            await channel.close()
        return sorted(error.name for error in errors)

    async def main(runtime: Runtime) -> None:
        expected = 2 * [Overloaded.name] + 3 * [TimedOut.name]
        for call_ms_max in (300, 3_000, 20_000):  # on a busy machine some arrive after the timeout
            logged = await refusals(runtime, call_ms_max)
            if logged == expected:
                break
        assert logged == expected

    run(main)


def test_invalid_address_is_not_stored(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 1) as (one,):
            channel = runtime.network.channel(one.address)
            for address in ("nowhere", "host:0", "host:70000", "x" * 400 + ":1", ":9092"):
                call = pb.FollowQuorumCall(
                    introduction=introduced(one),
                    request=pb.FollowQuorumRequest(epoch=0, address=address),
                )
                with pytest.raises(InvalidRequest):
                    await channel.call(RAFT_FOLLOW, call, timeout_ms=AMPLE_MS)
            assert one.received == []
            await channel.close()

    run(main)


def test_every_kind_of_message_of_a_leader_is_delivered(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2) as (one, two):
            one.transport.send(TimeoutNow(sender=one.me, receiver=two.me, epoch=Epoch(3)))
            one.heartbeat(two, 0)
            await two.until(lambda: len(two.received) == 2)
            assert encode_message(two.received[0]) == encode_message(
                TimeoutNow(sender=one.me, receiver=two.me, epoch=Epoch(3))
            )
            assert one.of(FollowResponse) == []

    run(main)


# --- the second port -----------------------------------------------------------------------------


@pytest.mark.parametrize("garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\3\0\0\0\0abc"])
def test_connection_without_frames_is_refused_with_an_error(run: Run, garbage: bytes) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2) as (one, two):
            caller = await call_on(runtime, one)
            caller.stream._connection.write([garbage])
            with pytest.raises((InvalidRequest, CorruptionError)):
                await caller.receive()
            one.heartbeat(two, 1)
            await one.until(lambda: len(one.of(HeartbeatResponse)) == 1)

    run(main)


class NonReader:
    """A connection that reads nothing and never closes."""

    def __init__(self, connection: ByteConnection) -> None:
        self.connection = connection
        self.end = asyncio.get_running_loop().create_future()

    def buffer(self, size_hint: int) -> memoryview:
        return memoryview(bytearray(size_hint))

    def received(self, count: int) -> None:
        pass

    def sent(self) -> None:
        pass

    def closed(self, error: Exception | None) -> None:
        self.end.set_result(None)


def test_refused_connection_that_stays_open_is_aborted(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 1, config=QUICK_ONCE_UP) as (one,):
            made: list[NonReader] = []

            def make(connection: ByteConnection) -> NonReader:
                made.append(NonReader(connection))
                return made[0]

            address = await endpoint(runtime, one, introduced(one))
            connection = await runtime.network.connect_bytes(address, make)
            connection.write([b"GET / HTTP/1.1"])
            async with asyncio.timeout(AMPLE_S):
                await made[0].end
            assert one.transport.statistics().streams_served == 0

    run(main)
