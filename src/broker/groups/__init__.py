"""Consumer groups: who reads which partition, and how far a group has read.

A group lives in one partition of `__consumer_offsets`; the leader of that is its coordinator. All
decisions are pure: a `GroupShard` holds the groups of one partition, takes requests and the time,
and says what to store and what to answer (`decision`). The shell (`shell/`) stores it and lets an
answer go once everything that it rests on is committed. Two protocols are two faces of a group:
`classic/`, in which a member shares the partitions out, and `consumer/` (KIP-848), in which the
coordinator does.

Nothing is imported here: `requests` and `records` take their time, and a broker starts without
them.
"""
