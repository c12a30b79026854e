"""A test broker: a real node that starts, stops, crashes and hangs on request."""

import asyncio
import os
import signal
import threading
import tomllib
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kit.waits import wait_until_blocking

import quorumlog
from quorumlog.errors import InvalidConfig, InvalidRequest, TimedOut, UnknownServerError
from quorumlog.testing import Broker

pytestmark = pytest.mark.slow

WAIT_S = 60.0


def raises(act: Callable[[], None], words: str) -> bool:
    """Expect a failure with these words."""
    try:
        act()
    except UnknownServerError as error:
        return words in str(error)
    return False


@pytest.mark.long
def test_acknowledged_records_survive_every_kind_of_stop() -> None:
    with Broker() as broker:
        addresses = (broker.kafka, broker.grpc, broker.http)
        topic = broker.create_topic("flights", partitions=2)
        assert topic == "flights"
        with broker.connect() as log:
            for number, end in enumerate((broker.stop, broker.kill, broker.restart)):
                with log.producer() as producer:
                    producer.send(topic, value=str(number), partition=1).result()
                end()
                assert broker.is_up == (end == broker.restart)
                broker.start()
            found = [record.value for record in log.consumer(topic, until_end=True)]
        assert found == [b"0", b"1", b"2"]
        assert (broker.kafka, broker.grpc, broker.http) == addresses
        with urllib.request.urlopen(f"http://{broker.http}/ready") as answer:
            assert answer.status == 200
        assert broker.log().count("node.ready") == 4
        folder = broker.data_dir.parent
    assert not broker.is_up
    assert not folder.exists()


def test_a_paused_broker_answers_when_it_is_resumed() -> None:
    with Broker() as broker:
        topic = broker.create_topic()
        with broker.connect() as log, log.producer() as producer:
            producer.send(topic, value="a").result()
            broker.pause()
            late = producer.send(topic, value="b")
            with pytest.raises(TimedOut):
                late.result(timeout_ms=300)
            broker.resume()
            assert late.result(timeout_ms=60_000).offset == 1


def test_brokers_with_asyncio_and_side_by_side() -> None:
    async def main() -> None:
        async with Broker() as one, Broker() as other:
            assert {one.kafka, one.grpc, one.http}.isdisjoint({other.kafka, other.grpc, other.http})
            name = await asyncio.to_thread(one.create_topic)
            async with quorumlog.aio.connect(one.grpc) as log:
                assert [topic.name for topic in await log.admin.list_topics()] == [name]
            async with quorumlog.aio.connect(other.grpc) as log:
                assert await log.admin.list_topics() == []

    asyncio.run(main())


def test_broker_keeps_a_given_folder(tmp_path: Path) -> None:
    with Broker(
        data_dir=tmp_path / "kept", settings={"auto.create.topics.enable": False}
    ) as broker:
        topic = broker.create_topic(configs={"retention.ms": -1, "cleanup.policy": "compact"})
        with broker.connect() as log:
            assert log.admin.describe_topic(topic).configs["retention.ms"] == "-1"
    assert (tmp_path / "kept/meta.properties").exists()
    with Broker(data_dir=tmp_path / "kept") as again, again.connect() as log:
        assert [each.name for each in log.admin.list_topics()] == [topic]


@pytest.mark.parametrize("delay_ms", [None, 700])
def test_groups_of_tests_do_not_wait_for_more_members_unless_set(delay_ms: int | None) -> None:
    settings = {} if delay_ms is None else {"group.initial.rebalance.delay.ms": delay_ms}
    with Broker(settings=settings) as broker:
        rows = tomllib.loads((broker.log_file.parent / "node.toml").read_text())
        assert rows["group.initial.rebalance.delay.ms"] == (delay_ms or 0)


def test_broker_that_cannot_start_reports_the_reason_and_leaves_nothing(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path):
        second = Broker(data_dir=tmp_path)
        with pytest.raises(quorumlog.QuorumlogError, match=r"the broker does not start: .*process"):
            second.start()
        second.close()
    with pytest.raises(InvalidConfig, match=r"fetch\.bytes\.max"):
        Broker(settings={"fetch.bytes.max": "a lot"}).__enter__()
    threads = threading.active_count()
    with pytest.raises(TimedOut, match="does not serve within 0 s"):
        Broker(timeout_ms=10).__enter__()
    assert threading.active_count() == threads


def test_broker_that_ended_by_itself_is_detected_and_can_restart() -> None:
    with Broker() as broker:
        broker.check_alive()
        os.kill(broker.pid, signal.SIGKILL)  # as the system does when memory runs out
        wait_until_blocking(
            lambda: raises(broker.check_alive, "ended unexpectedly, with exit code -9")
        )
        with pytest.raises(UnknownServerError, match="ended unexpectedly"):
            broker.restore()
        broker.restore()
        broker.create_topic()


def test_calls_to_a_stopped_or_closed_broker_are_refused() -> None:
    broker = Broker()
    for refused in (broker.pause, broker.create_topic, lambda: broker.pid):
        with pytest.raises(InvalidRequest, match="start"):
            refused()
    broker.stop()
    broker.kill()
    broker.resume()
    broker.close()
    broker.close()
    with pytest.raises(InvalidRequest, match="create a new one"):
        broker.start()


@pytest.mark.parametrize("name", ["data.dir", "node.id", "listeners.kafka", "advertised.grpc"])
def test_settings_of_the_harness_cannot_be_overridden(name: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be set in a test"):
        Broker(settings={name: "x"})


def test_variables_that_are_settings_do_not_reach_a_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORUMLOG_FETCH_BYTES_MAX", "nonsense")
    with Broker() as broker:
        assert broker.is_up
