"""The generated parts of docs/observability.md: the table of metrics, and the tables of alerts.
`make docs` writes them between the page's markers; a test compares the page with them."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from ...metrics import METRICS, Metric
from ...metrics.alerts import AlertSeverity, alerts_table

MARKED = re.compile(r"(<!-- made by `make docs`: ([a-z ]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """Return the page with its tables regenerated."""
    return MARKED.sub(lambda mark: f"{mark[1]}{TABLES[mark[2]]()}{mark[3]}", page)


def metrics_table() -> str:
    """Return the table, in the order of the code."""
    head = "| metric | kind | meaning |\n| --- | --- | --- |\n"
    return head + "".join(_row(metric) for metric in METRICS)


def _row(metric: Metric) -> str:
    labels = f"{{{', '.join(metric.labels)}}}" if metric.labels else ""
    return f"| `{metric.shown_name}{labels}` | {metric.kind.value} | {metric.about} |\n"


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "metrics": metrics_table,
    "critical alerts": lambda: alerts_table(AlertSeverity.CRITICAL),
    "warnings": lambda: alerts_table(AlertSeverity.WARNING),
}
"""The tables by the name in their marker."""
