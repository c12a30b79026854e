"""The values of one scrape of a node, by metric."""

from collections.abc import Mapping

from .instruments import Histogram
from .table import Metric, MetricKind


class Scrape:
    """Collects the values for one output; used once."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Metric, dict[tuple[str, ...], float | Histogram]] = {}

    def put(self, metric: Metric, value: float, *labels: str | int) -> None:
        """Set the value of a counter or gauge for these labels."""
        assert metric.kind is not MetricKind.HISTOGRAM, f"{metric.name} takes a histogram"
        self._put(metric, value, labels)

    def put_histogram(self, metric: Metric, value: Histogram, *labels: str | int) -> None:
        """Set the state of a histogram in milliseconds; it is shown in seconds."""
        assert metric.kind is MetricKind.HISTOGRAM, f"{metric.name} takes a number"
        self._put(metric, value.copy(), labels)  # the original continues to change

    @property
    def found(self) -> Mapping[Metric, Mapping[tuple[str, ...], float | Histogram]]:
        """All values, in the order in which they were set."""
        return self._found

    def value(self, metric: Metric, *labels: str | int) -> float | None:
        """Return the value for these labels; None: none, or a histogram."""
        found = self._found.get(metric, {}).get(tuple(str(each) for each in labels))
        return None if isinstance(found, Histogram) else found

    def _put(self, metric: Metric, value: float | Histogram, labels: tuple[str | int, ...]) -> None:
        assert len(labels) == len(metric.labels), f"{metric.name} has labels {metric.labels}"
        key = tuple(str(each) for each in labels)
        values = self._found.setdefault(metric, {})
        assert key not in values, f"{metric.name} {key} was put twice"
        values[key] = value
