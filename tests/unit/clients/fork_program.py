"""Programs that fork while they use a client, each run by a test in an interpreter of its own.

gRPC survives a fork only where nobody else of the process keeps it busy, and a test process is full
of others: `python fork_program.py both_sides ADDRESS TOPIC`.
"""

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future

import quorumlog

WAIT_S = 20


def both_sides(address: str, topic: str) -> None:
    """After a fork the child and the parent go on with the clients they have."""
    log = quorumlog.connect(address)
    producer = log.producer(linger_ms=60_000)
    deliveries = [producer.send(topic, b"%d" % number) for number in range(20)]
    consumer = log.consumer(topic)

    def child() -> None:
        assert deliveries[19].result(0).offset == 19  # delivered before the fork
        assert [next(consumer).offset for _ in range(3)] == [0, 1, 2]
        with log.producer() as another:
            assert another.send(topic, b"child").result(WAIT_S).offset == 20
        delivery = producer.send(topic, b"child again")
        producer.flush()
        assert delivery.result(0).offset == 21
        log.close()

    assert in_child(child) == 0
    delivery = producer.send(topic, b"parent")
    producer.close()
    assert delivery.result().offset == 22
    assert [next(consumer).offset for _ in range(23)] == list(range(23))
    log.close()


def consumer_keeps_its_place(address: str, topic: str) -> None:
    """After a fork both sides read on from where the parent was."""
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


def threads_go_on_sending(address: str, topic: str) -> None:
    """Threads that send while another one forks go on with one new producer, in their order."""
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
        assert delivery.result(0).offset > 0
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


def in_child(work: Callable[[], None]) -> int:
    """Fork, run `work` in the child and return its exit status; 0 when it did not raise."""
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
    all_of_them = (both_sides, consumer_keeps_its_place, threads_go_on_sending)
    programs = {program.__name__: program for program in all_of_them}
    programs[sys.argv[1]](*sys.argv[2:])
