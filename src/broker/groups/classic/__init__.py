"""Classic groups: the members share the partitions out among themselves, by a leader of theirs.

The coordinator only gathers them (join), gives one of them everybody's subscription, and hands its
answer round (sync). `group` is the machine; `subscription` reads the topics of a subscription.
"""

from .group import ClassicGroupMachine

__all__ = ["ClassicGroupMachine"]
