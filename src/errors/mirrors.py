"""Errors of mirror topics and their producers."""

from .base import QuorumlogError, RetriableError


class MirrorTopic(QuorumlogError, code=44, name="MIRROR_TOPIC", status="FAILED_PRECONDITION"):
    """The topic is a mirror of another cluster's topic, and only `quorumlog mirror` writes it.
    Write to the source, or promote the mirror (`quorumlog mirror promote`)."""


class NotMirror(QuorumlogError, code=44, name="NOT_MIRROR", status="FAILED_PRECONDITION"):
    """The topic is not a mirror of this source, so nothing is copied. Use another topic, or delete
    this one."""


class MirrorOutOfPlace(RetriableError, code=1, name="MIRROR_OUT_OF_PLACE", status="OUT_OF_RANGE"):
    """The batch does not continue the mirror's end; the message has the end offset. Continue from
    there."""


class MirrorDiverged(QuorumlogError, name="MIRROR_DIVERGED", status="FAILED_PRECONDITION"):
    """The source has other records at copied offsets, or ends before the mirror: it lost committed
    records. Delete the mirror and copy again, or promote it."""
