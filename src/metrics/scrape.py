"""The values of one look at a node, metric by metric."""

from collections.abc import Mapping

from .instruments import Histogram
from .table import Kind, Metric


class Scrape:
    """What collectors fill and a format reads; one look uses it once."""

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[Metric, dict[tuple[str, ...], float | Histogram]] = {}

    def put(self, metric: Metric, value: float, *labels: str | int) -> None:
        """Say what a counter or gauge stands at, for these values of its labels."""
        assert metric.kind is not Kind.HISTOGRAM, f"{metric.name} takes a histogram"
        self._put(metric, value, labels)

    def put_histogram(self, metric: Metric, value: Histogram, *labels: str | int) -> None:
        """Say what a histogram in milliseconds stands at now; it is shown in seconds."""
        assert metric.kind is Kind.HISTOGRAM, f"{metric.name} takes a number"
        self._put(metric, value.copy(), labels)  # it goes on counting while a text is made

    @property
    def found(self) -> Mapping[Metric, Mapping[tuple[str, ...], float | Histogram]]:
        """Everything that was put, in that order."""
        return self._found

    def value(self, metric: Metric, *labels: str | int) -> float | None:
        """What was put there; None: nothing, or a histogram."""
        found = self._found.get(metric, {}).get(tuple(str(each) for each in labels))
        return None if isinstance(found, Histogram) else found

    def _put(self, metric: Metric, value: float | Histogram, labels: tuple[str | int, ...]) -> None:
        assert len(labels) == len(metric.labels), f"{metric.name} has labels {metric.labels}"
        key = tuple(str(each) for each in labels)
        values = self._found.setdefault(metric, {})
        assert key not in values, f"{metric.name} {key} was put twice"
        values[key] = value
