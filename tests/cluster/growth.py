"""Bounds on the growth of a process, by samples of its memory, descriptors and threads.

A sample is {"at": monotonic seconds, "rss_kib", "fds", "threads"}; the first quarter is the
warm-up. A process grows if the least-squares line over the others rises over its span by more than
`KIB` and `PART` of the mean, or by more than `FDS` descriptors.
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

KIB = 8 * 1024
PART = 0.10
FDS = 5.0


def sample_of(pid: int) -> dict[str, Any]:
    """Return a sample of a process of this machine."""
    status = Path(f"/proc/{pid}/status").read_text()
    return {
        "at": time.monotonic(),
        "rss_kib": int(status.partition("VmRSS:")[2].split()[0]),
        "fds": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status.partition("Threads:")[2].split()[0]),
    }


def judge(problems: list[str], name: str, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the growth of a process after its warm-up; growth beyond the bounds is a problem."""
    settled = rows[len(rows) // 4 :]
    if len(settled) < 3:
        problems.append(f"{name} has {len(settled)} samples only")
        return {}
    rss_kib, fds = (_rise(settled, what) for what in ("rss_kib", "fds"))
    mean_kib = sum(row["rss_kib"] for row in settled) / len(settled)
    if rss_kib > max(KIB, PART * mean_kib):
        problems.append(f"{name} grew by {rss_kib:,.0f} KiB to {mean_kib:,.0f} KiB and more")
    if fds > FDS:
        problems.append(f"{name} opened {fds:.1f} descriptors more and more")
    return {
        "rss_mib": round(mean_kib / 1024, 1),
        "rss_rise_kib": round(rss_kib),
        "fds_rise": round(fds, 1),
        "threads_max": max(row["threads"] for row in settled),
    }


def _rise(rows: Sequence[dict[str, Any]], what: str) -> float:
    """Return the rise of the least-squares line from the first to the last sample."""
    at = [row["at"] for row in rows]
    values = [row[what] for row in rows]
    mean_at, mean = sum(at) / len(at), sum(values) / len(values)
    spread = sum((x - mean_at) ** 2 for x in at)
    slope = sum((x - mean_at) * (y - mean) for x, y in zip(at, values, strict=True)) / spread
    return float(slope * (at[-1] - at[0]))
