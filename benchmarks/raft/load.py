"""A closed loop with so many proposals in flight at any time: each response starts the next one.

The bookkeeping is the same for all systems: a warm-up does not count, then every response within so
many seconds does, however many arrive together, and the CPU time is read at both ends.
"""

import math
import os
import time
from array import array
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.raft.processes import cpu_s

VALUE_BYTES = 256
WARM_SHARE = 0.25
"""The duration of the loop before the measurement, as a share of the measured seconds."""
VALUES = tuple(os.urandom(VALUE_BYTES) for _ in range(64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work of one row in one round."""

    outstanding: int
    seconds: float  # of the measurement
    server_pids: tuple[int, ...]
    client_pid: int | None  # None: the client is in the leader's process

    @classmethod
    def of(cls, line: dict[str, Any]) -> "Work":
        """Return the work from a result of `line`."""
        return cls(**{**line, "server_pids": tuple(line["server_pids"])})

    def line(self) -> dict[str, Any]:
        """Return the work as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a load."""

    commits: int
    seconds: float
    p50_ms: float
    p99_ms: float
    server_cpu_s: float  # of all members together
    client_cpu_s: float | None

    @property
    def commits_per_s(self) -> float:
        """Return the rate."""
        return self.commits / self.seconds


class Meter:
    """Counts responses; `is_over` once the measured seconds have passed."""

    def __init__(self, work: Work, *, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._work = work
        self._now_s = now_s
        self._begin_s = now_s() + work.seconds * WARM_SHARE
        self._end_s = self._begin_s + work.seconds
        self._cpu_s: list[tuple[float, float | None]] = []  # (servers, client) at both ends
        self._latencies_s = array("d")
        self._seconds = work.seconds  # longer if the first counted response took longer
        self.is_over = False

    def answered(self, asked_s: float, count: int = 1) -> None:
        """Record proposals that were made at `asked_s` and are committed now."""
        now_s = self._now_s()
        if now_s < self._begin_s or self.is_over:
            return
        if not self._cpu_s:
            self._cpu_s.append(self._spent())
        if now_s < self._end_s or not self._latencies_s:
            self._latencies_s.extend([now_s - asked_s] * count)
            self._seconds = max(self._work.seconds, now_s - self._begin_s)
        if now_s >= self._end_s:
            self.is_over = True
            self._cpu_s.append(self._spent())

    def outcome(self) -> Outcome:
        """Return the result, after the end of the loop."""
        assert self.is_over, "the loop is not over"
        latencies_s = sorted(self._latencies_s)
        (servers_s, client_s), (servers_end_s, client_end_s) = self._cpu_s
        return Outcome(
            commits=len(latencies_s),
            seconds=self._seconds,
            p50_ms=percentile(latencies_s, 0.5) * 1000,
            p99_ms=percentile(latencies_s, 0.99) * 1000,
            server_cpu_s=servers_end_s - servers_s,
            client_cpu_s=None
            if client_s is None or client_end_s is None
            else client_end_s - client_s,
        )

    def _spent(self) -> tuple[float, float | None]:
        client = self._work.client_pid
        return cpu_s(self._work.server_pids), None if client is None else cpu_s([client])


def percentile(ascending: list[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    return ascending[max(0, math.ceil(len(ascending) * share) - 1)]
