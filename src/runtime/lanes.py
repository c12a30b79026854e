"""The limits of the lanes, on the real and the simulated machine. Pure."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """The limits of one lane."""

    threads: int
    waiting_jobs_max: int = 1024  # submitted and not ended; above it Overloaded
    waiting_bytes_max: int = 256 << 20  # sum of their cost_bytes; a single job may exceed it


LIMITS: Final = {
    "write": LaneLimits(threads=1),  # one lane per data directory: "write:<dir>"
    # "flush:<dir>": concurrent fsyncs share work in the file system
    "flush": LaneLimits(threads=16),
    # "side:<dir>": large files beside the segments, such as snapshots
    "side": LaneLimits(threads=1),
    "clean": LaneLimits(threads=1),  # one lane per data directory: compaction and deletion
    "read": LaneLimits(threads=4),
    "send": LaneLimits(threads=2),  # large file ranges, from the page cache to sockets
    "cpu": LaneLimits(threads=1),
    # digests of passwords: clients with large requests in the lane "cpu" do not delay logins
    "login": LaneLimits(threads=1, waiting_jobs_max=256),
}


def lane_limits(lane: str) -> LaneLimits:
    """Return the limits of a lane by the prefix of its name before ":"."""
    kind = lane.partition(":")[0]
    assert kind in LIMITS, f"lane {lane} is not one of {sorted(LIMITS)}"
    return LIMITS[kind]
