"""Errors of the network."""

from .base import RetriableError, TransportError


class OutcomeUnknown(
    TransportError, RetriableError, code=13, name="NETWORK_EXCEPTION", status="UNAVAILABLE"
):
    """The outcome of the call is unknown: it may have been executed. Retry idempotent calls; check
    the state before others."""


class ConnectionFailed(
    TransportError, RetriableError, code=13, name="CONNECTION_FAILED", status="UNAVAILABLE"
):
    """No connection was made, so the call was not executed. Check the address, and that the node
    runs."""


class StreamBroken(
    TransportError, RetriableError, code=13, name="STREAM_BROKEN", status="UNAVAILABLE"
):
    """A stream broke before its clean end; any suffix in flight may have arrived. Open another
    stream and continue after the last response."""


class AddressInUse(TransportError, name="ADDRESS_IN_USE", status="ALREADY_EXISTS"):
    """Another process listens on the address. Stop it or use another port."""


class TimedOut(
    RetriableError, TimeoutError, code=7, name="REQUEST_TIMED_OUT", status="DEADLINE_EXCEEDED"
):
    """The deadline passed before the outcome was known. Retry idempotent calls, or allow more
    time. It is a `TimeoutError` of Python too."""


class Overloaded(RetriableError, code=89, name="OVERLOADED", status="RESOURCE_EXHAUSTED"):
    """A bounded queue is full; nothing of the request was done. Retry later."""


class Stopping(RetriableError, code=-1, name="STOPPING", status="UNAVAILABLE"):
    """The node is stopping and accepts no new work. Use another node or wait for its restart."""
