"""The hot paths of the broker on plain numbers and buffers, compiled, each beside its plain twin.

The compiled module does the usual case only, and leaves every other to the caller, who then takes
the general path. It makes no system call and holds no state between two calls: files, sockets and
logs are the caller's. Both twins give the same results; `tests/property/native` compares them.
"""

from typing import TYPE_CHECKING, Final

from .. import records

if TYPE_CHECKING or not records.COMPILED:
    from ._plain_produce import LogTail, PlacedRequest, ProduceRun
else:
    try:
        from ._produce import LogTail, ProduceRun
    except ImportError:
        from ._plain_produce import LogTail, ProduceRun

COMPILED: Final = ProduceRun.__module__.endswith("._produce")
"""True if the compiled twin is in use. The plain one runs with the plain record codec, too."""

__all__ = ["COMPILED", "LogTail", "PlacedRequest", "ProduceRun"]
