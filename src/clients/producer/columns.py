"""The arguments of `send_many` as validated columns of bytes."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ...errors import InvalidRequest, MessageTooLarge
from .batches import RECORD_OVERHEAD
from .content import Content, as_bytes


class Bulk(NamedTuple):
    """The records of one `send_many`."""

    values: Sequence[bytes | None]
    keys: Sequence[bytes | None] | None
    ends: Sequence[int]  # running sums of the records' sizes
    size_max: int  # of one of them


def bulk_of(
    topic: str, values: Sequence[Content], keys: Sequence[Content] | None, *, size_max: int
) -> Bulk:
    """Return the arguments as columns of bytes; one invalid record refuses all.

    Raises InvalidRequest for columns of different lengths, TypeError, and MessageTooLarge.
    """
    if keys is not None and len(keys) != len(values):
        raise InvalidRequest(f"{len(values)} values have {len(keys)} keys: give one key per value")
    whole = _as_column(values, "value")
    own = None if keys is None else _as_column(keys, "key")
    sizes = _sizes(whole)
    if own is not None:
        sizes = [size + more for size, more in zip(sizes, _sizes(own), strict=True)]
    largest = max(sizes, default=0) + RECORD_OVERHEAD
    if largest > size_max:
        place = sizes.index(largest - RECORD_OVERHEAD)
        raise MessageTooLarge(
            f"record {place} of {len(whole)} has {largest} bytes, more than request_size_max "
            f"({size_max}): none was taken",
            topic=topic,
        )
    ends = list(accumulate(size + RECORD_OVERHEAD for size in sizes))
    return Bulk(whole, own, ends, largest)


def _as_column(contents: Sequence[Content], what: str) -> list[bytes | None]:
    if isinstance(contents, str | bytes | bytearray):
        raise TypeError(f"send_many takes a sequence of {what}s, not one {what}")
    if set(map(type, contents)) <= {bytes, type(None)}:
        return list(contents)  # type: ignore[arg-type]  # the types were checked above
    return [None if content is None else as_bytes(content, what) for content in contents]


def _sizes(column: Sequence[bytes | None]) -> list[int]:
    if None in column:
        return [0 if item is None else len(item) for item in column]
    return list(map(len, column))  # type: ignore[arg-type]  # None is ruled out above
