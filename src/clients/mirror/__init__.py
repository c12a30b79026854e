"""Mirroring: replication of topics from a source cluster to a target cluster, with equal offsets.

`batches` prepares batches and detects divergence (pure), `copy_progress` is the progress of one
partition (pure), `source` and `target` are the two clusters, `mirror` drives the replication.
"""

from .copy_progress import CopyProgress, CopyState
from .mirror import Mirror, MirrorReport
from .source import ClusterSource, MirrorSource
from .target import Target

__all__ = [
    "Mirror",
    "MirrorReport",
    "MirrorSource",
    "ClusterSource",
    "Target",
    "CopyProgress",
    "CopyState",
]
