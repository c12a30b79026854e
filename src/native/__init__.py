"""The hot paths of the broker on plain numbers and buffers, compiled, each beside its plain twin.

The compiled modules do the usual case only, and leave every other to the caller, who then takes the
general path. They make no system call and hold no state between two calls: files, sockets and logs
are the caller's. Both twins give the same results; `tests/property/native` compares them.
"""

from typing import TYPE_CHECKING, Final

from .. import records
from ._plain_fetch import FetchPart, FetchTopic, UsualFetch
from ._plain_produce import PlacedRequest

if TYPE_CHECKING or not records.COMPILED:
    from ._plain_fetch import encode_fetch, read_fetch
    from ._plain_produce import LogTail, ProduceRun
else:
    try:
        from ._fetch import encode_fetch, read_fetch
        from ._produce import LogTail, ProduceRun
    except ImportError:
        from ._plain_fetch import encode_fetch, read_fetch
        from ._plain_produce import LogTail, ProduceRun

COMPILED: Final = ProduceRun.__module__.endswith("._produce")
"""True if the compiled twins are in use. With the plain record codec the plain ones are."""

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
