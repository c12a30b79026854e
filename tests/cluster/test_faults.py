"""Real clients during faults: a node that is killed, stopped and paused, and bad connections.

Every test checks that each record has its outcome in time, that acknowledged records are read at
their positions, that no other record is stored, and that the same client works afterwards.
"""

import asyncio
import gc
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from tests.kit.node_process import NodeProcess

import quorumlog
from quorumlog.clients.log import make_log
from quorumlog.clients.producer.batches import Delivered
from quorumlog.errors import (
    ConnectionFailed,
    QuorumlogError,
    TimedOut,
)
from quorumlog.runtime import Runtime, real
from quorumlog.testing import Direction, ForwardingProxy

from .soak_client import count_tasks

RECORDS = 3_000
OUTCOME_S = 240.0  # more than any outcome takes
OUTCOME_MS = round(1_000 * OUTCOME_S)
LIFE_S = 0.7
HERE = Path(__file__).parent

pytestmark = pytest.mark.slow


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path / "node") as running:
        yield running


@contextmanager
def behind_a_proxy(folder: Path) -> Iterator[tuple[NodeProcess, ForwardingProxy]]:
    """Start a node that advertises a proxy in front of it."""
    with (
        ForwardingProxy("127.0.0.1:1") as proxy,
        NodeProcess(folder / "node", advertised=proxy.address) as running,
    ):
        proxy.target = running.address
        yield running, proxy


def read_all(log: quorumlog.Log, topic: str) -> dict[tuple[int, int], bytes]:
    """Return every record's value by (partition, offset)."""
    with log.consumer(topic, until_end=True) as consumer:
        return {(record.partition, record.offset): record.value or b"" for record in consumer}


def check(
    stored: dict[tuple[int, int], bytes],
    delivered: Sequence[tuple[bytes, Delivered]],
    sent: Sequence[bytes],
) -> None:
    """Check the stored records against the acknowledged and the sent ones."""
    for value, where in delivered:
        assert stored.get((where.partition, where.offset)) == value, where
    assert set(stored.values()) <= set(sent), "a stored value was never sent"
    for partition in {place[0] for place in stored}:
        firsts = list(
            dict.fromkeys(stored[place] for place in sorted(stored) if place[0] == partition)
        )
        assert firsts == sorted(firsts), f"partition {partition} is out of order"


def numbered(count: int, name: str = "value") -> list[bytes]:
    return [b"%s %06d" % (name.encode(), number) for number in range(count)]


# --- a node that is killed, stopped and paused ---------------------------------------------------


def trouble(node: NodeProcess, is_over: threading.Event) -> None:
    """Kill, stop and pause the node in turn, until the test is over. It runs for at least twice the
    time that it took to start, so that a slow machine makes progress too."""
    life_s = LIFE_S
    while True:
        for act in (node.kill, node.stop):
            if is_over.wait(life_s):
                return
            act()
            began_s = time.monotonic()
            node.start()
            life_s = max(life_s, 2 * (time.monotonic() - began_s) - 2.0)
        if is_over.wait(life_s):
            return
        node.pause()
        is_over.wait(LIFE_S)
        node.resume()


@contextmanager
def troubled(node: NodeProcess) -> Iterator[None]:
    is_over = threading.Event()
    thread = threading.Thread(target=trouble, args=(node, is_over))
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.long
def test_blocking_clients_survive_kills_stops_and_pauses(node: NodeProcess) -> None:
    values = numbered(RECORDS)
    seen: list[tuple[int, int, bytes]] = []
    is_over = threading.Event()

    def follow(consumer: quorumlog.Consumer) -> None:
        while not is_over.is_set():
            seen.extend(
                (record.partition, record.offset, record.value or b"")
                for record in consumer.poll(timeout_ms=100)
            )

    with quorumlog.connect(node.address) as log:
        log.admin.create_topic("t", partitions=2)
        with log.consumer("t") as consumer:
            following = threading.Thread(target=follow, args=(consumer,))
            following.start()
            try:
                with troubled(node), log.producer(linger_ms=1, batch_size=2_000) as producer:
                    deliveries = []
                    for value in values:
                        deliveries.append((value, producer.send("t", value)))
                        time.sleep(0.002)
                    delivered = [(value, each.result(OUTCOME_S)) for value, each in deliveries]
                stored = read_all(log, "t")
            finally:
                is_over.set()
                following.join()
    assert len(delivered) == RECORDS
    check(stored, delivered, values)
    offsets: dict[int, int] = {}
    for partition, offset, value in seen:
        assert offset == offsets.get(partition, 0), "each offset once, in order"
        offsets[partition] = offset + 1
        assert stored[partition, offset] == value


def open_calls() -> list[object]:
    """Return the gRPC calls of this process that have no status."""
    return [
        each for each in gc.get_objects() if isinstance(each, grpc.aio.Call) and not each.done()
    ]


@pytest.mark.long
def test_asyncio_clients_survive_kills_stops_and_pauses(node: NodeProcess) -> None:
    values = numbered(RECORDS)

    async def main(runtime: Runtime) -> list[tuple[bytes, Delivered]]:
        async with make_log(
            runtime,
            node.address,
            connect_timeout_ms=OUTCOME_MS,
            call_timeout_ms=OUTCOME_MS,
        ) as log:
            await log.admin.create_topic("t", partitions=2)
            before = count_tasks()
            async with log.consumer("t") as consumer, log.producer(linger_ms=1) as producer:
                deliveries = []
                for value in values:
                    deliveries.append((value, await producer.send("t", value)))
                    await asyncio.sleep(0.002)
                async with asyncio.timeout(OUTCOME_S):
                    delivered = [(value, await delivery) for value, delivery in deliveries]
                expected = {0: 0, 1: 0}
                while sum(expected.values()) < RECORDS:
                    for record in await consumer.poll(timeout_ms=60_000):
                        assert record.offset == expected[record.partition]
                        expected[record.partition] += 1
            end_s = time.monotonic() + OUTCOME_S
            while count_tasks() > before:
                assert time.monotonic() < end_s, f"{asyncio.all_tasks()}, {open_calls()}"
                await asyncio.sleep(0.01)  # gRPC's own tasks end a little later
        return delivered

    with troubled(node):
        delivered = real.run(main)
    with quorumlog.connect(node.address) as log:
        check(read_all(log, "t"), delivered, values)


def slowness(address: str) -> float:
    """Return the factor by which a client's first calls take longer than a second here; 1 at
    least."""
    began_s = time.monotonic()
    with quorumlog.connect(address) as log:
        log.admin.create_topic("first")
        with log.producer(linger_ms=0) as producer:
            producer.send("first", b"a").result(OUTCOME_S)
        assert len(read_all(log, "first")) == 1
    return max(1.0, time.monotonic() - began_s)


def sent_in_time(producer: quorumlog.Producer) -> bool:
    """Send a record with retries: a slow machine may take longer than the producer waits."""
    try:
        producer.send("t", b"before").result(OUTCOME_S)
    except QuorumlogError:
        return False
    return True


@pytest.mark.long
def test_calls_to_a_paused_node_end_at_their_deadline(node: NodeProcess) -> None:
    slow = slowness(node.address)
    with quorumlog.connect(
        node.address, request_timeout_ms=int(300 * slow), call_timeout_ms=int(1_000 * slow)
    ) as log:
        log.admin.create_topic("t")
        producer = log.producer(linger_ms=0, delivery_timeout_ms=int(500 * slow))
        patient = log.producer(linger_ms=0)
        consumer = log.consumer("t")
        patient.send("t", b"before").result(OUTCOME_S)
        while not sent_in_time(producer):
            pass
        assert consumer.poll(timeout_ms=60_000)[0].value == b"before"
        while consumer.poll(timeout_ms=500):
            pass
        node.pause()
        later = patient.send("t", b"later")
        began_s = time.monotonic()
        assert consumer.poll(timeout_ms=300) == []
        with pytest.raises(TimedOut):
            log.admin.list_topics()
        producer.send("t", b"lost")
        with pytest.raises(TimedOut):
            producer.flush(timeout_ms=300)
        assert time.monotonic() - began_s < 6.0 * slow
        with pytest.raises(QuorumlogError):
            producer.flush()
        assert time.monotonic() - began_s < 12.0 * slow, (
            "flush waits at least 5 s for a pending response"
        )
        node.resume()
        assert later.result(OUTCOME_S).topic == "t"
        seen = [record.value for record in consumer.poll(timeout_ms=60_000)]
        assert seen[0] in (b"later", b"lost"), "it continues at its position"
        producer.close(flush=False)


# --- bad connections -----------------------------------------------------------------------------


def cut_again_and_again(proxy: ForwardingProxy) -> None:
    for _ in range(5):
        time.sleep(0.2)
        proxy.cut()


def tear_messages(proxy: ForwardingProxy) -> None:
    for count in (1, 10, 100, 1_000, 5_000):
        for direction in Direction:
            proxy.cut_after(direction, count)
            time.sleep(0.1)


def hold_for_a_while(proxy: ForwardingProxy) -> None:
    proxy.hold()
    time.sleep(1.5)
    proxy.release()


def refuse_for_a_while(proxy: ForwardingProxy) -> None:
    proxy.refuse()
    proxy.cut()
    time.sleep(1.0)
    proxy.admit()


def slow_down(proxy: ForwardingProxy) -> None:
    proxy.delay_s = 0.05
    time.sleep(1.0)
    proxy.delay_s = 0.0


@pytest.mark.long
@pytest.mark.parametrize(
    "spoil",
    [cut_again_and_again, tear_messages, hold_for_a_while, refuse_for_a_while, slow_down],
)
def test_a_bad_connection_loses_no_record(
    spoil: Callable[[ForwardingProxy], None], tmp_path: Path
) -> None:
    values = numbered(600)
    with behind_a_proxy(tmp_path) as (_, proxy), quorumlog.connect(proxy.address) as log:
        log.admin.create_topic("t", partitions=2)
        spoiling = threading.Thread(target=spoil, args=(proxy,))
        with log.producer(linger_ms=0) as producer:
            spoiling.start()
            deliveries = []
            for value in values:
                deliveries.append((value, producer.send("t", value)))
                time.sleep(0.003)
            delivered = [(value, each.result(OUTCOME_S)) for value, each in deliveries]
        spoiling.join()
        check(read_all(log, "t"), delivered, values)
        assert len(delivered) == len(values)


@pytest.mark.long
@pytest.mark.parametrize("direction", list(Direction))
def test_flipped_bits_block_no_client_and_add_no_record(
    direction: Direction, tmp_path: Path
) -> None:
    """Over plain TCP a flipped bit may turn one valid request into another; the batch's checksum
    protects its content."""
    values = numbered(300)
    with behind_a_proxy(tmp_path) as (node, proxy):
        with quorumlog.connect(proxy.address, call_timeout_ms=60_000) as log:
            log.admin.create_topic("t")
            producer = log.producer(linger_ms=0, delivery_timeout_ms=10_000)
            outcomes = []
            for number, value in enumerate(values):
                if number % 30 == 0:
                    proxy.corrupt(direction)
                outcomes.append(producer.send("t", value))
                time.sleep(0.003)
            failures = [each.exception(OUTCOME_S) for each in outcomes]
            assert all(isinstance(each, QuorumlogError | None) for each in failures)
            proxy.corrupt(direction, chunks=0)
            producer.close()
            with log.producer(linger_ms=0) as patient:
                assert patient.send("t", values[-1]).result(OUTCOME_S).topic == "t"
        with quorumlog.connect(node.address) as log:
            assert set(read_all(log, "t").values()) <= set(values)


def test_a_plain_connection_to_a_tls_port_names_the_cause(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"]
    command += ["-subj", "/CN=localhost", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl command to make a certificate with")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    async def main(runtime: Runtime) -> str:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            with pytest.raises(ConnectionFailed) as caught:
                await make_log(runtime, address, connect_timeout_ms=2_000)
        finally:
            server.close()
        return str(caught.value)

    sentence = real.run(main)
    assert "TLS" in sentence
    assert "gRPC" in sentence, "the message has the remedy"


# --- Ctrl-C --------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    "call", ["connect", "send", "result", "flush", "poll", "iterate", "admin", "close"]
)
def test_ctrl_c_ends_every_blocking_call_at_once(call: str, node: NodeProcess) -> None:
    with quorumlog.connect(node.address) as log:
        log.admin.create_topic("t")
    started_s = time.monotonic()
    program = subprocess.Popen(
        [
            sys.executable,
            "-W",
            "error",
            str(HERE / "interrupted_program.py"),
            node.address,
            "t",
            call,
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdin is not None
    assert program.stdout is not None
    try:
        assert program.stdout.readline() == "ready\n", program.communicate()[1]
        start_s = time.monotonic() - started_s  # of Python and the clients
        node.pause()
        program.stdin.write("\n")
        program.stdin.flush()
        assert program.stdout.readline() == "calling\n"
        time.sleep(0.5)  # the program is in the call or about to enter it: Ctrl-C ends both
        program.send_signal(signal.SIGINT)
        began_s = time.monotonic()
        said, complaint = program.communicate(timeout=OUTCOME_S)
        assert said.splitlines()[0] == "interrupted", (said, complaint)
        assert said.splitlines()[-1] == "closed", (said, complaint)
        assert program.returncode == 0, complaint
        assert "Traceback" not in complaint, complaint
        assert time.monotonic() - began_s < max(10.0, 2 * start_s), (
            "the program waited for a timeout"
        )
    finally:
        program.kill()
        program.communicate()
        node.resume()
