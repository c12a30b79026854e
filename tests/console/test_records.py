"""Records in a browser: hostile contents, search, live tail, downloads, the form."""

import io
import json
import shlex
import subprocess
import sys
from urllib.parse import urlencode
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest
from selenium.webdriver.support.ui import WebDriverWait
from tests.console.browser import Browser
from tests.console.process import Console, Visitor
from tests.kit.command import COMMAND

from quorumlog.clients.config import ProducerSettings
from quorumlog.testing import Broker

SCRIPT = "<script>document.title='executed'</script>" + (
    "<img src=x onerror=\"document.title='executed'\">"
)
HOSTILE: dict[str, bytes] = {
    "html": SCRIPT.encode(),
    "json-html": json.dumps({SCRIPT: [SCRIPT, 2**63, "\u202e"]}).encode(),
    "controls": b"a\x1b[2Jb\x00c\r\nd\xe2\x80\xaeevil\xe2\x80\xac",
    "binary": bytes(range(256)),
    "deep": b"[" * 200_000 + b"]" * 200_000,
    "number": b'{"n": 123456789012345678901234567890.10}',
    "digits": b"[" + b"9" * 100_000 + b"]",
    "huge": b"x" * (10 * 1024 * 1024),
    "zeros": b"\0" * 4_000_000,
}
PAGE_BYTES_MAX = 400_000
BIG: ProducerSettings = {"compression": "zstd", "max_request_size": 12 << 20}


@pytest.fixture(scope="module")
def hostile(broker: Broker) -> str:
    """A topic with one hostile record of each kind, in compressed batches."""
    topic = broker.create_topic("hostile", configs={"max.message.bytes": 12 << 20})
    with broker.connect() as log, log.producer(**BIG) as producer:
        for name, value in HOSTILE.items():
            producer.send(topic, value, key=name, headers=[(SCRIPT, value[:2_000])])
            producer.flush()
        producer.send(topic, None, key=SCRIPT)
    return topic


@pytest.fixture(scope="module")
def orders(broker: Broker) -> str:
    """A topic with 600 orders in three partitions."""
    topic = broker.create_topic("orders-to-find", partitions=3)
    with broker.connect() as log, log.producer() as producer:
        for number in range(600):
            city = {"name": "Oslo" if number % 100 == 7 else "Lima"}
            value = json.dumps({"order": number, "city": city})
            producer.send(topic, value, key=f"customer-{number}", partition=number % 3)
    return topic


@pytest.fixture
def visitor(console: Console) -> Visitor:
    """A program with a session."""
    found = Visitor(console)
    found.login()
    return found


def test_hostile_records_are_shown_and_never_executed(browser: Browser, hostile: str) -> None:
    pages = [f"/topic/{hostile}/records", f"/topic/{hostile}/records/search?find=a"]
    pages += [
        f"/topic/{hostile}/records/0/{offset}?view={view}"
        for offset in range(len(HOSTILE) + 1)
        for view in ("text", "json", "hex")
    ]
    for path in pages:
        browser.look(390, "light")
        browser.go(path)
        browser.wait_for("main td, main .body, main .empty")
        if "search" in path:
            browser.wait_for(".progress", "Search ended")
        assert "executed" not in browser.driver.title
        assert browser.texts("main img, main script") == []
        assert len(browser.driver.page_source) < PAGE_BYTES_MAX, path
        assert browser.faults() == [], path
    assert browser.errors() == []


def test_contents_are_exact_and_hidden_characters_visible(browser: Browser, hostile: str) -> None:
    names = list(HOSTILE)
    path = f"/topic/{hostile}/records/0/"

    def shown(name: str, view: str) -> str:
        browser.go(f"{path}{names.index(name)}?view={view}")
        return browser.text(".body[aria-label=value]")

    assert shown("html", "text") == SCRIPT
    assert "\\x1b[2Jb\\0c\\r\nd\\u202eevil\\u202c" in shown("controls", "text")
    assert "\\x80\\x81" in shown("binary", "text")
    assert "00000040  40 41 42" in shown("binary", "hex")
    assert '"n": 123456789012345678901234567890.10' in shown("number", "json")
    shown("deep", "json")
    assert "nested too deeply" in browser.text("main")
    shown("huge", "text")
    assert "10,485,760 bytes; the first 65,536 are shown" in browser.text("main")


def test_huge_value_is_downloaded_as_attachment(visitor: Visitor, hostile: str) -> None:
    offset = list(HOSTILE).index("huge")
    reply = visitor.get(f"/topic/{hostile}/records/0/{offset}/value")
    assert len(reply.body) == 10 * 1024 * 1024
    disposition = f'attachment; filename="{hostile}-0-{offset}-value.bin"'
    assert reply.headers["content-disposition"] == disposition
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["content-type"] == "application/octet-stream"


@pytest.mark.long
@pytest.mark.parametrize(
    ("field", "mode", "text", "count"),
    [
        ("key", "equals", "customer-42", 1),
        ("value", "contains", '"Oslo"', 6),
        ("value", "regex", r'"order": \d07,', 5),
        ("value", "json", "$.city.name = Oslo", 6),
        ("value", "json", "city.*", 600),
        ("header", "contains", "x", 0),
    ],
)
def test_search_finds_records(
    browser: Browser, orders: str, field: str, mode: str, text: str, count: int
) -> None:
    query = urlencode({"start": "earliest", "field": field, "mode": mode, "find": text})
    browser.go(f"/topic/{orders}/records/search?{query}")
    browser.wait_for(".progress", "Search ended")
    assert len(browser.texts("#records tbody tr")) == min(count, 50)
    if count > 50:
        assert "limit of 50 found records" in browser.text(".progress")
        browser.press("Continue the search")
        browser.wait_for(".progress", "Search ended")
        assert len(browser.texts("#records tbody tr")) == 50
    else:
        assert "end of the log is reached" in browser.text(".progress")


@pytest.mark.parametrize("find", ["(" * 600, "(?P<x", "$.["])
def test_malformed_search_names_its_reason(visitor: Visitor, orders: str, find: str) -> None:
    mode = "json" if find.startswith("$") else "regex"
    query = urlencode({"mode": mode, "find": find})
    reply = visitor.get(f"/topic/{orders}/records/search?{query}")
    assert reply.status == 400
    assert "INVALID_REQUEST" in reply.body


def test_pages_of_a_partition_cover_it_without_gap(visitor: Visitor, orders: str) -> None:
    path = f"/topic/{orders}/records?partition=1&start=earliest"
    seen: list[str] = []
    while path:
        body = visitor.get(path).body
        rows = body.split(f'href="/topic/{orders}/records/1/')[1:]
        seen += [row.partition('"')[0] for row in rows]
        path = body.partition('">Next</a>')[0].rpartition('href="')[2].replace("&amp;", "&")
        path = path if '">Next</a>' in body else ""
    assert seen == [str(offset) for offset in range(200)]


def test_downloads_have_the_found_records(visitor: Visitor, orders: str) -> None:
    query = {"start": "earliest", "mode": "json", "find": "city.name = Oslo"}
    path = f"/topic/{orders}/records/download?"
    lines = visitor.get(path + urlencode(query | {"format": "jsonl"}))
    rows = [json.loads(line) for line in lines.body.splitlines()]
    assert sorted(json.loads(row["value"])["order"] for row in rows) == [7, 107, 207, 307, 407, 507]
    assert all(isinstance(row["offset"], str) and row["timestamp"].isdigit() for row in rows)
    assert "attachment" in lines.headers["content-disposition"]
    parquet = visitor.get(path + urlencode(query | {"format": "parquet"}))
    table = pq.read_table(io.BytesIO(parquet.body.encode("utf-8", "surrogateescape")))
    assert sorted(table["offset"].to_pylist()) == sorted(int(row["offset"]) for row in rows)


def test_tail_shows_new_records_and_stops_with_the_page(browser: Browser, broker: Broker) -> None:
    topic = broker.create_topic()
    browser.go(f"/topic/{topic}/records/tail")
    browser.wait_for(".progress", "Waiting for records")
    with broker.connect() as log, log.producer() as producer:
        producer.send(topic, SCRIPT, key="first")
        producer.flush()
        browser.wait_for("#records td", "first")
        browser.go("/")
        browser.wait_for("#brokers")
    assert "executed" not in browser.driver.title
    assert browser.errors() == []


@pytest.mark.long
def test_record_is_produced_by_the_form(browser: Browser, orders: str) -> None:
    browser.go(f"/topic/{orders}/produce")
    browser.fill("key", "new-key")
    browser.fill("value", "two\nlines")
    browser.fill("headers", "a header")
    browser.fill("partition", "2")
    browser.press("Produce")
    browser.wait_for("#failure", "give name=value")
    browser.fill("headers", "trace=abc=d")
    browser.press("Produce")
    browser.wait_for(".notice.good", "Produced to partition 2 at offset 200")
    assert browser.text(".body[aria-label=value]") == "two\nlines"
    assert "abc=d" in browser.text("#headers")
    browser.go(f"/topic/{orders}/produce")
    browser.fill("partition", "3")
    browser.press("Produce")
    browser.wait_for("#failure")


@pytest.mark.long
def test_snippets_print_the_record(browser: Browser, broker: Broker, orders: str) -> None:
    browser.go(f"/topic/{orders}/records/1/7")
    command, program = browser.texts(".snippet pre")
    arguments = [*COMMAND, *shlex.split(command)[1:]]
    printed = subprocess.run(arguments, capture_output=True, check=True, timeout=60).stdout
    assert json.loads(printed)["key"] == "customer-22"
    run = [sys.executable, "-c", program]
    printed = subprocess.run(run, capture_output=True, check=True, timeout=60).stdout
    assert b"b'customer-22'" in printed


def scraped(broker: Broker, name: str) -> float:
    """Return a metric of the broker."""
    with urlopen(f"http://{broker.http}/metrics", timeout=30) as reply:
        text = reply.read().decode()
    return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


@pytest.mark.long
def test_tail_costs_what_a_consumer_costs_and_stops_while_hidden(
    browser: Browser, broker: Broker
) -> None:
    topic = broker.create_topic()
    wait = WebDriverWait(browser.driver, 30, poll_frequency=0.05)

    def wait_for_fetches(count: int) -> None:
        wait.until(lambda driver: scraped(broker, "quorumlog_fetches_waiting") == count)

    wait_for_fetches(0)
    browser.go(f"/topic/{topic}/records/tail")
    wait_for_fetches(1)
    before = scraped(broker, "quorumlog_fetched_bytes_total")
    with broker.connect() as log:
        with log.producer() as producer:
            for number in range(2_000):
                producer.send(topic, f"{number}" * 100)
        browser.wait_for(".progress", "2,000 received")
        tailed = scraped(broker, "quorumlog_fetched_bytes_total") - before
        with log.consumer(topic, until_end=True) as consumer:
            assert len(list(consumer)) == 2_000
    assert scraped(broker, "quorumlog_fetched_bytes_total") - before == 2 * tailed > 0
    page = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    wait_for_fetches(0)
    browser.driver.close()
    browser.driver.switch_to.window(page)
    wait_for_fetches(1)
    browser.go("/topics")
    wait_for_fetches(0)
