"""kafka-python's own integration tests against a separate cluster."""

import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest

from ..interop.kafka_process import Kafka
from . import kafka_python_tests
from .clients.kafka_python import KafkaPython
from .cluster import ThreeNodes, until
from .conftest import AGAINST, is_secure
from .counting import Tally
from .driving import Driver, NewTopic

pytestmark = pytest.mark.suite("kafka-python-own", version(kafka_python_tests.PACKAGE))


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Return the address of a broker with the expected settings."""
    if is_secure():
        pytest.skip("excluded: its tests connect without security")
    expected = {
        "group.min.session.timeout.ms": kafka_python_tests.MIN_SESSION_MS,
        "num.partitions": kafka_python_tests.PARTITIONS,
    }
    if os.environ.get(AGAINST) == "kafka":
        settings = {name: str(value) for name, value in expected.items()}
        with Kafka(tmp_path / "kafka", node_id=0, settings=settings) as kafka:
            yield kafka.address
        return
    nodes = ThreeNodes(tmp_path / "nodes", numbers=kafka_python_tests.NODES, settings=expected)
    with nodes as up:
        yield up.addresses[0]
        up.check()


def warm(client: Driver) -> None:
    """Create a group, so that the topic of the groups' offsets exists: some tests have short
    timeouts."""
    with client.admin() as admin:
        until("the brokers are registered", lambda: 0 in admin.brokers().addresses)
        admin.create(NewTopic(name="warm", replication=1))
    with client.member("warm", "warm") as member:

        def is_given() -> bool:
            member.poll(0.2)
            return bool(member.owned())

        until("a group shares a topic out", is_given)


@pytest.mark.long
@pytest.mark.timeout(kafka_python_tests.FETCH_S + kafka_python_tests.ALL_S + 60)
def test_all_tests_except_the_excluded_ones_pass(
    address: str, tmp_path: Path, tally: Callable[[Tally], None]
) -> None:
    warm(KafkaPython(address))
    (tmp_path / "run").mkdir()
    found = kafka_python_tests.run(tmp_path / "run", address)
    tally(
        Tally(
            passed=sum(each.what == "passed" for each in found),
            failed=[f"{each.test}: {each.why}" for each in found if each.what == "failed"],
            reasons=[each.why for each in found if each.what == "excluded"],
        )
    )
    names = {each.test.partition("[")[0] for each in found}
    names |= {name.partition("::")[0] for name in names}
    assert kafka_python_tests.EXCLUDED.keys() <= names, "an excluded test does not exist"
    assert [each for each in found if each.what == "failed"] == []
    assert sum(each.what == "passed" for each in found) > len(found) / 2


REPORT = """\
<testsuites><testsuite name="pytest">
<testcase classname="test.integration.test_admin_integration" name="test_elect_leaders"/>
<testcase classname="test.integration.test_consumer_integration" name="test_group">
<failure message="no">...</failure></testcase>
<testcase classname="test.integration.test_ssl_integration.TestSSLConnection" name="test_ssl">
<skipped message="theirs"/></testcase>
<testcase classname="test.integration.test_producer_integration" name="test_end_to_end[zstd]">
<skipped message="no zstd"/></testcase>
</testsuite></testsuites>
"""


@pytest.mark.suite("quorumlog")
def test_a_report_has_the_result_of_each_test() -> None:
    found = kafka_python_tests.outcomes(REPORT)
    assert [(each.test.partition("_")[2], each.what, each.why) for each in found] == [
        ("admin_integration.py::test_elect_leaders", "passed", ""),
        ("consumer_integration.py::test_group", "failed", "no"),
        (
            "ssl_integration.py::test_ssl",
            "excluded",
            kafka_python_tests.EXCLUDED["test_ssl_integration.py"],
        ),
        ("producer_integration.py::test_end_to_end[zstd]", "excluded", "no zstd"),
    ]
