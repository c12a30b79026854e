"""Transactions in a browser: open ones, staged commits, hanging ones, aborts, hostile names."""

from urllib.parse import quote

import pytest
from tests.console.browser import Browser
from tests.console.hostile_names import HOSTILE_NAMES
from tests.console.process import console_process
from tests.kit.node_process import lose_topic

from quorumlog.errors import QuorumlogError
from quorumlog.testing import Broker


@pytest.mark.long
def test_open_transaction_is_shown_and_aborted(browser: Browser, broker: Broker) -> None:
    topic = broker.create_topic()
    with broker.connect() as log:
        producer = log.producer(transactional_id="payments")
        producer.begin_transaction()
        producer.send(topic, "open").result()
        browser.go("/transactions?state=Ongoing")
        browser.wait_for("#ids td[data-label=Holds]", "1 partition")
        browser.press("payments")
        browser.wait_for("#partitions td", "a transaction of payments is open from 0")
        browser.go(f"/transactions/held?topic={topic}")
        browser.wait_for("#held", "a transaction of payments is open")
        assert browser.texts("#hanging") == []
        browser.press("payments")
        browser.press("Abort")
        browser.fill("confirmation", "payment")
        browser.press("Abort transaction")
        browser.wait_for("#failure", "Not confirmed")
        browser.fill("confirmation", "payments")
        browser.press("Abort transaction")
        browser.wait_for(".notice.good", "Aborted the transaction of payments")
        with pytest.raises(QuorumlogError):
            producer.commit_transaction()
        producer.close()


@pytest.mark.long
def test_tasks_of_staged_commits_are_shown_by_name_and_aborted(
    browser: Browser, broker: Broker
) -> None:
    topic = broker.create_topic()
    with broker.connect() as log:
        write = log.open_write("daily/report", number=17)
        with log.staged_producer(write, 3) as producer:
            producer.send(topic, "row")
            producer.seal()
        browser.go("/transactions")
        browser.wait_for("#ids td.name", "daily/report#")
        browser.press("daily/report")
        browser.wait_for("#attempts td[data-label=State]", "Sealed")
        assert f"{topic}-0" in browser.text("#live")
        browser.press("Abort the write")
        browser.fill("confirmation", "daily/report")
        browser.press("Abort transaction")
        browser.wait_for(".notice.good", "daily/report")
        assert log.admin.describe_commits("daily/report").sealed == 0


@pytest.mark.parametrize("name", HOSTILE_NAMES, ids=["markup", "path", "long"])
def test_hostile_transactional_id_is_text_on_every_page(
    browser: Browser, broker: Broker, name: str
) -> None:
    topic = broker.create_topic()
    with broker.connect() as log:
        producer = log.producer(transactional_id=name)
        producer.begin_transaction()
        producer.send(topic, "open").result()
        browser.look(390, "dark")
        browser.go(f"/transactions?filter={quote(name[:200].strip(), safe='')}")
        browser.wait_for("#ids td.name a")
        browser.click("#ids td.name a")
        browser.wait_for("#partitions td", "is open from 0")
        assert browser.faults() == []
        browser.go(f"/transactions/held?topic={topic}")
        browser.wait_for("#held td")
        assert browser.faults() == []
        browser.go(f"/transaction/abort?id={quote(name, safe='')}")
        browser.wait_for("form.form")
        assert browser.faults() == []
        if len(name) < 200:
            browser.fill("confirmation", browser.text(".field code"))
            browser.press("Abort transaction")
            browser.wait_for(".notice.good", "Aborted")
        else:
            log.admin.abort_transaction(name)
        with pytest.raises(QuorumlogError):
            producer.commit_transaction()
        producer.close()
    assert browser.driver.execute_script("return window.hit") is None
    assert browser.errors() == []


@pytest.mark.long
def test_hanging_transaction_is_found_and_aborted(browser: Browser) -> None:
    with Broker() as broker, console_process("--bootstrap", broker.grpc) as console:
        broker.create_topic("lost")
        with broker.connect() as log:
            producer = log.producer(transactional_id="lost")
            producer.begin_transaction()
            producer.send("lost", "open").result()
            broker.stop()
            lose_topic(broker.data_dir, "__transaction_state")
            broker.start()
            browser.open_console(console)
            browser.go("/transactions/held")
            browser.press("Search")
            browser.wait_for("#hanging td", "lost-0")
            assert "no coordinator has it: it hangs" in browser.text("#held")
            browser.press("Abort")
            browser.fill("confirmation", "lost-0")
            browser.press("Abort transaction")
            browser.wait_for(".notice.good", "Aborted the transaction of producer id")
            assert "No open transaction holds back readers" in browser.text("main")
            ends = log.list_offsets("lost", isolation_level="read_committed")
            assert ends == log.list_offsets("lost")
            with pytest.raises(QuorumlogError):
                producer.commit_transaction()
            producer.close()
    browser.errors()
