"""Brokers, the quorum and settings in a browser: moves, drain, fencing, and two users' changes."""

from collections.abc import Iterator
from os import urandom

import pytest
from tests.console.browser import Browser
from tests.console.process import Console, Visitor, console_process

from quorumlog.testing import Cluster


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three nodes."""
    with Cluster() as started:
        yield started


@pytest.fixture
def served(browser: Browser, cluster: Cluster) -> Iterator[Browser]:
    """The browser at a console of the cluster."""
    with console_process("--bootstrap", cluster.grpc) as console:
        browser.open_console(console)
        yield browser
        browser.errors()


@pytest.mark.long
def test_move_in_progress_is_shown_and_cancelled(served: Browser, cluster: Cluster) -> None:
    topic = cluster.create_topic("large", partitions=1)
    with cluster.connect() as log:
        log.admin.reassign_partitions({(topic, 0): [1]})
        log.admin.alter_cluster_configs({"replication.throttled.rate": "1KiB"})
        with log.producer() as producer:
            for _ in range(50):
                producer.send(topic, urandom(40_000))
    served.go(f"/brokers/move?topic={topic}&partition=0")
    served.fill("replicas", "1,1")
    served.press("Move partition")
    served.wait_for("#failure", "give each broker once")
    served.fill("replicas", "2")
    served.press("Move partition")
    served.wait_for(".notice.good", "moves to 2")
    served.wait_for("#moves td", "%")
    served.check_looks("brokers-moving")
    served.go(f"/brokers/cancel?topic={topic}&partition=0")
    served.press("Cancel the reassignment")
    served.wait_for(".notice.good", "Cancelled the reassignment")
    served.wait_for("#live", "No partition moves")
    with cluster.connect() as log:
        log.admin.alter_cluster_configs(delete=["replication.throttled.rate"])
        assert log.admin.describe_topic(topic).partitions[0].replicas == (1,)


@pytest.mark.long
def test_quorum_leadership_is_transferred(served: Browser, cluster: Cluster) -> None:
    node = next(each for each in (1, 2) if each != cluster.controller())
    served.go("/brokers/transfer")
    served.click(f"[name=node] option[value='{node}']")
    served.fill("confirmation", str(node))
    served.press("Transfer leadership")
    served.wait_for(".notice.good", f"Node {node} leads")
    assert cluster.controller() == node


@pytest.mark.long
def test_drained_broker_that_fails_is_explained_and_unregistered(
    served: Browser, cluster: Cluster
) -> None:
    topic = cluster.create_topic("orders", partitions=1)
    with cluster.connect() as log:
        log.admin.reassign_partitions({(topic, 0): [3]})
    served.go("/brokers")
    served.wait_for("#live", "No partition moves")
    served.go("/broker/3/drain")
    served.wait_for("#plan td", f"{topic}-0")
    served.fill("confirmation", "2")
    served.press("Drain broker")
    served.wait_for("#failure", "Not confirmed")
    served.fill("confirmation", "3")
    served.press("Drain broker")
    served.wait_for(".notice.good", "began to move")
    served.wait_for("#live", "No partition moves")
    served.go("/broker/3/unregister")
    served.fill("confirmation", "3")
    served.press("Unregister broker")
    served.wait_for("#failure", "INVALID_REQUEST")  # it is alive
    cluster.kill(3)
    served.go("/brokers")
    cause = served.wait_for("#cause-3", "is down: nothing listens at")
    assert "quorumlog cluster start 3" in cause
    assert served.text("#brokers tbody tr:first-child .state") in ("in service", "slow")
    served.check_looks("brokers-fenced")
    served.go("/broker/3")
    served.wait_for("#cause-3", "Its last contact was")
    assert served.text("#live").count("Unknown: the broker is fenced.") == 3
    served.go("/broker/3/unregister")
    served.fill("confirmation", "3")
    served.press("Unregister broker")
    served.wait_for(".notice.good", "Broker 3 is unregistered")
