"""The id types: plain ints, strings and bytes that the type checker keeps apart.

Owns names only; nothing here allocates or validates. Values drawn at random come from `Entropy`.
"""

from typing import NewType

NodeId = NewType("NodeId", int)
"""Id of a node, >= 0; -1 where the field's protocols say "none"."""

Epoch = NewType("Epoch", int)
"""Counts leaderships: Raft's term for the metadata quorum, the leader epoch for a partition; >=
0."""

Offset = NewType("Offset", int)
"""Position of a record in a log, >= 0; an end offset is exclusive."""

TopicId = NewType("TopicId", bytes)
"""16 bytes drawn when the topic is created."""

DirectoryId = NewType("DirectoryId", bytes)
"""16 bytes drawn when a data directory is formatted: a wiped disk is a new voter (KIP-853)."""

ClusterId = NewType("ClusterId", str)
"""22 characters of base64url drawn when the cluster is formatted."""

NO_NODE = NodeId(-1)
NO_EPOCH = Epoch(-1)
