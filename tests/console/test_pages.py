"""Pages without a browser: heads, health, forms, and their texts."""

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from tests.console.process import Console, Visitor

from quorumlog.clients.admin.configs import Config
from quorumlog.clients.admin.descriptions import Broker as BrokerDescription
from quorumlog.clients.admin.descriptions import Cluster, Partition
from quorumlog.clients.admin.fenced_brokers import FencingCause
from quorumlog.clients.admin.groups import Shift
from quorumlog.clients.admin.partitions import PartitionReplicas, Replica
from quorumlog.clients.times import FromEnd
from quorumlog.console import node_metrics
from quorumlog.console.app import MODULES
from quorumlog.console.cluster_view import Disks
from quorumlog.console.failures import failure_of
from quorumlog.console.html import environment, render, render_head
from quorumlog.console.node_metrics import NodeMetrics, Speed, read_metrics
from quorumlog.console.page import Page, Visit
from quorumlog.console.pages.group import parse_target
from quorumlog.console.pages.overview import broker_rows, health_of
from quorumlog.console.pages.topic import LaggingReplica, OutOfSyncReasons
from quorumlog.console.sessions import Session
from quorumlog.errors import InvalidConfig, InvalidRequest, TimedOut
from quorumlog.testing import Broker

TIME_MS = 1_767_254_527_000  # 2026-01-01 08:02:07 UTC


@pytest.fixture
def visitor(console: Console) -> Visitor:
    """A program with a session."""
    found = Visitor(console)
    found.login()
    return found


def described_broker(number: int, *, fenced: bool = False) -> BrokerDescription:
    return BrokerDescription(
        id=number,
        grpc_address=f"b{number}:9094",
        rack="",
        fenced=fenced,
        broker_epoch=number,
        stopping=False,
    )


# --- slow and silent brokers ---------------------------------------------------------------------


def test_health_names_a_slow_broker_and_its_state_is_slow() -> None:
    cluster = Cluster(
        cluster_id="c",
        controller_id=1,
        brokers=(described_broker(1), described_broker(2), described_broker(3)),
        time_ms=TIME_MS,
    )
    speeds = {
        1: Speed(answer_ms=3, metrics=NodeMetrics(stall_ms=2)),
        2: Speed(answer_ms=3, metrics=NodeMetrics(stall_ms=1_200)),
    }
    rows = broker_rows(cluster, Disks({}, {3: TimedOut("broker 3: no answer")}), [], speeds)
    states = [(row.state, row.level) for row in rows]
    assert states == [("in service", "good"), ("slow", "warning"), ("no answer", "bad")]
    health = health_of(cluster, TimedOut("quorum"), {"partitions": 1} | NO_FAULT, rows)
    assert (health.level, health.sentence) == (
        "warning",
        "Broker 2 is slow: its event loop was blocked for 1 s, until less than a minute ago. Broker"
        " 3 does not answer.",
    )


NO_FAULT = dict.fromkeys(("offline", "under-min-isr", "under-replicated"), 0)


def test_broker_with_a_silent_http_port_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    async def get(host: str, port: int) -> str:
        raise TimeoutError

    monkeypatch.setattr(node_metrics, "_get", get)
    address = "127.0.0.1:27733"
    config = Config(
        name="listeners.http",
        value=address,
        default="",
        source="file",
        place="",
        type="text",
        unit="",
        doc="",
        changes="",
        low=None,
        high=None,
        choices=(),
    )
    broker = replace(described_broker(2), grpc_address="127.0.0.1:9094")
    metrics = asyncio.run(read_metrics(broker, {"listeners.http": config}))
    assert metrics.absence == f"the broker did not answer at {address} within 1 s"
    assert Speed(answer_ms=1, metrics=metrics).slow == "its HTTP port did not answer within 1 s"


@pytest.mark.parametrize(
    "page",
    [page for module in MODULES for page in module.PAGES if page.is_live],
    ids=lambda p: p.path,
)
def test_page_without_its_values_has_its_whole_head(page: Page) -> None:
    """A refresh replaces only what is below the head."""
    names = ("topic", "broker", "config", "partition", "offset")
    visit = Visit(
        session=cast("Session", None),
        arguments=dict.fromkeys(names, "1"),
        query={"name": "billing", "id": "payments"},
        path="/",
        now_s=0,
    )
    head = render_head(page.template, {"page": page, "visit": visit, "title": "The title"})
    blocks = {"heading", "actions", "tools"} & environment().get_template(
        page.template
    ).blocks.keys()
    assert head.keys() == blocks
    shown = render("failed.html", COMMON | {"page": page, "visit": visit, "head": head})
    assert all(part in shown for part in head.values())


COMMON = {
    "title": "The title",
    "navigation": (),
    "csrf": "",
    "user": "",
    "bootstrap": "",
    "failure": None,
    "notice": "",
    "remark": None,
    "age_s": None,
    "old": "",
}


@pytest.mark.long
def test_every_live_page_is_refreshed(visitor: Visitor, broker: Broker) -> None:
    topic = broker.create_topic()
    with broker.connect() as log:
        log.admin.reset_offsets("refreshed", {(topic, 0): 0})
    access = ("/access", "/access/users", "/access/acls", "/access/quotas")
    lists = ("", "/topics", "/groups", "/transactions", "/brokers", "/settings", *access)
    one = ("/broker/1", "/settings/broker/1", f"/topic/{topic}", "/group?name=refreshed")
    for path in (*lists, *one):
        assert visitor.first_event(f"/live{path}") == "live", path


# --- forms ---------------------------------------------------------------------------------------

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("to", "value", "target"),
    [
        ("earliest", "", "earliest"),
        ("latest", "ignored", "latest"),
        ("offset", "42", 42),
        ("end", "5", FromEnd(5)),
        ("shift", "-100", Shift(-100)),
        ("time", "-1h", NOW - timedelta(hours=1)),
        ("time", "2025-12-31T18:00", datetime(2025, 12, 31, 18, tzinfo=UTC)),
    ],
)
def test_target_of_a_reset_is_read(to: str, value: str, target: object) -> None:
    assert parse_target(to, value, now=NOW) == target


@pytest.mark.parametrize(
    ("to", "value", "why"),
    [
        ("", "", "New position: none is given; choose one"),
        ("", "42", "New position: none is given"),
        ("offset", "", "Value: empty; give an offset as a whole number"),
        ("offset", "-1", "Value: -1 is out of range"),
        ("end", "x", "Value: 'x' is not a whole number"),
        ("time", "42", "Value: '42' is not a time"),
        ("time", "latest", "Value: 'latest' is not a time"),
    ],
)
def test_unclear_target_of_a_reset_is_refused(to: str, value: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        parse_target(to, value, now=NOW)


def test_error_of_a_form_is_one_sentence_and_names_stay() -> None:
    error = failure_of(InvalidRequest("not confirmed; enter orders"))
    assert (error.sentence, error.needs_remedy) == ("Not confirmed; enter orders", False)
    assert (
        failure_of(InvalidConfig("retention.ms is -2; give")).sentence == "retention.ms is -2; give"
    )
    assert failure_of(TimedOut("orders-1: no answer")).needs_remedy


def test_form_of_a_topic_has_the_defaults(visitor: Visitor) -> None:
    page = visitor.get("/topics/new").body
    assert page.count('placeholder="1 (default)"') == 2
    assert "Replication factor" in page


def test_default_is_shown_beside_a_value_that_is_the_default(
    visitor: Visitor, broker: Broker
) -> None:
    topic = broker.create_topic()
    row = visitor.get(f"/topic/{topic}").body.partition("config/retention.ms")[2]
    cell = row.partition('data-label="Default">')[2].partition("<")[0]
    assert cell == "604800000 (7 d)"


# --- a cluster without an authorizer -------------------------------------------------------------


def test_access_pages_without_an_authorizer_keep_their_tabs(visitor: Visitor) -> None:
    for path in (
        "/access",
        "/access/acls",
        "/access/users",
        "/access/users/new",
        "/access/acls/new",
    ):
        page = visitor.get(path)
        assert page.status == 200, path
        assert 'id="no-authorizer"' in page.body, path
    acls = visitor.get("/access/acls").body
    assert 'href="/access/quotas"' in acls
    assert 'href="/access/acls/new"' not in acls
    assert "<button" not in visitor.get("/access/acls/new").body.partition("<main")[2]


# --- transactions --------------------------------------------------------------------------------


def test_finished_transaction_has_no_abort(visitor: Visitor, broker: Broker) -> None:
    topic = broker.create_topic()
    path = "/transaction?id=finished"
    with broker.connect() as log, log.producer(transactional_id="finished") as producer:
        producer.begin_transaction()
        producer.send(topic, "one").result()
        assert ">Abort</a>" in visitor.get(path).body
        producer.abort_transaction()
        end_s = time.monotonic() + 30
        while log.admin.describe_transaction("finished").state != "CompleteAbort":
            assert time.monotonic() < end_s, "the transaction was not aborted"
            time.sleep(0.05)
    page = visitor.get(path).body
    assert ">aborted<" in page
    assert ">Abort</a>" not in page
    assert "until the timeout" not in page
    assert "wait at the last stable offset" not in page
    form = visitor.get("/transaction/abort?id=finished").body
    assert "is open: the last one is aborted." in form
    assert 'class="danger"' not in form


# --- topics and replicas -------------------------------------------------------------------------


def test_overview_counts_internal_topics(visitor: Visitor, broker: Broker) -> None:
    with broker.connect() as log:
        log.admin.reset_offsets("counted", {(broker.create_topic(), 0): 0})
        internal = sum(each.is_internal for each in log.admin.list_topics(internal=True))
    assert internal
    assert f", {internal} internal topic" in visitor.get("/").body


def out_of_sync(behind: int, causes: dict[int, FencingCause]) -> LaggingReplica:
    state = Partition(
        partition=0,
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        replicas=(1, 3),
        isr=(1,),
        min_isr=1,
        elr=(),
        last_known_elr=(),
        adding=(),
        removing=(),
        recovering=False,
    )
    replicas = PartitionReplicas(
        topic="t",
        partition=0,
        leader=1,
        high_watermark=300,
        min_isr=1,
        replicas=(
            Replica(broker=1, log_end_offset=300, caught_up_ms_ago=0, in_sync=True, reason=""),
            Replica(
                broker=3,
                log_end_offset=300 - behind,
                caught_up_ms_ago=60_000,
                in_sync=False,
                reason="broker 3 is behind",
            ),
        ),
        error=None,
    )
    brokers = {1: described_broker(1), 3: described_broker(3, fenced=bool(causes))}
    reasons = OutOfSyncReasons(brokers=brokers, causes=causes, time_ms=TIME_MS + 60_000)
    (found,) = reasons.of("t", state, replicas)
    return found


def test_cause_of_a_broker_is_not_repeated_at_each_of_its_replicas() -> None:
    found = out_of_sync(226, {3: FencingCause(3, "broker 3 is down", "Start it")})
    assert (found.why, found.remedy) == ("", "")
    assert found.progress == "lacks 226 records since 08:02:07 UTC"
    assert out_of_sync(7, {}).why == "broker 3 is behind"
