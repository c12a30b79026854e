"""The speed of brokers: the time of an answer, and metrics that explain slow ones, from the HTTP
port on loopback.

Beyond loopback the port needs TLS and authentication of its own, which the console does not have.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final

from ..aio import AsyncLog
from ..clients.admin.configs import Config
from ..clients.admin.descriptions import Broker
from ..errors import QuorumlogError
from . import formats
from .cluster_view import CONCURRENT_MAX, part

TIMEOUT_S: Final = 1.0
SLOW_MS: Final = 500.0  # an answer or a block of the event loop that takes longer is reported
BYTES_MAX: Final = 4 * 1024 * 1024
LINE_MAX: Final = 1_000  # characters; those of a broker are shorter
FAMILIES: Final = {
    "quorumlog_produce_seconds": "Produce",
    "quorumlog_fetch_seconds": "Fetch",
    "quorumlog_storage_flush_seconds": "Flush",
    "quorumlog_kafka_request_seconds": "Kafka request",
    "quorumlog_call_seconds": "Call",
}
"""The histograms of request times, by name, with their titles."""

WAITS: Final = frozenset({"Fetch waited=yes", "Kafka request Fetch"})
"""The requests that wait for new records."""

_SAMPLE: Final = re.compile(r"^(\w+?)(_bucket|_count|_sum)?(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTime:
    """The times of one kind of request since the start of the node."""

    name: str
    is_wait: bool  # it includes the wait of a long poll, or is a call, most of which are of nodes
    count: int
    mean_ms: float
    most_ms: float | None  # 99 of 100 took at most this long; None: longer than the last bound


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetrics:
    """The metrics of one node, or the reason for their absence."""

    stall_ms: float | None = None  # the longest block of the event loop in the last minute
    times: Sequence[RequestTime] = ()  # the longest 99th percentile first
    absence: str = ""
    is_silent: bool = False  # the HTTP port did not answer in time


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The answer of one broker to a request, and its metrics."""

    answer_ms: float | None = None  # None: no answer
    settings: Mapping[str, Config] | None = None
    metrics: NodeMetrics = field(default_factory=NodeMetrics)
    error: QuorumlogError | None = None

    @property
    def slow(self) -> str:
        """The reason if the broker is slow, as the end of a sentence; else empty."""
        if self.answer_ms is not None and self.answer_ms >= SLOW_MS:
            return f"it took {formats.duration(self.answer_ms)} to answer a request"
        if self.metrics.stall_ms is not None and self.metrics.stall_ms >= SLOW_MS:
            stall = formats.duration(self.metrics.stall_ms)
            return f"its event loop was blocked for {stall}, until less than a minute ago"
        if self.metrics.is_silent:
            return f"its HTTP port did not answer within {TIMEOUT_S:g} s"
        return ""


async def read_metrics(broker: Broker, settings: Mapping[str, Config]) -> NodeMetrics:
    """Return the metrics of a broker with these settings."""
    listener = settings.get("listeners.http")
    address = "" if listener is None else listener.value
    host, _, port = address.rpartition(":")
    if not address:
        return NodeMetrics(absence="the broker has no HTTP port (listeners.http)")
    if not (_is_loopback(host) and _is_loopback(broker.grpc_address.rpartition(":")[0])):
        return NodeMetrics(
            absence="the console reads metrics on loopback only; beyond it the HTTP port needs"
            " authentication of its own"
        )
    if not port.isdecimal() or not int(port):
        return NodeMetrics(absence=f"listeners.http is {address}: the port is not known")
    try:
        text = await _get(host.strip("[]"), int(port))
    except TimeoutError:
        absence = f"the broker did not answer at {address} within {TIMEOUT_S:g} s"
        return NodeMetrics(absence=absence, is_silent=True)
    except ConnectionRefusedError:
        return NodeMetrics(absence=f"nothing listens at {address}")
    except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
        return NodeMetrics(absence=f"no metrics from {address}: {type(error).__name__}")
    return parse_metrics(text)


async def read_speeds(log: AsyncLog, brokers: Iterable[Broker]) -> dict[int, Speed]:
    """Measure one request to each broker that is not fenced, and read its metrics."""
    room = asyncio.Semaphore(CONCURRENT_MAX)

    async def one(broker: Broker) -> Speed:
        async with room:
            start_s = time.monotonic()
            settings = await part(
                f"broker {broker.id}", log.admin.describe_configs(broker=broker.id)
            )
            answer_ms = 1000 * (time.monotonic() - start_s)
            if isinstance(settings, QuorumlogError):
                return Speed(error=settings)
            metrics = await read_metrics(broker, settings)
            return Speed(answer_ms=answer_ms, settings=settings, metrics=metrics)

    asked = [broker for broker in brokers if not broker.fenced]
    found = await asyncio.gather(*map(one, asked))
    return {broker.id: speed for broker, speed in zip(asked, found, strict=True)}


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


async def _get(host: str, port: int) -> str:
    """Return the body of /metrics; raise OSError, or ValueError for another response."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(host, port, limit=BYTES_MAX)
        try:
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = re.search(r"\r\ncontent-length: (\d{1,9})\r\n", head)
            if " 200 " not in head.partition("\r\n")[0] or length is None:
                raise ValueError("not metrics")
            body = await reader.readexactly(min(int(length[1]), BYTES_MAX))
        finally:
            writer.close()
    return body.decode("utf-8", "replace")


def parse_metrics(text: str) -> NodeMetrics:
    """Return the metrics of a text in Prometheus' format; other lines are ignored."""
    stall_ms = None
    found: dict[str, _Histogram] = {}
    for line in text.splitlines():
        match = _SAMPLE.match(line) if len(line) <= LINE_MAX else None
        if match is None:
            continue
        name, part, labels, value = match[1], match[2] or "", match[3] or "", match[4]
        try:
            number = float(value)
        except ValueError:
            continue
        if name == "quorumlog_loop_stall_seconds":
            stall_ms = number * 1000
        elif name in FAMILIES:
            pairs = dict(_LABEL.findall(labels))
            bound = pairs.pop("le", "")
            details = ", ".join(
                text if key in ("method", "api") else f"{key}={text}" for key, text in pairs.items()
            )
            histogram = found.setdefault(f"{FAMILIES[name]} {details}".strip(), _Histogram({}))
            if part == "_bucket":
                with suppress(ValueError):
                    histogram.buckets[float(bound)] = number
            elif part == "_count":
                histogram.count = number
            elif part == "_sum":
                histogram.sum_s = number
    times = [each.summary(name) for name, each in found.items() if each.count]
    times.sort(key=lambda each: -(each.most_ms or float("inf")))
    return NodeMetrics(stall_ms=stall_ms, times=times)


@dataclass(slots=True)
class _Histogram:
    buckets: dict[float, float]  # cumulative, by upper bound in seconds
    count: float = 0
    sum_s: float = 0

    def summary(self, name: str) -> RequestTime:
        most = next((b for b in sorted(self.buckets) if self.buckets[b] >= 0.99 * self.count), None)
        return RequestTime(
            name=name,
            is_wait=name.startswith("Call ") or name in WAITS,
            count=round(self.count),
            mean_ms=1000 * self.sum_s / self.count,
            most_ms=None if most is None or most == float("inf") else 1000 * most,
        )
