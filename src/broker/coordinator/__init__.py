"""Coordination of groups and transactions: the part that both share.

The state of a coordinator is stored in an internal topic, `__consumer_offsets` or
`__transaction_state`. The leader of a partition is the coordinator of the keys that hash to it. A
pure `Shard` holds the state of one partition: it takes a request and the time, and returns a
`Decision`. The shell (`shell/`) appends its records, and sends replies and starts effects once
everything they depend on is committed.
"""
