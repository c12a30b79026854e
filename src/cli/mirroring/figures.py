"""What a mirror tells collectors of metrics, in Prometheus' text format. Pure.

A mirror is a process of its own with partitions of its own choice, so its metrics are by partition.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ...clients.mirror import Course, State

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_page(courses: Sequence[Course], now_ms: int) -> bytes:
    """Return all metrics; `now_ms` is Clock.now_ms(). -1 stands for what is not known yet."""
    rows: tuple[tuple[str, str, str, Callable[[Course], float]], ...] = (
        (
            "quorumlog_mirror_lag_records",
            "gauge",
            "Offsets that the source has committed and the copy has not.",
            lambda course: course.lag,
        ),
        (
            "quorumlog_mirror_lag_seconds",
            "gauge",
            "Time since the copy last had all that the source said it has.",
            lambda course: _seconds(course.lag_ms(now_ms)),
        ),
        (
            "quorumlog_mirror_stopped",
            "gauge",
            "1 where nothing more is copied, until somebody looks at it.",
            lambda course: course.state is State.STOPPED,
        ),
        (
            "quorumlog_mirror_diverged",
            "gauge",
            "1 where that is since the source lost records that were copied.",
            lambda course: course.is_diverged,
        ),
        (
            "quorumlog_mirror_copied_records_total",
            "counter",
            "Records copied by this process.",
            lambda course: course.records,
        ),
        (
            "quorumlog_mirror_copied_bytes_total",
            "counter",
            "Bytes of batches copied by this process.",
            lambda course: course.bytes,
        ),
    )
    lines = []
    for name, kind, about, value in rows:
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        lines += [
            f'{name}{{topic="{each.topic}",partition="{each.partition}"}} {value(each):.15g}'
            if kind == "gauge"
            else f'{name}{{topic="{each.topic}",partition="{each.partition}"}} {value(each):.0f}'
            for each in courses
        ]
    return ("\n".join(lines) + "\n").encode()


def _seconds(ms: int) -> float:
    return -1 if ms < 0 else ms / 1000
