"""Partitioners choose the same partitions as other Kafka clients."""

from typing import Any

import pytest

from quorumlog.clients.producer.partitioner import (
    CACHED_KEYS_MAX,
    KeyPartitioner,
    choose,
    resolve_partitioner,
)
from quorumlog.errors import InvalidConfig, PartitionerFailed
from quorumlog.records.murmur2 import murmur2


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # From the tests of Apache Kafka's Utils.murmur2.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_the_java_client(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed
    assert KeyPartitioner()("t", key, None, 10) == (hashed & 0x7FFFFFFF) % 10


def test_no_key_leaves_the_choice_to_the_producer() -> None:
    assert KeyPartitioner()("t", None, b"v", 4) is None


def test_topics_of_different_sizes_do_not_disturb_each_other() -> None:
    partitioner = KeyPartitioner()
    expected = [(murmur2(b"k") & 0x7FFFFFFF) % count for count in (3, 7, 3)]
    assert [partitioner("t", b"k", None, count) for count in (3, 7, 3)] == expected


def test_the_memory_of_keys_is_bounded() -> None:
    partitioner = KeyPartitioner()
    for number in range(3 * CACHED_KEYS_MAX):
        partitioner("t", b"%d" % number, None, 5)
    assert len(partitioner._hashes) <= CACHED_KEYS_MAX


def test_long_keys_are_not_kept_in_memory() -> None:
    partitioner = KeyPartitioner()
    key = b"k" * 1_000
    assert partitioner("t", key, None, 5) == partitioner("t", key, None, 5)
    assert not partitioner._hashes


def test_round_robin_ignores_keys() -> None:
    partitioner = resolve_partitioner("round_robin")
    assert [partitioner("t", b"k", b"v", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert partitioner("u", None, b"v", 3) == 0


def test_sticky_ignores_keys() -> None:
    assert resolve_partitioner("sticky")("t", b"k", b"v", 3) is None


def test_crc32_hashes_as_librdkafka_does_by_default() -> None:
    partitioner = resolve_partitioner("crc32")
    assert partitioner("t", b"123456789", None, 1 << 32) == 0xCBF43926  # the CRC's check value
    assert partitioner("t", b"", None, 100) is None
    assert partitioner("t", None, None, 100) is None


def test_unknown_name_lists_the_valid_ones() -> None:
    with pytest.raises(InvalidConfig, match="murmur2, sticky, round_robin, crc32, or a callable"):
        resolve_partitioner("murmur3")
    with pytest.raises(InvalidConfig, match="partitioner is 5"):
        resolve_partitioner(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [3, -1, "0", 1.0, True, b"", object()])
def test_invalid_result_of_a_partitioner_is_a_typed_error(answer: Any) -> None:
    with pytest.raises(PartitionerFailed, match="one of the 3 partitions"):
        choose(lambda *record: answer, "t", None, b"v", 3)


def test_exception_of_a_partitioner_is_a_typed_error_with_its_cause() -> None:
    def broken(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        raise KeyError("region")

    with pytest.raises(PartitionerFailed, match="raised KeyError: 'region'") as caught:
        choose(broken, "t", None, b"v", 3)
    assert isinstance(caught.value.__cause__, KeyError)
