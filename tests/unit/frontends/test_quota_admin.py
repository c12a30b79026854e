"""Client quotas by raw calls."""

from typing import Any

import pytest
from tests.kit.node import WAIT_MS, Run, serving

from quorumlog import simulation
from quorumlog.api.quotas import ALTERATIONS_MAX
from quorumlog.errors import InvalidRequest
from quorumlog.metadata.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from quorumlog.proto import admin_pb2 as pb
from quorumlog.runtime import Channel, Runtime
from quorumlog.services import ADMIN_ALTER_CLIENT_QUOTAS, ADMIN_DESCRIBE_CLIENT_QUOTAS

ALICE = {"type": "user", "name": "alice"}
ANY_APP = {"type": "client-id"}


async def alter(
    channel: Channel, *alterations: dict[str, Any], validate_only: bool = False
) -> pb.AlterClientQuotasResponse:
    request = pb.AlterClientQuotasRequest(
        alterations=[pb.ClientQuotaAlteration(**each) for each in alterations],
        validate_only=validate_only,
    )
    return await channel.call(ADMIN_ALTER_CLIENT_QUOTAS, request, timeout_ms=WAIT_MS)


async def described(
    channel: Channel, *filters: dict[str, Any], strict: bool = False, offset: int = 0
) -> list[tuple[list[tuple[str, str | None]], dict[str, float]]]:
    request = pb.DescribeClientQuotasRequest(
        filters=[pb.QuotaFilter(**each) for each in filters],
        strict=strict,
        min_metadata_offset=offset,
    )
    answer = await channel.call(ADMIN_DESCRIBE_CLIENT_QUOTAS, request, timeout_ms=WAIT_MS)
    assert answer.metadata_offset >= offset
    return [
        (
            [(part.type, part.name if part.HasField("name") else None) for part in each.entity],
            {value.key: value.value for value in each.values},
        )
        for each in answer.quotas
    ]


def test_set_quotas_are_described_and_refused_ones_named(run: Run, folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            assert await described(channel) == []
            changes = [
                {"key": PRODUCER_BYTE_RATE, "value": 1024},
                {"key": CONSUMER_BYTE_RATE, "value": 2048},
            ]
            altered = await alter(
                channel,
                {"entity": [ALICE, ANY_APP], "changes": changes},
                {"entity": [{"type": "ip", "name": "10.0.0.1"}], "changes": changes},
            )
            assert [result.HasField("error") for result in altered.results] == [False, True]
            assert altered.results[1].error.name == "INVALID_REQUEST"
            assert [part.type for part in altered.results[0].entity] == ["user", "client-id"]
            assert await described(channel, offset=altered.metadata_offset) == [
                (
                    [("client-id", None), ("user", "alice")],
                    {CONSUMER_BYTE_RATE: 2048, PRODUCER_BYTE_RATE: 1024},
                )
            ]
            cleared = await alter(
                channel,
                {
                    "entity": [ANY_APP, ALICE],
                    "changes": [{"key": PRODUCER_BYTE_RATE}, {"key": CONSUMER_BYTE_RATE}],
                },
            )
            assert await described(channel, offset=cleared.metadata_offset) == []

    run(main)


def test_filters_select_the_described_quotas(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            one = [{"key": PRODUCER_BYTE_RATE, "value": 1}]
            entities = [[ALICE], [ANY_APP], [ANY_APP, ALICE], [{"type": "user"}]]
            altered = await alter(channel, *({"entity": e, "changes": one} for e in entities))
            offset = altered.metadata_offset

            async def found(*filters: dict[str, Any], strict: bool = False) -> list[Any]:
                return [
                    e for e, _ in await described(channel, *filters, strict=strict, offset=offset)
                ]

            any_app, alice, any_user = ("client-id", None), ("user", "alice"), ("user", None)
            assert await found() == [[any_app], [any_app, alice], [alice], [any_user]]
            named = {"type": "user", "name": "alice"}
            assert await found(named) == [[any_app, alice], [alice]]
            assert await found(named, strict=True) == [[alice]]
            assert await found({"type": "user", "is_default": True}) == [[any_user]]
            assert await found({"type": "user", "is_any": True}, strict=True) == [
                [alice],
                [any_user],
            ]

    simulation.run(main)


def test_validate_only_changes_nothing(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            change = {"entity": [ALICE], "changes": [{"key": PRODUCER_BYTE_RATE, "value": 5}]}
            looked = await alter(channel, change, validate_only=True)
            assert not looked.results[0].HasField("error")
            assert await described(channel, offset=looked.metadata_offset) == []

    simulation.run(main)


def test_empty_and_oversized_requests_are_refused(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving(runtime, folder) as channel:
            change = {"entity": [ALICE], "changes": [{"key": PRODUCER_BYTE_RATE, "value": 5}]}
            with pytest.raises(InvalidRequest, match=f"give 1..{ALTERATIONS_MAX}"):
                await alter(channel)
            with pytest.raises(InvalidRequest, match="1001 entries"):
                await alter(channel, *[change] * (ALTERATIONS_MAX + 1))
            with pytest.raises(InvalidRequest, match="give each once"):
                await alter(channel, {"entity": [ALICE] * 100, "changes": change["changes"]})
            senseless: list[tuple[list[dict[str, Any]], str]] = [
                ([{"type": "user"}], "filter: empty"),
                ([{"type": "user", "is_any": False}], "filter: empty"),
                ([{"type": "ip", "is_any": True}], "'ip'"),
                ([{"type": "user", "name": "a"}] * 1_000, "more than one filter for user"),
            ]
            for filters, why in senseless:
                with pytest.raises(InvalidRequest, match=why):
                    await described(channel, *filters)

    simulation.run(main)
