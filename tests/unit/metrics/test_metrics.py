"""Instruments, the table of metrics, and the samples of a scrape."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorumlog.metrics import LATENCY_MS, METRICS, Histogram, Metric, MetricKind, Recent, Scrape

COUNTED = Metric("quorumlog_things", MetricKind.COUNTER, "Things.", ("kind",))
MEASURED = Metric("quorumlog_thing_seconds", MetricKind.HISTOGRAM, "Things.")


@given(st.lists(st.integers(0, 100_000)))
def test_a_histogram_counts_each_value_below_every_bound_that_it_does_not_exceed(
    values: list[int],
) -> None:
    histogram = Histogram(LATENCY_MS)
    for value in values:
        histogram.observe(value)

    for bound, count in histogram.cumulative():
        assert count == sum(1 for value in values if bound is None or value <= bound)
    assert (histogram.count, histogram.total) == (len(values), sum(values))


def test_maximum_of_a_window_expires_by_time_and_not_by_a_scrape() -> None:
    recent = Recent(window_ms=60, steps=6)
    recent.observe(7, now_ms=0)
    recent.observe(3, now_ms=35)

    assert recent.largest(now_ms=59) == 7
    assert recent.largest(now_ms=59) == 7
    assert recent.largest(now_ms=60) == 3
    assert recent.largest(now_ms=89) == 3
    assert recent.largest(now_ms=90) == 0


def test_window_is_bounded_by_its_steps() -> None:
    recent = Recent(window_ms=60, steps=6)
    for now_ms in range(1_000):
        recent.observe(now_ms, now_ms=now_ms)

    assert len(recent._slots) <= 6
    assert recent.largest(now_ms=999) == 999


def test_names_follow_the_conventions() -> None:
    """Prometheus' conventions: one prefix, snake case, base units, and units only at the end."""
    for metric in METRICS:
        assert re.fullmatch(r"quorumlog(_[a-z]+)+", metric.name), metric.name
        assert not re.search(r"_(total|ms|millis|kb|mb|count|sum|bucket)$", metric.name)
        assert metric.kind is not MetricKind.HISTOGRAM or metric.name.endswith("_seconds"), (
            metric.name
        )
        assert metric.about.endswith("."), metric.name
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names) > 40


def test_a_value_needs_all_labels_and_is_put_once() -> None:
    scrape = Scrape()
    scrape.put(COUNTED, 3, "blue")
    scrape.put_histogram(MEASURED, Histogram([1]))

    assert scrape.value(COUNTED, "blue") == 3
    assert scrape.value(COUNTED, "red") is None
    with pytest.raises(AssertionError, match="put twice"):
        scrape.put(COUNTED, 4, "blue")
    with pytest.raises(AssertionError, match="has labels"):
        scrape.put(COUNTED, 4)
    with pytest.raises(AssertionError, match="takes a histogram"):
        scrape.put(MEASURED, 1)
