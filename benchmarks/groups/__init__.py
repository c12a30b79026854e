"""Consumer groups compared with Apache Kafka, and a mirror compared with a plain loop.

`wire` has the requests of a member over one connection, `flood` repeats one request on many
connections; `members` are members of groups of both protocols. Parts are `rebalance`, `rates`
(joins and leaves, commits, heartbeats), `idle`, `failover` of coordinators, and `mirror`, which
runs `copying` in separate processes. `systems` has the brokers under test; `words` has the text of
the page.
"""
