"""The table of metrics in docs/observability.md, from the metric table. `make docs` writes it
between the page's markers; a test compares the page with it."""

import re

from ...metrics import METRICS, Metric

MARKED = re.compile(r"(<!-- made by `make docs`: metrics -->\n).*?(<!-- end -->)", re.DOTALL)


def with_table(page: str) -> str:
    """Return the page with its table regenerated."""
    return MARKED.sub(lambda mark: f"{mark[1]}{metrics_table()}{mark[2]}", page)


def metrics_table() -> str:
    """Return the table, in the order of the code."""
    head = "| metric | kind | meaning |\n| --- | --- | --- |\n"
    return head + "".join(_row(metric) for metric in METRICS)


def _row(metric: Metric) -> str:
    labels = f"{{{', '.join(metric.labels)}}}" if metric.labels else ""
    return f"| `{metric.shown_name}{labels}` | {metric.kind.value} | {metric.about} |\n"
