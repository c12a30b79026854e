"""Topics in a browser: create, grow, configure, delete; filters; two users and one config."""

import pytest
from tests.console.browser import Browser
from tests.console.process import Console, Visitor

from quorumlog.testing import Broker


@pytest.mark.long
def test_topic_from_creation_to_deletion(browser: Browser, broker: Broker) -> None:
    browser.go("/topics")
    browser.press("Create a topic")
    browser.fill("name", "journey")
    browser.fill("partitions", "0")
    browser.fill("configs", "retention.ms=1d")
    browser.press("Create topic")
    browser.wait_for("#failure", "give 1 to")
    browser.fill("partitions", "2")
    browser.press("Create topic")
    browser.wait_for(".notice.good", "Created topic journey")
    assert "86400000 (1 d)" in browser.text("#configs")
    browser.press("Add partitions")
    browser.fill("partitions", "5")
    browser.press("Add partitions")
    browser.wait_for(".notice.good", "5 partitions")
    browser.press("Elect leaders")
    browser.press("Elect preferred leaders")
    browser.wait_for(".notice.good", "preferred leader already")
    browser.go("/topic/journey/config/retention.ms")
    selected = (
        "const f = document.activeElement; return f.value.slice(f.selectionStart, f.selectionEnd)"
    )
    assert browser.driver.execute_script(selected) == "86400000"  # typing replaces it
    browser.fill("value", "soon")
    browser.press("Set value")
    browser.wait_for("#failure", "INVALID_CONFIG")
    assert browser.property("main [name=value]", "value") == "soon"
    browser.press("Reset to the default")
    browser.wait_for(".notice.good", "Reset retention.ms")
    browser.press("Delete")
    browser.fill("confirmation", "journe")
    browser.press("Delete topic")
    browser.wait_for("#failure", "Not confirmed")
    browser.fill("confirmation", "journey")
    browser.press("Delete topic")
    browser.wait_for(".notice.good", "Deleted topic journey")
    with broker.connect() as log:
        assert "journey" not in [topic.name for topic in log.admin.list_topics()]


def test_rates_appear_while_records_arrive(browser: Browser, broker: Broker) -> None:
    topic = broker.create_topic()
    browser.go(f"/topic/{topic}")
    browser.wait_for("#partitions td", "in sync")
    with broker.connect() as log, log.producer() as producer:
        for number in range(500):
            producer.send(topic, str(number))
    browser.wait_for("#partitions td[data-label=End]", "500")
    browser.wait_for(".chart .line")


@pytest.mark.long
def test_list_is_filtered_and_cut_by_the_server(browser: Browser, broker: Broker) -> None:
    with broker.connect() as log:
        for number in range(120):
            log.admin.create_topic(f"many-{number:03}", partitions=1 + number % 2)
    browser.go("/topics?filter=many-&sort=-name")
    assert browser.text("#topics tbody tr:first-child a") == "many-119"
    assert "120 of" in browser.text(".pager")
    assert len(browser.texts("#topics tbody tr")) == 50
    browser.press("Next")
    browser.wait_for(".pager", "2 / 3")
    browser.fill("filter", "many-01")
    browser.wait_for(".pager", "10 of")  # by htmx, without the button
    assert "filter=many-01" in browser.driver.current_url
    browser.wait_for("#topics td", "many-010")
    assert "page=" not in browser.driver.current_url


def test_second_of_two_changes_of_a_config_is_refused(console: Console, broker: Broker) -> None:
    topic = broker.create_topic()
    first, second = Visitor(console), Visitor(console)
    path = f"/topic/{topic}/config/retention.ms"
    for visitor in (first, second):
        visitor.login()
    seen = first.get(path).body.partition('name="seen" value="')[2].partition('"')[0]
    assert first.post(path, {"seen": seen, "value": "1h"}).status == 303
    refused = second.post(path, {"seen": seen, "value": "2h"})
    assert refused.status == 422
    assert "changed since this page was loaded, to &#39;3600000&#39;" in refused.body
