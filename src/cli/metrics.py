"""`quorumlog metrics dashboard|alerts`: files for Grafana and Prometheus."""

import typer

from .output import print_raw

app = typer.Typer(
    help="Print a Grafana dashboard and Prometheus alert rules for the metrics of nodes.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command(
    "dashboard",
    short_help="Print a Grafana dashboard",
    epilog="""\b
Example:
  quorumlog metrics dashboard > quorumlog.json
""",
)
def dashboard() -> None:
    """Print a dashboard of a cluster in Grafana's JSON: health, throughput, latency, replication,
    groups, transactions, controllers and processes.

    Import it in Grafana, or put it into a folder of provisioned dashboards. Panels of topics need
    metrics.topics.max.
    """
    from ..metrics.dashboard import dashboard_file

    print_raw(dashboard_file())


@app.command(
    "alerts",
    short_help="Print Prometheus alert rules",
    epilog="""\b
Example:
  quorumlog metrics alerts > quorumlog.rules.yml     # a file of Prometheus' rule_files
""",
)
def alerts() -> None:
    """Print a rules file of Prometheus with an alert for each problem that needs attention.

    Each alert has a severity (critical or warning), a meaning and a remedy. Give each cluster a
    scrape job of its own: rules aggregate by job.
    """
    from ..metrics.alerts import rules_file

    print_raw(rules_file())
