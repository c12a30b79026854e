"""Three whole nodes with both roles: one is the active controller, all serve clients."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from grpc import aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.kit.node_process import free_port
from tests.kit.waits import AMPLE_MS, AMPLE_S, run_patiently, with_time

from quorumlog.clients.log import AsyncLog, make_log
from quorumlog.errors import (
    DuplicateVoter,
    InconsistentClusterId,
    InvalidRequest,
    NotController,
    NotImplementedHere,
    QuorumlogError,
    TimedOut,
    VoterNotFound,
)
from quorumlog.metadata.config import ControllerConfig
from quorumlog.proto import controller_pb2, quorum_pb2
from quorumlog.runtime import ANONYMOUS_CLIENT, Runtime
from quorumlog.server.addresses import id_text
from quorumlog.server.config import NodeConfig
from quorumlog.server.directory_format import initial_voters
from quorumlog.server.node import QUORUM_HEALTH, Node, format_directory
from quorumlog.services import (
    CONTROLLER_RELAY,
    QUORUM_DESCRIBE,
    QUORUM_REMOVE_VOTER,
    QUORUM_TRANSFER_LEADERSHIP,
)

pytestmark = pytest.mark.slow

WAIT_MS = AMPLE_MS
CLUSTER = "c" * 22
IDS = (1, 2, 3)


class Trio:
    """Three nodes in one process, each with its own directory."""

    def __init__(self, runtime: Runtime, folder: Path, roles: Sequence[str]) -> None:
        self.runtime = runtime
        ports = {number: free_port() for number in IDS}
        voters = tuple(
            f"{number}@127.0.0.1:{port}:{id_text(bytes([number]) * 16)}"
            for number, port in ports.items()
        )
        self.configs = {
            number: NodeConfig(
                data_dir=str(folder / str(number)),
                node_id=number,
                cluster_id=CLUSTER,
                roles=tuple(roles),
                grpc_listener="127.0.0.1:0",
                controller_listener=f"127.0.0.1:{port}",
                controller_voters=voters,
                election_timeout_ms=300,
                heartbeat_ms=50,
                # a busy machine fences no broker
                controller=ControllerConfig(session_timeout_ms=AMPLE_MS),
            )
            for number, port in ports.items()
        }
        self.nodes: dict[int, Node] = {}

    async def start(self, *numbers: int) -> None:
        """Start nodes concurrently: each waits for the others."""
        for number in numbers:
            config = self.configs[number]
            await format_directory(
                self.runtime, config, cluster_id=CLUSTER, forming=initial_voters(config)
            )
            self.nodes[number] = Node(self.runtime, config)
        await asyncio.gather(*(self.nodes[number].start() for number in numbers))

    async def stop(self, *numbers: int) -> None:
        await asyncio.gather(*(self.nodes.pop(number).stop() for number in numbers))

    def address(self, number: int) -> str:
        """Return the address of a node for clients."""
        return self.nodes[number].addresses.grpc or self.configs[number].controller_listener

    async def describe(self, number: int, *, local: bool = True) -> Any:
        channel = self.runtime.network.channel(self.configs[number].controller_listener)
        request = quorum_pb2.DescribeQuorumRequest(local=local)
        return await channel.call(QUORUM_DESCRIBE, request, timeout_ms=WAIT_MS)

    async def leader(self, wanted: int | None = None) -> int:
        """Wait until all live nodes have the same leader, a given one if `wanted`."""
        while True:
            known = {(await self.describe(number)).leader_id for number in self.nodes}
            leader = int(known.pop())
            if not known and leader in self.nodes and wanted in (None, leader):
                return leader
            await asyncio.sleep(0.02)

    async def have_lead(self, log: AsyncLog, to: int) -> None:
        """Transfer the leadership to a node. Retry after a concurrent election."""
        while await self.leader() != to:
            with suppress(
                NotController, InvalidRequest
            ):  # there is no leader at the moment, or it is the leader
                await log.admin.transfer_leadership(to)

    async def while_led(self, check: Callable[[int], Awaitable[None]]) -> None:
        """Run a check that depends on the leader. Repeat it after an election, which a busy machine
        may cause."""
        while True:
            leader = await self.leader()
            epoch = (await self.describe(leader)).leader_epoch
            try:
                await check(leader)
            except (AssertionError, QuorumlogError, pytest.fail.Exception):
                now = await self.describe(await self.leader())
                if now.leader_epoch == epoch:
                    raise
                continue
            return


@asynccontextmanager
async def three(runtime: Runtime, folder: Path, *roles: str) -> AsyncIterator[Trio]:
    trio = Trio(runtime, folder, roles or ("controller", "broker"))
    async with AsyncExitStack() as stack:
        await trio.start(*IDS)
        stack.push_async_callback(lambda: trio.stop(*trio.nodes))
        yield trio


async def send(log: AsyncLog, topic: str, count: int) -> None:
    async with log.producer() as producer:
        for number in range(count):
            await producer.send(topic, str(number), partition=number % 3)


async def stored(log: AsyncLog, topic: str) -> list[int]:
    """Return the numbers of all records, ascending."""
    async with log.consumer(topic, until_end=True) as consumer:
        return sorted([int(record.value or b"") async for record in consumer])


def test_records_survive_a_restart_of_all_nodes(tmp_path: Path) -> None:
    """A new leader first reports a lower high watermark than before. A follower must not treat
    topics above it as deleted."""

    async def main(runtime: Runtime) -> None:
        async with three(runtime, tmp_path) as trio:
            for life in range(3):
                async with make_log(runtime, trio.address(1)) as log:
                    if life == 0:
                        await log.admin.create_topic("t", partitions=3)
                    await send(log, "t", 30)
                    assert await stored(log, "t") == sorted([*range(30)] * (life + 1))
                await trio.stop(*IDS)
                await trio.start(*IDS)

    run_patiently(main)


def test_any_node_describes_the_quorum_like_its_leader(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with three(runtime, tmp_path) as trio:

            async def check(leader: int) -> None:
                for number in IDS:
                    async with make_log(runtime, trio.address(number)) as log:
                        quorum = await log.admin.describe_quorum()
                    assert (quorum.leader, quorum.answered_by) == (leader, leader)
                    assert [each.id for each in quorum.voters] == [1, 2, 3]
                    assert quorum.observers == ()
                    for each in quorum.voters:
                        assert each.directory_id == bytes([each.id]) * 16
                        assert each.address == trio.configs[each.id].controller_listener
                        assert each.log_end_offset is not None
                        assert each.log_end_offset + (each.lag or 0) >= quorum.high_watermark
                follower = next(number for number in IDS if number != leader)
                own = await trio.describe(follower, local=True)
                assert (own.leader_id, own.answered_by) == (leader, follower)
                assert [each.lag for each in own.voters] == [-1, -1, -1]

            await trio.while_led(check)

    run_patiently(main)


def test_brokers_follow_the_leader_and_forward_changes_to_it(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with three(runtime, tmp_path) as trio:
            for step, to in enumerate((1, 3, 2)):
                async with make_log(runtime, trio.address(1)) as log:
                    await trio.have_lead(log, to)
                for number in IDS:
                    async with make_log(runtime, trio.address(number)) as log:
                        await log.admin.create_topic(f"t{step}-{number}", partitions=3)
                        await send(log, f"t{step}-{number}", 3)
                        cluster = await log.admin.describe_cluster()
                    assert not any(broker.fenced for broker in cluster.brokers)

    run_patiently(main)


def test_two_nodes_continue_without_the_stopped_leader(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with three(runtime, tmp_path) as trio:
            old = await trio.leader()
            await trio.stop(old)
            assert await trio.leader() != old
            for number in trio.nodes:
                async with make_log(runtime, trio.address(number)) as log:
                    await log.admin.create_topic(f"without-{number}")
            await trio.start(old)
            async with make_log(runtime, trio.address(old)) as log:
                assert len(await log.admin.list_topics()) == 2

    run_patiently(main)


def test_health_check_reports_if_the_quorum_has_a_leader(tmp_path: Path) -> None:
    serving = health_pb2.HealthCheckResponse.SERVING

    async def main(runtime: Runtime) -> None:
        async with three(runtime, tmp_path) as trio:
            for address in (trio.address(1), trio.configs[1].controller_listener):
                async with aio.insecure_channel(address) as channel, asyncio.timeout(AMPLE_S):
                    stub: Any = health_pb2_grpc.HealthStub(channel)
                    asked = health_pb2.HealthCheckRequest(service=QUORUM_HEALTH)
                    while (await stub.Check(asked)).status != serving:
                        await trio.leader()  # an election on a busy machine
            async with aio.insecure_channel(trio.address(1)) as channel, asyncio.timeout(AMPLE_S):
                stub = health_pb2_grpc.HealthStub(channel)
                watch = stub.Watch(health_pb2.HealthCheckRequest(service=QUORUM_HEALTH))
                while (await watch.read()).status != serving:  # an election on a busy machine
                    pass
                await trio.stop(2, 3)
                while (await watch.read()).status == serving:
                    pass
                await trio.start(2)
                while (await watch.read()).status != serving:
                    pass

    run_patiently(main)


@pytest.mark.long
def test_change_without_a_majority_names_the_missing_majority(tmp_path: Path) -> None:
    """The error is not about addresses of dead nodes or a timeout, which are consequences."""

    async def main(runtime: Runtime) -> None:
        async with three(runtime, tmp_path) as trio:
            alive, *dead = trio.address(1), trio.address(2), trio.address(3)
            await trio.stop(2, 3)
            everywhere = ",".join((alive, *dead))

            async def check(call_ms: int) -> None:
                async with make_log(runtime, everywhere, call_timeout_ms=call_ms) as log:
                    with pytest.raises(NotController, match="a majority of the voters"):
                        await log.admin.remove_voter(2, directory_id=bytes([2]) * 16)
                async with make_log(runtime, alive, call_timeout_ms=call_ms) as log:
                    with pytest.raises(TimedOut, match="a majority of the voters"):
                        await log.admin.create_topic("t")

            await with_time(2_000, check)

    run_patiently(main)


def test_invalid_change_is_refused_by_name(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with three(runtime, tmp_path, "controller") as trio:

            async def check(leader: int) -> None:
                follower = next(number for number in IDS if number != leader)
                channel = runtime.network.channel(trio.address(follower))
                async with make_log(runtime, trio.address(follower)) as log:
                    with pytest.raises(DuplicateVoter, match="already a voter"):
                        await log.admin.add_voter(follower)
                    with pytest.raises(VoterNotFound, match="voters are 1, 2, 3"):
                        await log.admin.remove_voter(9)
                    with pytest.raises(VoterNotFound):
                        await log.admin.remove_voter(follower, directory_id=b"x" * 16)
                    with pytest.raises(VoterNotFound):
                        await log.admin.transfer_leadership(9)
                strange = quorum_pb2.RemoveVoterRequest(cluster_id="other", id=1)
                with pytest.raises(InconsistentClusterId, match="check the address"):
                    await channel.call(QUORUM_REMOVE_VOTER, strange, timeout_ms=WAIT_MS)
                with pytest.raises(NotController) as caught:
                    await channel.call(
                        QUORUM_TRANSFER_LEADERSHIP,
                        quorum_pb2.TransferLeadershipRequest(),
                        timeout_ms=WAIT_MS,
                        on_behalf_of=ANONYMOUS_CLIENT,
                    )
                assert caught.value.leader_id == leader

            await trio.while_led(check)

    run_patiently(main)


def test_inactive_controller_names_the_one_that_assigns_producer_ids(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with three(runtime, tmp_path, "controller") as trio:
            request = controller_pb2.RelayRequest(cluster_id=CLUSTER, broker_id=-1)
            request.allocate_producer_ids.broker_epoch = -1
            given: list[int] = []

            async def check(leader: int) -> None:
                starts = []
                for number in (*IDS, *IDS):
                    channel = runtime.network.channel(trio.address(number))
                    if number == leader:
                        answer = await channel.call(CONTROLLER_RELAY, request, timeout_ms=WAIT_MS)
                        starts.append(answer.allocate_producer_ids.producer_id_start)
                        continue
                    with pytest.raises(NotController) as caught:
                        await channel.call(CONTROLLER_RELAY, request, timeout_ms=WAIT_MS)
                    assert caught.value.leader_id == leader
                given.extend(starts)
                assert len(starts) == 2

            await trio.while_led(check)
            first = given[0]  # other ids were lost with the leader that assigned them
            assert given == [first, first + 1000]
            assert first % 1000 == 0

    run_patiently(main)


def test_controller_only_nodes_refuse_clients_with_a_reason(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        async with three(runtime, tmp_path, "controller") as trio:
            assert {node.addresses.grpc for node in trio.nodes.values()} == {""}
            async with make_log(runtime, trio.address(1)) as log:
                assert (await log.admin.describe_quorum()).cluster_id == CLUSTER
                with pytest.raises(NotImplementedHere, match="not a broker's gRPC port"):
                    await log.admin.list_topics()

    run_patiently(main)


def test_start_that_waits_for_other_nodes_can_be_cancelled(tmp_path: Path) -> None:
    async def main(runtime: Runtime) -> None:
        trio = Trio(runtime, tmp_path, ("controller", "broker"))

        async def check(time_ms: int) -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(time_ms / 1000):
                    await trio.start(1)
            assert (tmp_path / "1" / ".kafka_cleanshutdown").exists()

        for _ in range(2):  # the second start finds the directory unlocked
            await with_time(1_000, check)

    run_patiently(main)
