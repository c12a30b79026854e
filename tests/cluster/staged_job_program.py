"""The driver of a parallel job, in a separate process, with two workers: `python -m
tests.cluster.staged_job_program BOOTSTRAP TOPIC CHECKPOINT`.

It commits one batch after the other, and stores the number of the next one in the file CHECKPOINT
after each commit: a driver that is killed in between repeats the batch. The job ends once the file
CHECKPOINT.stop exists.
"""

import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Final

import quorumlog
from quorumlog.errors import QuorumlogError

NAME: Final = "job"
TASKS: Final = 3
RECORDS: Final = 20  # of a task
CALL_MS: Final = 10_000
PAUSE_S: Final = 0.2
"""Time between a commit and its checkpoint, so that some kills occur in between."""


@cache
def client(bootstrap: str) -> quorumlog.Log:
    """Return the client of this process."""
    return quorumlog.connect(bootstrap, connect_timeout_ms=CALL_MS, call_timeout_ms=CALL_MS)


def run_task(
    bootstrap: str, topic: str, write: quorumlog.StagedWrite, task: int
) -> quorumlog.TaskResult:
    """Stage the records of a task."""
    with client(bootstrap).staged_producer(write, task, linger_ms=1) as producer:
        for number in range(RECORDS):
            producer.send(topic, f"{write.number} {task} {number}")
        return producer.seal()


def run_batch(pool: ProcessPoolExecutor, bootstrap: str, topic: str, number: int) -> None:
    """Commit a batch, with retries."""
    while True:
        try:
            log = client(bootstrap)
            write = log.open_write(NAME, number)
            results = list(pool.map(partial(run_task, bootstrap, topic, write), range(TASKS)))
            assert log.commit_write(write, results) is not None
        except QuorumlogError as error:
            print(f"batch {number}: {error}", flush=True)
        else:
            return


def main() -> None:
    """Run the batches from the checkpoint."""
    bootstrap, topic, checkpoint = sys.argv[1:]
    path, stop = Path(checkpoint), Path(f"{checkpoint}.stop")
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for number in count(int(path.read_text())):
            if stop.exists():
                return
            run_batch(pool, bootstrap, topic, number)
            time.sleep(PAUSE_S)
            new = path.with_suffix(".new")
            new.write_text(f"{number + 1}")
            new.replace(path)


if __name__ == "__main__":
    main()
