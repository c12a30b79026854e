"""DescribeClientQuotas and AlterClientQuotas."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.node import Run

from quorumlog import simulation
from quorumlog.frontends.kafka.encoding_offload import ELEMENTS_ON_THE_LOOP_MAX
from quorumlog.frontends.kafka.item_results import PARTS_MAX
from quorumlog.runtime import Runtime

DESCRIBE, ALTER = 48, 49
INVALID_REQUEST = 42
EXACT, DEFAULT, ANY = 0, 1, 2
VERSIONS = (0, 1)


def entity(**parts: str | None) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in parts.items()
    )


def op(key: str, value: float | None) -> dict[str, Any]:
    return {"key": key, "value": value or 0.0, "remove": value is None}


async def alter(
    kafka: KafkaNode, *entries: dict[str, Any], version: int = 1, validate_only: bool = False
) -> list[Any]:
    answer = await kafka.client.ask(ALTER, version, entries=entries, validate_only=validate_only)
    return list(answer.entries)


async def described(
    kafka: KafkaNode,
    *components: tuple[str, int, str | None],
    version: int = 1,
    strict: bool = False,
) -> Any:
    return await kafka.client.ask(
        DESCRIBE,
        version,
        components=[
            {"entity_type": kind, "match_type": match_type, "match": name}
            for kind, match_type, name in components
        ],
        strict=strict,
    )


def entries_of(answer: Any) -> list[tuple[list[tuple[str, str | None]], dict[str, float]]]:
    assert answer.error_code == 0
    return [
        (
            [(part.entity_type, part.entity_name) for part in entry.entity],
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_quotas_are_set_described_and_cleared(run: Run, folder: str, version: int) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            both = entity(user="alice", client_id=None)
            ops = [op("producer_byte_rate", 1024), op("request_percentage", 12.5)]
            [entry] = await alter(kafka, {"entity": both, "ops": ops}, version=version)
            assert (entry.error_code, entry.error_message) == (0, None)
            assert [part.entity_name for part in entry.entity] == ["alice", None]
            # The broker that applied the change describes it at once.
            assert entries_of(await described(kafka, version=version)) == [
                (
                    [("client-id", None), ("user", "alice")],
                    {"producer_byte_rate": 1024, "request_percentage": 12.5},
                )
            ]
            clear = [op("producer_byte_rate", None), op("request_percentage", None)]
            [entry] = await alter(kafka, {"entity": both, "ops": clear}, version=version)
            assert entry.error_code == 0
            assert entries_of(await described(kafka, version=version)) == []

    run(main)


def test_error_of_an_entry_is_in_its_result(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            one = [op("producer_byte_rate", 1)]
            entries = await alter(
                kafka,
                {"entity": entity(ip="10.0.0.1"), "ops": [op("connection_creation_rate", 5)]},
                {"entity": entity(user="alice"), "ops": one},
                {"entity": entity(user="bob"), "ops": [op("controller_mutation_rate", 5)]},
                {"entity": (), "ops": one},
                {"entity": entity(client_id="a"), "ops": one},
                {"entity": entity(client_id="a"), "ops": one},
            )
            assert [entry.error_code for entry in entries] == [42, 0, 42, 42, 42, 42]
            assert "give a user" in entries[0].error_message
            assert [e for e, _ in entries_of(await described(kafka))] == [[("user", "alice")]]

    simulation.run(main)


def test_validation_and_an_empty_request_change_nothing(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            change = {"entity": entity(user="alice"), "ops": [op("producer_byte_rate", 1)]}
            [entry] = await alter(kafka, change, validate_only=True)
            assert entry.error_code == 0
            assert await alter(kafka) == []
            assert entries_of(await described(kafka)) == []

    simulation.run(main)


def test_filter_matches_one_entity_the_default_or_any(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            one = [op("producer_byte_rate", 1)]
            entities = [
                entity(user="alice"),
                entity(user=None),
                entity(user="alice", client_id="app"),
            ]
            await alter(kafka, *({"entity": each, "ops": one} for each in entities))

            async def found(*components: Any, strict: bool = False) -> list[Any]:
                return [
                    e for e, _ in entries_of(await described(kafka, *components, strict=strict))
                ]

            alice, any_user, app = ("user", "alice"), ("user", None), ("client-id", "app")
            assert await found(("user", EXACT, "alice")) == [[app, alice], [alice]]
            assert await found(("user", EXACT, "alice"), strict=True) == [[alice]]
            assert await found(("user", DEFAULT, None)) == [[any_user]]
            assert await found(("user", ANY, None), strict=True) == [[alice], [any_user]]
            assert await found(("user", ANY, None), ("client-id", ANY, None)) == [[app, alice]]

    simulation.run(main)


@pytest.mark.parametrize(
    "component",
    [
        ("user", EXACT, None),
        ("user", DEFAULT, "x"),
        ("user", ANY, "x"),
        ("user", 3, None),
        ("ip", ANY, None),
        ("", EXACT, "x"),
    ],
)
def test_invalid_filter_is_refused(folder: str, component: tuple[str, int, str | None]) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            answer = await described(kafka, component)
            assert answer.error_code == INVALID_REQUEST
            assert answer.error_message
            assert answer.entries is None

    simulation.run(main)


def test_many_quotas_are_changed_and_described_like_few(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            many = [entity(client_id=f"c{index:03}") for index in range(ELEMENTS_ON_THE_LOOP_MAX)]
            one = [op("producer_byte_rate", 5)]
            entries = await alter(kafka, *({"entity": each, "ops": one} for each in many))
            assert {entry.error_code for entry in entries} == {0}
            assert [entry.entity[0].entity_name for entry in entries] == [
                part["entity_name"] for (part,) in many
            ]
            assert entries_of(await described(kafka)) == [
                ([("client-id", f"c{index:03}")], {"producer_byte_rate": 5})
                for index in range(ELEMENTS_ON_THE_LOOP_MAX)
            ]

    simulation.run(main)


def test_of_far_too_many_entries_each_is_refused(folder: str) -> None:
    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            nothing = {"entity": (), "ops": ()}
            entries = await alter(kafka, *[nothing] * (PARTS_MAX + 1))
            assert len(entries) == PARTS_MAX + 1
            assert {entry.error_code for entry in entries} == {INVALID_REQUEST}

    simulation.run(main)
