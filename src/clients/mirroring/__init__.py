"""Mirroring: topics of one cluster copied into another one, offset by offset.

`batches` says what of a source is copied, and whether two logs are one (pure); `course` is what is
known of one partition's copy (pure); `source` and `target` are the two sides; `mirror` ties them.
"""

from .course import Course, State
from .mirror import Mirror, MirrorReport
from .source import QuorumlogSource, Source
from .target import Target

__all__ = ["Mirror", "MirrorReport", "Source", "QuorumlogSource", "Target", "Course", "State"]
