"""Classic groups: the group's leader, one of the members, assigns the partitions.

The coordinator collects the members (join), sends the leader all subscriptions, and distributes the
leader's assignments (sync). `group` validates requests, `generations` is the rebalance state
machine, and `members` holds the members.
"""

from .group import ClassicGroupMachine

__all__ = ["ClassicGroupMachine"]
