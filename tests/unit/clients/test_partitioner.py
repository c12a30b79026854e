"""A key's partition is the one that the field's clients choose."""

import pytest

from quorumlog.clients.partitioner import CACHED_KEYS_MAX, KeyPartitioner
from quorumlog.records.murmur2 import murmur2


@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        # From the tests of Apache Kafka's own Utils.murmur2.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_hash_as_in_the_fields_java_client(key: bytes, hashed: int) -> None:
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
