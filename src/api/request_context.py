"""The context of a request: its client, its deadline, and the metadata that its answer must
include."""

from collections.abc import Callable

from msgspec import Struct

from ..runtime import ANONYMOUS_CLIENT, CallContext, ClientIdentity


class RequestContext(Struct, frozen=True):
    """The properties of a request beside its arguments."""

    deadline_ms: int  # on the node's monotonic clock
    min_metadata_offset: int = 0  # a read is answered once this broker has applied this offset
    client: ClientIdentity = ANONYMOUS_CLIENT
    is_forwarded: bool = False  # by another node, on behalf of the client
    check_session: Callable[[], None] | None = None  # raises after the end of the client's session


def context_of(call: CallContext, min_metadata_offset: int = 0) -> RequestContext:
    """Return the context of a call over gRPC."""
    return RequestContext(
        call.deadline_ms,
        min_metadata_offset,
        call.client,
        is_forwarded=call.is_forwarded,
        check_session=call.check_session,
    )
