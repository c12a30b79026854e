"""Consumer groups: membership, partition assignment and committed offsets.

A group is stored in one partition of `__consumer_offsets`; the leader of that partition is the
group's coordinator. All decisions are pure: a `GroupShard` holds the groups of one partition, takes
a request and the time, and returns records to store and replies (`decision`). The shell (`shell/`)
appends the records and sends a reply once every record it depends on is committed. Two protocols
are supported: `classic_group`, in which the group's leader assigns the partitions, and `consumer/`
(KIP-848), in which the coordinator assigns them.

This package imports nothing: `requests` and `records` take time to import, and a broker starts
without them.
"""
