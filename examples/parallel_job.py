"""A parallel job with records that become visible together, and once: staged commits.

    python examples/parallel_job.py totals --number 17 --fail-first

The driver opens a write and sends it to worker processes. Each task stages its records with a
producer of its own, and returns a small result; a task that fails runs again. The commit makes the
records of all tasks visible. A repeated job with the same number writes nothing. The name of the
commits is the topic's.

The driver and its tasks only exchange the write and the results, both picklable: with Dask, Ray or
another scheduler, replace the pool.
"""

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

import quorumlog
from quorumlog.errors import QuorumlogError

ATTEMPTS = 3


def run_task(
    bootstrap: str, topic: str, write: quorumlog.StagedWrite, task: int, *, fails: bool
) -> quorumlog.TaskResult:
    """Stage the records of one task; runs in a worker process."""
    with (
        quorumlog.connect(bootstrap) as log,
        log.staged_producer(write, task) as producer,
    ):
        for number in range(100):
            producer.send(topic, f"task {task}, record {number}", key=f"{task}")
        if fails:
            raise RuntimeError("the task fails after it has sent its records")
        return producer.seal()


def run_job(bootstrap: str, topic: str, number: int, tasks: int, *, fail_first: bool) -> str:
    """Run all tasks of a batch and commit them; return a line about the outcome."""
    with (
        quorumlog.connect(bootstrap) as log,
        ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool,
    ):
        log.admin.create_topic(topic, partitions=4, if_not_exists=True)
        write = log.open_write(topic, number)
        results: dict[int, quorumlog.TaskResult] = {}
        for attempt in range(ATTEMPTS):
            fails = fail_first and attempt == 0
            running = {
                task: pool.submit(run_task, bootstrap, topic, write, task, fails=fails)
                for task in range(tasks)
                if task not in results
            }
            for task, future in running.items():
                if future.exception() is None:
                    results[task] = future.result()
        if len(results) < tasks:
            log.abort_write(write)
            raise SystemExit(f"{tasks - len(results)} tasks failed {ATTEMPTS} times")
        committed = log.commit_write(write, list(results.values()))
    if committed is None:
        return f"batch {number} has no records"
    when = "is committed" if committed.is_mine else "was committed before"
    return f"batch {number} {when}: {committed.count} records"


def main() -> int:
    """Run the job; return the exit code."""
    parser = argparse.ArgumentParser(description="Write one batch from several processes.")
    parser.add_argument("topic")
    parser.add_argument("--bootstrap", default="127.0.0.1:9094")
    parser.add_argument("--number", type=int, default=0, help="number of the batch")
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument(
        "--fail-first", action="store_true", help="let the first attempt of each task fail"
    )
    options = parser.parse_args()
    try:
        print(
            run_job(
                options.bootstrap,
                options.topic,
                options.number,
                options.tasks,
                fail_first=options.fail_first,
            )
        )
    except QuorumlogError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
