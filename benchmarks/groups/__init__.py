"""Consumer groups beside Apache Kafka, and a mirror beside a plain loop.

`wire` asks brokers as a member does, one connection each, and `flood` has many connections ask one
thing again and again; `members` are members of groups of both protocols. Parts are `rebalance`,
`rates` (joins and leaves, commits, heartbeats), `idle`, `failover` of coordinators, and `mirror`,
which runs `copying` in processes of their own. `systems` says what is started; `words` is what the
page says of it all.
"""
