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
    "security/test_java_clients.py",
    "cluster/test_transaction_chaos.py",
    "docs/test_pages_run.py",
    "cluster/test_cluster_chaos.py",
    "unit/spark/test_identity.py",
    "console/test_pictures.py",
    "packaging/test_distributions.py",
    "docs/test_demo_nodes.py",
    "cluster/test_cli.py",
    "cluster/test_faults.py",
    "interop/test_kafka_data_directory.py",
    "conformance/test_reading.py",
    "cluster/test_soak.py",
    "unit/storage/test_power_cuts.py",
    "unit/clients/groups/test_blocking_groups.py",
    "cluster/test_group_chaos.py",
    "cluster/test_quorum.py",
    "cluster/test_storage_soak.py",
    "cluster/test_cli_cluster.py",
    "simulation/test_crash_points.py",
    "unit/testing/test_cluster.py",
    "unit/server/test_quorum_nodes.py",
    "unit/clients/test_log.py",
    "unit/raftlog/test_metadata_log_crashes.py",
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
