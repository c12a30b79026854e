"""Groups of KIP-848: the coordinator assigns the partitions, and moves each to its new owner only
after the old owner has revoked it.

`group` is the state machine. `state` holds the stored facts, `subscriptions` resolves subscribed
topics, `assignors` computes assignments, `reconciling` moves a member towards its target, `timers`
holds deadlines, `classic_face` serves members of the classic protocol, and `migration` upgrades a
classic group online.
"""

from .group import ConsumerGroupMachine
from .migration import upgrade

__all__ = ["ConsumerGroupMachine", "upgrade"]
