"""Authorized operations in responses (KIP-430): all of them, since there is no authorization
yet."""

from typing import Final

UNASKED: Final = -(2**31)
"""The value if the request does not ask for the operations."""

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = range(3, 9)
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = range(9, 13)

_TOPIC: Final = (
    _READ,
    _WRITE,
    _CREATE,
    _DELETE,
    _ALTER,
    _DESCRIBE,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
)
_CLUSTER: Final = (
    _CREATE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
)
_GROUP: Final = (_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)


def topic_operations(*, is_asked: bool) -> int:
    """Return the bit set of operations on a topic."""
    return _bits(_TOPIC) if is_asked else UNASKED


def cluster_operations(*, is_asked: bool) -> int:
    """Return the bit set of operations on the cluster."""
    return _bits(_CLUSTER) if is_asked else UNASKED


def group_operations(*, is_asked: bool) -> int:
    """Return the bit set of operations on a group."""
    return _bits(_GROUP) if is_asked else UNASKED


def _bits(operations: tuple[int, ...]) -> int:
    return sum(1 << operation for operation in operations)
