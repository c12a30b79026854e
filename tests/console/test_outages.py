"""Open pages while the cluster or the console fails."""

import pytest
from tests.console.browser import Browser
from tests.console.process import console_process

from quorumlog.testing import Broker, Cluster


@pytest.mark.slow
def test_page_keeps_its_values_in_an_outage_and_recovers(browser: Browser) -> None:
    with Broker() as broker, console_process("--bootstrap", broker.grpc) as console:
        topic = broker.create_topic("before")
        browser.open_console(console)
        browser.go("/topics")
        browser.wait_for("#live a", topic)
        broker.kill()
        banner = browser.wait_for("#status .banner", "does not answer").text
        assert "CONNECTION_FAILED" in banner or "TIMED_OUT" in banner, banner
        assert topic in browser.text("#live")
        browser.wait_for("#age.old", " s ago")
        browser.go("/topics")  # the last values are there after a reload, too
        assert topic in browser.text("#live")
        browser.wait_for("#age.old", " s ago")
        broker.start()
        broker.create_topic("after")
        browser.wait_for("#live a", "after")
        assert browser.text("#status") == ""
        browser.wait_for("#age:not(.old)", "now")
        browser.errors()


@pytest.mark.slow
def test_page_reports_that_the_console_does_not_answer(browser: Browser) -> None:
    with Broker() as broker, console_process("--bootstrap", broker.grpc) as console:
        browser.open_console(console)
        browser.wait_for("#live .health")
        browser.wait_for("#age", "now")
    browser.wait_for("#status .banner", "The console does not answer")
    assert "Healthy" in browser.text("#live")
    browser.errors()


@pytest.mark.slow
def test_pages_explain_a_broker_that_fails(browser: Browser) -> None:
    with Cluster() as cluster, console_process("--bootstrap", cluster.grpc) as console:
        topic = cluster.create_topic("orders", partitions=3)
        browser.open_console(console)
        browser.wait_for("#live .health", "Healthy: 3 brokers")
        node = cluster.controller()
        cluster.kill(node)
        browser.wait_for("#live .health", "under-replicated")
        browser.go(f"/topic/{topic}")
        browser.wait_for("#partitions small", f"replica {node}:")
        assert browser.faults() == []
        cluster.start(node)
        browser.wait_for("#partitions .state.good")
        browser.errors()
