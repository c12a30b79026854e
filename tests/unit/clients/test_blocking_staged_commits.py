"""Staged writes of the blocking clients, with tasks in processes of their own."""

import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

import pyarrow as pa
import pytest

import quorumlog
from quorumlog import Log, StagedWrite, TaskResult
from quorumlog.errors import (
    InvalidRequest,
    InvalidTxnState,
    MessageTooLarge,
    NotDelivered,
    StageLost,
)


def run_task(address: str, write: StagedWrite, task: int) -> TaskResult:
    """A task of a parallel job."""
    with quorumlog.connect(address) as log, log.staged_producer(write, task) as producer:
        producer.send("jobs", f"task {task}", key="k")
        producer.send_arrow("jobs", pa.table({"v": [f"row {task}"]}), value="v")
        return producer.seal()


def values(log: Log, topic: str) -> list[str]:
    with log.consumer(topic, until_end=True) as consumer:
        return sorted(str(record.text) for record in consumer)


@pytest.mark.long
def test_processes_write_and_one_call_makes_all_visible(
    log: Log, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[3])  # the processes import `run_task`
    log.admin.create_topic("jobs", partitions=2)
    write = log.open_write("report", number=17)
    for turn in range(2):
        with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
            results = list(pool.map(run_task, repeat(address), repeat(write), range(2)))
        if turn == 0:
            assert values(log, "jobs") == []
        committed = log.commit_write(write, results)
        assert committed is not None
        assert (committed.number, committed.count) == (17, 4)
        assert values(log, "jobs") == ["row 0", "row 1", "task 0", "task 1"]
        write = log.open_write("report", number=17)  # the job runs again


def test_records_of_all_threads_are_staged_and_counted_when_dropped(log: Log) -> None:
    log.admin.create_topic("threads", partitions=2)
    told: list[str] = []
    for _ in range(2):
        write = log.open_write("threads")
        write = write.for_batch("threads", 0)
        with log.staged_producer(write, 0) as producer:
            threads = [
                threading.Thread(target=producer.send, args=("threads", f"{number}"))
                for number in range(8)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            told.clear()
            producer.send(
                "threads", b"8", on_delivery=lambda *_: told.append(threading.current_thread().name)
            )
            producer.send_many("threads", ["9"])
            result = producer.seal()
            assert len(told) == 1
            assert told != [threading.current_thread().name]
            with pytest.raises(InvalidTxnState, match="is sealed"):
                producer.send("threads", b"10")
        assert result.count == 10
        assert log.commit_write(write, [result]) is not None
        assert values(log, "threads") == [f"{number}" for number in range(10)]


def test_block_without_seal_aborts_and_an_aborted_write_loses_its_stage(log: Log) -> None:
    log.admin.create_topic("aborted")
    write = log.open_write("aborted", 0)
    with log.staged_producer(write, 0) as producer:
        producer.send("aborted", "a").result()
    assert log.admin.describe_commits("aborted").open == 0
    with log.staged_producer(write, 1) as producer:
        producer.send("aborted", "b").result()
        assert log.abort_write(write) is None
        with pytest.raises(StageLost, match="run the task again"):
            producer.seal()
    log.admin.delete_topic("aborted")


def test_refused_part_of_a_bulk_fails_the_attempt(log: Log) -> None:
    log.admin.create_topic("refused")
    write = log.open_write("refused", 0)
    with log.staged_producer(
        write, 0, buffer_size=200, on_full="raise", linger_ms=60_000
    ) as producer:
        sent = producer.send_many("refused", [b"%d" % number for number in range(8)])
        with pytest.raises(NotDelivered, match="buffer_size is 200"):
            sent.result()
        with pytest.raises(StageLost, match="buffer_size is 200"):
            producer.send("refused", b"a")
        with pytest.raises(StageLost, match="buffer_size is 200"):
            producer.seal()
    log.admin.delete_topic("refused")


def test_swallowed_error_of_send_fails_the_attempt(log: Log) -> None:
    log.admin.create_topic("swallowed")
    write = log.open_write("swallowed", 0)
    with log.staged_producer(write, 0, max_request_size=1_024) as producer:
        producer.send("swallowed", b"a")
        with pytest.raises(MessageTooLarge):
            producer.send("swallowed", b"x" * 2_000)
        with pytest.raises(StageLost, match="larger than max_request_size"):
            producer.seal()
    log.admin.delete_topic("swallowed")


def test_write_and_task_are_checked(log: Log) -> None:
    with pytest.raises(InvalidRequest, match="give what `open_write` returned"):
        log.staged_producer("report", 0)  # type: ignore[arg-type]
