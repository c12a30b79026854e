"""One process of PySyncObj: a counter of the replicated values.

Run by `pysyncobj_cluster`, which exchanges lines of JSON with it. It has one thread: the member's
own tick is called here, so that no proposal crosses threads.

Run: python -m benchmarks.raft.pysyncobj_member '{"me": "host:port", "others": [...], ...}'
"""

import json
import os
import select
import sys
import time
from typing import Any

from benchmarks.raft.load import VALUES, Meter, Work
from pysyncobj import FAIL_REASON, SyncObj, SyncObjConf, replicated

TICK_S = 0.05  # as in its own thread: the maximum wait of a tick for a socket


class Counter(SyncObj):  # type: ignore[misc]  # it has no types
    """A minimal replicated state machine."""

    def __init__(self, me: str, others: list[str], configuration: Any) -> None:
        super().__init__(me, others, configuration)
        self.count = 0

    @replicated  # type: ignore[untyped-decorator]
    def put(self, value: bytes) -> int:
        """Count one value."""
        self.count += 1
        return self.count


def load(counter: Counter, work: Work) -> dict[str, Any]:
    """Keep so many values in flight; return the outcome as a dictionary."""
    meter = Meter(work)
    turn = 0

    def put() -> None:
        nonlocal turn
        turn += 1
        asked_s = time.perf_counter()
        counter.put(VALUES[turn % len(VALUES)], callback=lambda result, error: done(asked_s, error))

    def done(asked_s: float, error: int) -> None:
        if error == FAIL_REASON.SUCCESS:
            meter.answered(asked_s)
        if not meter.is_over:
            put()

    for _ in range(work.outstanding):
        put()
    while not meter.is_over:
        counter.doTick(TICK_S)
    outcome = meter.outcome()
    return {name: getattr(outcome, name) for name in outcome.__slots__}


def main() -> None:
    """Tick; respond to the lines of standard input."""
    given = json.loads(sys.argv[1])
    configuration = SyncObjConf(autoTick=False, connectionRetryTime=0.2, **given["options"])
    counter = Counter(given["me"], given["others"], configuration)
    unread = b""
    while True:
        counter.doTick(TICK_S)
        seen, _, _ = select.select([sys.stdin], [], [], 0)
        if not seen:
            continue
        chunk = os.read(sys.stdin.fileno(), 1 << 16)
        if not chunk:
            return
        *lines, unread = (unread + chunk).split(b"\n")
        for line in lines:
            request = json.loads(line)
            answer: dict[str, Any] = {"leads": counter._isLeader(), "ready": counter.isReady()}
            if request["do"] == "load":
                answer = load(counter, Work.of(request["work"]))
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
