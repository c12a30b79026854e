"""A closed loop: so many proposals under way at any time, each answer lets the next one go.

The same bookkeeping for all systems: a part at the beginning is not counted, then everything that
is answered within so many seconds is, however many answers come at once, and the processor's time
is read at the two ends.
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
"""Of the measured seconds: how long the loop runs before it is counted."""
VALUES = tuple(os.urandom(VALUE_BYTES) for _ in range(64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one row of one round is to do."""

    outstanding: int
    seconds: float  # that are counted
    server_pids: tuple[int, ...]
    client_pid: int | None  # None: the client is a part of the leader's process

    @classmethod
    def of(cls, line: dict[str, Any]) -> "Work":
        """From what `line` gave."""
        return cls(**{**line, "server_pids": tuple(line["server_pids"])})

    def line(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    commits: int
    seconds: float
    p50_ms: float
    p99_ms: float
    server_cpu_s: float  # of all members together
    client_cpu_s: float | None

    @property
    def commits_per_s(self) -> float:
        """The rate."""
        return self.commits / self.seconds


class Meter:
    """Counts answers; `is_over` once the counted seconds are full."""

    def __init__(self, work: Work, *, now_s: Callable[[], float] = time.perf_counter) -> None:
        self._work = work
        self._now_s = now_s
        self._begin_s = now_s() + work.seconds * WARM_SHARE
        self._end_s = self._begin_s + work.seconds
        self._cpu_s: list[tuple[float, float | None]] = []  # (servers, client) at both ends
        self._latencies_s = array("d")
        self._seconds = work.seconds  # more when the first counted answer took longer
        self.is_over = False

    def answered(self, asked_s: float, count: int = 1) -> None:
        """Take note of proposals that were made at `asked_s` and are committed now."""
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
        """The figures; the loop is over."""
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
    """The smallest value that at least this share of them does not exceed."""
    return ascending[max(0, math.ceil(len(ascending) * share) - 1)]
