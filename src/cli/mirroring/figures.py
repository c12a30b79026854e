"""Metrics of a mirror in Prometheus' text format. Pure.

A mirror process copies a bounded choice of partitions, so its metrics are labelled by partition.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ...clients.mirror import CopyProgress, CopyState

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


def metrics_page(copies: Sequence[CopyProgress], now_ms: int) -> bytes:
    """Return the page of all metrics; `now_ms` is Clock.now_ms(). An unknown value is -1."""
    rows: tuple[tuple[str, str, str, Callable[[CopyProgress], float]], ...] = (
        (
            "quorumlog_mirror_lag_records",
            "gauge",
            "Offsets below the source's high watermark that are not copied yet.",
            lambda progress: progress.lag,
        ),
        (
            "quorumlog_mirror_lag_seconds",
            "gauge",
            "Time since the mirror partition last reached the source's high watermark.",
            lambda progress: _seconds(progress.lag_ms(now_ms)),
        ),
        (
            "quorumlog_mirror_stopped",
            "gauge",
            "1 if the partition is stopped and needs an operator.",
            lambda progress: progress.state is CopyState.STOPPED,
        ),
        (
            "quorumlog_mirror_diverged",
            "gauge",
            "1 if the partition is stopped because the source lost records that were copied.",
            lambda progress: progress.is_diverged,
        ),
        (
            "quorumlog_mirror_copied_records_total",
            "counter",
            "Records copied by this process.",
            lambda progress: progress.records,
        ),
        (
            "quorumlog_mirror_copied_bytes_total",
            "counter",
            "Bytes of batches copied by this process.",
            lambda progress: progress.bytes,
        ),
    )
    lines = []
    for name, kind, about, value in rows:
        lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
        lines += [
            f'{name}{{topic="{each.topic}",partition="{each.partition}"}} {value(each):.15g}'
            if kind == "gauge"
            else f'{name}{{topic="{each.topic}",partition="{each.partition}"}} {value(each):.0f}'
            for each in copies
        ]
    return ("\n".join(lines) + "\n").encode()


def _seconds(ms: int) -> float:
    return -1 if ms < 0 else ms / 1000
