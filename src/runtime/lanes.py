"""How wide and how long the lanes are, on the real machine and on the simulated one alike. Pure."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """The size of a lane."""

    threads: int
    waiting_jobs_max: int = 1024  # given and not ended; one more is Overloaded
    waiting_bytes_max: int = 256 << 20  # sum of their cost_bytes; a job alone may exceed it


LIMITS: Final = {
    "write": LaneLimits(threads=1),  # one lane a data directory: "write:<dir>"
    "flush": LaneLimits(threads=16),  # "flush:<dir>": they share what a file system does for one
    "side": LaneLimits(threads=1),  # "side:<dir>": large files beside the segments, as snapshots
    "clean": LaneLimits(threads=1),  # one lane a data directory: what compacts and unlinks
    "read": LaneLimits(threads=4),
    "send": LaneLimits(threads=2),  # large ranges of files, from the page cache to sockets
    "cpu": LaneLimits(threads=1),
}


def lane_limits(lane: str) -> LaneLimits:
    """Return the limits of a lane by the part of its name before ":"."""
    kind = lane.partition(":")[0]
    assert kind in LIMITS, f"unknown lane {lane}: one of {sorted(LIMITS)}"
    return LIMITS[kind]
