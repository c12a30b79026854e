"""Kafka's default partitioner: murmur2 of the key, as the Java client computes it.

Pure Python for single keys; the codec has the same in C for whole columns. All clients must map a
key to the same partition, so the result must never change.
"""

from .compression import Buffer

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: Buffer) -> int:
    """Return the 32-bit hash of `key` as a signed int, [-2^31, 2^31)."""
    size = len(key)
    state = (_SEED ^ size) & _MASK
    whole = size & ~3
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little")
        word = (word * _M) & _MASK
        word ^= word >> 24
        word = (word * _M) & _MASK
        state = ((state * _M) & _MASK) ^ word
    if whole != size:
        state ^= int.from_bytes(key[whole:], "little")
        state = (state * _M) & _MASK
    state ^= state >> 13
    state = (state * _M) & _MASK
    state ^= state >> 15
    return state - (1 << 32) if state & 0x80000000 else state


def partition_for_key(key: Buffer, partitions: int) -> int:
    """Return the partition of `key`, in [0, partitions); partitions >= 1."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
