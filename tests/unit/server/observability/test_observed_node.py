"""The HTTP endpoints of a node: metrics, liveness and readiness."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.kit.kafka_client import connected
from tests.kit.node_settings import with_settings
from tests.kit.waits import AMPLE_MS, run_patiently

from quorumlog import simulation
from quorumlog.errors import AddressInUse
from quorumlog.ids import DirectoryId
from quorumlog.metrics import METRICS, MetricKind
from quorumlog.proto import admin_pb2, log_pb2
from quorumlog.records import Record, encode_batch
from quorumlog.runtime import Runtime
from quorumlog.server.addresses import id_text
from quorumlog.server.config import NodeConfig
from quorumlog.server.directory_format import initial_voters
from quorumlog.server.node import Node, format_directory
from quorumlog.services import ADMIN_CREATE_TOPIC, LOG_FETCH, LOG_PRODUCE

from ...frontends.http.http_caller import calling

Main: TypeAlias = Callable[[Runtime], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Main], None]
Samples: TypeAlias = dict[tuple[str, tuple[str, ...]], float]
WAIT_MS = AMPLE_MS
DELETE_TOPICS = 20  # a key of the Kafka protocol
BATCH = encode_batch([Record(number, 1, None, b"v" * 100) for number in range(3)])


def config_of(folder: str, **settings: Any) -> NodeConfig:
    places = {
        "grpc_listener": "127.0.0.1:0",
        "controller_listener": "127.0.0.1:0",
        "http_listener": "127.0.0.1:0",
    }
    return NodeConfig(**({"data_dir": folder} | places | settings))


async def get(runtime: Runtime, address: str, path: str, **headers: str) -> tuple[int, bytes]:
    async with calling(runtime, address) as caller:
        status, _, body = await caller.get(path, **headers)
        return status, body


async def response_status(runtime: Runtime, address: str, path: str) -> tuple[int, dict[str, Any]]:
    status, body = await get(runtime, address, path)
    found: dict[str, Any] = json.loads(body)
    return status, found


async def scraped(runtime: Runtime, address: str) -> Samples:
    status, body = await get(runtime, address, "/metrics")
    assert status == 200, body
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


async def use(runtime: Runtime, address: str) -> None:
    """Create a topic, produce three records and fetch them."""
    channel = runtime.network.channel(address)
    request = admin_pb2.CreateTopicRequest(name="t", partitions=2)
    await channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)
    stream = await channel.stream(LOG_PRODUCE, timeout_ms=WAIT_MS)
    produce = log_pb2.ProduceRequest(acks=log_pb2.ACKS_ALL, timeout_ms=WAIT_MS)
    produce.partitions.add(topic="t", partition=0, records=BATCH)
    produce.partitions.add(topic="t", partition=7, records=BATCH)
    await stream.send(produce)
    await stream.finish()
    assert await stream.receive() is not None
    fetch = log_pb2.FetchRequest()
    fetch.partitions.add(topic="t", partition=0, offset=0)
    await channel.call(LOG_FETCH, fetch, timeout_ms=WAIT_MS)
    await channel.close()


def test_metrics_count_the_operations_of_a_node(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(folder, metric_topics_max=1)
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            assert node.addresses.http is not None
            await use(runtime, node.addresses.grpc)
            found = await scraped(runtime, node.addresses.http)
            again = await scraped(runtime, node.addresses.http)

        assert found["quorumlog_produced_bytes_total", ()] == len(BATCH)
        assert found["quorumlog_produced_records_total", ()] == 3
        assert found["quorumlog_produce_failures_total", ()] == 1
        assert found["quorumlog_produce_seconds_count", ("all",)] == 1
        assert found["quorumlog_fetched_bytes_total", ()] == len(BATCH)
        assert found["quorumlog_fetch_seconds_count", ("no",)] == 1
        assert found["quorumlog_partitions", ("leader",)] == 2
        assert found["quorumlog_led_partitions_by_isr", ("1",)] == 2
        assert found["quorumlog_cluster_brokers", ("active",)] == 1
        assert found["quorumlog_cluster_partitions", ()] == 2
        assert found["quorumlog_controller_active", ()] == 1
        assert found["quorumlog_raft_leader_id", ()] == 1
        assert found["quorumlog_raft_lag_records", ("1",)] == 0
        assert found["quorumlog_topic_end_offsets", ("t",)] == 3
        assert found["quorumlog_storage_written_bytes_total", ()] > len(BATCH)
        assert found["quorumlog_calls_total", ("Log/Fetch", "ok")] == 1
        assert found["quorumlog_ready", ()] == 1
        assert again["quorumlog_uptime_seconds", ()] >= found["quorumlog_uptime_seconds", ()]

    run(main)


async def use_kafka(runtime: Runtime, address: str | None) -> None:
    """Send requests that fail in different ways."""
    assert address is not None
    async with connected(runtime, address) as client:
        await client.ask(DELETE_TOPICS, 3, topic_names=["unknown"], timeout=100)
        client.send_raw(bytes(20))
        await client.ended()


def test_every_metric_of_the_table_is_exported_by_a_node(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(folder, metric_topics_max=1, kafka_listeners=("127.0.0.1:0",))
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            assert node.addresses.http is not None
            await use(runtime, node.addresses.grpc)
            await use_kafka(runtime, node.addresses.kafka)
            found = {name for name, _ in await scraped(runtime, node.addresses.http)}
        for metric in METRICS:
            name = metric.shown_name + "_bucket" * (metric.kind is MetricKind.HISTOGRAM)
            assert name in found or metric.labels in (("member",), ("follower",)), name

    simulation.run(main)


def test_lost_lines_of_the_audit_log_are_counted_and_changes_are_made(
    folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(runtime: Runtime) -> None:
        config = with_settings(config_of(folder), audit_log_file="/dev/full")
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            assert node.addresses.http is not None
            await use(runtime, node.addresses.grpc)
            found = await scraped(runtime, node.addresses.http)
            assert found["quorumlog_audit_lines_lost_total", ()] == 1
            channel = runtime.network.channel(node.addresses.grpc)
            request = admin_pb2.CreateTopicRequest(name="other", partitions=1)
            await channel.call(ADMIN_CREATE_TOPIC, request, timeout_ms=WAIT_MS)
            await channel.close()
            found = await scraped(runtime, node.addresses.http)
            assert found["quorumlog_audit_lines_lost_total", ()] == 2
            assert found["quorumlog_cluster_partitions", ()] == 3

    simulation.run(main)
    assert sum("audit.lines_lost" in each.msg for each in caplog.records) == 1


def test_two_concurrent_scrapes_get_two_complete_responses(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(folder)
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            assert node.addresses.http is not None
            looks = [scraped(runtime, node.addresses.http) for _ in range(5)]
            found = await asyncio.gather(*looks)
        assert len({frozenset(each) for each in found}) == 1

    simulation.run(main)


def test_open_metrics_are_returned_on_request(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(folder)
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            assert node.addresses.http is not None
            async with calling(runtime, node.addresses.http) as caller:
                accept = "application/openmetrics-text; version=1.0.0"
                _, headers, body = await caller.get("/metrics", Accept=accept)
        assert headers["content-type"].startswith("application/openmetrics-text")
        assert body.endswith(b"# EOF\n")

    simulation.run(main)


def test_running_node_is_ready_and_a_stopping_one_is_not(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(folder)
        await format_directory(runtime, config)
        node = Node(runtime, config)
        address = (await node.start()).http
        assert address is not None
        assert await response_status(runtime, address, "/ready") == (
            200,
            {"ready": True, "node": 1, "obstacles": [], "remarks": []},
        )
        status, health = await response_status(runtime, address, "/health")
        assert (status, health["alive"], health["node"]) == (200, True, 1)
        node.parts.is_stopping = True
        status, answer = await response_status(runtime, address, "/ready")
        assert (status, answer["obstacles"]) == (503, ["The node is stopping."])
        await node.stop()

    run(main)


def test_starting_node_reports_the_reason_of_its_wait(folder: str) -> None:
    """The HTTP listener is open before the quorum has formed."""

    async def main(runtime: Runtime) -> None:
        disks = [DirectoryId(bytes([number] * 16)) for number in (1, 2, 3)]
        voters = [f"{n}@127.0.0.1:2000{n}:{id_text(disk)}" for n, disk in enumerate(disks, 1)]
        config = config_of(
            folder,
            controller_listener="127.0.0.1:20001",
            controller_voters=tuple(voters),
            http_listener="127.0.0.1:20009",
        )
        await format_directory(runtime, config, forming=initial_voters(config))
        async with runtime.tasks.scope("test") as scope:
            node = Node(runtime, config)
            starting = scope.spawn(node.start(), name="start")
            await asyncio.sleep(3)
            assert (await response_status(runtime, "127.0.0.1:20009", "/health"))[0] == 200
            status, answer = await response_status(runtime, "127.0.0.1:20009", "/ready")
            assert status == 503
            assert answer["obstacles"] == [
                "The quorum has no leader: start a majority of the voters.",
                "The broker is not registered.",
            ]
            assert (await scraped(runtime, "127.0.0.1:20009"))["quorumlog_raft_leader_id", ()] == -1
            starting.cancel()

    simulation.run(main)


def test_a_taken_port_refuses_the_start_before_the_directory_is_touched(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        config = config_of(folder)
        await format_directory(runtime, config)
        async with Node(runtime, config) as node:
            second = config_of(f"{folder}2", http_listener=node.addresses.http)
            with pytest.raises(AddressInUse):
                await Node(runtime, second).start()

    run_patiently(main)


@pytest.mark.slow
def test_without_an_address_no_listener_opens_and_no_module_is_loaded() -> None:
    """No timer runs either: an idle node stays idle."""
    code = (
        "import sys\n"
        "from quorumlog import simulation\n"
        "from quorumlog.server.config import NodeConfig\n"
        "from quorumlog.server.node import Node, format_directory\n"
        "async def main(runtime):\n"
        "    config = NodeConfig(data_dir='/d')\n"
        "    await format_directory(runtime, config)\n"
        "    async with Node(runtime, config) as node:\n"
        "        print(node.addresses.http, {'h11', 'prometheus_client'} & set(sys.modules))\n"
        "simulation.run(main)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "None set()\n"
