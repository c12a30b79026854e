"""Behaviour that needs real sockets, threads and interpreters: foreign ports, ended loops."""

import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from tests.kit.waits import AMPLE_MS, AMPLE_S, run_patiently, with_blocking_time, with_time

import quorumlog
from quorumlog.clients.log import make_log
from quorumlog.clients.producer.batches import Delivered
from quorumlog.errors import (
    ConnectionFailed,
    InvalidRequest,
    NotDelivered,
    QuorumlogError,
    TimedOut,
)
from quorumlog.proto import admin_pb2, transactions_pb2
from quorumlog.runtime import Runtime
from quorumlog.testing import Broker

HERE = Path(__file__).parent
WAIT_S = AMPLE_S


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The gRPC address of a broker with a topic `t`."""
    with Broker() as broker:
        broker.create_topic("t")
        yield broker.grpc


# --- foreign servers -----------------------------------------------------------------------------


@contextmanager
def listening(answer: bytes) -> Iterator[str]:
    """A port that answers the first bytes of each connection, then closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(WAIT_S)
                    connection.recv(1_000)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join(WAIT_S)


FOREIGN = {
    # the alert that a TLS server sends for plaintext bytes
    "tls": (bytes.fromhex("15030100020246"), "whether it requires TLS"),
    "http": (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "a web server's port"),
    "nonsense": (bytes(64), "not a gRPC server"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "sentence"), FOREIGN.values(), ids=list(FOREIGN))
def test_port_of_another_protocol_is_reported_as_such(answer: bytes, sentence: str) -> None:
    with listening(answer) as place:

        def check(connect_timeout_ms: int) -> None:
            with pytest.raises(ConnectionFailed, match=sentence):
                quorumlog.connect(place, connect_timeout_ms=connect_timeout_ms)

        with_blocking_time(800, check)


@pytest.mark.slow
def test_an_address_that_does_not_resolve_is_reported() -> None:
    def check(connect_timeout_ms: int) -> None:
        with pytest.raises(ConnectionFailed, match="no-such-host"):
            quorumlog.connect("no-such-host.invalid:9094", connect_timeout_ms=connect_timeout_ms)

    with_blocking_time(800, check)


def test_unparsable_responses_count_as_lost_and_lead_to_a_timeout() -> None:
    """A gRPC server whose responses cannot be parsed."""

    async def main(runtime: Runtime) -> None:
        address = ""

        async def describe_cluster(request: bytes, context: object) -> bytes:
            brokers = [admin_pb2.BrokerDescription(id=1, grpc_address=address)]
            return admin_pb2.DescribeClusterResponse(brokers=brokers).SerializeToString()

        async def describe_topics(request: bytes, context: object) -> bytes:
            response = admin_pb2.DescribeTopicsResponse()
            response.results.add(name="t").topic.name = "t"
            response.results[0].topic.partitions.add(partition=0, leader=1)
            response.brokers.add(id=1, grpc_address=address)
            return response.SerializeToString()

        async def init_producer_id(request: bytes, context: object) -> bytes:
            response = transactions_pb2.InitProducerIdResponse()
            response.producer.producer_id = 1
            return response.SerializeToString()

        async def produce(requests: AsyncIterator[bytes], context: object) -> AsyncIterator[bytes]:
            async for _ in requests:
                yield b"\xff\xff\xff"

        server = grpc.aio.server()
        unary = grpc.unary_unary_rpc_method_handler
        server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "quorumlog.v1.Admin",
                    {
                        "DescribeCluster": unary(describe_cluster),
                        "DescribeTopics": unary(describe_topics),
                    },
                ),
                grpc.method_handlers_generic_handler(
                    "quorumlog.v1.Transactions", {"InitProducerId": unary(init_producer_id)}
                ),
                grpc.method_handlers_generic_handler(
                    "quorumlog.v1.Log", {"Produce": grpc.stream_stream_rpc_method_handler(produce)}
                ),
            )
        )
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        await server.start()
        async with make_log(runtime, address) as log:

            async def check(delivery_timeout_ms: int) -> None:
                producer = log.producer(delivery_timeout_ms=delivery_timeout_ms)
                await producer.send("t", b"v")
                with pytest.raises(NotDelivered) as caught:
                    await producer.close()
                assert isinstance(caught.value.first, TimedOut)
                assert caught.value.records[0].may_be_stored

            await with_time(400, check)
        await server.stop(None)

    run_patiently(main)


# --- loops and threads ---------------------------------------------------------------------------


@pytest.mark.long
def test_loop_that_ends_before_the_client_leaves_outcomes_and_no_warnings(address: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(HERE / "early_end_program.py"), address, "t"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "the producer is closed\n"


def test_a_callback_may_send_and_may_not_wait(address: str) -> None:
    with quorumlog.connect(address, connect_timeout_ms=AMPLE_MS) as log:
        reported: list[object] = []
        again = threading.Event()
        with log.producer(linger_ms=0) as producer:

            def second(delivered: Delivered | None, error: QuorumlogError | None) -> None:
                reported.append(delivered is not None and error is None)
                again.set()

            def first(delivered: Delivered | None, error: QuorumlogError | None) -> None:
                delivery = producer.send("t", b"from a callback", on_delivery=second)
                with pytest.raises(InvalidRequest, match="would wait for itself"):
                    delivery.result()
                reported.append(threading.current_thread().name)

            producer.send("t", b"v", on_delivery=first).result(WAIT_S)
            assert again.wait(WAIT_S)
        assert reported == ["quorumlog-io", True]


def test_bulk_send_of_the_blocking_producer(address: str) -> None:
    with quorumlog.connect(address, connect_timeout_ms=AMPLE_MS) as log:
        log.admin.create_topic("many")
        with log.producer(buffer_size=100_000) as producer:
            sent = producer.send_many("many", [b"%d" % number for number in range(5_000)])
            (place,) = sent.result(timeout_ms=WAIT_S * 1_000)
            assert (place.first, place.end) == (0, 5_000)
            assert sent[77].result().offset == 77
            assert producer.statistics().delivered_records == 5_000
        records = log.consumer("many", until_end=True)
        assert [record.value for record in records] == [b"%d" % n for n in range(5_000)]


def test_threads_with_bulk_and_single_sends_keep_their_own_order(address: str) -> None:
    with quorumlog.connect(address, connect_timeout_ms=AMPLE_MS) as log:
        log.admin.create_topic("threads", partitions=2)
        with log.producer(linger_ms=1, buffer_size=50_000, batch_size=3_000) as producer:

            def work(thread: int) -> None:
                for burst in range(10):
                    values = [b"%d:%d" % (thread, burst * 40 + n) for n in range(40)]
                    if burst % 2:
                        producer.send_many("threads", values, partition=thread % 2)
                    else:
                        for value in values:
                            producer.send("threads", value, partition=thread % 2)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(WAIT_S)
        found: dict[bytes, list[int]] = {}
        for record in log.consumer("threads", until_end=True):
            name, _, number = (record.value or b"").partition(b":")
            found.setdefault(name, []).append(int(number))
        assert found == {b"%d" % thread: list(range(400)) for thread in range(4)}
