"""Classic groups: the group's leader, one of the members, assigns the partitions.

The coordinator collects the members (join), sends the leader all subscriptions, and distributes the
leader's assignments (sync). `group` is the state machine; `subscription` decodes the topics of a
subscription.
"""

from .group import ClassicGroupMachine

__all__ = ["ClassicGroupMachine"]
