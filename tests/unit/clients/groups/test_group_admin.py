"""Group calls of the admin client while the coordinator is loading."""

from typing import Any

import pytest

from quorumlog import services, simulation
from quorumlog.clients.log import make_log
from quorumlog.errors import CoordinatorLoading, QuorumlogError, TimedOut
from quorumlog.proto import admin_pb2, errors_pb2, groups_pb2
from quorumlog.runtime import Handler, Runtime
from quorumlog.runtime.error_detail import encode_error


def test_calls_to_a_loading_coordinator_are_retried() -> None:
    errors: list[QuorumlogError] = [CoordinatorLoading("it reads what is stored")] * 2
    asked: list[str] = []

    def partition_errors() -> list[errors_pb2.Error]:
        return [encode_error(errors.pop()) if errors else errors_pb2.Error()]

    async def delete(request: Any, context: object) -> Any:
        asked.append(request.groups[0])
        return groups_pb2.DeleteGroupsResponse(errors=partition_errors())

    async def forget(request: Any, context: object) -> Any:
        asked.append(request.group)
        return groups_pb2.DeleteOffsetsResponse(errors=partition_errors())

    async def describe(request: Any, context: object) -> Any:
        return admin_pb2.DescribeClusterResponse(cluster_id="c")

    async def main(runtime: Runtime) -> None:
        table = [
            Handler(services.ADMIN_DESCRIBE_CLUSTER, describe),
            Handler(services.GROUPS_DELETE, delete),
            Handler(services.GROUPS_DELETE_OFFSETS, forget),
        ]
        handlers = {handler.method.path: handler for handler in table}
        listener = await runtime.network.serve("127.0.0.1:0", handlers)
        async with make_log(runtime, listener.address) as log:
            await log.admin.delete_group("g")
            errors.append(CoordinatorLoading("it reads what is stored"))
            await log.admin.delete_offsets("h", ("t", 0))
        await listener.close(0)

    simulation.run(main)
    assert asked == ["g", "g", "g", "h", "h"]


def test_list_of_reachable_groups_has_the_errors_of_the_other_brokers() -> None:
    async def list_groups(request: Any, context: object) -> Any:
        failure = encode_error(TimedOut("broker 2: listing its groups failed"))
        listing = groups_pb2.GroupListing(group="g", type="consumer", coordinator=1)
        return groups_pb2.ListGroupsResponse(groups=[listing], errors=[failure])

    async def describe(request: Any, context: object) -> Any:
        return admin_pb2.DescribeClusterResponse(cluster_id="c")

    async def main(runtime: Runtime) -> None:
        table = [
            Handler(services.ADMIN_DESCRIBE_CLUSTER, describe),
            Handler(services.GROUPS_LIST, list_groups),
        ]
        handlers = {handler.method.path: handler for handler in table}
        listener = await runtime.network.serve("127.0.0.1:0", handlers)
        async with make_log(runtime, listener.address, call_timeout_ms=3_000) as log:
            found = await log.admin.list_reachable_groups()
            assert [each.name for each in found.groups] == ["g"]
            assert [each.message for each in found.errors] == [
                "broker 2: listing its groups failed"
            ]
            with pytest.raises(TimedOut):
                await log.admin.list_groups()
        await listener.close(0)

    simulation.run(main)
