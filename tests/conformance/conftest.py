"""One cluster for all suites, each client as a parameter, and a new topic for each test."""

import gc
import itertools
import os
import re
import warnings
from collections.abc import Callable, Iterator

import pytest

from .clients.registry import CLIENTS, opened
from .cluster import Cluster, ThreeNodes
from .counting import REQUESTS, TALLY, Tally
from .driving import ABILITIES, Driver, NewTopic
from .real_kafka import RealKafka

AGAINST = "QUORUMLOG_CONFORMANCE_AGAINST"
"""`kafka` runs the suites against Kafka with one node, which verifies their expectations."""

SECURITY = "QUORUMLOG_CONFORMANCE_SECURITY"
"""`SASL_SSL` makes the clients use TLS and a password."""

SETTLED = {"controller.election.timeout.ms": 5_000}
"""Prevents elections on a slow machine: one may leave a request's outcome unknown to clients."""


def is_secure() -> bool:
    """Return True if the listeners of the nodes are SASL_SSL."""
    return os.environ.get(SECURITY) == "SASL_SSL"


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Cluster]:
    """Start the cluster of all suites."""
    folder = tmp_path_factory.mktemp("conformance")
    against_kafka = os.environ.get(AGAINST) == "kafka"
    with (
        RealKafka(folder)
        if against_kafka
        else ThreeNodes(folder, settings=SETTLED, is_secure=is_secure())
    ) as up:
        yield up
        up.check()
        pytestconfig.stash[REQUESTS] = up.requests()


@pytest.fixture(
    scope="session",
    params=[
        pytest.param(name, marks=[pytest.mark.long] if name == "java" else []) for name in CLIENTS
    ],
)
def client(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Driver]:
    """Yield each client in turn; skip its tests if this machine does not have it."""
    folder = tmp_path_factory.mktemp("client")
    with opened(request.param, cluster.bootstrap, folder, cluster.security) as driver:
        yield driver


@pytest.fixture(autouse=True)
def _abilities(request: pytest.FixtureRequest) -> None:
    """Skip the test if the client lacks an ability: `@pytest.mark.needs("pause")`."""
    if "client" not in request.fixturenames:
        return
    client: Driver = request.getfixturevalue("client")
    for mark in request.node.iter_markers("needs"):
        for ability in mark.args:
            assert ability in ABILITIES, ability
            for part in (ability.partition(".")[0], ability):
                if part in client.cannot:
                    why = client.cannot[part]
                    pytest.skip(f"excluded: {client.name}, {ABILITIES[part]}: {why}")


@pytest.fixture(autouse=True)
def _litter() -> Iterator[None]:
    """Collect objects that a client left open after a rejection, so that no later test gets their
    warnings."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.fixture
def topic(request: pytest.FixtureRequest, cluster: Cluster) -> Callable[..., str]:
    """Return a function that creates topics of this test without the client."""
    numbers = itertools.count()

    def make(partitions: int = 1, **configs: str) -> str:
        name = re.sub(r"[^\w.-]+", ".", request.node.name).strip(".")[:200]
        name = f"{name}.{next(numbers)}"
        named = {key.replace("_", "."): value for key, value in configs.items()}
        cluster.create(
            NewTopic(
                name=name, partitions=partitions, replication=cluster.replication, configs=named
            )
        )
        return name

    return make


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[[Tally], None]:
    """Return a function that stores the results of foreign tests, to be counted."""

    def store(counts: Tally) -> None:
        request.node.stash[TALLY] = counts

    return store


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks of the suites."""
    config.addinivalue_line(
        "markers", "suite(name, version): of what a test without a client is about"
    )
    config.addinivalue_line("markers", "needs(*abilities): what a client must be able to do")
