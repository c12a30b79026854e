"""The stream of proposals: each request is answered by itself, alone or among others."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quorumlog.errors import InvalidRequest
from quorumlog.ids import NodeId
from quorumlog.proto import raft_pb2 as pb
from quorumlog.raftlog import RaftConfig
from quorumlog.raftlog.shell import ProposalService
from quorumlog.raftlog.shell.propose_service import ANSWERS_A_MESSAGE_MAX, UNANSWERED_MAX
from quorumlog.runtime import Runtime, Stream
from quorumlog.services import RAFT_PROPOSE
from quorumlog.storage.shell.data_directory import DataDirectory

from .lone_voter import CLUSTER, open_node

FIRST = 2  # offset of the first proposal; the no-op and the voters precede it
Listener = Any  # conftest.Remembers
Run = Callable[[Callable[[Runtime, str], Coroutine[Any, Any, Any]]], Any]
Proposing = Stream[pb.ProposeRequest, pb.ProposeResponse]


@asynccontextmanager
async def proposing(runtime: Runtime, path: str, listener: Listener) -> AsyncIterator[Proposing]:
    """Open a stream to a lone voter."""
    node_id = NodeId(1)
    await DataDirectory.format(runtime, path, cluster_id=CLUSTER, node_id=node_id)
    async with runtime.tasks.scope("test") as scope:
        directory = await DataDirectory.open(runtime, scope, path)
        config = RaftConfig(node_id=node_id, directory_id=directory.meta.directory_id)
        node = await open_node(runtime, scope, directory, config, listener)
        await node.start()
        handlers = ProposalService(runtime, node).handlers()
        served = await runtime.network.serve("127.0.0.1:0", handlers)
        channel = runtime.network.channel(served.address)
        yield await channel.stream(RAFT_PROPOSE, timeout_ms=0)
        await channel.close()
        await served.close(0)
        await node.close()
        await directory.close()


async def answers(stream: Proposing) -> list[pb.ProposeResponse]:
    """Return all messages until the end of the stream."""
    await stream.finish()
    found = []
    while (response := await stream.receive()) is not None:
        found.append(response)
    return found


def places(response: pb.ProposeResponse) -> dict[int, list[int]]:
    """Return the offsets by request of all answers in a message."""
    return {each.id: list(each.offsets) for each in (response, *response.more)}


def request(number: int, *values: bytes) -> pb.ProposeRequest:
    return pb.ProposeRequest(id=number, values=values)


def test_a_request_is_answered_in_a_message_of_its_own(run: Run, listener: Listener) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with proposing(runtime, path, listener) as stream:
            await stream.send(request(7, b"a", b"b"))
            await stream.send(request(8, b"c"))
            found = [places(each) for each in await answers(stream)]
            assert found == [{7: [FIRST, FIRST + 1]}, {8: [FIRST + 2]}]

    run(main)


def test_requests_of_one_message_are_answered_each_in_their_order(
    run: Run, listener: Listener
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with proposing(runtime, path, listener) as stream:
            message = request(0, b"0")
            message.more.extend([request(n, b"%d" % n) for n in range(1, 300)])
            await stream.send(message)
            found = await answers(stream)
            assert all(len(places(each)) <= ANSWERS_A_MESSAGE_MAX for each in found)
            assert len(found) < 10, "the answers share a message"
            merged = [pair for each in found for pair in places(each).items()]
            assert merged == [(n, [FIRST + n]) for n in range(300)]

    run(main)


def test_a_bad_request_among_others_is_refused_alone(run: Run, listener: Listener) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with proposing(runtime, path, listener) as stream:
            nested = request(3, b"nested")
            nested.more.append(request(4, b"inner"))
            message = request(1)
            message.more.extend([request(2, b"good"), nested, request(5, b"also good")])
            await stream.send(message)
            found = [each for all_ in await answers(stream) for each in (all_, *all_.more)]
            errors = {each.id: each.error.message for each in found if each.HasField("error")}
            assert errors.keys() == {1, 3}
            assert "no values" in errors[1]
            assert "`more` inside `more`" in errors[3]
            assert {each.id: list(each.offsets) for each in found if each.offsets} == {
                2: [FIRST],
                5: [FIRST + 1],
            }

    run(main)


def test_more_requests_in_a_message_than_a_stream_may_have_end_it(
    run: Run, listener: Listener
) -> None:
    async def main(runtime: Runtime, path: str) -> None:
        async with proposing(runtime, path, listener) as stream:
            message = request(0, b"0")
            message.more.extend([pb.ProposeRequest(id=n) for n in range(UNANSWERED_MAX + 1)])
            await stream.send(message)
            with pytest.raises(InvalidRequest, match="the limit is 10000"):
                await answers(stream)

    run(main)
