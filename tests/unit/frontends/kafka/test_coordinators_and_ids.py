"""FindCoordinator and InitProducerId in every version."""

from typing import Any

import pytest
from tests.kit.kafka_node import KafkaNode, run_on_kafka_node

from .admin_calls import NODE

FIND_COORDINATOR, INIT_PRODUCER_ID = 10, 22
INVALID_REQUEST = 42
GROUP, SHARE = 0, 2
EPOCH_MAX = 2**15 - 1


async def sought(kafka: KafkaNode, version: int, kind: int = GROUP) -> list[tuple[int, int, str]]:
    """Find coordinators, by two keys where the version allows. Return error, node and host of
    each."""
    if version >= 4:
        answer = await kafka.client.ask(
            FIND_COORDINATOR, version, key_type=kind, coordinator_keys=("a", "b")
        )
        assert [each.key for each in answer.coordinators] == ["a", "b"]
        found = list(answer.coordinators)
    else:
        fields = {"key": "a", **({"key_type": kind} if version else {})}
        found = [await kafka.client.ask(FIND_COORDINATOR, version, **fields)]
    return [(int(each.error_code), each.node_id, each.host) for each in found]


@pytest.mark.parametrize("version", range(7))
def test_coordinator_address_is_the_one_that_the_client_used(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode) -> None:
        here = (0, NODE, kafka.address.rpartition(":")[0])
        assert await sought(kafka, version) == [here] * (2 if version >= 4 else 1)

    run_on_kafka_node(main, folder)


@pytest.mark.parametrize(
    ("version", "kind", "code"),
    [
        (5, SHARE, INVALID_REQUEST),
        (6, SHARE, INVALID_REQUEST),  # not offered: final for every client
        (6, 9, INVALID_REQUEST),
        (2, 9, INVALID_REQUEST),
    ],
)
def test_a_key_type_without_a_coordinator_is_refused_for_good(
    folder: str, version: int, kind: int, code: int
) -> None:
    async def main(kafka: KafkaNode) -> None:
        assert {each[0] for each in await sought(kafka, version, kind)} == {code}

    run_on_kafka_node(main, folder)


async def given(kafka: KafkaNode, version: int, **fields: Any) -> tuple[int, int, int]:
    """Request a producer id. Return error, id and epoch."""
    answer = await kafka.client.ask(
        INIT_PRODUCER_ID,
        version,
        **{"transactional_id": None, "transaction_timeout": 60_000, **fields},
    )
    return int(answer.error_code), answer.producer_id, answer.producer_epoch


@pytest.mark.parametrize("version", range(6))
def test_every_version_gives_each_producer_an_id_of_its_own(folder: str, version: int) -> None:
    async def main(kafka: KafkaNode) -> None:
        first, second = await given(kafka, version), await given(kafka, version)
        assert first[1] >= 0
        assert (first[0], first[2]) == (second[0], second[2]) == (0, 0)
        assert first[1] != second[1]

    run_on_kafka_node(main, folder)


def test_a_producer_that_has_an_id_gets_its_next_epoch(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        _, producer_id, _ = await given(kafka, 3)
        bumped = await given(kafka, 3, producer_id=producer_id, producer_epoch=0)
        assert bumped == (0, producer_id, 1)

    run_on_kafka_node(main, folder)


def test_producer_with_exhausted_epochs_gets_another_id(folder: str) -> None:
    async def main(kafka: KafkaNode) -> None:
        _, producer_id, _ = await given(kafka, 3)
        code, other, epoch = await given(
            kafka, 3, producer_id=producer_id, producer_epoch=EPOCH_MAX
        )
        assert (code, epoch) == (0, 0)
        assert other not in (-1, producer_id)

    run_on_kafka_node(main, folder)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, INVALID_REQUEST),
        ({"producer_id": -2, "producer_epoch": 0}, INVALID_REQUEST),
        ({"producer_id": 7, "producer_epoch": -1}, INVALID_REQUEST),
    ],
)
def test_invalid_request_is_refused_without_an_id(
    folder: str, fields: dict[str, Any], code: int
) -> None:
    async def main(kafka: KafkaNode) -> None:
        assert await given(kafka, 4, **fields) == (code, -1, -1)

    run_on_kafka_node(main, folder)
