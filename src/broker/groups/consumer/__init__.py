"""Groups of KIP-848: the coordinator shares the partitions out, and moves each to its new owner
only after the old one has let it go.

`group` is the machine. `state` is what the log says of a group, `subscriptions` what its members
want to read, `assignors` who is to read what, `reconciling` one step of a member towards that,
`timers` when somebody has been silent for too long, `classic_face` how members of the classic
protocol are served in it, and `migration` how a group changes its protocol while it works.
"""

from .group import ConsumerGroupMachine
from .migration import upgrade

__all__ = ["ConsumerGroupMachine", "upgrade"]
