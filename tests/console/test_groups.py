"""Groups in a browser: lags with causes, resets with a preview, deletions, hostile names."""

from urllib.parse import quote

import pytest
from tests.console.browser import Browser
from tests.console.hostile_names import HOSTILE_NAMES
from tests.console.process import Console, Visitor, console_process

from quorumlog.testing import Broker, Cluster


def write_records(broker: Broker, topic: str, count: int) -> None:
    with broker.connect() as log, log.producer() as producer:
        for number in range(count):
            producer.send(topic, str(number), partition=number % 2)


def choose(browser: Browser, position: str, value: str) -> None:
    """Preview a reset to a position."""
    browser.fill("to", position)
    browser.fill("value", value)
    browser.press("Preview")


@pytest.mark.long
def test_group_from_its_lag_to_its_deletion(browser: Browser, broker: Broker) -> None:
    topic = broker.create_topic(partitions=2)
    write_records(broker, topic, 20)
    with broker.connect() as log:
        log.admin.reset_offsets("billing", "earliest", topics=[topic])
    browser.go("/groups?filter=billing")
    browser.wait_for("#groups td[data-label=Lag]", "20")
    browser.press("billing")
    browser.wait_for("#live .health", "Lag 20 in 2 of 2 partitions.")
    assert "group billing has no members" in browser.text("#cause")
    browser.press("Reset offsets")
    browser.press("Preview")
    browser.wait_for("#failure", "New position: none is given")
    assert browser.property("[name=to]", "ariaInvalid") == "true"
    choose(browser, "a time", "soon")
    browser.wait_for("#failure", "'soon' is not a time; give one")
    assert browser.property("[name=value]", "value") == "soon"
    assert browser.property("[name=value]", "ariaInvalid") == "true"
    choose(browser, "a number of records before the end", "3")
    browser.wait_for("#preview h2", "2 of 2 offsets would change")
    assert browser.text("#resets tbody tr:first-child").split() == [f"{topic}-0", "0", "7", "+7"]
    with broker.connect() as log:
        assert log.admin.describe_group("billing").lag == 20  # a preview changes nothing
    browser.fill("confirmation", "billin")
    browser.press("Set 2 offsets")
    browser.wait_for("#failure", "enter billing to confirm")
    browser.fill("confirmation", "billing")
    browser.press("Set 2 offsets")
    browser.wait_for(".notice.good", "Set 2 offsets of group billing.")
    browser.wait_for("#live .health", "Lag 6 in 2 of 2 partitions.")
    browser.press("Delete offsets")
    browser.fill("partitions", "1")
    browser.fill("confirmation", "billing")
    browser.press("Delete offsets")
    browser.wait_for(".notice.good", "Deleted 1 offset of topic")
    browser.wait_for("#live .health", "Lag 3 in 1 of 1 partition.")
    browser.press("Delete")
    browser.fill("confirmation", "billing")
    browser.press("Delete group")
    browser.wait_for(".notice.good", "Deleted group billing.")
    with broker.connect() as log:
        assert "billing" not in [each.name for each in log.admin.list_groups()]


@pytest.mark.long
def test_open_page_shows_members_and_the_progress_of_a_group(
    browser: Browser, broker: Broker
) -> None:
    topic = broker.create_topic(partitions=2)
    write_records(broker, topic, 10)
    with (
        broker.connect() as log,
        log.group_consumer("readers", topic, auto_commit=False) as consumer,
    ):
        for _ in range(4):
            next(consumer)
        consumer.commit()
        browser.go("/group?name=readers")
        browser.wait_for("#members td[data-label=Owned]", f"{topic}-0,1")
        browser.wait_for("#live .health", "Lag 6")
        browser.press("Reset offsets")
        assert "1 member that would overwrite" in browser.text("#members")
        choose(browser, "the end of the logs", "")
        browser.wait_for("#preview h2", "2 of 2 offsets would change")
        assert browser.texts("#preview form, .notice.bad") == []  # a preview alone
        browser.go("/group?name=readers")
        for _ in range(6):
            next(consumer)
        consumer.commit()
        browser.wait_for("#live .health", "No lag")
        browser.wait_for(".chart .line")


@pytest.mark.long
def test_list_is_filtered_and_cut_by_the_server(console: Console, broker: Broker) -> None:
    topic = broker.create_topic()
    with broker.connect() as log:
        for number in range(60):
            log.admin.reset_offsets(f"many-{number:02}", {(topic, 0): 0})
    visitor = Visitor(console)
    visitor.login()
    first = visitor.get("/groups?filter=MANY&sort=-name").body
    assert first.count('data-label="Group"') == 50
    assert "many-59" in first
    assert "many-09" not in first
    assert "60 of" in first
    second = visitor.get("/groups?filter=MANY&sort=-name&page=2").body
    assert second.count('data-label="Group"') == 10
    assert "No group matches" in visitor.get("/groups?filter=many&state=Stable").body


def test_preview_without_a_change_has_no_button(console: Console, broker: Broker) -> None:
    topic = broker.create_topic()
    with broker.connect() as log:
        log.admin.reset_offsets("unmoved", {(topic, 0): 0})
    visitor = Visitor(console)
    visitor.login()
    page = visitor.get("/group/reset?name=unmoved&to=earliest").body
    assert "Preview: 0 of 1 offset would change" in page
    assert 'class="danger"' not in page


def test_second_preview_replaces_the_first(console: Console, broker: Broker) -> None:
    topic = broker.create_topic()
    with broker.connect() as log, log.producer() as producer:
        producer.send(topic, "one").result()
        log.admin.reset_offsets("twice", {(topic, 0): 0})
    visitor = Visitor(console)
    visitor.login()
    path = "/group/reset?name=twice&to=latest"
    first = visitor.get(path).body.partition('name="plan" value="')[2].partition('"')[0]
    assert first
    visitor.get(path)
    refused = visitor.post(path, {"plan": first, "confirmation": "twice"})
    assert refused.status == 422
    assert "The preview is not the last one" in refused.body


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=["markup", "path", "long"])
def test_hostile_name_of_a_group_is_text_on_every_page(
    browser: Browser, broker: Broker, name: str
) -> None:
    topic = broker.create_topic()
    with broker.connect() as log:
        log.admin.reset_offsets(name, {(topic, 0): 0})
        browser.look(390, "light")
        browser.go(f"/groups?filter={quote(name[:200].strip(), safe='')}")
        browser.wait_for("#groups td.name a")
        browser.click("#groups td.name a")
        browser.wait_for("#live .health", "No lag")
        assert browser.faults() == []
        for action in ("Reset offsets", "Delete offsets", "Delete"):
            browser.go(f"/group?name={quote(name, safe='')}")
            browser.press(action)
            browser.wait_for("form.form")
            assert browser.faults() == [], action
        if len(name) < 200:
            browser.fill("confirmation", browser.text(".field code"))
            browser.press("Delete group")
            browser.wait_for(".notice.good", "Deleted group")
            assert name not in [each.name for each in log.admin.list_groups()]
    assert browser.driver.execute_script("return window.hit") is None
    assert browser.errors() == []


@pytest.mark.long
def test_pages_of_groups_and_transactions_without_a_coordinator(browser: Browser) -> None:
    with Cluster() as cluster, console_process("--bootstrap", cluster.grpc) as console:
        topic = cluster.create_topic("orders", partitions=3)
        with cluster.connect() as log:
            log.admin.reset_offsets("late", "earliest", topics=[topic])
            browser.open_console(console)
            browser.go("/transactions")
            browser.wait_for("#live", "No transactional ids")
            browser.go("/group?name=late")
            browser.wait_for("#live .health", "No lag")
            for node in (1, 2):
                cluster.kill(node)
            banner = browser.wait_for("#status .banner")
            assert "recovers by itself" in banner, banner
            assert "3 partitions" in browser.text("#live")  # the last values
            browser.go("/transactions")
            browser.wait_for("#status .banner, .part-error")
            assert "Staged commits" in browser.text("#live")
            browser.go("/group?name=late")
            browser.wait_for("#status .banner")
            for node in (1, 2):
                cluster.start(node)
            browser.wait_for("#status:empty")
            browser.wait_for("#live .health", "No lag")
    browser.errors()
