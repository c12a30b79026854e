"""Every well-formed request of an administrator or about a group gets a response.

No handler ends the connection.
"""

import struct
from dataclasses import fields, replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from tests.kit.kafka_node import serving_kafka

from quorumlog import simulation
from quorumlog.runtime import Runtime

from .admin_calls import create_topic
from .any_request import OFFERED, any_message, bytes_of, schema_of

KEYS = {
    8,
    9,
    10,
    12,
    13,
    15,
    16,
    42,
    47,
    68,
    69,
    19,
    20,
    21,
    32,
    33,
    35,
    37,
    43,
    44,
    45,
    46,
    55,
    57,
    64,
    74,
    80,
    81,
}
TRIES = 5
NAMES = ("t", "u", "nope", "t/", "", "1", "retention.ms", "cleanup.policy", "__cluster_metadata")
NUMBERS = (0, 1, 2, 3, 4, 7, -1, -2)


def near_the_truth(value: Any, random: Random) -> Any:
    """Return the message with some names and numbers that exist in the cluster."""
    if hasattr(value, "__dataclass_fields__"):
        made = {
            each.name: near_the_truth(getattr(value, each.name), random) for each in fields(value)
        }
        return replace(value, **made)
    if isinstance(value, tuple):
        return tuple(near_the_truth(each, random) for each in value)
    if isinstance(value, str):
        return random.choice((*NAMES, value))
    if isinstance(value, timedelta):
        return timedelta(milliseconds=random.choice((0, -1, 1_000)))
    if isinstance(value, int) and not isinstance(value, bool):
        return type(value)(random.choice((*NUMBERS, value))) if random.random() < 0.8 else value
    return value


def any_body(key: int, version: int, random: Random) -> bytes:
    while True:
        try:
            return bytes_of(near_the_truth(any_message(schema_of(key, version), random), random))
        except struct.error:
            continue  # a port is not negative


@pytest.mark.long
def test_every_request_of_an_administrator_is_answered(folder: str) -> None:
    random = Random(7)

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, folder) as kafka:
            publisher = kafka.node.parts.publisher
            assert publisher is not None
            for key, version in OFFERED:
                if key not in KEYS:
                    continue
                for name in ("t", "u"):
                    if publisher.image.topic(name) is None:
                        await create_topic(kafka.channel, name, partitions=2)
                for _ in range(TRIES):
                    kafka.client.send_body(key, version, any_body(key, version, random))
                    await kafka.client.answer(key, version)

    simulation.run(main)
