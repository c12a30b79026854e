"""Errors of the network."""

from .base import QuorumlogError


class OutcomeUnknown(
    QuorumlogError, code=13, name="NETWORK_EXCEPTION", status="UNAVAILABLE", retriable=True
):
    """The outcome of the call is unknown: it may have been executed. Retry idempotent calls; check
    the state before others."""


class ConnectionFailed(
    OutcomeUnknown, code=13, name="NOT_SENT", status="UNAVAILABLE", retriable=True
):
    """The peer refused the connection, so the call was not executed. Check the address, and that
    the node runs."""


class StreamBroken(
    QuorumlogError, code=13, name="STREAM_BROKEN", status="UNAVAILABLE", retriable=True
):
    """A stream broke before its clean end; any suffix in flight may have arrived. Open another
    stream and continue after the last response."""


class AddressInUse(QuorumlogError, name="ADDRESS_IN_USE", status="ALREADY_EXISTS"):
    """Another process listens on the address. Stop it or use another port."""


class TimedOut(
    QuorumlogError, code=7, name="REQUEST_TIMED_OUT", status="DEADLINE_EXCEEDED", retriable=True
):
    """The deadline passed before the outcome was known. Retry idempotent calls, or allow more
    time."""


class Overloaded(
    QuorumlogError, code=89, name="OVERLOADED", status="RESOURCE_EXHAUSTED", retriable=True
):
    """A bounded queue is full; nothing of the request was done. Retry later."""


class Stopping(QuorumlogError, code=-1, name="STOPPING", status="UNAVAILABLE", retriable=True):
    """The node is stopping and accepts no new work. Use another node or wait for its restart."""
