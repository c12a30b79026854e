"""The transport between members, on the real and on the simulated network."""

from collections.abc import Callable

from quorumlog.raftlog.messages import (
    AppendRequest,
    AppendResponse,
    FollowResponse,
    Heartbeat,
    HeartbeatResponse,
    VoteResponse,
)
from quorumlog.runtime import Runtime

from .conftest import Main, batch, members

Run = Callable[[Main], None]


def test_heartbeats_go_to_the_peer_and_its_answer_comes_back(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 3) as (one, two, three):
            one.heartbeat(two, 7)
            one.heartbeat(three, 7)
            await one.until(lambda: len(one.of(HeartbeatResponse)) == 2)
            assert {answer.sender for answer in one.of(HeartbeatResponse)} == {two.me, three.me}
            assert all(answer.round == 7 for answer in one.of(HeartbeatResponse))
            assert [(beat.sender, beat.receiver) for beat in two.of(Heartbeat)] == [
                (one.me, two.me)
            ]

    run(main)


def test_entries_arrive_in_order_as_they_were_stored(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        entries = [batch(offset, count=3) for offset in range(0, 300, 3)]
        async with members(runtime, 2) as (one, two):
            for entry in entries:
                one.append(two, entry)
            await one.until(lambda: any(a.match_end == 300 for a in one.of(AppendResponse)))
            arrived = [entry for request in two.of(AppendRequest) for entry in request.entries]
            assert arrived == entries

    run(main)


def test_vote_request_gets_its_response(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 2) as (one, two):
            one.ask_vote(two, epoch=5, pre_vote=True)
            await one.until(lambda: len(one.of(VoteResponse)) == 1)
            one.ask_vote(two, epoch=5)
            await one.until(lambda: len(one.of(VoteResponse)) == 2)
            assert [answer.pre_vote for answer in one.of(VoteResponse)] == [True, False]
            assert all(a.granted and a.sender == two.me for a in one.of(VoteResponse))

    run(main)


def test_follow_request_gets_the_leader_and_its_address(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with members(runtime, 1) as (leader,), members(runtime, 2) as (_, follower):
            follower.ask_follow(leader.address)
            await follower.until(lambda: len(follower.of(FollowResponse)) == 1)
            assert follower.of(FollowResponse)[0].leader == leader.me
            assert follower.transport.address_of(leader.me) == leader.address
            assert leader.transport.address_of(follower.me) == follower.address
            leader.heartbeat(follower, 1)
            await leader.until(lambda: len(leader.of(HeartbeatResponse)) == 1)

    run(main)
