"""What the network itself can say."""

from .base import QuorumlogError


class Lost(QuorumlogError, code=13, name="NETWORK_EXCEPTION", status="UNAVAILABLE", retriable=True):
    """The call's outcome is unknown: it may have been executed or not. Repeat what may be done
    twice; look first where it may not."""


class NotSent(Lost, code=13, name="NOT_SENT", status="UNAVAILABLE", retriable=True):
    """The peer refused the connection: the call was certainly not executed. Check the address, and
    that a node runs there."""


class StreamBroken(
    QuorumlogError, code=13, name="STREAM_BROKEN", status="UNAVAILABLE", retriable=True
):
    """A stream ended without its clean end; any suffix of what was in flight may have arrived.
    Open another one and go on from the last answer."""


class AddressInUse(QuorumlogError, name="ADDRESS_IN_USE", status="ALREADY_EXISTS"):
    """Another process listens on the address. Stop it or take another port."""


class TimedOut(
    QuorumlogError, code=7, name="REQUEST_TIMED_OUT", status="DEADLINE_EXCEEDED", retriable=True
):
    """The deadline passed before the outcome was known. Repeat what may be done twice, or allow
    more time."""


class Overloaded(
    QuorumlogError, code=89, name="OVERLOADED", status="RESOURCE_EXHAUSTED", retriable=True
):
    """A bounded queue is full; nothing of the request was done. Wait and repeat."""


class Stopping(QuorumlogError, code=-1, name="STOPPING", status="UNAVAILABLE", retriable=True):
    """The node is stopping and takes no new work. Ask another node or wait for its restart."""
