"""The order of responses in a connection, and the errors that end a connection alone."""

import asyncio
import logging
import struct

import pytest
from tests.kit.kafka_client import (
    ConnectionEnded,
    RawClient,
    body_of,
    connected,
    framed,
    request_of,
)
from tests.kit.node import Run
from tests.kit.waits import wait_until

from quorumlog import simulation
from quorumlog.errors import NotLeaderOrFollower
from quorumlog.frontends.kafka.api import Answer, BrokerContext, Call, KafkaApi
from quorumlog.runtime import Runtime

from .bare_server import BROKEN_KEY, GATED_KEY, PLAIN_KEY, Gate, bare_server, topics


async def names_by(client: RawClient, *names: str, version: int = 5) -> list[str]:
    answer = await client.ask(PLAIN_KEY, version, **topics(*names))
    return [topic.name for topic in answer.topics]


def test_requests_that_arrive_together_are_answered_in_order(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime) as (_, addresses),
            connected(runtime, addresses["one"]) as client,
        ):
            sent = [
                client.send(PLAIN_KEY, version, **topics(f"t{number}"))
                for number, version in enumerate([2, 5, 7, 4, 6, 3, 2, 2, 7, 5])
            ]
            for number, version in enumerate([2, 5, 7, 4, 6, 3, 2, 2, 7, 5]):
                correlation_id, answer = await client.answer(PLAIN_KEY, version)
                assert correlation_id == sent[number]
                assert [topic.name for topic in answer.topics] == [f"t{number}"]

    run(main)


def test_request_starts_after_the_response_to_the_one_before_it(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(runtime, gate.api) as (_, addresses),
            connected(runtime, addresses["one"]) as client,
            connected(runtime, addresses["one"]) as other,
        ):
            for number in (1, 2):
                client.send(GATED_KEY, 4, topic_names=["t"], timeout=number)
            await gate.reached(1)
            assert await names_by(other, "x") == ["x"]  # no other connection waits
            assert gate.begun == [1]
            gate.open(2)
            gate.open(1)
            await client.answer(GATED_KEY, 4)
            await client.answer(GATED_KEY, 4)
            assert gate.begun == [1, 2]

    run(main)


GARBAGE = {
    "random bytes": bytes.fromhex("deadbeef" * 40),
    "a web browser": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
    "TLS": bytes.fromhex("16030100f8010000f403037d"),
    "a negative size": struct.pack(">i", -5) + b"12345678",
    "a size of nothing": struct.pack(">i", 0),
    "2 GiB": struct.pack(">ihh", 0x7FFFFFFF, PLAIN_KEY, 5),
    "more than a plain request may have": struct.pack(">ihh", 9 << 20, PLAIN_KEY, 5),
    "an unknown key": framed(struct.pack(">hhih", 999, 0, 1, -1)),
    "a negative key": framed(struct.pack(">hhih", -1, 0, 1, -1)),
    "a version too new": framed(struct.pack(">hhih", PLAIN_KEY, 99, 1, -1)),
    "a version too old": framed(struct.pack(">hhih", PLAIN_KEY, 0, 1, -1)),
    "a client id behind the frame": framed(struct.pack(">hhih", PLAIN_KEY, 2, 1, 900)),
    "a client id that is no text": framed(struct.pack(">hhih", PLAIN_KEY, 2, 1, 2) + b"\xff\xfe"),
    "header tags without end": framed(
        struct.pack(">hhih", PLAIN_KEY, 5, 1, -1) + b"\xff\xff\xff\xff\xff\xff"
    ),
    "header tags behind the frame": framed(
        struct.pack(">hhih", PLAIN_KEY, 5, 1, -1) + b"\x01\x00\x7f"
    ),
    "a body of nothing": framed(struct.pack(">hhih", PLAIN_KEY, 2, 1, -1)),
    "an absurd array": framed(struct.pack(">hhihi", PLAIN_KEY, 2, 1, -1, 0x7FFFFFFF)),
    "an absurd compact array": framed(
        struct.pack(">hhih", PLAIN_KEY, 5, 1, -1) + b"\x00\xff\xff\xff\xff\x0f"
    ),
}


@pytest.mark.parametrize("what", GARBAGE)
def test_invalid_request_ends_its_connection_with_a_reason_and_no_other(
    what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime) as (server, addresses),
            connected(runtime, addresses["one"]) as bad,
            connected(runtime, addresses["one"]) as good,
        ):
            before = bad.send(PLAIN_KEY, 5, **topics("before"))
            bad.send_raw(GARBAGE[what])
            correlation_id, _ = await bad.answer(PLAIN_KEY, 5)  # earlier requests are answered
            assert correlation_id == before
            with pytest.raises(ConnectionEnded):
                await bad.frame()
            assert await names_by(good, "after") == ["after"]
            assert server.figures.listeners["one"].ended == {"invalid": 1}
            assert server.memory.taken == 0

    with caplog.at_level(logging.WARNING, "quorumlog.kafka"):
        simulation.run(main)
    (line,) = [each.getMessage() for each in caplog.records]
    assert line.startswith("kafka.connection_ended reason=invalid peer=")


def test_clients_cannot_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main(runtime: Runtime) -> None:
        async with bare_server(runtime) as (server, addresses):
            for _ in range(3):
                for _ in range(30):
                    async with connected(runtime, addresses["one"]) as bad:
                        bad.send_raw(GARBAGE["TLS"])
                        await bad.ended()
                await asyncio.sleep(1)
            assert server.figures.listeners["one"].ended == {"invalid": 90}

    with caplog.at_level(logging.WARNING, "quorumlog.kafka"):
        simulation.run(main)
    assert 30 <= len(caplog.records) <= 60  # ten a second


def test_a_frame_that_ends_with_its_connection_is_dropped(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        async with bare_server(runtime) as (server, addresses):
            whole = framed(
                request_of(PLAIN_KEY, 5, body_of(PLAIN_KEY, 5, topics("t")), correlation_id=1)
            )
            for size in (1, 3, 4, 9, len(whole) - 1):
                async with connected(runtime, addresses["one"]) as client:
                    client.send_raw(whole[:size])
                    client.connection.close()
                    await client.ended()
            async with connected(runtime, addresses["one"]) as client:
                assert await names_by(client, "fine") == ["fine"]
            await wait_until(lambda: server.connection_count == 0)
            assert server.memory.taken == 0

    run(main)


def test_bug_ends_its_connection_and_no_other(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main(runtime: Runtime) -> None:
        async with (
            bare_server(runtime) as (server, addresses),
            connected(runtime, addresses["one"]) as unlucky,
            connected(runtime, addresses["one"]) as other,
        ):
            unlucky.send(BROKEN_KEY, 2, topics=(), timeout=5)
            with pytest.raises(ConnectionEnded):
                await unlucky.frame()
            assert await names_by(other, "x") == ["x"]
            assert server.figures.listeners["one"].ended == {"bug": 1}
            assert server.figures.apis["Broken"].unanswered == 1

    with caplog.at_level(logging.ERROR, "quorumlog.kafka"):
        run(main)
    assert caplog.records[0].getMessage() == "kafka.handler_failed api=Broken"
    assert caplog.records[0].exc_info is not None


def test_error_without_a_response_ends_the_connection_after_earlier_responses() -> None:
    async def fail(door: BrokerContext, call: Call) -> Answer:
        raise NotLeaderOrFollower("another leads; look who")

    async def main(runtime: Runtime) -> None:
        failing = KafkaApi(key=GATED_KEY, name="Failing", low=1, high=6, flexible=4, handle=fail)
        async with (
            bare_server(runtime, failing) as (server, addresses),
            connected(runtime, addresses["one"]) as client,
        ):
            client.send(PLAIN_KEY, 5, **topics("before"))
            client.send(GATED_KEY, 4, topic_names=["t"], timeout=1)
            client.send(PLAIN_KEY, 5, **topics("behind"))
            await client.answer(PLAIN_KEY, 5)
            with pytest.raises(ConnectionEnded):
                await client.frame()
            assert server.figures.listeners["one"].ended == {"failed": 1}

    simulation.run(main)


def test_closed_connection_cancels_its_requests_and_releases_their_memory(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with bare_server(runtime, gate.api) as (server, addresses):
            async with connected(runtime, addresses["one"]) as client:
                for number in (1, 2, 3):
                    client.send(GATED_KEY, 4, topic_names=["t"], timeout=number)
                await gate.reached(1)
                assert server.memory.taken > 0
            await wait_until(lambda: server.connection_count == 0)
            assert (server.memory.taken, server.figures.open) == (0, 0)
            assert gate.begun == [1]

    run(main)


def test_requests_in_flight_of_a_connection_are_bounded(run: Run) -> None:
    async def main(runtime: Runtime) -> None:
        gate = Gate()
        async with (
            bare_server(runtime, gate.api, inflight_max=3) as (server, addresses),
            connected(runtime, addresses["one"]) as client,
            connected(runtime, addresses["one"]) as other,
        ):
            for number in range(40):
                client.send(GATED_KEY, 4, topic_names=["t"], timeout=number)
            await wait_until(lambda: server.figures.open == 3)
            assert await names_by(other, "x") == ["x"]
            assert server.figures.open == 3
            for number in range(40):
                gate.open(number)
                await client.answer(GATED_KEY, 4)
            assert gate.begun == list(range(40))

    run(main)
