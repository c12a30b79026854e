"""Groups of KIP-848: the coordinator assigns the partitions, and moves each to its new owner only
after the old owner has revoked it.

`group` is the state machine, `core` its mechanics: group epochs and target assignments. `state`
holds the stored facts, `subscriptions` resolves subscribed topics, `assignors` computes
assignments, `heartbeat` serves members, and `reconciliation` moves a member towards its target.
`classic_members` serves members of the classic protocol, and `classic_upgrade` upgrades a classic
group online.
"""

from .classic_upgrade import upgrade
from .group import ConsumerGroupMachine

__all__ = ["ConsumerGroupMachine", "upgrade"]
