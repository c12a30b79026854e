"""Mirroring: replication of topics from a source cluster to a target cluster, with equal offsets.

`batches` prepares batches and detects divergence (pure), `partition_copy` is the progress of one
partition (pure), `source` and `target` are the two clusters, `mirror` drives the replication.
"""

from .mirror import Mirror, MirrorReport
from .partition_copy import Course, State
from .source import QuorumlogSource, Source
from .target import Target

__all__ = ["Mirror", "MirrorReport", "Source", "QuorumlogSource", "Target", "Course", "State"]
