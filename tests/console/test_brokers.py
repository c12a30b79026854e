"""Brokers, the quorum and settings in a browser: moves, drain, fencing, and two users' changes."""

import pytest
from tests.console.browser import SCHEMES, WIDTHS, Browser
from tests.console.process import Console, Visitor, console_process

from quorumlog.testing import Cluster


def test_second_of_two_changes_of_a_cluster_config_is_refused(console: Console) -> None:
    first, second = Visitor(console), Visitor(console)
    path = "/settings/config/replication.throttled.rate"
    for visitor in (first, second):
        visitor.login()
    seen = first.get(path).body.partition('name="seen" value="')[2].partition('"')[0]
    assert first.post(path, {"seen": seen, "value": "5MiB"}).status == 303
    refused = second.post(path, {"seen": seen, "value": "6MiB"})
    assert refused.status == 422
    assert "changed since this page was loaded, to &#39;5242880&#39;" in refused.body
    reset = second.post(path, {"seen": "5242880", "reset": "1"})
    assert reset.status == 303
    assert "Reset replication.throttled.rate" in second.get("/settings").body


def test_settings_are_filtered_and_have_their_source(browser: Browser) -> None:
    browser.go("/settings/broker/1?changed=1")
    browser.wait_for("#settings tbody tr", "node.id")
    assert "file" in browser.text("#settings")
    assert "audit.log.file" not in browser.text("#settings")
    browser.fill("filter", "listeners.http")
    browser.wait_for(".pager", "1 of")
    browser.go("/broker/1")
    browser.wait_for("#times tbody tr")  # read from that address
    assert browser.errors() == []


@pytest.mark.slow
def test_partition_moves_and_a_failed_broker_is_explained(browser: Browser) -> None:
    with Cluster() as cluster, console_process("--bootstrap", cluster.grpc) as console:
        topic = cluster.create_topic("orders", partitions=1)
        browser.open_console(console)
        with cluster.connect() as log:
            log.admin.reassign_partitions({(topic, 0): [1]})
        browser.go(f"/brokers/move?topic={topic}&partition=0")
        browser.fill("replicas", "1,1")
        browser.press("Move partition")
        assert "give each broker once" in browser.wait_for("#failure").text
        browser.fill("replicas", "2,3")
        browser.press("Move partition")
        browser.wait_for(".notice.good", "moves to 2, 3")
        browser.wait_for("#live", "No partition moves")
        browser.go("/broker/3/drain")
        browser.wait_for("#plan td", f"{topic}-0")
        browser.fill("confirmation", "2")
        browser.press("Drain broker")
        assert "not confirmed" in browser.wait_for("#failure").text
        browser.fill("confirmation", "3")
        browser.press("Drain broker")
        browser.wait_for(".notice.good", "began to move")
        browser.wait_for("#live", "No partition moves")
        browser.go("/broker/3/unregister")
        browser.fill("confirmation", "3")
        browser.press("Unregister broker")
        assert "INVALID_REQUEST" in browser.wait_for("#failure").text  # it is alive
        node = next(each for each in (1, 2) if each != cluster.controller())
        browser.go("/brokers/transfer")
        browser.find(f"[name=node] option[value='{node}']").click()
        browser.fill("confirmation", str(node))
        browser.press("Transfer leadership")
        browser.wait_for(".notice.good", f"Node {node} leads")
        cluster.kill(3)
        browser.go("/brokers")
        cause = browser.wait_for("#cause-3", "is down: nothing listens at").text
        assert "quorumlog cluster start 3" in cause
        assert "in service" in browser.text("#brokers tbody tr:first-child")
        for scheme in SCHEMES:
            for width in WIDTHS:
                browser.look(width, scheme)
                assert browser.faults() == [], (scheme, width)
                browser.picture(f"brokers-fenced-{scheme}-{width}", width)
        browser.look(1280, "light")
        browser.go("/broker/3")
        browser.wait_for("#cause-3")
        browser.go("/broker/3/unregister")
        browser.fill("confirmation", "3")
        browser.press("Unregister broker")
        browser.wait_for(".notice.good", "Broker 3 is unregistered")
        browser.errors()
