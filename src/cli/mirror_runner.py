"""The process of a mirror: its two connections, signals, progress and metrics.

A mirror process copies a bounded choice of partitions, so its metrics are labelled by partition.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from ..clients.config import ClientConfig, parse_bootstrap
from ..clients.connection import Connection
from ..clients.mirror import (
    ClusterSource,
    CopyProgress,
    CopyState,
    Mirror,
    MirrorReport,
    MirrorSource,
    Target,
)
from ..clients.mirror.group_offsets import CopiedOffsets, CopyEnd, copy_group_offsets
from ..clients.offsets import PartitionLike
from ..frontends.http import HttpRequest, HttpResponse, HttpServer, local_access
from ..runtime import Runtime, Scope
from ..runtime.memory import keep_freed_memory
from ..runtime.real import run
from . import settings
from .output import echo, print_event, print_json

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


KAFKA = "kafka://"  # prefix of the addresses of a Kafka cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorPlan:
    """The options of `quorumlog mirror`."""

    source: str
    source_config: str | None  # file with the security settings of the source; None: PLAINTEXT
    target: str
    topics: str
    once: bool
    replication: int | None
    refresh_ms: int
    progress_s: float  # 0: no progress lines
    is_json: bool
    metrics: str  # "host:port" of the metrics listener; empty: none


def run_mirror(plan: MirrorPlan) -> MirrorReport:
    """Run a mirror until it ends; raise the error of a failed start."""

    async def main(runtime: Runtime) -> MirrorReport:
        return await _run(runtime, plan)

    keep_freed_memory()
    return run(main, name="mirror")


async def _run(runtime: Runtime, plan: MirrorPlan) -> MirrorReport:
    found = settings.load(bootstrap=plan.target)
    config = ClientConfig(
        connect_timeout_ms=found.connect_timeout_ms,
        request_timeout_ms=found.request_timeout_ms,
        call_timeout_ms=min(found.call_timeout_ms, 15_000),  # the mirror retries without limit
        tls=found.tls,
        credentials=found.credentials,
    )
    theirs = settings.load_source(plan.source, plan.source_config, flag="--from-config")
    source_config = replace(config, tls=theirs.tls, credentials=theirs.credentials)
    target = Connection(runtime, parse_bootstrap(plan.target), config)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(target.close)
        await target.open()
        source, connection = await _source(runtime, plan.source, source_config, stack)
        copy_groups = None
        if connection is not None:
            copy_groups = partial(_copy_groups, connection, target)
        mirror = Mirror(
            runtime,
            source,
            Target(target, replication=plan.replication),
            topics=plan.topics,
            refresh_ms=plan.refresh_ms,
            copy_groups=copy_groups,
            say=partial(print_event, is_json=plan.is_json),
        )
        async with runtime.tasks.scope("progress") as scope:
            if plan.metrics:
                await _serve(runtime, scope, mirror, plan.metrics)
            if plan.progress_s:
                scope.spawn(_print_progress(mirror, plan), name="progress")
            with _stopping(mirror):
                report = await mirror.run(once=plan.once)
            scope.cancel()
        return report


async def _source(
    runtime: Runtime, address: str, config: ClientConfig, stack: AsyncExitStack
) -> tuple[MirrorSource, Connection | None]:
    """Connect to the source cluster. Return it, and its connection for group offsets, None for a
    Kafka cluster. `stack` closes it."""
    if address.startswith(KAFKA):
        from ..clients.mirror.kafka_source import KafkaSource

        kafka = KafkaSource(
            runtime,
            address.removeprefix(KAFKA),
            tls=config.tls,
            credentials=config.credentials,
        )
        stack.push_async_callback(kafka.close)
        await kafka.cluster_id()
        return kafka, None
    connection = Connection(runtime, parse_bootstrap(address), config)
    stack.push_async_callback(connection.close)
    await connection.open()
    return ClusterSource(connection), connection


async def _copy_groups(
    source: Connection, target: Connection, ends: Mapping[PartitionLike, CopyEnd]
) -> CopiedOffsets:
    return await copy_group_offsets(source, target, ends)


async def _serve(runtime: Runtime, scope: Scope, mirror: Mirror, address: str) -> None:
    """Serve metrics until the scope ends."""

    async def page(_: HttpRequest) -> HttpResponse:
        body = metrics_page(mirror.copies, runtime.clock.now_ms())
        return HttpResponse(content_type=CONTENT_TYPE, body=body)

    await HttpServer.open(runtime, scope, address, {"/metrics": page}, access=local_access(address))


async def _print_progress(mirror: Mirror, plan: MirrorPlan) -> None:
    while True:
        await asyncio.sleep(plan.progress_s)
        report = mirror.report()
        if plan.is_json:
            print_json({"event": "progress", **report_json(report)})
        else:
            echo(report_line(report), err=True)


@contextmanager
def _stopping(mirror: Mirror) -> Iterator[None]:
    """Stop the mirror gracefully on SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in numbers}
    for number in numbers:
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(mirror.stop))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def report_line(report: MirrorReport) -> str:
    """Return the progress of a mirror as one line."""
    line = (
        f"{report.caught_up} of {report.partitions} partitions of {report.topics} topics are caught"
        f" up, lag {report.lag:,}; copied {report.records:,} records, {report.bytes:,} bytes"
    )
    if report.stopped:
        line += f"; {report.stopped} stopped, {report.diverged} of them diverged"
    return line + "."


def report_json(report: MirrorReport) -> dict[str, Any]:
    """Return the progress of a mirror as a JSON object."""
    return {
        "topics": report.topics,
        "partitions": report.partitions,
        "caught_up": report.caught_up,
        "stopped": report.stopped,
        "diverged": report.diverged,
        "records": report.records,
        "bytes": report.bytes,
        "lag": report.lag,
        "problems": list(report.problems),
    }
