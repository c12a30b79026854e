"""The default partitioner, compared with hashes of the Java client."""

import struct
from types import ModuleType

import pytest

from quorumlog.records.columns import BinaryColumn
from quorumlog.records.murmur2 import partition_for_key

KNOWN = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "expected"), KNOWN)
def test_murmur2_gives_the_java_clients_hash(kernel: ModuleType, key: bytes, expected: int) -> None:
    assert kernel.murmur2(key) == expected
    assert kernel.murmur2(memoryview(key)) == expected


def test_a_partition_is_the_hash_without_its_sign_modulo_the_count() -> None:
    assert partition_for_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10
    assert partition_for_key(b"anything", 1) == 0


def column(keys: list[bytes | None]) -> BinaryColumn:
    ends = [0]
    for key in keys:
        ends.append(ends[-1] + len(key or b""))
    bits = sum(1 << index for index, key in enumerate(keys) if key is not None)
    return BinaryColumn(
        length=len(keys),
        offsets=struct.pack(f"={len(ends)}i", *ends),
        data=b"".join(key or b"" for key in keys),
        validity=bits.to_bytes((len(keys) + 7) // 8, "little"),
    )


def test_null_keys_rotate_and_others_use_their_hash(kernel: ModuleType) -> None:
    keys = column([None, b"abc", None, b"foobar", None])
    placed = kernel.partitions_for_keys(keys, 3, 2)
    abc, foobar = partition_for_key(b"abc", 3), partition_for_key(b"foobar", 3)
    assert struct.unpack("=5i", placed) == (2, abc, 0, foobar, 1)


def test_the_rows_of_a_partition_are_together_and_in_order(kernel: ModuleType) -> None:
    keys = [b"%d" % (index % 11) for index in range(200)]
    rows, bounds = kernel.partition_rows(column(list(keys)), 4, 0)
    taken = struct.unpack("=200q", rows)
    assert bounds[0] == 0
    assert bounds[-1] == 200
    for partition in range(4):
        group = taken[bounds[partition] : bounds[partition + 1]]
        assert list(group) == [
            row for row, key in enumerate(keys) if partition_for_key(key, 4) == partition
        ]


def test_no_partitions_at_all_are_refused(kernel: ModuleType) -> None:
    with pytest.raises(ValueError, match="0 partitions"):
        kernel.partition_rows(column([b"a"]), 0, 0)
