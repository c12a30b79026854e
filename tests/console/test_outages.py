"""Open pages while the cluster or the console fails: banners, last values, recovery."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
from tests.console.browser import Browser
from tests.console.process import console_process

from quorumlog.testing import Broker, Cluster

PAGES: Final = {
    "overview": ("/", "#brokers tbody tr"),
    "topic": ("/topic/orders", "#partitions tbody tr"),
    "tail": ("/topic/orders/records/tail", "#records tbody tr"),
    "groups": ("/groups", "#groups tbody tr"),
    "brokers": ("/brokers", "#brokers tbody tr"),
}
"""The pages of these tests by name: a path, and an element that has values of the cluster."""


@pytest.mark.slow
def test_page_keeps_its_values_in_an_outage_and_recovers(browser: Browser) -> None:
    with Broker() as broker, console_process("--bootstrap", broker.grpc) as console:
        topic = broker.create_topic("before")
        browser.open_console(console)
        browser.go("/topics")
        browser.wait_for("#live a", topic)
        broker.kill()
        banner = browser.wait_for("#status .banner", "does not answer")
        reasons = ("CONNECTION_FAILED", "NETWORK_EXCEPTION", "TIMED_OUT")
        assert any(reason in banner for reason in reasons), banner
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


@pytest.mark.long
def test_page_reports_that_the_console_does_not_answer(browser: Browser) -> None:
    with Broker() as broker, console_process("--bootstrap", broker.grpc) as console:
        browser.open_console(console)
        browser.wait_for("#live .health")
        browser.wait_for("#age", "now")
    browser.wait_for("#status .banner", "The console does not answer")
    assert browser.text("#live .health")
    browser.errors()


class OpenPages:
    """All pages of PAGES, each in a window of its own."""

    def __init__(self, browser: Browser, cluster: Cluster) -> None:
        """Create the topic and the groups that the pages show, and open the pages."""
        self.browser = browser
        self.cluster = cluster
        cluster.create_topic("orders", partitions=3)
        with cluster.connect() as log:
            log.admin.elect_leaders()
            for number in range(6):  # over several coordinators
                log.admin.reset_offsets(f"readers-{number}", "earliest", topics=["orders"])
        self._handles: dict[str, str] = {}
        for name, (path, _) in PAGES.items():
            if self._handles:
                browser.driver.switch_to.new_window("window")
            self._handles[name] = browser.driver.current_window_handle
            browser.go(path)
        self.show("tail").wait_for(".progress")
        self.produce("first")
        for name, (_, shown) in PAGES.items():
            self.show(name).wait_for(shown)
        self.wait_for_each("#status:empty")

    def produce(self, text: str) -> None:
        """Produce a record to each partition."""
        with self.cluster.connect() as log, log.producer() as producer:
            for partition in range(3):
                producer.send("orders", f"{text}-{partition}", partition=partition).result()

    def show(self, name: str) -> Browser:
        """Return the browser with the window of a page."""
        self.browser.driver.switch_to.window(self._handles[name])
        assert not self.browser.driver.execute_script("return document.hidden"), name
        return self.browser

    def wait_for_each(self, selector: str) -> None:
        """Wait for an element in every window."""
        for name in PAGES:
            self.show(name).wait_for(selector)

    def wait_until_recovered(self) -> None:
        """Wait until every page shows present values, without a reload; the tail lost nothing."""
        self.produce("last")
        for partition in range(3):
            self.show("tail").wait_for("#records", f"last-{partition}")
        # On a busy machine the health reports slow brokers.
        self.show("overview").wait_for("#live:not(:has(#attention a)) .health")
        self.show("topic").wait_for("#live:not(:has(.reason, [id^=cause-], #remark))")
        self.show("groups").wait_for("#live:not(:has(.missing, #remark))")
        self.show("groups").wait_for("#groups", "readers-5")
        self.show("brokers").wait_for("#live:not(:has([id^=cause-], #remark))")
        self.wait_for_each("#status:empty")
        self.wait_for_each("main:not(:has(#age.old))")

    def close(self) -> None:
        """Close all windows but the first."""
        first, *others = self._handles.values()
        for handle in others:
            self.browser.driver.switch_to.window(handle)
            self.browser.driver.close()
        self.browser.driver.switch_to.window(first)
        self.browser.errors()


@contextmanager
def open_pages(browser: Browser) -> Iterator[OpenPages]:
    """Open the pages at a console of a new cluster of three nodes."""
    with Cluster() as cluster, console_process("--bootstrap", cluster.grpc) as console:
        browser.open_console(console)
        pages = OpenPages(browser, cluster)
        try:
            yield pages
        finally:
            pages.close()


@pytest.mark.long
@pytest.mark.parametrize(
    "is_leader",
    [
        pytest.param(True, id="leader"),
        pytest.param(False, id="other node", marks=pytest.mark.long),
    ],
)
def test_open_pages_report_a_lost_node_with_its_cause(browser: Browser, is_leader: bool) -> None:
    with open_pages(browser) as pages:
        cluster = pages.cluster
        leader = cluster.controller()
        node = leader if is_leader else leader % 3 + 1
        cluster.kill(node)
        down = f"broker {node} is down: nothing listens at"
        pages.show("overview").wait_for("#live .health", "under-replicated")
        pages.show("overview").wait_for("#live .health", f"Broker {node} is")
        pages.show("overview").wait_for("#attention a", "orders")
        pages.show("topic").wait_for("#remark", f"Broker {node} is fenced")
        pages.show("topic").wait_for(f"#cause-{node}", down[8:])
        pages.show("topic").wait_for(".reason", f"replica {node} ")
        pages.show("groups").wait_for("#remark", f"Broker {node} is fenced")
        pages.show("groups").wait_for("#groups", "readers-5")
        pages.show("brokers").wait_for(f"#cause-{node}", down[8:])
        pages.produce("between")  # by the other nodes; the tail continues with them
        for partition in range(3):
            pages.show("tail").wait_for("#records", f"between-{partition}")
        pages.wait_for_each("#status:empty")
        cluster.start(node)
        pages.wait_until_recovered()


@pytest.mark.long
def test_open_pages_report_a_lost_quorum(browser: Browser) -> None:
    with open_pages(browser) as pages:
        cluster = pages.cluster
        lost = (1, 2)
        cluster.kill(*lost)
        no_leader = "The metadata quorum has no leader"
        pages.show("overview").wait_for("#live .health.bad", no_leader)
        for name in ("topic", "groups", "brokers"):
            pages.show(name).wait_for("#remark", no_leader)
        pages.show("tail").wait_for("#status .banner", "The live tail waits")
        pages.show("tail").wait_for("#status .banner", "partition")
        pages.show("tail").wait_for("#records", "first-0")
        pages.show("groups").wait_for("#live .missing", "broker 1")
        cluster.start(*lost)
        pages.wait_until_recovered()


@pytest.mark.long
def test_open_pages_keep_their_values_while_every_node_is_down(browser: Browser) -> None:
    with open_pages(browser) as pages:
        cluster = pages.cluster
        cluster.kill(*cluster.nodes)
        for name, (_, shown) in PAGES.items():
            text = "The live tail waits" if name == "tail" else "The cluster does not answer"
            pages.show(name).wait_for("#status .banner", text)
            browser.wait_for("#status .banner" if name == "tail" else "#age.old", " ago")
            assert browser.is_visible(shown), name
        cluster.start()
        pages.wait_until_recovered()


@pytest.mark.long
def test_list_of_groups_is_partial_while_one_coordinator_is_silent(browser: Browser) -> None:
    with Cluster(settings={"broker.session.timeout.ms": 600_000}) as cluster:
        topic = cluster.create_topic("orders", partitions=1)
        with cluster.connect() as log:
            log.admin.elect_leaders()
            for number in range(12):
                log.admin.reset_offsets(f"readers-{number:02}", "earliest", topics=[topic])
            by_node: dict[int, list[str]] = {}
            for each in log.admin.list_groups():
                by_node.setdefault(each.coordinator, []).append(each.name)
            quorum = {cluster.controller(), cluster.leader(topic)}
            node = next(each for each in by_node if each not in quorum)
        others = sorted({name for names in by_node.values() for name in names} - {*by_node[node]})
        with console_process("--bootstrap", cluster.grpc) as console:
            browser.open_console(console)
            browser.wait_for("#live .health")
            cluster.pause(node)
            try:
                browser.go("/groups")
                remark = browser.wait_for("#live .missing", f"broker {node}")
                assert "missing in this list" in remark
                assert browser.texts("#groups td.name") == others
                assert set(browser.texts("#groups td[data-label=Lag]")) == {"0"}
                assert browser.text("#status") == ""
            finally:
                cluster.resume(node)
            browser.wait_for("#live:not(:has(.missing))")
            browser.wait_for("#groups", by_node[node][0])
    browser.errors()
