"""The hot paths of the broker on plain numbers and buffers, compiled.

The compiled modules do the usual case only, and leave every other to the caller, who then takes the
general path. They make no system call and hold no state between two calls: files, sockets and logs
are the caller's. `ProduceRun` has a plain twin with the same results (tests/property/native); the
plain twin of `read_fetch` finds no request usual, and the general path answers all.
"""

from typing import TYPE_CHECKING, Final, TypeAlias

from .. import records

FetchPart: TypeAlias = tuple[int, int, int, int, int]
"""Index, leader epoch, offset, epoch of the last record, max bytes; -1: not given."""

FetchTopic: TypeAlias = tuple[bytes, list[FetchPart]]
"""A name or, from version 13 on, an id, and its partitions."""

UsualFetch: TypeAlias = tuple[int, int, int, int, int, int, list[FetchTopic]]
"""Max wait ms, min bytes, max bytes, isolation, session id, session epoch, topics."""

if TYPE_CHECKING or not records.COMPILED:
    from ._plain_produce import LogTail, PlacedRequest, ProduceRun
else:
    try:
        from ._produce import LogTail, ProduceRun
    except ImportError:
        from ._plain_produce import LogTail, ProduceRun

COMPILED: Final = ProduceRun.__module__.endswith("._produce")
"""True if the compiled modules are in use. With the plain record codec they are not."""

if TYPE_CHECKING or COMPILED:
    from ._fetch import encode_fetch, read_fetch
else:

    def read_fetch(version, body):
        """Return None: the general path reads every request."""
        del version, body

    def encode_fetch(version, topics, results, tells_aborted):
        """Fail: no request is usual."""
        raise AssertionError(f"version {version}: {len(topics)} topics of no usual request")


__all__ = [
    "COMPILED",
    "FetchPart",
    "FetchTopic",
    "LogTail",
    "PlacedRequest",
    "ProduceRun",
    "UsualFetch",
    "encode_fetch",
    "read_fetch",
]
