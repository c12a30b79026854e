"""Programs that fork while they use a client, each run by a test in its own interpreter.

gRPC survives a fork only if it is idle, which other tests in a process prevent: `python
fork_program.py both_sides ADDRESS TOPIC`.
"""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import pytest

import quorumlog
from quorumlog.clients.blocking import io_thread
from quorumlog.errors import ClientClosed, InvalidRequest

WAIT_S = 60
ROUNDS = 3
USUAL_REST_S = io_thread.REST_S


def both_sides(address: str, topic: str) -> None:
    """After a fork, child and parent keep using their clients."""
    log = quorumlog.connect(address)
    producer = log.producer(linger_ms=60_000)
    deliveries = [producer.send(topic, b"%d" % number) for number in range(20)]
    consumer = log.consumer(each for each in (topic,))  # a fork recreates the consumer

    def child() -> None:
        assert deliveries[19].result(timeout_ms=0).offset == 19  # delivered before the fork
        assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
        with log.producer() as another:
            assert another.send(topic, b"child").result(WAIT_S).offset == 20
        delivery = producer.send(topic, b"child again")
        producer.flush()
        assert delivery.result(timeout_ms=0).offset == 21
        log.close()

    assert in_child(child) == 0
    delivery = producer.send(topic, b"parent")
    producer.close()
    assert delivery.result().offset == 22
    assert [next(consumer).offset for _ in range(23)] == list(range(23))
    log.close()


def consumer_keeps_its_place(address: str, topic: str) -> None:
    """After a fork both processes continue at the position of the parent."""
    log = quorumlog.connect(address)
    with log.producer() as producer:
        for _ in range(2_000):
            producer.send(topic, b"v")
    consumer = log.consumer(topic)
    for _ in range(600):
        next(consumer)

    def child() -> None:
        assert [next(consumer).offset for _ in range(1_400)] == list(range(600, 2_000))

    assert in_child(child) == 0
    assert [next(consumer).offset for _ in range(1_400)] == list(range(600, 2_000))
    log.close()


def staged_attempt_ends(address: str, topic: str) -> None:
    """A fork ends an open attempt in both processes, and no other attempt."""
    log = quorumlog.connect(address)
    first = log.open_write(topic, 0)
    with log.staged_producer(first, 0) as producer:
        producer.send(topic, b"first")
        log.commit_write(first, [producer.seal()])
    repeated = log.staged_producer(log.open_write(topic, 0), 0)
    repeated.send(topic, b"first")  # dropped
    write = log.open_write(topic, 1)
    producer = log.staged_producer(write, 0)
    unused = log.staged_producer(write, 1, attempt=5)
    producer.send(topic, b"a").result(WAIT_S)

    def child() -> None:
        with pytest.raises(ClientClosed, match="a fork ended the attempt of task 0"):
            producer.send(topic, b"b")
        with pytest.raises(ClientClosed, match="a fork ended the attempt of task 0"):
            producer.send_many(topic, [b"b"])
        unused.send(topic, b"child")  # in its own attempt
        assert unused.seal().count == 1
        log.close()

    assert in_child(child) == 0
    with pytest.raises(ClientClosed, match="a fork ended the attempt of task 0"):
        producer.seal()
    with pytest.raises(ClientClosed, match="a fork ended the attempt of task 0"):
        repeated.seal()
    unused.send(topic, b"c")
    committed = log.commit_write(write, [unused.seal()])
    assert committed is not None
    assert [record.value for record in log.consumer(topic, until_end=True)] == [b"first", b"c"]
    log.close()


def threads_go_on_sending(address: str, topic: str) -> None:
    """Threads that send during a fork continue with one new producer, in order."""
    log = quorumlog.connect(address)
    producer = log.producer(linger_ms=60_000)
    producer.send(topic, b"first")
    is_over = threading.Event()
    sent: list[list[Future[quorumlog.Delivered]]] = [[] for _ in range(8)]

    def send(number: int) -> None:
        while not is_over.is_set():
            sent[number].append(producer.send(topic, b"%d" % number))
            time.sleep(0.0001)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(len(sent))]
    for thread in threads:
        thread.start()

    def child() -> None:
        delivery = producer.send(topic, b"child")
        producer.flush()
        assert delivery.result(timeout_ms=0).offset > 0
        log.close()

    assert in_child(child) == 0
    counts = [len(deliveries) for deliveries in sent]
    while any(len(own) < count + 10 for own, count in zip(sent, counts, strict=True)):
        time.sleep(0.01)
    is_over.set()
    for thread in threads:
        thread.join()
    producer.flush()
    for deliveries in sent:
        assert all(delivery.done() for delivery in deliveries)
        offsets = [delivery.result().offset for delivery in deliveries]
        assert offsets == sorted(offsets)
    log.close()


def grpc_rests(address: str, topic: str) -> None:
    """gRPC's native threads have ended at a fork, even if they had no processor time before it."""
    processors = os.sched_getaffinity(0)
    at_fork: list[list[tuple[str, bool]]] = []
    os.register_at_fork(
        before=lambda: at_fork.append(io_thread.natives())
    )  # behind the client's handler
    log = quorumlog.connect(address)
    for _ in range(ROUNDS):
        log.admin.list_topics()
        give_way(min(processors))
        assert in_child(lambda: log.admin.list_topics()) == 0
        os.sched_setaffinity(0, processors)
    log.close()
    give_way(min(processors))
    assert in_child(lambda: None) == 0
    assert at_fork == [[]] * (ROUNDS + 1)


def give_way(processor: int) -> None:
    """Pin all threads to one processor, with gRPC's native threads at the lowest priority."""
    for number in map(int, os.listdir("/proc/self/task")):
        os.sched_setaffinity(number, {processor})
        name = Path(f"/proc/self/task/{number}/comm").read_text().strip()
        if io_thread.is_native(name):
            os.sched_setscheduler(number, os.SCHED_IDLE, os.sched_param(0))


def grpc_never_ends(address: str, topic: str) -> None:
    """A child forked while gRPC shuts down gets an error instead of hanging."""
    is_over = threading.Event()
    thread = named_thread(io_thread.ENDING, is_over)

    def child() -> None:
        with pytest.raises(InvalidRequest, match="spawn"):
            log.admin.list_topics()

    with quorumlog.connect(address) as log:
        log.admin.list_topics()
        io_thread.REST_S = USUAL_REST_S
        assert in_child(child) == 0
        io_thread.REST_S = WAIT_S
        is_over.set()
        thread.join()
        assert in_child(lambda: log.admin.list_topics()) == 0


def others_cost_one_wait(address: str, topic: str) -> None:
    """A fork waits for native threads of other gRPC users once, not each time."""
    is_over = threading.Event()
    thread = named_thread("event_engine", is_over)
    with quorumlog.connect(address) as log:
        log.admin.list_topics()
        assert in_child(lambda: log.admin.list_topics()) == 0
        io_thread.OTHERS_S = WAIT_S  # the time of another wait
        began = time.monotonic()
        assert in_child(lambda: None) == 0
        assert time.monotonic() - began < WAIT_S
    is_over.set()
    thread.join()


def named_thread(name: str, is_over: threading.Event) -> threading.Thread:
    """Start a thread whose system name is `name`, as gRPC's threads have."""
    thread = threading.Thread(target=is_over.wait, daemon=True)
    thread.start()
    Path(f"/proc/self/task/{thread.native_id}/comm").write_text(name)
    return thread


def in_child(work: Callable[[], object]) -> int:
    """Fork and run `work` in the child. Return its exit status, 0 if it did not raise."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    all_of_them = (
        both_sides,
        consumer_keeps_its_place,
        staged_attempt_ends,
        threads_go_on_sending,
        grpc_rests,
        grpc_never_ends,
        others_cost_one_wait,
    )
    io_thread.REST_S = WAIT_S  # on a busy machine gRPC's threads end late
    programs = {program.__name__: program for program in all_of_them}
    programs[sys.argv[1]](*sys.argv[2:])
