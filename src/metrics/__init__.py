"""Metrics of a node: instruments for hot paths, the table of metrics, and the values of one scrape.
Pure, and independent of the output format."""

from .instruments import LATENCY_MS, STALL_MS, Histogram, Recent
from .scrape import Scrape
from .table import METRICS, Metric, MetricKind

__all__ = [
    "METRICS",
    "Metric",
    "MetricKind",
    "Scrape",
    "Histogram",
    "Recent",
    "LATENCY_MS",
    "STALL_MS",
]
