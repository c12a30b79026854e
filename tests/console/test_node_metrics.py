"""Metrics of a port that another program may have."""

from quorumlog.console.node_metrics import LINE_MAX, parse_metrics

BUCKETS = 'quorumlog_call_seconds_bucket{method="Fetch",le="%s"} %d'


def test_lines_that_are_no_metrics_are_passed_over() -> None:
    text = "\n".join(
        (
            "quorumlog_loop_stall_seconds 0.25",
            "quorumlog_loop_stall_seconds nothing",
            BUCKETS % ("0.01", 99),
            BUCKETS % ("never", 1),
            BUCKETS % ("+Inf", 100),
            'quorumlog_call_seconds_count{method="Fetch"} 100',
            'quorumlog_call_seconds_sum{method="Fetch"} 1.5',
            'quorumlog_call_seconds{method="' + "a" * LINE_MAX + '"} 1',
        )
    )
    found = parse_metrics(text)
    assert found.stall_ms == 250
    (fetch,) = found.times
    assert (fetch.name, fetch.count, fetch.most_ms) == ("Call Fetch", 100, 10)
