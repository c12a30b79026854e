"""The admin client against a whole node: configs, brokers, log directories, on both runtimes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest
from tests.kit.waits import AMPLE_S

from quorumlog import simulation
from quorumlog.broker.config import RequestConfig
from quorumlog.clients.admin.configs import Config
from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import (
    InvalidConfig,
    InvalidRequest,
    MessageTooLarge,
    NotDelivered,
    QuorumlogError,
    TimedOut,
    TransportError,
    UnknownTopicOrPartition,
)
from quorumlog.metadata import TOPIC_CONFIGS
from quorumlog.runtime import Runtime
from quorumlog.server.config import NodeConfig, settings
from quorumlog.server.node import Node, format_directory
from quorumlog.settings import ValueOrigin

Body: TypeAlias = Callable[[AsyncLog], Coroutine[Any, Any, None]]
With: TypeAlias = Callable[[Body], None]


def changed(configs: dict[str, Config]) -> dict[str, str]:
    return {name: config.value for name, config in configs.items() if not config.is_default}


# --- configs of topics -----------------------------------------------------------------------


def test_every_config_of_a_topic_is_described(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", configs={"retention.ms": "7d", "segment.bytes": 65536})
        configs = await log.admin.describe_configs("t")
        assert list(configs) == list(TOPIC_CONFIGS)
        retention = configs["retention.ms"]
        assert (retention.value, retention.default) == ("604800000", "604800000")
        assert (retention.source, retention.is_default) == ("topic", False)
        assert (retention.unit, retention.low, retention.high) == ("ms", -1, None)
        assert configs["flush.policy"].value == configs["flush.policy"].default == "fsync"
        assert configs["flush.policy"].choices == ("replicated", "fsync")
        assert configs["segment.bytes"].changes == "at once"
        assert all(config.doc and config.type and config.changes for config in configs.values())
        assert changed(configs) == {"retention.ms": "604800000", "segment.bytes": "65536"}

    with_log(body)


def test_configs_are_altered_one_by_one(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t", configs={"retention.ms": 5})
        would = await log.admin.alter_configs("t", {"segment.bytes": "1MiB"}, validate_only=True)
        assert would == {"retention.ms": "5", "segment.bytes": "1048576"}
        assert changed(await log.admin.describe_configs("t")) == {"retention.ms": "5"}
        now = await log.admin.alter_configs(
            "t",
            {"segment.bytes": "1MiB", "unclean.leader.election.enable": False},
            delete=["retention.ms"],
        )
        assert now == {"segment.bytes": "1048576", "unclean.leader.election.enable": "false"}
        assert changed(await log.admin.describe_configs("t")) == now
        assert (await log.admin.describe_topic("t")).configs == now

    with_log(body)


def test_refused_change_has_no_partial_effect(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        with pytest.raises(InvalidConfig, match=r"retention.ms is 'soon'; give a whole number"):
            await log.admin.alter_configs("t", {"segment.bytes": 65536, "retention.ms": "soon"})
        with pytest.raises(InvalidConfig, match=r"did you mean segment.bytes\?"):
            await log.admin.alter_configs("t", {"retention.ms": 1}, delete=["segment.byte"])
        assert changed(await log.admin.describe_configs("t")) == {}

    with_log(body)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({}, "nothing to change"),
        ({"configs": {"retention.ms": 1.5}}, "retention.ms is 1.5; give text, a whole number"),
        ({"configs": {"retention.ms": None}}, "retention.ms is None; give text"),
        ({"delete": "retention.ms"}, "give a list of names"),
    ],
)
def test_invalid_change_is_refused_by_the_client(
    with_log: With, arguments: dict[str, Any], why: str
) -> None:
    async def body(log: AsyncLog) -> None:
        with pytest.raises(InvalidConfig, match=why):
            await log.admin.alter_configs("t", **arguments)

    with_log(body)


def test_a_topic_that_does_not_exist_is_raised_at_once(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        calls: list[Coroutine[Any, Any, Any]] = [
            log.admin.describe_configs("t"),
            log.admin.alter_configs("t", {"retention.ms": 1}),
            log.admin.describe_log_dirs(["t"]),
        ]
        async with asyncio.timeout(AMPLE_S / 2):
            for call in calls:
                with pytest.raises(UnknownTopicOrPartition) as caught:
                    await call
                assert caught.value.topic == "t"

    with_log(body)


def test_lower_max_message_bytes_applies_to_the_open_log(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer(linger_ms=0) as producer:
            await (await producer.send("t", bytes(5_000)))
            await log.admin.alter_configs("t", {"max.message.bytes": 2_000})
            with pytest.raises((MessageTooLarge, NotDelivered)):
                await (await producer.send("t", bytes(5_000)))
            await log.admin.alter_configs("t", delete=["max.message.bytes"])
            await (await producer.send("t", bytes(5_000)))
        assert (await log.list_offsets("t"))[0] == 2

    with_log(body)


def test_segments_become_smaller_without_a_restart(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("t")
        async with log.producer(linger_ms=0) as producer:
            await (await producer.send("t", bytes(3_000)))
            await log.admin.alter_configs("t", {"segment.bytes": 4_000})
            await (await producer.send("t", bytes(3_000)))
        ((only,),) = [d.logs for d in await log.admin.describe_log_dirs(["t"])]
        assert (only.log_end_offset, only.error) == (2, None)
        assert only.size_bytes > 6_000
        records = [record async for record in log.consumer("t", until_end=True)]
        assert [record.offset for record in records] == [0, 1]

    with_log(body)


# --- changes while records are produced --------------------------------------------------------


def test_config_changes_during_production_lose_and_refuse_nothing() -> None:
    """Policies, segment sizes and message sizes change under load. Every record is acknowledged
    once, in order."""

    async def produce(log: AsyncLog, sent: list[int], turns: asyncio.Semaphore) -> None:
        async with log.producer(linger_ms=0) as producer:
            for number in range(75):
                await (await producer.send("t", b"%d" % number))
                sent.append(number)
                turns.release()

    async def main(runtime: Runtime) -> None:
        config = NodeConfig(
            data_dir="/data", grpc_listener="127.0.0.1:0", controller_listener="127.0.0.1:0"
        )
        await format_directory(runtime, config)
        async with (
            Node(runtime, config) as node,
            make_log(runtime, node.addresses.grpc) as log,
        ):
            await log.admin.create_topic("t", configs={"flush.policy": "replicated"})
            sent: list[int] = []
            turns = asyncio.Semaphore(0)
            producing = asyncio.create_task(produce(log, sent, turns))
            for round_ in range(15):
                await log.admin.alter_configs(
                    "t",
                    {
                        "flush.policy": ("fsync", "replicated")[round_ % 2],
                        "segment.bytes": 2_000 + 500 * (round_ % 5),
                        "max.message.bytes": 1_000 + 100 * (round_ % 7),
                        "record.validation": ("full", "header")[round_ % 2],
                    },
                )
                for _ in range(5):
                    await turns.acquire()
            await producing
            records = [record async for record in log.consumer("t", until_end=True)]
            assert [int(record.value or b"") for record in records] == sent

    simulation.run(main)


def test_records_acknowledged_after_a_change_to_fsync_survive_a_power_cut() -> None:
    """Also a record at the time of the change, after a second of unsynced records."""

    async def prepare(runtime: Runtime) -> None:
        await format_directory(runtime, CONFIG)

    async def live(runtime: Runtime, sure: list[int]) -> None:
        async with (
            Node(runtime, CONFIG) as node,
            make_log(runtime, node.addresses.grpc) as log,
        ):
            await log.admin.create_topic("t", configs={"flush.policy": "replicated"})
            async with log.producer(linger_ms=0) as producer:
                for _ in range(20):
                    await (await producer.send("t", b"fast"))
                altering = asyncio.create_task(
                    log.admin.alter_configs("t", {"flush.policy": "fsync"})
                )
                while not altering.done():
                    await (await producer.send("t", b"either"))
                sure.append((await (await producer.send("t", b"sure"))).offset)
                await asyncio.Event().wait()

    async def look(runtime: Runtime, sure: list[int]) -> None:
        async with (
            Node(runtime, CONFIG) as node,
            make_log(runtime, node.addresses.grpc) as log,
        ):
            records = [record async for record in log.consumer("t", until_end=True)]
            assert [record.offset for record in records] == list(range(sure[0] + 1))
            assert records[-1].value == b"sure"

    def cut(seed: int) -> None:
        with simulation.SimWorld(seed) as world:
            server = world.node("server")
            sure: list[int] = []
            server.spawn(prepare)
            world.run_until(lambda: not server.alive, virtual_ms=60_000)
            server.spawn(lambda runtime: live(runtime, sure))
            world.run_until(lambda: bool(sure), virtual_ms=60_000)
            server.power_cut()
            server.spawn(lambda runtime: look(runtime, sure))
            world.run_until(lambda: not server.alive, virtual_ms=60_000)
            assert server.exit_error is None, f"seed {seed}: {server.exit_error!r}"

    for seed in range(12):
        cut(seed)


# --- brokers -----------------------------------------------------------------------------------


def test_broker_describes_its_settings_and_their_sources() -> None:
    async def main(runtime: Runtime) -> None:
        config = NodeConfig(
            data_dir="/data",
            grpc_listener="127.0.0.1:0",
            controller_listener="127.0.0.1:0",
            requests=RequestConfig(fetch_waits_max=7),
        )
        await format_directory(runtime, config)
        origins = {
            "fetch.waits.max": ValueOrigin(kind="file", place="node.toml:3"),
            "data.dir": ValueOrigin(kind="environment", place="QUORUMLOG_DATA_DIR"),
        }
        async with (
            Node(runtime, config, origins=origins) as node,
            make_log(runtime, node.addresses.grpc) as log,
        ):
            found = await log.admin.describe_configs(broker=1)
            assert list(found) == sorted(row.name for row in settings())
            waits = found["fetch.waits.max"]
            assert (waits.value, waits.default) == ("7", "10000")
            assert (waits.source, waits.place) == ("file", "node.toml:3")
            assert found["data.dir"].source == "environment"
            assert found["shutdown.grace.ms"].is_default
            assert found["node.roles"].value == "controller,broker"
            assert found["listeners.grpc"].source == "unknown", (
                "the source of the setting is missing"
            )
            with pytest.raises(
                InvalidRequest, match="broker 9 is not registered; registered brokers: 1"
            ):
                await log.admin.describe_configs(broker=9)
            for wrong in (-1, True, "1"):
                with pytest.raises(InvalidRequest, match="give a node id"):
                    await log.admin.describe_configs(broker=wrong)  # type: ignore[arg-type]
            with pytest.raises(InvalidRequest, match="give one of them"):
                await log.admin.describe_configs("t", broker=1)

    simulation.run(main)


def test_log_directories_list_every_partition(with_log: With) -> None:
    async def body(log: AsyncLog) -> None:
        await log.admin.create_topic("b", partitions=2)
        await log.admin.create_topic("a")
        async with log.producer() as producer:
            await (await producer.send("b", b"x" * 100, partition=1))
        (directory,) = await log.admin.describe_log_dirs()
        assert directory.broker == 1
        places = [(each.topic, each.partition, each.log_end_offset) for each in directory.logs]
        assert places == [("a", 0, 0), ("b", 0, 0), ("b", 1, 1)]
        assert directory.logs[0].size_bytes == 0
        assert directory.size_bytes == directory.logs[2].size_bytes > 100
        assert directory.capacity_bytes >= directory.free_bytes > directory.size_bytes
        (some,) = await log.admin.describe_log_dirs(["a"], broker=1)
        assert [each.topic for each in some.logs] == ["a"]

    with_log(body)


# --- servers that are down, slow or restarting -------------------------------------------------


def test_calls_to_a_stopped_server_fail_with_a_typed_error_in_time() -> None:
    async def main(runtime: Runtime) -> None:
        config = NodeConfig(
            data_dir="/data", grpc_listener="127.0.0.1:0", controller_listener="127.0.0.1:0"
        )
        await format_directory(runtime, config)
        node = Node(runtime, config)
        await node.start()
        async with make_log(runtime, node.addresses.grpc, call_timeout_ms=2_000) as log:
            await log.admin.create_topic("t")
            await node.stop()
            for call in (
                lambda: log.admin.alter_configs("t", {"retention.ms": 1}),
                lambda: log.admin.describe_configs("t"),
                lambda: log.admin.describe_configs(broker=1),
                lambda: log.admin.describe_log_dirs(),
            ):
                began_ms = runtime.clock.now_ms()
                with pytest.raises((TransportError, TimedOut)):
                    await call()
                assert runtime.clock.now_ms() - began_ms <= 2_500

    simulation.run(main)


def test_change_during_a_restart_is_made_once_the_server_is_back() -> None:
    async def main(runtime: Runtime) -> None:
        first = NodeConfig(
            data_dir="/data", grpc_listener="127.0.0.1:7000", controller_listener="127.0.0.1:7001"
        )
        await format_directory(runtime, first)
        node = Node(runtime, first)
        await node.start()
        async with make_log(runtime, node.addresses.grpc) as log:
            await log.admin.create_topic("t")
            await node.stop()
            asked = asyncio.create_task(log.admin.alter_configs("t", {"retention.ms": "1h"}))
            await asyncio.sleep(2)
            async with Node(runtime, first):
                assert await asked == {"retention.ms": "3600000"}
                found = await log.admin.describe_configs("t")
                assert found["retention.ms"].source == "topic"

    simulation.run(main)


@pytest.mark.long
def test_a_lost_response_is_retried_or_raised() -> None:
    """The node dies during a change: the result of the call matches the config after the
    restart."""

    async def client(runtime: Runtime, outcome: list[object]) -> None:
        async with make_log(runtime, "server:7000", call_timeout_ms=20_000) as log:
            try:
                outcome.append(await log.admin.alter_configs("t", {"retention.ms": 5}))
            except QuorumlogError as error:
                outcome.append(error)
            outcome.append(changed(await log.admin.describe_configs("t")))

    async def prepare(runtime: Runtime) -> None:
        await format_directory(runtime, CONFIG)
        async with (
            Node(runtime, CONFIG) as node,
            make_log(runtime, node.addresses.grpc) as log,
        ):
            await log.admin.create_topic("t")

    async def serve(runtime: Runtime) -> None:
        async with Node(runtime, CONFIG):
            await asyncio.Event().wait()

    def die_at(operation: int) -> None:
        with simulation.SimWorld(operation) as world:
            server, user = world.node("server"), world.node("user")
            server.spawn(prepare)
            world.run_until(lambda: not server.alive, virtual_ms=60_000)
            assert server.exit_error is None
            done = server.device.operations
            server.crash_at(
                simulation.CrashPoint(operations=done + operation, power=True, moment="inside")
            )
            server.spawn(serve)
            outcome: list[object] = []
            user.spawn(lambda runtime: client(runtime, outcome))
            world.run_until(
                lambda: not (server.alive and user.alive),
                virtual_ms=60_000,
            )
            server.crash_at(None)
            if not server.alive:
                server.spawn(serve)
            world.run_until(lambda: not user.alive, virtual_ms=60_000)
            assert user.exit_error is None, f"operation {operation}: {user.exit_error!r}"
            expected, found = outcome
            assert expected == {"retention.ms": "5"} == found or isinstance(
                expected, QuorumlogError
            )

    for operation in range(1, 30):
        die_at(operation)


CONFIG = NodeConfig(
    data_dir="/data",
    grpc_listener="server:7000",
    controller_listener="server:7001",
    allow_insecure_listeners=True,
)
