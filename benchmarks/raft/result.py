"""The stored result of a run: rows of medians, their ratios, and the machine."""

import json
import os
import platform
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.raft.load import VALUE_BYTES, Outcome

RESULTS = Path(__file__).parent.parent / "results"


def machine() -> dict[str, Any]:
    """Return the description of the machine."""
    named = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    return {
        "cpu": named[0] if named else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def sync_ms(folder: Path, *, times: int = 100) -> float:
    """Return the median of a write of one value and its fdatasync: no durable commit is faster."""
    spent = []
    descriptor = os.open(folder / "sync", os.O_RDWR | os.O_CREAT)
    try:
        for number in range(times):
            began = time.perf_counter()
            os.pwrite(descriptor, bytes(VALUE_BYTES), number * VALUE_BYTES)
            os.fdatasync(descriptor)
            spent.append(time.perf_counter() - began)
    finally:
        os.close(descriptor)
    return statistics.median(spent) * 1000


def row(system: str, way: str, outstanding: int, rounds: Sequence[Outcome]) -> dict[str, Any]:
    """Return the medians of a row's rounds."""

    def median(values: list[float]) -> float:
        return statistics.median(values)

    clients = [each.client_cpu_s for each in rounds if each.client_cpu_s is not None]
    seconds = sum(each.seconds for each in rounds)
    per_1000 = [each.server_cpu_s / each.commits * 1000 for each in rounds]
    client_per_1000 = [
        each.client_cpu_s / each.commits * 1000 for each in rounds if each.client_cpu_s is not None
    ]
    return {
        "system": system,
        "way": way,
        "outstanding": outstanding,
        "commits_per_s": round(median([each.commits_per_s for each in rounds]), 1),
        "p50_ms": round(median([each.p50_ms for each in rounds]), 3),
        "p99_ms": round(median([each.p99_ms for each in rounds]), 3),
        "server_cpu_s_per_1000": round(median(per_1000), 4),
        "client_cpu_s_per_1000": round(median(client_per_1000), 4) if clients else None,
        "client_cores": round(sum(clients) / seconds, 3) if clients else None,
        "rounds_commits_per_s": [round(each.commits_per_s) for each in rounds],
    }


def comparison(
    what: str,
    ours: Mapping[str, Any] | None,
    peer: Mapping[str, Any] | None,
    *,
    of: str,
    goal: str,
) -> dict[str, Any] | None:
    """Return a ratio of two rows' figures with its goal, such as ">= 1.0"; None if a row is
    missing."""
    if ours is None or peer is None:
        return None
    ratio = ours[of] / peer[of]
    bound = float(goal.split()[1])
    met = ratio >= bound if goal.startswith(">=") else ratio <= bound
    return {"what": what, "ratio": round(ratio, 3), "goal": goal, "met": met}


def keep(name: str, result: dict[str, Any], folder: Path = RESULTS) -> None:
    """Store the result for the page."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n")
