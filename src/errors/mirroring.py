"""What mirrors of topics, and those who write past them, can meet."""

from .base import QuorumlogError


class MirrorTopic(QuorumlogError, code=44, name="MIRROR_TOPIC", status="FAILED_PRECONDITION"):
    """The topic is a copy of another cluster's: only `quorumlog mirror` writes it. Write to its
    source, or promote it (`quorumlog mirror promote`)."""


class NotMirror(QuorumlogError, code=44, name="NOT_MIRROR", status="FAILED_PRECONDITION"):
    """The topic is no mirror, no more, or one of another source: nothing is copied into it. Name
    another topic, or delete this one."""


class MirrorOutOfPlace(
    QuorumlogError, code=1, name="MIRROR_OUT_OF_PLACE", status="OUT_OF_RANGE", retriable=True
):
    """What is to be copied does not follow the copy's end; says where that is. Go on from there."""


class MirrorDiverged(QuorumlogError, name="MIRROR_DIVERGED", status="FAILED_PRECONDITION"):
    """The source has other records at offsets that were copied, or ends before the copy does: it
    lost records that were committed. Delete the copy to begin anew, or promote it."""
