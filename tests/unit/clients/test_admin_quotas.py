"""Client quotas in the admin client, with a whole simulated node."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorumlog import simulation
from quorumlog.clients.admin.admin import AsyncAdmin
from quorumlog.clients.admin.configs import ClientQuotas
from quorumlog.clients.log import make_log
from quorumlog.errors import InvalidRequest, QuorumlogError
from quorumlog.runtime import Runtime
from quorumlog.server.config import NodeConfig
from quorumlog.server.node import Node, format_directory


def with_admin(work: Callable[[AsyncAdmin], Coroutine[Any, Any, None]]) -> None:
    async def main(runtime: Runtime) -> None:
        config = NodeConfig(
            data_dir="/data",
            grpc_listener="n:9094",
            controller_listener="n:9093",
            allow_insecure_listeners=True,
        )
        await format_directory(runtime, config)
        async with Node(runtime, config), make_log(runtime, "n:9094") as log:
            await work(log.admin)

    simulation.run(main)


def test_quotas_are_described_for_all_and_for_named_entities() -> None:
    async def work(admin: AsyncAdmin) -> None:
        both = {"user": "alice", "client_id": None}
        await admin.alter_quotas(both, {"producer_byte_rate": 1 << 20, "request_percentage": 12.5})
        await admin.alter_quotas({"user": None}, {"consumer_byte_rate": 5})
        of_both = ClientQuotas(
            entity=both, quotas={"producer_byte_rate": 1 << 20, "request_percentage": 12.5}
        )
        of_any = ClientQuotas(entity={"user": None}, quotas={"consumer_byte_rate": 5})
        assert await admin.describe_quotas() == [of_both, of_any]
        assert await admin.describe_quotas({"user": "alice"}) == [of_both]
        assert await admin.describe_quotas({"user": "alice"}, strict=True) == []
        assert await admin.describe_quotas({"user": None}) == [of_any]
        await admin.alter_quotas(both, delete=["producer_byte_rate", "request_percentage"])
        assert await admin.describe_quotas() == [of_any]

    with_admin(work)


def test_validate_only_changes_nothing_and_raises_refusals() -> None:
    async def work(admin: AsyncAdmin) -> None:
        await admin.alter_quotas({"user": "a"}, {"producer_byte_rate": 1}, validate_only=True)
        with pytest.raises(InvalidRequest, match="whole number above 0"):
            await admin.alter_quotas({"user": "a"}, {"producer_byte_rate": 0}, validate_only=True)
        assert await admin.describe_quotas() == []

    with_admin(work)


CALLS: list[tuple[Callable[[AsyncAdmin], Coroutine[Any, Any, Any]], type[QuorumlogError], str]] = [
    (lambda a: a.alter_quotas({"user": "a"}), InvalidRequest, "nothing to change"),
    (lambda a: a.alter_quotas({}, {"producer_byte_rate": 1}), InvalidRequest, "has no entity"),
    (lambda a: a.alter_quotas({"ip": "a"}, {"x": 1}), InvalidRequest, "give user, client_id"),
    (
        lambda a: a.alter_quotas({"user": 5}, {"x": 1}),  # type: ignore[dict-item]
        InvalidRequest,
        "give text, or None",
    ),
    (lambda a: a.alter_quotas({"user": "a"}, {"x": True}), InvalidRequest, "x is True"),
    (lambda a: a.alter_quotas({"user": "a"}, {"x": float("nan")}), InvalidRequest, "x is nan"),
    (lambda a: a.alter_quotas({"user": "a"}, delete="x"), InvalidRequest, "a list of keys"),
    (lambda a: a.alter_quotas({"user": "a"}, {"x": 1}), InvalidRequest, "unknown quota 'x'"),
    (lambda a: a.describe_quotas({"client-id": "a"}), InvalidRequest, "give user, client_id"),
]


def test_invalid_arguments_are_refused() -> None:
    async def work(admin: AsyncAdmin) -> None:
        for call, kind, why in CALLS:
            async with asyncio.timeout(5):
                with pytest.raises(kind, match=why):
                    await call(admin)

    with_admin(work)
