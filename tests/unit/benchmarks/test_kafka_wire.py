"""Encoded requests, the generator in C, pairs, and the results of loads."""

import contextlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from benchmarks.kafka_wire import (
    apache_kafka,
    artifacts,
    batches,
    cases,
    ceiling,
    clients,
    dirty_pages,
    generator,
    latency,
    ours,
    pairs,
    profiling,
    starts,
    throughput,
)
from benchmarks.kafka_wire.generator import Latency, Load, Phases
from benchmarks.kafka_wire.wire import FETCH, PRODUCE, Asker, Leader, message_of
from benchmarks.page import SECTIONS, page
from benchmarks.raft.processes import Refused

from quorumlog.records import decode_all
from quorumlog.runtime.real import run

TOPIC = "load-000-0"
SMALL = batches.Workload(value_bytes=100, batch_bytes=4096)
SHORT = Phases(warm_s=0.02, measure_s=0.2)
needs_cc = pytest.mark.skipif(not generator.is_here(), reason=generator.MISSING)


@pytest.fixture(scope="module", autouse=True)
def compiled_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Compile the programs into a cache for these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUORUMLOG_PEERS", str(tmp_path_factory.mktemp("peers")))
        yield


def response(kind: tuple[int, int], fields: dict[str, Any]) -> bytes:
    """Return the bytes of a response from its correlation id on."""
    from kio.index import load_response_schema
    from kio.serial import entity_writer

    schema, out = load_response_schema(*kind), BytesIO()
    entity_writer(schema)(out, message_of(schema, fields))
    return struct.pack(">i", 7) + b"\x00" + out.getvalue()


# --- requests and positions ----------------------------------------------------------------------


@pytest.mark.parametrize("workload", throughput.WORKLOADS, ids=lambda each: each.name)
def test_batches_of_a_workload_fill_their_size(workload: batches.Workload) -> None:
    made = batches.batches_of(workload, distinct_bytes=2 * workload.batch_bytes)
    assert workload.batch_bytes - 2 * workload.value_bytes < made.size <= workload.batch_bytes
    assert len(made.batches) == 2
    records = decode_all(made.batches[0])
    assert len(records) == made.records
    assert {len(record.value or b"") for record in records} == {workload.value_bytes}


def test_error_of_a_produce_response_is_at_the_position_of_the_generator() -> None:
    from kio.schema.errors import ErrorCode

    part = {"index": 3, "error_code": ErrorCode.not_leader_or_follower, "base_offset": 5}
    topic = {"name": TOPIC, "partition_responses": [part]}
    answer = response(PRODUCE, {"responses": [topic], "throttle_time": 0})
    at = batches.produce_error_at(TOPIC)
    assert answer[at : at + 2] == struct.pack(">h", 6)


def test_error_and_size_of_a_fetch_response_are_at_the_positions_of_the_generator() -> None:
    from kio.schema.errors import ErrorCode

    part = {
        "partition_index": 3,
        "error_code": ErrorCode.offset_out_of_range,
        "high_watermark": 9,
        "records": b"r" * 300,
    }
    topic = {"topic": TOPIC, "partitions": [part | {"aborted_transactions": []}]}
    found = {"throttle_time": 0, "error_code": ErrorCode.none, "responses": [topic]}
    answer = response(FETCH, found)
    at = batches.fetch_error_at(TOPIC)
    assert answer[at : at + 2] == struct.pack(">h", 1)
    at = batches.records_at(TOPIC)
    assert answer[at : at + 4] == b"\xad\x02rr"  # 301 as a varint, then the records


def test_an_offset_can_be_put_into_a_fetch_request() -> None:
    from kio.index import load_request_schema
    from kio.serial import entity_reader

    frame, at = batches.fetch_frame(TOPIC, 3, max_bytes=77)
    patched = frame[:at] + (123).to_bytes(8, "big") + frame[at + 8 :]
    header = 4 + 8 + 2 + len("load") + 1
    request: Any = entity_reader(load_request_schema(*FETCH))(patched[header:], 0)[0]
    (partition,) = request.topics[0].partitions
    assert (partition.partition, partition.fetch_offset) == (3, 123)
    assert partition.partition_max_bytes == 77


# --- the generator -------------------------------------------------------------------------------


def load_ceiling(folder: Path, plan_of: Callable[[Leader], batches.Plan]) -> Load:
    async def main(_: Any) -> Load:
        async with ceiling.ceiling(folder, TOPIC) as system:
            plan = plan_of(Leader(partition=0, port=system.port))
            return generator.run(plan, pids=system.pids, phases=SHORT)

    return run(main)


@needs_cc
@pytest.mark.long
def test_produced_records_are_counted_in_whole_batches(tmp_path: Path) -> None:
    made = batches.batches_of(SMALL)
    load = load_ceiling(
        tmp_path,
        lambda leader: batches.produce_all(TOPIC, [leader], made, acks="1", window=5),
    )
    assert load.requests > 0
    assert load.bytes == load.requests * made.size
    assert load.unanswered == 0


@needs_cc
@pytest.mark.slow
def test_fetched_records_are_counted_in_whole_batches(tmp_path: Path) -> None:
    made = batches.batches_of(SMALL)

    def plan_of(leader: Leader) -> batches.Plan:
        plan = batches.Plan()
        plan.fetch(TOPIC, leader, made, first=0, end=1 << 30, most=10 * made.size)
        return plan

    load = load_ceiling(tmp_path, plan_of)
    assert load.requests > 0
    assert load.bytes == load.requests * 10 * made.size
    assert load.other_sizes == 0


@contextlib.contextmanager
def answering(answer: Callable[[int], bytes]) -> Iterator[int]:
    """A server on a thread with a scripted response for each produce request, behind size and
    correlation id. It yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            number = 0
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:  # the connection ended
                    return
                with connection, connection.makefile("rb") as requests:
                    while size := requests.read(4):
                        frame = requests.read(*struct.unpack(">i", size))
                        body = frame[4:8] + answer(number)
                        with contextlib.suppress(OSError):
                            connection.sendall(struct.pack(">i", len(body)) + body)
                        number += 1

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(60)
        assert not thread.is_alive()


def good(code: int = 0) -> bytes:
    """Return the rest of a successful produce response."""
    return bytes(batches.produce_error_at(TOPIC) - 4) + struct.pack(">h", code) + bytes(40)


def load_server(port: int, *, interval_s: float | None) -> Load:
    made = batches.batches_with(1, 100, distinct=3)
    leader = Leader(partition=0, port=port)
    plan = batches.produce_all(TOPIC, [leader], made, acks="1", window=2)
    return generator.run(plan, pids=(), phases=SHORT, interval_s=interval_s)


@needs_cc
@pytest.mark.slow
def test_an_error_code_is_no_success() -> None:
    with (
        answering(lambda number: good(6 if number % 10 == 9 else 0)) as port,
        pytest.raises(Refused, match=r"error codes, so often: \{'6': "),
    ):
        load_server(port, interval_s=None)


@needs_cc
@pytest.mark.slow
def test_measurement_is_extended_if_the_server_does_not_respond() -> None:
    def answer(number: int) -> bytes:
        if number == 0:
            time.sleep(3 * SHORT.measure_s)
        return good()

    with answering(answer) as port:
        load = load_server(port, interval_s=None)
    assert load.requests > 0
    assert load.seconds > SHORT.measure_s


@needs_cc
@pytest.mark.slow
def test_latency_of_requests_due_during_a_stall_includes_it() -> None:
    stall_s, interval_s = 0.1, 0.002

    def answer(number: int) -> bytes:
        if number == 40:  # in the measured time
            time.sleep(stall_s)
        return good()

    with answering(answer) as port:
        load = load_server(port, interval_s=interval_s)
    due = round(SHORT.measure_s / interval_s)
    assert load.acknowledged.count == pytest.approx(due, abs=2)
    assert (load.acknowledged.max or 0) >= stall_s * 0.9e6
    assert (load.acknowledged.p90 or 0) >= stall_s * 0.5e6  # a tenth was due during the stall


@needs_cc
@pytest.mark.slow
def test_requests_due_while_the_generator_was_stalled_are_sent_and_counted() -> None:
    """Up to the end of the measured time, for any cause of the stall, such as a busy machine."""
    interval_s = 0.002

    def answer(number: int) -> bytes:
        if number == 40:  # in the measured time
            command = ["pgrep", "-P", str(os.getpid()), "^load-"]
            (pid,) = subprocess.check_output(command, text=True).split()
            os.kill(int(pid), signal.SIGSTOP)
            time.sleep(2 * SHORT.measure_s)
            os.kill(int(pid), signal.SIGCONT)
        return good()

    with answering(answer) as port:
        load = load_server(port, interval_s=interval_s)
    assert load.acknowledged.count == pytest.approx(SHORT.measure_s / interval_s, abs=2)
    assert (load.acknowledged.max or 0) >= SHORT.measure_s * 0.9e6


@pytest.mark.slow
def test_a_broker_that_hangs_up_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def hang_up() -> None:
            listener.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with Asker(port) as asker, pytest.raises(OSError, match=r"hung up|reset"):
            asker.offset(TOPIC, 0, -1)
        thread.join()


# --- results -------------------------------------------------------------------------------------


def load(
    rate: float, *, cpu_s: float = 1.0, client_cpu_s: float = 0.1, wait_us: int = 1000
) -> Load:
    """Return a load of one second."""
    wait = Latency(count=10, p50=wait_us, p90=wait_us, p99=wait_us, p999=wait_us, max=wait_us)
    return Load(
        seconds=1.0,
        bytes=int(rate * 1e6),
        requests=1000,
        broker_cpu_s=cpu_s,
        client_cpu_s=client_cpu_s,
        machine_cpu_s=cpu_s + client_cpu_s + 0.2,
        other_sizes=0,
        unanswered=0,
        acknowledged=wait,
        delivered=wait,
    )


ROUNDS = 5
MACHINE = {
    "cores": 2,
    "cpu": "a processor",
    "python": "3.11",
    "build": "plain Python",
    "rounds": ROUNDS,
}
RUN = throughput.Run(
    brokers=1,
    acks="1",
    seconds=1.0,
    rounds=ROUNDS,
    warm_s=0.0,
    workloads=throughput.WORKLOADS[:1],
)
NAME = RUN.workloads[0].name
RATE: pairs.Goal[Load] = pairs.Goal(what="rate", figure=lambda each: each.mb_per_s, bound=">= 1.2")
CPU: pairs.Goal[Load] = pairs.Goal(
    what="CPU", figure=lambda each: each.cpu_s_per_gb, bound="<= 0.7"
)


def by_round(*rates: float, again: float | None = None) -> pairs.Turns[Load]:
    """Return loads of these rates, one for each round."""
    taken = {number: load(rate) for number, rate in enumerate(rates)}
    return taken if again is None else taken | {pairs.AGAIN: load(again)}


def loads() -> throughput.Measured:
    """Return loads at twice and half of Kafka's rate, and a system that refused a row."""
    measured = throughput.Measured()
    for direction in (throughput.PRODUCE, throughput.FETCH):
        for name, rate in ((ours.NAME, 500), (apache_kafka.NAME, 200), (ceiling.NAME, 1000)):
            key = (name, direction, NAME)
            measured.loads[key] = by_round(rate, rate / 2, rate * 3, rate, rate, again=rate * 1.1)
    measured.refusals["tansu", throughput.FETCH, NAME] = "it fell over"
    return measured


def test_neighbours_are_in_the_opposite_order_every_other_round() -> None:
    taken = list(pairs.turns("OK", 5))
    assert "".join(name for _, order in taken for name in order) == "KOOKKOOKKOO"
    assert [number for number, _ in taken] == [0, 1, 2, 3, 4, pairs.AGAIN]


def test_one_round_has_one_pair_and_no_repetition() -> None:
    assert list(pairs.turns("OK", 1)) == [(0, "KO")]


def compared(mine: pairs.Turns[Load], *, rounds: int = ROUNDS, void: str = "") -> dict[str, Any]:
    """Compare these rates with 100 MB/s in each round."""
    theirs = by_round(*[100.0] * rounds)
    line = pairs.compare(RATE, mine, theirs, rounds=rounds, void=void)
    assert line is not None
    return line


def test_the_ratio_is_the_median_of_the_pairs_and_not_of_the_sides() -> None:
    mine, theirs = by_round(100, 400, 900), by_round(100, 200, 100)
    line = pairs.compare(RATE, mine, theirs, rounds=3)
    assert line is not None
    assert (line["pairs"], line["ratio"]) == ([1.0, 2.0, 9.0], 2.0)  # medians: 400 and 100


def test_a_goal_is_met_by_the_median_and_four_of_five_pairs() -> None:
    line = compared(by_round(130, 130, 110, 125, 130))
    assert (line["met"], line["pairs_met"], line["ratio"]) == (True, 4, 1.3)


def test_a_goal_is_missed_with_three_of_five_pairs_though_the_median_meets_it() -> None:
    line = compared(by_round(130, 110, 110, 125, 130))
    assert (line["met"], line["pairs_met"], line["ratio"]) == (False, 3, 1.25)


def test_missing_pairs_do_not_meet_a_goal() -> None:
    mine = by_round(130, 130, 130)
    assert not compared(mine)["met"]
    assert compared(mine, rounds=3)["met"]


def test_void_row_meets_no_goal_and_is_marked() -> None:
    line = compared(by_round(*[130] * ROUNDS), void="it was short")
    assert (line["met"], line["note"]) == (False, "void: it was short")


def test_the_noise_is_the_ratio_of_the_repeated_turn_to_the_last_one() -> None:
    line = compared(by_round(1, 1, 1, 1, 200, again=210))
    assert line["a_a"] == 1.05
    assert line["pairs"] == [0.01, 0.01, 0.01, 0.01, 2.0]
    assert compared(by_round(1, 1, 1, 1, 200))["a_a"] is None


@pytest.mark.parametrize(
    ("thread", "broker", "bound"),
    [(0.96, 0.79, True), (0.95, 0.79, False), (0.96, 0.8, False), (1.0, 1.4, False)],
)
def test_a_row_is_client_bound_if_the_thread_is_busy_and_the_broker_is_not(
    thread: float, broker: float, bound: bool
) -> None:
    assert pairs.is_client_bound(thread_cores=thread, broker_cores=broker) == bound


@pytest.mark.parametrize(("cpu_s", "met"), [(0.5, True), (0.9, False)])
def test_cpu_decides_in_a_client_bound_row(cpu_s: float, met: bool) -> None:
    mine, theirs = {0: load(100, cpu_s=cpu_s)}, {0: load(100)}
    rate, cpu = pairs.compare_costs(RATE, CPU, mine, theirs, rounds=1, client_bound=True)
    assert (rate["met"], cpu["met"]) == (met, met)
    assert rate["note"] == "client-bound: CPU decides"
    rate, _ = pairs.compare_costs(RATE, CPU, mine, theirs, rounds=1, client_bound=False)
    assert (rate["met"], rate["note"]) == (False, "")


def test_a_row_says_that_it_is_client_bound() -> None:
    measured = loads()
    key = (ours.NAME, throughput.PRODUCE, NAME)
    measured.loads[key] = {n: load(100, cpu_s=0.4, client_cpu_s=0.97) for n in range(ROUNDS)}
    result = throughput.summary(measured, RUN)
    assert [each["system"] for each in result["rows"] if each["client_bound"]] == [ours.NAME]
    assert result["compared"][0]["note"] == "client-bound: CPU decides"


def test_a_turn_is_void_if_it_is_short_or_incomplete_or_written_back() -> None:
    def reason(
        *, seconds: float = 2.0, moved: int = 1000 << 20, most: int = 1000 << 20, written: int = 0
    ) -> str:
        return pairs.void(seconds=seconds, least_s=2.0, moved=moved, most=most, written=written)

    assert reason() == ""
    assert reason(written=10 << 20) == ""  # a hundredth: journals
    assert "lasted 1.99 s" in reason(seconds=1.99)
    assert "moved 944 MB, its peer 1,049 MB" in reason(moved=900 << 20)
    assert "wrote back 12 MB" in reason(written=11 << 20)


def test_a_round_with_a_void_turn_is_repeated_up_to_a_bound() -> None:
    numbers = itertools.count()

    def take() -> dict[str, int]:
        return {"ours": next(numbers), "theirs": 0}

    def early(taken: dict[str, int]) -> dict[str, str]:
        return {"ours": "early" if taken["ours"] < 2 else "", "theirs": ""}

    assert pairs.counted(take, early) == ({"ours": 2, "theirs": 0}, {})
    last = 2 + pairs.ATTEMPTS
    void = {"theirs": "always"}
    assert pairs.counted(take, lambda _: void) == ({"ours": last, "theirs": 0}, void)


def test_a_turn_takes_half_as_long_again_as_the_seconds_at_the_probed_rate() -> None:
    assert pairs.size_of(1e9, 2.0) == 3_000_000_000


def test_files_may_grow_by_less_than_the_kernel_keeps_dirty(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counters = tmp_path / "vmstat"
    counters.write_text(
        "nr_dirty 1000\nnr_written 7\nnr_dirty_threshold 900000\n"
        "nr_dirty_background_threshold 501000\n"
    )
    monkeypatch.setattr(dirty_pages, "VMSTAT", counters)
    assert dirty_pages.written_bytes() == 7 * dirty_pages.PAGE_BYTES
    room = 500_000 * dirty_pages.PAGE_BYTES
    assert dirty_pages.room_bytes() == pytest.approx(room * dirty_pages.ROOM_SHARE)


def test_pieces_of_a_turn_add_up() -> None:
    both = generator.total([load(100), load(300, cpu_s=2.0)])
    assert (both.bytes, both.seconds, both.broker_cpu_s) == (400_000_000, 2.0, 3.0)
    assert (both.mb_per_s, both.cpu_s_per_gb) == pytest.approx((200.0, 7.5))


def test_rates_are_compared_with_kafka_by_the_goals_of_their_row() -> None:
    lines = throughput.summary(loads(), RUN)["compared"]
    assert [(each["what"], each["ratio"], each["goal"], each["met"]) for each in lines] == [
        ("produce, 100 B, 16 KB: rate, of Kafka's", 2.5, ">= 2.0", True),
        ("produce, 100 B, 16 KB: CPU a GB, of Kafka's", 0.4, "<= 0.3", False),
        ("fetch, 100 B, 16 KB: rate, of Kafka's", 2.5, ">= 1.2", True),
        ("fetch, 100 B, 16 KB: CPU a GB, of Kafka's", 0.4, "<= 0.7", True),
    ]


def test_cores_that_other_processes_used_are_counted() -> None:
    assert load(100).disturbance == pytest.approx(0.2)


def test_a_rate_that_is_not_reached_is_not_held() -> None:
    rate = latency.RATES[0]
    assert latency.row("a", rate, {0: load(1)})["held"]
    assert not latency.row("a", latency.RATES[2], {0: load(1)})["held"]


def test_a_rate_at_which_all_cores_are_in_use_is_saturated() -> None:
    rate, cores = latency.RATES[0], os.cpu_count() or 1
    assert latency.row("a", rate, {0: load(1, cpu_s=cores)})["saturated"]
    assert not latency.row("a", rate, {0: load(1, cpu_s=cores / 2)})["saturated"]


def results() -> dict[str, dict[str, Any]]:
    """A result of each part."""
    waits = latency.Measured()
    waits.loads[ours.NAME, latency.RATES[0]] = {0: load(1, wait_us=500)}
    waits.loads[apache_kafka.NAME, latency.RATES[0]] = {0: load(1, wait_us=2000)}
    ran = clients.Measured()
    took = clients.Ran(
        seconds=1.0,
        cpu_s=1.3,
        thread_cpu_s=0.97,
        records=1000,
        value_bytes=100,
        broker_cpu_s=0.1,
    )
    for name in (ours.NAME, apache_kafka.NAME):
        ran.ran[name, "Java", throughput.PRODUCE, 100, "lz4"] = {0: took}
    begun = starts.Measured()
    for name, slow in ((ours.NAME, 1), (apache_kafka.NAME, 20)):
        start = starts.Start(
            answers_s=0.1 * slow, acknowledged_s=0.2 * slow, memory_mb=50.0 * slow, idle_share=0.01
        )
        begun.starts[name] = {0: start}
    return {
        "kafka_wire_throughput": MACHINE | throughput.summary(loads(), RUN),
        "kafka_wire_replicas": MACHINE | throughput.summary(loads(), RUN),
        "kafka_wire_latency": MACHINE | latency.summary(waits, seconds=1.0, rounds=1),
        "kafka_wire_clients": MACHINE | clients.summary(ran, rounds=1),
        "kafka_wire_starts": MACHINE | starts.summary(begun, rounds=1),
    }


def test_a_profile_sums_leaves_and_what_they_were_called_by() -> None:
    stacks = [
        "run (asyncio/runners.py:10);go (a/b/c/listener.py:5);send (a/b/c/net.py:7) 30",
        "run (asyncio/runners.py:10);go (a/b/c/listener.py:9) 10",
    ]
    lines = [" ".join(line.split()) for line in profiling.table("ours", stacks)]
    assert lines[0] == "ours: 40 samples"
    assert lines[2:] == ["75.0% 75.0% send (b/c/net.py)", "25.0% 100.0% go (b/c/listener.py)"]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("throughput", ["| quorumlog | produce | 500 | 1.0 | 2.00 |", "tansu, fetch", "fell over"]),
        ("replicas", ["| produce, 100 B, 16 KB: rate, of Kafka's | 2.50 | >= 2.0 | 5 of 5 | 1.10"]),
        (
            "latency",
            ["| 1,000/s, 1 a request | 0.50 |", "p99, of Kafka's | 0.25 | <= 0.5 | 1 of 1"],
        ),
        ("clients", ["| Java | produce | 100 | lz4 | 1,000 (client-bound) |", "CPU decides"]),
        ("starts", ["| quorumlog | 0.10 | 0.20 | 50 | 1.0% |", "| 0.050 | <= 0.2 | 1 of 1 |"]),
    ],
)
def test_the_page_shows_each_part(part: str, words: list[str]) -> None:
    name = f"kafka_wire_{part}"
    (section,) = (each for each in SECTIONS if each.name == name)
    assert section.command == f"python -m benchmarks.kafka_wire --only {part}"
    shown = (
        page({name: results()[name]}).partition(f"## {section.title}\n")[2].partition("\n## ")[0]
    )
    assert [word for word in words if word not in shown] == []


def test_a_peer_that_is_missing_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("QUORUMLOG_PEERS", str(tmp_path))
    found, missing = cases.kinds()
    assert [kind.name for kind in found] == [ours.NAME, ours.FSYNC]
    named = [line for line in missing if artifacts.GET in line]
    assert [line.split()[0] for line in named] == ["Apache", "tansu", "noida-db"]
