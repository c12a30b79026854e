"""Every page in light and dark, at 1280 and 390 pixels: the pictures are in build/console.

A page joins the list of PAGES with a line: a name, a path, and an element that it shows at the end.
"""

from collections.abc import Iterator

import pytest
from tests.console.browser import WIDTHS, Browser
from tests.console.process import Console, Visitor, console_process

from quorumlog.testing import Broker

PAGES = {
    "overview": ("/", "#brokers tbody tr"),
    "topics": ("/topics", "#topics tbody tr"),
    "topic-new": ("/topics/new", "form.form"),
    "topic": ("/topic/sample-orders", "#configs tbody tr"),
    "topic-grow": ("/topic/sample-orders/partitions", "form.form"),
    "topic-config": ("/topic/sample-orders/config/retention.ms", "form.form"),
    "topic-elect": ("/topic/sample-orders/elect", "form.form"),
    "topic-delete": ("/topic/sample-orders/delete", "form.form"),
    "brokers": ("/brokers", "#brokers tbody tr"),
    "broker": ("/broker/1", "#logs tbody tr"),
    "broker-drain": ("/broker/1/drain", "main .notice"),
    "broker-unregister": ("/broker/1/unregister", "form.form"),
    "partition-move": ("/brokers/move?topic=events&partition=1", "form.form"),
    "partition-cancel": ("/brokers/cancel?topic=events&partition=1", "form.form"),
    "quorum-transfer": ("/brokers/transfer", "form.form"),
    "access-open": ("/access", "#no-authorizer"),
    "settings": ("/settings", "#settings tbody tr"),
    "settings-broker": ("/settings/broker/1", "#settings tbody tr"),
    "settings-config": ("/settings/config/replication.throttled.rate", "form.form"),
    "groups": ("/groups", "#groups tbody tr"),
    "group": ("/group?name=sample-readers", "#offsets tbody tr"),
    "group-reset": ("/group/reset?name=sample-readers&to=end&value=50", "#resets tbody tr"),
    "group-offsets": ("/group/offsets?name=sample-readers", "form.form"),
    "group-delete": ("/group/delete?name=sample-readers", "form.form"),
    "transactions": ("/transactions", "#commits tbody tr"),
    "transaction": ("/transaction?id=billing%2Fpayments", "#partitions tbody tr"),
    "transaction-abort": ("/transaction/abort?id=billing%2Fpayments", "form.form"),
    "transactions-held": ("/transactions/held?search=1", "#held tbody tr"),
    "staged-commits": ("/commits?name=daily-report", "#attempts tbody tr"),
    "records-topics": ("/records", "#topics tbody tr"),
    "records": ("/topic/sample-orders/records", "#records tbody tr"),
    "records-search": (
        "/topic/sample-orders/records/search?start=earliest&mode=json&find=$.city%20=%20Oslo",
        ".progress",
    ),
    "records-tail": ("/topic/sample-orders/records/tail", ".progress"),
    "record": ("/topic/sample-orders/records/0/7", ".body"),
    "record-produce": ("/topic/sample-orders/produce", "form.form"),
    "unknown-topic": ("/topic/no-such-topic", "#status .banner"),
}


@pytest.fixture(scope="module")
def samples(console: Console, broker: Broker) -> Iterator[None]:
    """The sample data and some more topics."""
    visitor = Visitor(console)
    visitor.login()
    assert visitor.post("/samples", {}).status in (303, 422)
    for name in ("events", "a.topic-with_a.very-long-name" + "-that-never-ends" * 12):
        broker.create_topic(name, partitions=4)
    with (
        broker.connect() as log,
        log.producer(
            transactional_id="billing/payments", transaction_timeout_ms=900_000
        ) as producer,
    ):
        with log.staged_producer(log.open_write("daily-report", number=17), 3) as task:
            task.send("events", "row")
            task.seal()
        producer.begin_transaction()
        producer.send("events", "open").result()
        yield


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.usefixtures("samples")
def test_page_has_no_fault_in_any_look(browser: Browser, name: str) -> None:
    path, shown = PAGES[name]
    browser.go(path)
    browser.wait_for(shown)
    browser.check_looks(name)
    for width in WIDTHS:
        browser.look(width, "light")
        assert browser.keyboard_faults() == [], width
    errors = [each for each in browser.errors() if "404 (Not Found)" not in each]
    assert errors == []


@pytest.mark.long
def test_first_steps_of_an_empty_cluster(browser: Browser) -> None:
    with Broker() as empty, console_process("--bootstrap", empty.grpc) as console:
        browser.open_console(console)
        assert empty.grpc in browser.text("#live")
        assert empty.kafka in browser.text("#live")
        browser.check_looks("first-steps")
        browser.press("Create sample data")
        browser.wait_for(".notice.good", "1,000 records")
        assert browser.errors() == []


@pytest.mark.long
def test_pages_without_a_session_have_no_fault(browser: Browser) -> None:
    environment = {"QUORUMLOG_SECURITY_PROTOCOL": "SASL_PLAINTEXT"}
    with console_process("--bootstrap", "127.0.0.1:1", environment=environment) as console:
        browser.console = console
        for name, path in (("stranger", "/"), ("no-page", "/no-page")):
            browser.driver.delete_all_cookies()
            browser.go(path)
            browser.wait_for("main.narrow h1")
            browser.check_looks(name)
        browser.driver.get(console.url)
        browser.wait_for("[name=password]")
        browser.fill("user", "alice")
        browser.fill("password", "wonderland")
        browser.press("Sign in")
        browser.wait_for("#failure", "CONNECTION_FAILED")
        browser.check_looks("sign-in")
    browser.errors()
