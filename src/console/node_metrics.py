"""Metrics of a node that explain slow answers, from its HTTP port on loopback.

Beyond loopback the port needs TLS and authentication of its own, which the console does not have.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from ..clients.admin.configs import Config
from ..clients.admin.descriptions import Broker

TIMEOUT_S: Final = 1.0
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

_SAMPLE: Final = re.compile(r"^(\w+?)(_bucket|_count|_sum)?(?:\{(.*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTime:
    """The times of one kind of request since the start of the node."""

    name: str
    count: int
    mean_ms: float
    most_ms: float | None  # 99 of 100 took at most this long; None: longer than the last bound


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeMetrics:
    """The metrics of one node, or the reason for their absence."""

    stall_ms: float | None = None  # the longest block of the event loop in the last minute
    times: Sequence[RequestTime] = ()  # the longest 99th percentile first
    absence: str = ""


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
    except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
        return NodeMetrics(absence=f"no metrics from {address}: {type(error).__name__}")
    return parse_metrics(text)


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
            count=round(self.count),
            mean_ms=1000 * self.sum_s / self.count,
            most_ms=None if most is None or most == float("inf") else 1000 * most,
        )
