"""Common configuration of all test runs."""

import gc
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "quorumlog",
    deadline=None,  # a busy machine is no failure; required speed has a test of its own
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("quorumlog")

# A shell without job control starts background processes, and so all their children, with SIGINT
# ignored. The tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS: Final = Path(__file__).parent

# Files that take over fifteen seconds on an idle machine, the longest first.
LONGEST_FILES: Final = (
    "packaging/test_distributions.py",
    "cluster/test_cluster_chaos.py",
    "console/test_pictures.py",
    "unit/storage/test_power_cuts.py",
    "mutation/test_simulated.py",
    "simulation/test_staged_scenarios.py",
    "tidy/test_smells.py",
    "conformance/test_transactions.py",
    "security/test_java_clients.py",
    "docs/test_pages_run.py",
    "docs/test_site.py",
    "property/transactions/test_staged_requests.py",
    "security/test_kafka_clients.py",
    "cluster/test_cli.py",
    "unit/testing/test_broker.py",
    "simulation/test_transaction_scenarios.py",
    "cluster/test_backup.py",
    "console/test_groups.py",
    "console/test_records.py",
    "foreign/test_nodejs.py",
    "conformance/test_records.py",
    "cluster/test_process.py",
    "tidy/test_tidy.py",
)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Freeze the modules of all tests for the cyclic garbage collector: half a million permanent
    objects, which took two thirds of a second in each full collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Freeze the garbage of a file's tests: simulated crashes leave millions of permanent objects,
    on which each full collection would take seconds."""
    try:
        return (yield)
    finally:
        if nextitem is None or nextitem.path != item.path:
            gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the workers of pytest-xdist begin with the longest files, so that they end together."""
    if hasattr(config, "workerinput"):
        ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST_FILES)}
        items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
