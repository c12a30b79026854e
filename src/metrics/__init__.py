"""What a node counts and how it is named: instruments for hot paths, one table of metrics, and the
values of one look. Pure; nothing here knows who looks, or in which format."""

from .instruments import LATENCY_MS, STALL_MS, Histogram, Recent
from .scrape import Scrape
from .table import METRICS, Kind, Metric

__all__ = [
    "METRICS",
    "Metric",
    "Kind",
    "Scrape",
    "Histogram",
    "Recent",
    "LATENCY_MS",
    "STALL_MS",
]
