"""The context of a request: its deadline, and the metadata that its answer must include."""

from msgspec import Struct


class RequestContext(Struct, frozen=True):
    """The properties of a request beside its arguments."""

    deadline_ms: int  # on the node's monotonic clock
    min_metadata_offset: int = 0  # a read is answered once this broker has applied this offset
