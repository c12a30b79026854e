"""The hot paths of the broker on plain numbers and buffers, compiled, each beside its plain twin.

The compiled modules do the usual case only, and leave every other to the caller, which then takes
the general path. They make no system call and hold no state between two calls: files, sockets and
logs are the caller's. Both twins give the same results; `tests/property/native` compares them.
"""

from ._plain_fetch import FetchPart, FetchResult, FetchTopic, UsualFetch
from ._plain_produce import PlacedRequest
from .twins import COMPILED, ProduceRun, RunTail, encode_fetch, read_fetch, whole_batches

__all__ = [
    "COMPILED",
    "FetchPart",
    "FetchResult",
    "FetchTopic",
    "PlacedRequest",
    "ProduceRun",
    "RunTail",
    "UsualFetch",
    "encode_fetch",
    "read_fetch",
    "whole_batches",
]
