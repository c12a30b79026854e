"""A request with as many items as its API permits, of a client without rights, does not stop the
event loop.

The requests are made from the schemas, so a new API is in the test as soon as it is offered.
"""

import asyncio
import dataclasses
import time
import typing
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from tests.kit.kafka_node import KafkaNode, serving_kafka
from tests.kit.waits import run_patiently

from quorumlog.frontends.kafka import messages
from quorumlog.frontends.kafka.api import KafkaApi
from quorumlog.frontends.kafka.apis import APIS
from quorumlog.frontends.kafka.codecs.primitives import ENTRIES_MAX
from quorumlog.frontends.kafka.shapes import without_none
from quorumlog.metadata.authorization import AuthorizerConfig
from quorumlog.runtime import Runtime
from quorumlog.runtime.memory import short_collections

from .any_request import bytes_of, schema_of
from .named_requests import request_about

NOBODY: Final = AuthorizerConfig()
STALL_S: Final = 0.3  # the longest, 0.16 s, is that of TxnOffsetCommit on a loaded machine
TICK_S: Final = 0.001
ATTEMPTS: Final = 3
LONG_NAMES: Final = {
    "DeleteGroups",
    "DescribeGroups",
    "ConsumerGroupDescribe",
    "FindCoordinator",
    "DescribeTransactions",
}
NAME_LENGTH: Final = 7_000
REQUEST_BYTES: Final = 7_000_000
HAND_WRITTEN: Final = frozenset({"Produce", "Fetch"})
"""APIs whose requests are never left to the schema."""

FieldPath: typing.TypeAlias = tuple[str, ...]


def lists_of(schema: type[Any], path: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the paths of all lists of a request, the outer ones first."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        kind, _ = without_none(hints[field.name])
        is_list = typing.get_origin(kind) is tuple
        if is_list:
            kind, _ = without_none(typing.get_args(kind)[0])
            if "tag" not in field.metadata:
                yield (*path, field.name)
        if "tag" not in field.metadata and hasattr(kind, "__dataclass_fields__"):
            yield from lists_of(kind, (*path, field.name))


def flooded(message: Any, path: FieldPath, count: int, *, deep: bool) -> Any:
    """Return the request with `count` different elements in the list of the path. The lists in
    them have one element if `deep`, else none."""
    name, *rest = path
    value = getattr(message, name)
    if rest:
        inner = value[0] if isinstance(value, tuple) else value
        inner = flooded(inner, tuple(rest), count, deep=deep)
        return dataclasses.replace(
            message, **{name: (inner,) if isinstance(value, tuple) else inner}
        )
    element = value[0] if deep or not dataclasses.is_dataclass(value[0]) else emptied(value[0])
    return dataclasses.replace(
        message, **{name: tuple(numbered(element, at) for at in range(count))}
    )


def emptied(message: Any) -> Any:
    """Return a struct with empty lists."""
    lists = {
        field.name: ()
        for field in dataclasses.fields(message)
        if isinstance(getattr(message, field.name), tuple)
    }
    return dataclasses.replace(message, **lists)


def numbered(element: Any, number: int) -> Any:
    """Return an element with another name, or another number."""
    if isinstance(element, str):
        return f"{element}{number:06}"
    if isinstance(element, int):
        return number
    if not dataclasses.is_dataclass(element) or isinstance(element, type):
        return element
    for field in dataclasses.fields(element):
        value = getattr(element, field.name)
        if isinstance(value, str) or (type(value) is int and "index" in field.name):
            return dataclasses.replace(element, **{field.name: numbered(value, number)})
    return element


def request_of(api: KafkaApi, version: int) -> Any:
    """Return a decoded request with one element in each list."""
    body = memoryview(request_about(api.key, version, "absent", bytes(15) + b"\1"))
    return messages.decode(api, version, body, 0, messages.check_lengths(api, version, body, 0))


def floods(api: KafkaApi, version: int) -> Iterator[tuple[str, bytes]]:
    """Yield requests with the largest number of elements in each of their lists."""
    schema = schema_of(api.key, version)
    elements_max = ENTRIES_MAX if api.name in HAND_WRITTEN else api.elements_max
    for path in lists_of(schema):
        for deep in (True, False):
            message = request_of(api, version)
            try:
                sizes = [
                    elements_of(api, version, flooded(message, path, n, deep=deep)) for n in (1, 2)
                ]
            except IndexError:
                continue  # within a list that stays empty
            each = sizes[1] - sizes[0]
            count = (elements_max - sizes[0]) // each
            yield (
                ".".join(path) + " deep" * deep,
                bytes_of(flooded(message, path, count, deep=deep)),
            )


def elements_of(api: KafkaApi, version: int, message: Any) -> int:
    body = memoryview(bytes_of(message))
    return messages.check_lengths(api, version, body, 0).elements


@asynccontextmanager
async def watching_loop() -> AsyncIterator[Callable[[], float]]:
    """Measure the longest processor time, in seconds, of this thread between two turns of a task.
    Time of other threads and processes does not count."""
    longest_s = 0.0

    async def tick() -> None:
        nonlocal longest_s
        while True:
            before_s = time.thread_time()
            await asyncio.sleep(TICK_S)
            longest_s = max(longest_s, time.thread_time() - before_s)

    ticking = asyncio.ensure_future(tick())
    try:
        yield lambda: longest_s
    finally:
        ticking.cancel()


async def stall_of(kafka: KafkaNode, api: KafkaApi, version: int, body: bytes) -> float:
    """Return the longest stall of the loop during a request, in seconds."""
    client = await kafka.connect()
    try:
        async with watching_loop() as longest_s:
            client.send_body(api.key, version, body)
            await client.frame()
            return longest_s()
    finally:
        client.connection.abort()


async def least_stall(kafka: KafkaNode, api: KafkaApi, body: bytes) -> float:
    """Return the shortest of the stalls of some attempts, in seconds."""
    stalls: list[float] = []
    while len(stalls) < ATTEMPTS and min(stalls, default=1) > STALL_S:
        stalls.append(await stall_of(kafka, api, api.high, body))
    return min(stalls)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_request_without_rights_stops_the_loop_for_a_moment_only(tmp_path: Path) -> None:
    failures: list[str] = []

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, str(tmp_path / "node"), authorizer=NOBODY) as kafka:
            for api in APIS:
                for title, body in floods(api, api.high):
                    stall_s = await least_stall(kafka, api, body)
                    if stall_s > STALL_S:
                        failures.append(f"{api.name} {title}: {stall_s:.3f} s")

    with short_collections():  # as in a served node: this process has many objects
        run_patiently(main)
    assert not failures, "\n".join(failures)


@pytest.mark.long
def test_names_of_the_largest_request_stop_the_loop_for_a_moment_only(tmp_path: Path) -> None:
    stalls_s: dict[str, float] = {}

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, str(tmp_path / "node")) as kafka:
            for api in (each for each in APIS if each.name in LONG_NAMES):
                names, *_ = lists_of(schema_of(api.key, api.high))
                long = (NAME_LENGTH * "n",)
                message = dataclasses.replace(request_of(api, api.high), **{names[0]: long})
                message = flooded(message, names, REQUEST_BYTES // NAME_LENGTH, deep=True)
                stalls_s[api.name] = await least_stall(kafka, api, bytes_of(message))

    with short_collections():
        run_patiently(main)
    assert stalls_s.keys() == LONG_NAMES
    assert max(stalls_s.values()) <= STALL_S, stalls_s


NAMED: Final = {
    "DescribeGroups": "groups",
    "ConsumerGroupDescribe": "group_ids",
    "DescribeTransactions": "transactional_ids",
    "DescribeProducers": "topics",
    "DescribeConfigs": "resources",
    "OffsetFetch": "groups",
    "Metadata": "topics",
}


def test_repeated_partition_of_a_fetch_of_offsets_is_answered_once(tmp_path: Path) -> None:
    api = next(each for each in APIS if each.name == "OffsetFetch")

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, str(tmp_path / "node")) as kafka:
            once = request_of(api, api.high)
            (group,) = once.groups
            (topic,) = group.topics
            often = dataclasses.replace(topic, partition_indexes=50 * topic.partition_indexes)
            lengths = []
            for topics in ((topic,), (often, topic)):
                groups = (dataclasses.replace(group, topics=topics),)
                message = dataclasses.replace(once, groups=groups)
                kafka.client.send_body(api.key, api.high, bytes_of(message))
                lengths.append(len(await kafka.client.frame()))
            assert lengths[0] == lengths[1]

    run_patiently(main)


def test_repeated_name_is_answered_once(tmp_path: Path) -> None:
    """A response has the content of a group or a topic: repeats would multiply it."""
    sizes: dict[str, tuple[int, int]] = {}

    async def main(runtime: Runtime) -> None:
        async with serving_kafka(runtime, str(tmp_path / "node")) as kafka:
            for api in (each for each in APIS if each.name in NAMED):
                once = request_of(api, api.high)
                value = getattr(once, NAMED[api.name])
                often = dataclasses.replace(once, **{NAMED[api.name]: 50 * value})
                lengths = []
                for message in (once, often):
                    kafka.client.send_body(api.key, api.high, bytes_of(message))
                    lengths.append(len(await kafka.client.frame()))
                sizes[api.name] = (lengths[0], lengths[1])

    run_patiently(main)
    assert sizes.keys() == NAMED.keys()
    assert all(once == often for once, often in sizes.values()), sizes
