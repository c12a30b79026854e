"""What a client may do, for answers that tell it (KIP-430): everything, since nobody is refused
anything yet."""

from typing import Final

UNASKED: Final = -(2**31)
"""The answer to who has not asked."""

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
    """Return a bit for each operation on a topic."""
    return _bits(_TOPIC) if is_asked else UNASKED


def cluster_operations(*, is_asked: bool) -> int:
    """Return a bit for each operation on the cluster."""
    return _bits(_CLUSTER) if is_asked else UNASKED


def group_operations(*, is_asked: bool) -> int:
    """Return a bit for each operation on a group."""
    return _bits(_GROUP) if is_asked else UNASKED


def _bits(operations: tuple[int, ...]) -> int:
    return sum(1 << operation for operation in operations)
