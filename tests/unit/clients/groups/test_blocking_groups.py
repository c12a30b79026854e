"""The blocking group consumers with a node in its own process: real time, killed members.

Callbacks run on the thread that polls.
"""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from tests.kit.waits import AMPLE_MS, AMPLE_S, undisturbed

import quorumlog
from quorumlog.clients.blocking import Log
from quorumlog.ids import TopicPartition
from quorumlog.testing import Broker

SESSION_S = 3.0  # the node's process may get no processor time for a second
SETTINGS = {
    "group.consumer.session.timeout.ms": round(1_000 * SESSION_S),
    "group.consumer.heartbeat.interval.ms": 200,
}
WAIT_S = AMPLE_S / 3  # time for three attempts
STALL_S = 0.5  # some heartbeats come late

READER = """
import sys, time
import quorumlog

with quorumlog.connect(sys.argv[1]) as log:
    consumer = log.group_consumer(sys.argv[3], sys.argv[2])
    for record in consumer:
        print(record.offset, flush=True)
        time.sleep(60)
"""


STOPPED = """
import sys, time
import quorumlog

def tell(what):
    return lambda places: print(what, flush=True)

with quorumlog.connect(sys.argv[1]) as log:
    consumer = log.group_consumer(
        sys.argv[3], sys.argv[2], on_assigned=tell("assigned"), on_lost=tell("lost")
    )
    while True:
        for record in {iteration}:
            print(record.offset, flush=True)
            until = time.monotonic() + 0.3
            while time.monotonic() < until:
                pass  # so that no other thread comes first when it goes on
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A node with a short session timeout."""
    with Broker(settings=SETTINGS) as broker:
        yield broker.grpc


@pytest.fixture
def topic(request: pytest.FixtureRequest, log: Log) -> str:
    """A topic for one test, with two partitions of 10 records."""
    name = str(request.node.name).strip("]").replace("[", "-")[:200]
    log.admin.create_topic(name, partitions=2)
    with log.producer() as producer:
        for number in range(20):
            producer.send(name, b"%d" % number, partition=number % 2)
    return name


@pytest.mark.slow
def test_partitions_of_a_killed_member_move_to_the_other(
    address: str, log: Log, topic: str
) -> None:
    command = [sys.executable, "-c", READER, address, topic, "g-killed"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout is not None
            assert victim.stdout.readline() == "0\n"  # it is a member and processes records
        finally:
            victim.kill()
        everything = {(partition, offset) for partition in range(2) for offset in range(10)}
        got: set[tuple[int, int]] = set()
        with log.group_consumer("g-killed", topic) as heir:
            for record in heir.records(idle_ms=AMPLE_MS):
                got.add((record.partition, record.offset))
                if got == everything:
                    break
    assert got == everything


@pytest.mark.long
@pytest.mark.parametrize(
    "iteration", ["consumer", "consumer.records(idle_ms=5_000)"], ids=["all", "some"]
)
def test_a_member_stopped_beyond_its_session_delivers_no_buffered_record(
    address: str, topic: str, iteration: str
) -> None:
    """Other members may own its partitions: it drops them with everything that was prefetched."""
    program = STOPPED.replace("{iteration}", iteration)

    def check(number: int) -> None:
        command = [sys.executable, "-c", program, address, topic, f"g-{topic}-{number}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as member:
            try:
                assert member.stdout is not None
                said = [member.stdout.readline() for _ in range(3)]
                assert said == ["assigned\n", "0\n", "1\n"]
                time.sleep(0.1)  # it processes that record
                member.send_signal(signal.SIGSTOP)
                time.sleep(2 * SESSION_S)
                member.send_signal(signal.SIGCONT)
                assert [member.stdout.readline() for _ in range(2)] == ["lost\n", "assigned\n"]
                assert (
                    member.stdout.readline().strip() in "012"
                )  # the committed offset of the group
            finally:
                member.kill()

    undisturbed(check, stall_s=0.1)


@pytest.mark.slow
def test_processing_longer_than_the_session_keeps_the_membership(log: Log, topic: str) -> None:

    def check(number: int) -> None:
        lost: list[object] = []
        group = f"g-slow-{number}"
        with log.group_consumer(group, topic, on_lost=lost.append) as consumer:
            before = consumer.member_id
            first = next(consumer)
            time.sleep(2 * SESSION_S)
            members = log.admin.describe_group(group).members
            assert [member.member_id for member in members] == [before]
            consumer.commit()
            stored = consumer.committed()[TopicPartition(topic, first.partition)]
            assert stored is not None
            assert stored.offset == 1
        assert lost == []

    undisturbed(check, stall_s=STALL_S)


def test_callbacks_run_on_the_thread_that_reads_and_may_use_the_consumer(
    log: Log, topic: str
) -> None:
    threads: list[str] = []

    def on_assigned(places: list[TopicPartition]) -> None:
        threads.append(threading.current_thread().name)
        for place in places:
            consumer.seek(place, 7)

    def on_revoked(places: list[TopicPartition]) -> None:
        threads.append(threading.current_thread().name)
        consumer.commit({place: quorumlog.CommittedOffset(9, note="mine") for place in places})

    consumer = log.group_consumer(
        "g-called", topic, auto_commit=False, on_assigned=on_assigned, on_revoked=on_revoked
    )
    with consumer:
        offsets = sorted(record.offset for record in consumer.records(max_records=6))
    assert offsets == [7, 7, 8, 8, 9, 9]
    assert threads == [threading.current_thread().name] * 2
    stored = log.admin.describe_group("g-called").offsets
    assert [(each.committed, each.note) for each in stored] == [(9, "mine"), (9, "mine")]


def test_buffered_and_current_records_are_not_committed(log: Log, topic: str) -> None:
    def check(number: int) -> None:
        done: list[tuple[int, int]] = []

        def fail_at_the_fourth() -> None:
            with log.group_consumer(f"g-waiting-{number}", topic) as consumer:
                for record in consumer:
                    done.append((record.partition, record.offset))
                    if len(done) == 4:
                        raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_at_the_fourth()
        with log.group_consumer(f"g-waiting-{number}", topic) as consumer:
            found = consumer.records(idle_ms=AMPLE_MS, max_records=17)
            rest = [(record.partition, record.offset) for record in found]
        everything = [(partition, offset) for partition in range(2) for offset in range(10)]
        assert sorted(done[:-1] + rest) == everything

    undisturbed(check, stall_s=STALL_S)


@pytest.mark.slow
def test_iterating_member_gives_half_to_a_new_member(log: Log, topic: str) -> None:
    def check(number: int) -> None:
        with log.group_consumer(f"g-shared-{number}", topic) as first:
            got = [(r.partition, r.offset) for r in (next(first), next(first))]
            assert len(first.assignment()) == 2
            thread_got: list[tuple[int, int]] = []

            def read_second() -> None:
                with log.group_consumer(f"g-shared-{number}", topic) as second:
                    deadline = time.monotonic() + WAIT_S
                    while not thread_got and time.monotonic() < deadline:
                        thread_got.extend(
                            (r.partition, r.offset) for r in second.poll(timeout_ms=200)
                        )

            other = threading.Thread(target=read_second)
            other.start()
            is_alone = False
            while not is_alone:  # records that the other member left are read after it
                is_alone = not other.is_alive()
                for record in first.records(idle_ms=1_000):
                    got.append((record.partition, record.offset))
                    time.sleep(0.2)  # while other records of this poll are buffered
            other.join()
        everything = {(partition, offset) for partition in range(2) for offset in range(10)}
        assert {*got, *thread_got} == everything
        assert thread_got
        assert not {*got} & {*thread_got}  # revoked behind the processed records

    undisturbed(check, stall_s=STALL_S)
