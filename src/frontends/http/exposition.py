"""A scrape in the text formats of Prometheus: plain, or OpenMetrics if the Accept header asks for
it.

Imported at the first scrape: the library takes a tenth of a second. Its global registry is not
used.
"""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector, CollectorRegistry

from ...metrics import Histogram, Metric, MetricKind, Scrape


def expose(scrape: Scrape, *, accept: str, with_process: bool) -> tuple[bytes, str]:
    """Return the body and its content type, chosen by the Accept header.

    `with_process` adds metrics of the process: memory, CPU time, descriptors, the interpreter and
    its garbage collector. It reads /proc, so it is not for a simulated node.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Scraped(scrape))
    if with_process:
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        GCCollector(registry=registry)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _Scraped(Collector):
    """The scrape as a collector of the library's registry."""

    def __init__(self, scrape: Scrape) -> None:
        self._scrape = scrape

    def collect(self) -> Iterable[Family]:
        """Return every metric that has a value."""
        return (_family(metric, values) for metric, values in self._scrape.found.items())

    def describe(self) -> Iterable[Family]:
        """Return nothing: the metric table's tests check the names."""
        return ()


def _family(metric: Metric, values: Mapping[tuple[str, ...], float | Histogram]) -> Family:
    if metric.kind is MetricKind.HISTOGRAM:
        shown = HistogramMetricFamily(metric.name, metric.about, labels=metric.labels)
        for labels, value in values.items():
            assert isinstance(value, Histogram), f"{metric.name} is {value}"
            shown.add_metric(labels, list(_buckets(value)), sum_value=value.total / 1000)
        return shown
    kind = CounterMetricFamily if metric.kind is MetricKind.COUNTER else GaugeMetricFamily
    family = kind(metric.name, metric.about, labels=metric.labels)
    for labels, value in values.items():
        assert not isinstance(value, Histogram), f"{metric.name} is a histogram"
        family.add_metric(labels, value)
    return family


def _buckets(histogram: Histogram) -> Iterator[tuple[str, float]]:
    """Yield bounds in seconds with cumulative counts."""
    for bound, count in histogram.cumulative():
        yield ("+Inf" if bound is None else str(bound / 1000)), count
