"""The choice between the compiled modules and their plain twins."""

from typing import TYPE_CHECKING, Final

from .. import records

if TYPE_CHECKING or not records.COMPILED:
    from ._plain_fetch import encode_fetch, read_fetch, whole_batches
    from ._plain_produce import ProduceRun, RunTail
else:
    try:
        from ._fetch import encode_fetch, read_fetch, whole_batches
        from ._produce import ProduceRun, RunTail
    except ImportError:
        from ._plain_fetch import encode_fetch, read_fetch, whole_batches
        from ._plain_produce import ProduceRun, RunTail

COMPILED: Final = ProduceRun.__module__.endswith("._produce")
"""True if the compiled twins are in use. With the plain record codec the plain ones are."""

__all__ = ["COMPILED", "ProduceRun", "RunTail", "encode_fetch", "read_fetch", "whole_batches"]
